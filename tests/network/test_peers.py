"""Peers without a coordinator: processes on loopback do what the simulation does, and survive one of them."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.cli.main import main
from fedbandit.cli.peer import security
from fedbandit.cli.population import User
from fedbandit.cli.serve import bind
from fedbandit.machines.peer import PeerMachine
from fedbandit.messages import Ask, Receipt, Tell, encode
from fedbandit.network.certificates import init_keys
from fedbandit.network.client.client import Arm
from fedbandit.network.coordinator.limits import Limits
from fedbandit.network.credentials import Credentials, add_credential
from fedbandit.network.peer.peering import Peering
from fedbandit.network.peer.rounds import MOST_BUNDLES, PeerRounds, bundle, unbundle
from fedbandit.network.stores import MemoryStore, Store
from fedbandit.sums import Sums
from fedbandit.testing.faulty import Crash, CrashingStore

RING: dict[int, tuple[int, ...]] = {0: (1, 3), 1: (0, 2), 2: (1, 3), 3: (0, 2)}
LINE: dict[int, tuple[int, ...]] = {0: (1,), 1: (0, 2), 2: (1,)}
ROUNDS, DIM, TTL = 60, 3, 2


def machine(i: int, epsilon: float = float("inf"), graph: dict[int, tuple[int, ...]] = RING) -> PeerMachine:
    world = fb.World(n_clients=len(graph), dim=DIM, horizon=len(graph) * ROUNDS, per_round=len(graph))
    system = fb.feducb(epsilon=epsilon, topology="complete", ttl=TTL)
    return PeerMachine(i, system, world, neighbours=graph[i])


def peer(i: int, store: Store | None = None, epsilon: float = float("inf")) -> PeerRounds:
    one = machine(i, epsilon)
    world = fb.World(n_clients=4, dim=DIM, horizon=4 * ROUNDS, per_round=4)
    limits = Limits.of(fb.feducb(epsilon=epsilon, topology="ring", ttl=TTL).told(world), world, 10.0)
    return PeerRounds(MemoryStore() if store is None else store, one, limits, lambda: 41 + i)


class Agent:
    """A machine as a user sees it."""

    def __init__(self, one: PeerMachine) -> None:
        self.machine = one
        self.facts: dict[str, float] = {}

    def select(self, arms: Any) -> Arm:
        choice = self.machine.select(arms)
        return Arm(choice.arm, choice.number)

    def observe(self, reward: float, id: int | None = None) -> None:
        assert id is not None
        self.machine.observe(id, reward)


def simulated(graph: dict[int, tuple[int, ...]], epsilon: float) -> tuple[list[PeerMachine], int]:
    """What peers know after a simulation in which every message goes one hop a round; how often they told."""
    peers = [machine(i, epsilon, graph) for i in graph]
    users = [User(i, fb.World(len(graph), DIM, len(graph) * ROUNDS), 10, 0.0, 0) for i in graph]
    told = 0
    for _ in range(ROUNDS):
        for one, user in zip(peers, users, strict=True):
            user.meet(Agent(one))
        for sender, receiver, message in [(one.member, *sent) for one in peers for sent in one.send()]:
            told += isinstance(message, Tell)
            peers[receiver].receive(sender, message)
        for one in peers:
            one.end_round()
    return peers, told


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


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


def heard(one: PeerMachine) -> dict[str, int]:
    """How many observations of each peer one has heard of."""
    found: dict[str, int] = {}
    for (origin, _), tell in sorted(one.node.told.items()):
        found[str(origin)] = found.get(str(origin), 0) + tell.sums.n
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


def exchange(peers: list[PeerRounds], i: int) -> None:
    """Peer i sends what its neighbours have not acknowledged."""
    for j, kept in peers[i].waiting.items():
        for number, data in sorted(kept.items()):
            peers[j].take(i, number, data)


def test_one_that_crashes_anywhere_tells_the_same_again() -> None:
    """Private peers, one of which crashes before or after any write: what it had sent, it sends again as it was."""
    rng = np.random.default_rng(0)
    stores = [CrashingStore() for _ in range(4)]
    peers = [peer(i, stores[i], epsilon=2.0) for i in range(4)]
    users = [User(i, fb.World(4, DIM, 4 * ROUNDS), 10, 0.0, 0) for i in range(4)]
    sent: dict[tuple[int, int, int], bytes] = {}
    crashes = 0
    for _ in range(90):
        for i in range(4):
            stores[i].fuse = str(rng.choice(["", "", "", "before", "after"]))  # type: ignore[assignment]
            try:
                if not peers[i].acted:
                    users[i].meet(Agent(peers[i].machine))
                    peers[i].finish_acting()
                exchange(peers, i)
                if rng.random() < 0.3:
                    exchange(peers, i)
                for j, number in peers[i].end_round().items():
                    peers[j].acknowledged(i, number)
            except Crash:
                crashes += 1
                stores[i].fuse = ""
                spent = [one.stream.spent for one in peers[i].machine.estimators if one.stream is not None]
                peers[i] = peer(i, stores[i], epsilon=2.0)
                again = [one.stream.spent for one in peers[i].machine.estimators if one.stream is not None]
                assert all(now in (before, before - 1) for now, before in zip(again, spent, strict=True))
            for kept in peers[i].waiting.values():
                for data in kept.values():
                    for message in unbundle(data):
                        if isinstance(message, Tell):
                            identity = (message.member, message.estimator, message.sequence)
                            body = message.sums.V.tobytes() + message.sums.b.tobytes()
                            assert sent.setdefault(identity, body) == body, "noise was drawn twice"
    assert crashes > 20
    assert len(sent) >= 8
    for one in peers:
        for (origin, g), tell in one.machine.node.told.items():
            own = peers[origin].machine.node.told[origin, g]
            assert tell.sequence <= own.sequence
            if tell.sequence == own.sequence:
                assert np.array_equal(tell.sums.V, own.sums.V)
        assert sum(one.machine.node.own(g).n for g in range(TTL)) <= one.machine.observed


def test_a_neighbour_that_is_down_holds_nobody_up_for_long_and_catches_up() -> None:
    peers = [peer(i) for i in range(4)]
    users = [User(i, fb.World(4, DIM, 4 * ROUNDS), 10, 0.0, 0) for i in range(4)]

    def act(i: int, up: tuple[int, ...]) -> None:
        users[i].meet(Agent(peers[i].machine))
        peers[i].finish_acting()
        exchange([one if k in up else peer(k) for k, one in enumerate(peers)], i)

    def one_round(up: tuple[int, ...]) -> None:
        for i in up:
            act(i, up)
        while (late := min(up, key=lambda i: peers[i].round)) and peers[late].round < peers[up[0]].round:
            peers[late].end_round()  # the others wait for it
            act(late, up)
        for i in up:
            for j, number in peers[i].end_round().items():
                if j in up:
                    peers[j].acknowledged(i, number)

    for _ in range(5):
        one_round((0, 1, 2, 3))
    assert peers[1].missing() == [0, 2]
    for _ in range(40):
        one_round((0, 1, 3))
    assert peers[1].down == {2}
    assert peers[1].missing() == [0], "nobody waits for the one that is down"
    assert len(peers[1].waiting[2]) <= MOST_BUNDLES, "what nobody takes does not grow for ever"
    for _ in range(3):
        one_round((0, 1, 2, 3))
    assert peers[2].machine.rounds == peers[1].machine.rounds, "it goes on where the others are"
    assert not peers[1].down
    newest = {key: tell.sequence for key, tell in peers[1].machine.node.told.items() if key[0] == 1}
    assert newest
    for key, sequence in newest.items():
        assert peers[2].machine.node.told[key].sequence == sequence, "it has heard what it missed"


@pytest.mark.parametrize(
    ("sender", "data", "sentence"),
    [
        (2, b"", "not a neighbour"),
        (1, b"\x05\0\0\0ab", "ends in the middle"),
        (1, bundle([Receipt(1, 1)]), "does not take a Receipt"),
        (1, bundle([Ask(1, 7, 1, 1)]), "estimator 7"),
        (1, bundle([Ask(1, 0, 1, 99)]), "99 hops"),
        (1, bundle([Ask(4, 0, 1, 1)]), "peer 4"),
        (1, bundle([Tell(1, 0, 1, 1, Sums(-np.eye(DIM), np.zeros(DIM), 1))]), "semi-definite"),
        (1, bundle([Tell(1, 0, 1, 1, Sums(np.eye(2), np.zeros(2), 9))]), "dimension"),
    ],
)
def test_nothing_wrong_gets_in(sender: int, data: bytes, sentence: str) -> None:
    one = peer(0)
    before = one.state().header
    with pytest.raises(fb.FedbanditError, match=sentence):
        one.take(sender, 1, data)
    assert one.state().header == before
    assert one.heard == {1: 0, 3: 0}


def test_nobody_is_sent_beyond_the_last_round() -> None:
    one = peer(0)
    with pytest.raises(fb.FedbanditError, match="rounds at most"):
        one.take(1, 2**40, bundle([]))
    assert one.heard == {1: 0, 3: 0}


def test_a_peer_that_lost_its_state_is_recognised() -> None:
    one = peer(0)
    one.meet(1, 5)
    one.meet(1, 5)
    with pytest.raises(fb.FedbanditError, match="lost its state"):
        one.meet(1, 6)
    store = MemoryStore()
    assert peer(0, store).incarnation == peer(0, store).incarnation
    assert len(encode(Ask(0, 0, 1, 1))) > 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--neighbours", "one=127.0.0.1:1"], "must be like 1=127.0.0.1:9001"),
        (["--neighbours", "1=127.0.0.1"], "not an address"),
        (["--neighbours", "9=127.0.0.1:9"], "a neighbour is 9"),
        (["--neighbours", "1=10.0.0.1:9"], "not loopback"),
        (["--neighbours", "1=127.0.0.1:9", "--member", "4"], "--member is 4"),
        (["--neighbours", "1=127.0.0.1:9", "--keys", "nowhere"], "--token-file"),
    ],
)
def test_a_peer_says_what_is_wrong(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["peer", "--member", "0", "--peers", "4", "--dim", "3", "--listen", "127.0.0.1:0", "--epsilon", "inf"]
    assert main([*given, *words]) == 2
    assert sentence in capsys.readouterr().err


def test_keys_keep_strangers_out(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    init_keys(keys, ["127.0.0.1"])
    for i in range(2):
        (tmp_path / f"peer-{i}.token").write_text(add_credential(keys, f"peer-{i}", "client"))
    ports = free_ports(2)
    world = fb.World(n_clients=2, dim=DIM, horizon=80, per_round=2)
    system = fb.feducb(epsilon=float("inf"), topology="complete", ttl=1)
    terms = {"peers": 2}

    def make(i: int, token: str) -> tuple[Peering, Any, User]:
        options = argparse.Namespace(keys=keys, token_file=tmp_path / token)
        tls, trust, secret = security(options)
        limits = Limits.of(system.told(world), world, 10.0)
        rounds = PeerRounds(MemoryStore(), PeerMachine(i, system, world), limits, lambda: 7 + i)
        near = {1 - i: ("127.0.0.1", ports[1 - i])}
        peering = Peering(rounds, near, terms, patience=20, credentials=Credentials(keys), token=secret, trust=trust)
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
