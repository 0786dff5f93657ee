"""Servers for tests: a real PostgreSQL on a socket of its own, and coordinators on loopback."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest


def _postgres_programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return None if on_path is None else Path(on_path).parent


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Path]:
    """The folder with the socket of a server that this session has to itself; without PostgreSQL a test is skipped."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    programs = _postgres_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: there is no initdb")
    folder = Path(tempfile.mkdtemp(prefix="fb-pg-"))
    user = "nobody" if os.geteuid() == 0 else None  # the server refuses to run as root
    folder.chmod(0o777)
    data = folder / "data"
    initdb: list[str | Path] = [
        programs / "initdb",
        "-D",
        data,
        "-U",
        "fedbandit",
        "-A",
        "trust",
        "--no-sync",
        "-E",
        "UTF8",
    ]
    made = subprocess.run(initdb, user=user, capture_output=True, text=True, check=False, cwd=folder)
    if made.returncode != 0:
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(f"PostgreSQL cannot be set up here: {made.stderr.strip()[-200:]}")
    server = subprocess.Popen(
        [programs / "postgres", "-D", data, "-k", folder, "-c", "listen_addresses="],
        user=user,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(300):
            ready = subprocess.run([programs / "pg_isready", "-h", folder], capture_output=True, check=False)
            if ready.returncode == 0:
                break
            time.sleep(0.1)
        else:
            pytest.skip("PostgreSQL did not start")
        yield folder
    finally:
        server.terminate()
        server.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres_server: Path) -> str:
    """The URL of a database that a test has to itself: a store, and the lock of its coordinator, are in a database."""
    import psycopg

    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(f"postgresql://fedbandit@/postgres?host={postgres_server}", autocommit=True) as db:
        db.execute(f'CREATE DATABASE "{name}"')
    return f"postgresql://fedbandit@/{name}?host={postgres_server}"


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store can be, of each kind; it is empty."""
    return str(tmp_path / "store.db") if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))
