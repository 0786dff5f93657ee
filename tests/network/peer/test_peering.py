"""Peers on sockets: processes on loopback do what the simulation does, and survive one of them."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import fedbandit as fb
from fedbandit.cli.peer import security
from fedbandit.cli.population import User
from fedbandit.machines.peer import PeerMachine
from fedbandit.network.addresses import bind
from fedbandit.network.certificates import init_keys
from fedbandit.network.coordinator.limits import Limits
from fedbandit.network.credentials import Credentials, add_credential
from fedbandit.network.peer.peering import Peering
from fedbandit.network.peer.rounds import PeerRounds
from fedbandit.network.stores import MemoryStore
from tests.network.peer.peers import DIM, LINE, RING, ROUNDS, TTL, Agent, free_ports, heard, simulated


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


def test_keys_keep_strangers_out(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    init_keys(keys, ["127.0.0.1"])
    for i in range(2):
        (tmp_path / f"peer-{i}.token").write_text(add_credential(keys, f"peer-{i}", "client"))
    ports = free_ports(2)
    world = fb.World(n_clients=2, dim=DIM, horizon=80, per_round=2)
    system = fb.feducb(epsilon=float("inf"), topology="unknown", ttl=1)
    agreement = {"peers": 2}

    def make(i: int, token: str) -> tuple[Peering, Any, User]:
        options = argparse.Namespace(keys=keys, token_file=tmp_path / token)
        tls, trust, secret = security(options)
        limits = Limits.of(system.told(world), world, 10.0)
        rounds = PeerRounds(MemoryStore(), PeerMachine(i, system, world), limits, lambda: 7 + i)
        near = {1 - i: ("127.0.0.1", ports[1 - i])}
        peering = Peering(
            rounds, near, agreement, patience=20, credentials=Credentials(keys), token=secret, trust=trust
        )
        return peering, tls, User(i, world, 10, 0.0, 0)

    async def run(one: Peering, tls: Any, user: User, i: int, until: int) -> None:
        await one.run(lambda: user.meet(Agent(one.rounds.machine)), until, bind("127.0.0.1", ports[i]), tls)

    async def both() -> tuple[Peering, Peering]:
        first, second = make(0, "peer-0.token"), make(1, "peer-1.token")
        await asyncio.gather(run(*first, 0, 40), run(*second, 1, 40))
        return first[0], second[0]

    one, other = asyncio.run(both())
    assert one.problem is None
    assert other.problem is None
    for mine, theirs in ((one, other), (other, one)):
        assert mine.rounds.machine.rounds == 40
        i = mine.rounds.machine.member
        assert theirs.rounds.machine.node.told[i, 0].sums.n == mine.rounds.machine.node.own(0).n > 0

    async def with_a_thief() -> tuple[Peering, Peering]:
        honest, thief = make(0, "peer-0.token"), make(1, "peer-0.token")
        honest[0].patience = thief[0].patience = 1.0
        await asyncio.gather(run(*honest, 0, 2), run(*thief, 1, 2))
        return honest[0], thief[0]

    honest, thief = asyncio.run(with_a_thief())
    assert "does not let anyone speak as peer-1" in str(thief.problem)
    assert honest.rounds.heard == {1: 0}
    assert honest.rounds.machine.rounds == 2, "it went on alone"
