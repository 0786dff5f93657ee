"""A PostgreSQL for benchmarks: the one whose URL FEDBANDIT_POSTGRES holds, or one of its own, with `fsync` as it is."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def postgres() -> Iterator[Callable[[], str] | None]:
    """What gives the URL of a new database; None if PostgreSQL is not installed."""
    if "FEDBANDIT_POSTGRES" in os.environ:
        yield lambda: new_database(os.environ["FEDBANDIT_POSTGRES"])
        return
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    initdb = found[-1] if found else shutil.which("initdb")
    if initdb is None:
        yield None
        return
    folder, programs = Path(tempfile.mkdtemp(prefix="fb-pg-")), Path(initdb).parent
    folder.chmod(0o777)
    user = "nobody" if os.geteuid() == 0 else None  # the server refuses to run as root
    words: list[str | Path] = [initdb, "-D", folder / "data", "-U", "fedbandit", "-A", "trust", "-E", "UTF8"]
    subprocess.run(words, user=user, check=True, cwd=folder, stdout=subprocess.DEVNULL)
    words = [programs / "postgres", "-D", folder / "data", "-k", folder, "-c", "listen_addresses="]
    with subprocess.Popen(words, user=user, cwd=folder, stdout=-3, stderr=-3) as server:  # to nowhere
        try:
            ready: list[str | Path] = [programs / "pg_isready", "-q", "-h", folder]
            while subprocess.run(ready, check=False).returncode != 0:
                time.sleep(0.1)
            yield lambda: new_database(f"postgresql://fedbandit@/postgres?host={folder}")
        finally:
            server.terminate()
            server.wait()
            shutil.rmtree(folder, ignore_errors=True)


def new_database(url: str) -> str:
    """The URL of an empty database beside the one of this URL."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    name = f"bench_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f'CREATE DATABASE "{name}"')  # type: ignore[arg-type, unused-ignore]
    old = conninfo_to_dict(url)["dbname"]
    return url.replace(f"/{old}", f"/{name}", 1)
