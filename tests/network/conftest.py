"""Servers for tests: a real PostgreSQL on a socket of its own, and coordinators on loopback."""

from __future__ import annotations

import os
import shutil
import signal
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


class PostgresServer:
    """A server with a folder of its own, that can be ended and started again."""

    def __init__(self) -> None:
        pytest.importorskip("psycopg", reason="psycopg is not installed")
        programs = _postgres_programs()
        if programs is None:
            pytest.skip("PostgreSQL is not installed: there is no initdb")
        self.programs = programs
        self.folder = Path(tempfile.mkdtemp(prefix="fb-pg-"))
        self.user = "nobody" if os.geteuid() == 0 else None  # the server refuses to run as root
        self.folder.chmod(0o777)
        options = ["-U", "fedbandit", "-A", "trust", "--no-sync", "-E", "UTF8"]
        words: list[str | Path] = [programs / "initdb", "-D", self.folder / "data", *options]
        made = subprocess.run(words, user=self.user, capture_output=True, text=True, check=False, cwd=self.folder)
        if made.returncode != 0:
            shutil.rmtree(self.folder, ignore_errors=True)
            pytest.skip(f"PostgreSQL cannot be set up here: {made.stderr.strip()[-200:]}")

    def start(self) -> None:
        """Start it, and wait until it answers."""
        folder = self.folder
        words: list[str | Path] = [
            self.programs / "postgres",
            "-D",
            folder / "data",
            "-k",
            folder,
            "-c",
            "listen_addresses=",
            "-c",
            "wal_recycle=off",  # what was erased is not in the write-ahead log either
            "-c",
            "max_prepared_transactions=4",
        ]
        self.process = subprocess.Popen(
            [*words, "-c", "fsync=off"],  # processes are killed here, never the machine
            user=self.user,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(300):
            ready = subprocess.run([self.programs / "pg_isready", "-h", folder], capture_output=True, check=False)
            if ready.returncode == 0:
                return
            time.sleep(0.1)
        pytest.skip("PostgreSQL did not start")

    def end(self) -> None:
        """End it at once, as a crash would."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(30)

    def database(self) -> str:
        """The URL of a new database."""
        import psycopg

        name = f"test_{uuid.uuid4().hex}"
        with psycopg.connect(f"postgresql://fedbandit@/postgres?host={self.folder}", autocommit=True) as db:
            db.execute(f'CREATE DATABASE "{name}"')
        return f"postgresql://fedbandit@/{name}?host={self.folder}"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server that this session has to itself; without PostgreSQL a test is skipped."""
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.end()
        shutil.rmtree(server.folder, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """The URL of a database that a test has to itself, with the locks of its coordinators."""
    return postgres.database()


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store can be, of each kind; it is empty."""
    return str(tmp_path / "store.db") if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))
