"""A relay in a process of its own, to be killed and started again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.network.servers import get_json
from tests.network.test_kill import alive
from tests.waiting import eventually


class Relay:
    """A relay of the federation `shops`, on a port that it keeps; `words` are more flags; `adds`: it has a store."""

    def __init__(self, folder: Path, *upstream: str, words: tuple[str, ...] = (), adds: bool = True) -> None:
        if adds:
            words = (*words, "--store", str(folder / "relay.db"), "--forward", "at-once")
        self.folder, self.port, self.words = folder, 0, words
        self.upstream = [word for url in upstream for word in ("--upstream", url)]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Its address, when it answers."""
        out = self.folder / "relay.out"
        words = [sys.executable, "-m", "fedbandit", "relay", "--json", *self.upstream, *self.words]
        words += ["--federation", "shops", "--port", str(self.port)]
        with out.open("wb") as said, (self.folder / "relay.err").open("ab") as errors:
            self.process = subprocess.Popen(words, stdout=said, stderr=errors)
        eventually(lambda: b"}" in out.read_bytes())
        url = str(json.loads(out.read_text())["address"])
        self.port = int(url.rpartition(":")[2])
        eventually(lambda: url.startswith("https") or alive(url))  # its authority is known to clients only
        return url

    def end(self, how: int) -> None:
        """Send a signal, and wait for the end."""
        assert self.process is not None
        os.kill(self.process.pid, how)
        self.process.wait()
        self.process = None


def upstream(url: str) -> dict[str, Any]:
    """What a relay says about the coordinator above it, and about what went up."""
    return dict(get_json(f"{url}/api/overview")["federations"][0]["upstream"])
