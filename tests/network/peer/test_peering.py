"""Peers on sockets: processes on loopback do what the simulation does, and survive one of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.network.peer.peers import DIM, LINE, RING, ROUNDS, TTL, free_ports, heard, simulated


def start(i: int, ports: list[int], folder: Path, *more: str) -> subprocess.Popen[str]:
    count = len(ports)
    near = ",".join(f"{j}=127.0.0.1:{ports[j]}" for j in (RING if count == 4 else LINE)[i])
    words = [sys.executable, "-m", "fedbandit", "peer", "--member", str(i), "--peers", str(count), "--dim", str(DIM),
             "--json", "--listen", f"127.0.0.1:{ports[i]}", "--neighbours", near, "--ttl", str(TTL),
             "--rounds", str(ROUNDS), "--state", str(folder / f"peer-{i}.db"), *more]  # fmt: skip
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def outcome(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    found: dict[str, Any] = json.loads(output)
    return found


def test_processes_do_what_the_simulation_does(tmp_path: Path) -> None:
    ports = free_ports(4)
    processes = [start(i, ports, tmp_path, "--epsilon", "inf", "--patience", "150") for i in RING]
    reports = [outcome(process) for process in processes]
    peers, told = simulated(RING, float("inf"))
    assert sum(report["told"] for report in reports) == told > 0
    for report, one in zip(reports, peers, strict=True):
        assert (report["rounds"], report["observed"], report["problem"]) == (ROUNDS, ROUNDS, None)
        assert report["heard"] == heard(one)
        assert report["trace"] == pytest.approx(sum(tell.sums.V.trace() for tell in one.node.told.values()))


def test_a_private_peer_is_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    """The others wait for it; in the end all have told and heard as much as if nothing had happened."""
    pytest.importorskip("opendp", reason="OpenDP is not installed")
    ports = free_ports(3)
    options = ("--patience", "150", "--pace", "20")
    processes = [start(i, ports, tmp_path, *options) for i in LINE]
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline and not (tmp_path / "peer-1.db").exists():
        time.sleep(0.1)
    time.sleep(1.0)
    os.kill(processes[1].pid, signal.SIGKILL)
    processes[1].communicate()
    processes[1] = start(1, ports, tmp_path, *options)
    reports = [outcome(process) for process in processes]
    peers, told = simulated(LINE, 1.0)
    assert sum(report["told"] for report in reports) == told > 0
    for report, one in zip(reports, peers, strict=True):
        assert (report["rounds"], report["observed"], report["problem"]) == (ROUNDS, ROUNDS, None)
        assert report["heard"] == heard(one)
        assert "secure" in report["guarantee"]
