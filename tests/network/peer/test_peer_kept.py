"""What a peer keeps: under its terms, through full disks, forks, ends and signals."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.machines.peer import PeerMachine
from fedbandit.messages import Tell
from fedbandit.network.peer import peering
from fedbandit.network.peer.rounds import PeerRounds
from fedbandit.network.peer.terms import Terms
from fedbandit.network.stores import MemoryStore, StoreError
from tests.network.peer.peers import free_ports
from tests.network.peer.test_peer import make, visit
from tests.network.peer.test_peering import start
from tests.waiting import eventually


def test_a_state_is_opened_under_its_own_terms_only(tmp_path: Path) -> None:
    """One that had released at ε = 8 opened with ε = 1, and claimed that."""
    pytest.importorskip("opendp", reason="OpenDP is not installed")
    ports, rng = free_ports(2), np.random.default_rng(0)
    given: dict[str, Any] = {"state": tmp_path / "0.db", "patience": 0.1, "epsilon": 8.0, "observations": 500}
    with make(0, ports, **given) as one:
        visit(one, rng, 40)
        eventually(lambda: one.status()["told"] > 0)
    for name, value in (("epsilon", 1.0), ("epsilon", math.inf), ("delta", 1e-3), ("observations", 900), ("ttl", 2)):
        with pytest.raises(fb.FedbanditError, match=f"^{name} is .* with {name} = .*open it with that"):
            make(0, ports, **{**given, name: value})
    with pytest.raises(fb.FedbanditError, match="is of peer 0, not of peer 1"):
        make(1, ports, **given)
    with make(0, ports, **{**given, "reward_bound": 2.0}) as one:  # its noise is the same
        assert one.guarantee.epsilon == 8.0
        assert one.status()["observed"] == 40


def test_what_may_change_does() -> None:
    terms = Terms(peers=3, dim=2, epsilon=math.inf)
    for other in ({"peers": 4}, {"peers": 2}, {"observations": 10_100}, {"reward_bound": 2.0}, {}):
        terms.require_sound_change(Terms(**{**terms.as_json(), "epsilon": math.inf, **other}), 0, "'0.db'")
    with pytest.raises(fb.FedbanditError, match=r"dim is 3, but the state in '0.db' is of a peer with dim = 2"):
        terms.require_sound_change(Terms(peers=3, dim=3, epsilon=math.inf), 0, "'0.db'")
    assert Terms.of_json(json.loads(json.dumps(terms.as_json()))) == terms
    for wrong in ({"peers": 1}, {"dim": 0}, {"ttl": 0}, {"observations": 1.5}, {"epsilon": "x"}, {"delta": 2.0}):
        with pytest.raises(fb.FedbanditError, match=f"^{next(iter(wrong))} is "):
            Terms(**{"peers": 3, "dim": 2, **wrong})  # type: ignore[arg-type]


class FullStore(MemoryStore):
    """A store on a disk that may be full."""

    full = False

    def append(self, journal: str, entries: Any, *, durable: bool = True) -> None:
        """Add entries, if there is room."""
        self._require_room()
        super().append(journal, entries, durable=durable)

    def replace(self, journal: str, snapshot: bytes, *, durable: bool = True) -> None:
        """Put a snapshot, if there is room."""
        self._require_room()
        super().replace(journal, snapshot, durable=durable)

    def _require_room(self) -> None:
        if self.full:
            raise StoreError("The store cannot be written: it is full.")


def rounds(i: int, store: MemoryStore, epsilon: float = math.inf) -> PeerRounds:
    terms = Terms(peers=2, dim=3, observations=500, epsilon=epsilon)
    return PeerRounds(store, PeerMachine(i, terms.system, terms.world, neighbours=(1 - i,)), terms, lambda: 7 + i)


def test_nothing_that_is_not_in_the_store_is_sent_or_acknowledged() -> None:
    store, rng = FullStore(), np.random.default_rng(0)
    one, other = rounds(0, store, 2.0), rounds(1, MemoryStore(), 2.0)
    failures = 0

    def attempt(change: Callable[[], object]) -> None:
        """Make a change, on a disk that may be full; in the end there is room."""
        nonlocal failures
        store.full = bool(rng.random() < 0.4)
        before = one.to_send(1), dict(one.confirmed)
        try:
            change()
        except StoreError:
            failures += 1
        if one.problem is not None:
            assert (one.to_send(1), one.confirmed) == before
        again = rounds(0, store.copy(), 2.0)  # what there is if it crashes now
        assert again.confirmed == one.confirmed
        assert dict(one.to_send(1)).items() <= again.waiting[1].items()
        for g, estimator in enumerate(again.machine.estimators):
            assert estimator.stream is not None
            assert estimator.stream.spent >= sum(m.sums.n > 0 for m in heard_by(other, g))
        store.full = False

    for t in range(1, 121):
        for _ in range(2):
            choice = one.select(np.eye(3))
            attempt(lambda number=choice.number: one.observe(number, 0.5))  # type: ignore[misc]
        attempt(one.finish_acting)
        one.keep()
        assert one.problem is None
        other.finish_acting()
        for sender, receiver in ((one, other), (other, one)):
            for number, data in sender.to_send(receiver.machine.member):
                receiver.take(sender.machine.member, number, data)
        one.acknowledged(1, other.end_round()[0])
        attempt(one.end_round)
        one.keep()
        other.acknowledged(0, one.confirmed[1])
        assert one.confirmed == {1: t}
    assert failures > 50
    assert one.machine.observed == rounds(0, store, 2.0).machine.observed == 240
    assert one.told > 0


def heard_by(peer: PeerRounds, g: int) -> list[Tell]:
    return [tell for (origin, h), tell in peer.machine.node.told.items() if (origin, h) == (1 - peer.machine.member, g)]


def test_a_full_disk_ends_no_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread ended, and with it all rounds for good; a reward was learnt and refused at once."""
    monkeypatch.setattr(peering, "WRITE_AGAIN", 0.05)
    ports, rng = free_ports(2), np.random.default_rng(0)
    with make(0, ports, state=tmp_path / "0.db", patience=0.2) as one, make(1, ports, patience=0.2) as other:
        eventually(lambda: one.status()["connected"] == [1] and other.status()["connected"] == [0])
        with monkeypatch.context() as full:
            for name in ("append", "replace"):
                full.setattr(one.rounds.store, name, out_of_room)
            visit(one, rng, 3)
            assert "disk is full" in str(one.problem)
            before = one.status()["rounds"]
            passed = other.status()["rounds"]
            eventually(lambda: other.status()["rounds"] > passed + 5)
            assert one.status()["rounds"] <= before + 1, "a round that cannot be written waits"
        eventually(lambda: one.problem is None and one.status()["rounds"] > before + 2)
        assert one.status()["observed"] == 3
        eventually(lambda: one.status()["connected"] == [1] and other.status()["connected"] == [0])
    with make(0, ports, state=tmp_path / "0.db") as one:
        assert one.status()["observed"] == 3


def out_of_room(*_: object, **__: object) -> None:
    raise StoreError("The store cannot be written: the disk is full.")


def test_a_choice_survives_a_clean_end(tmp_path: Path) -> None:
    ports = free_ports(2)
    with make(0, ports, state=tmp_path / "0.db", round_seconds=60.0) as one:
        late, gone = one.select(np.eye(3)), one.select(np.eye(3))
        one.forget(gone)
    with make(0, ports, state=tmp_path / "0.db", round_seconds=60.0) as one:
        one.observe(0.5, late)
        with pytest.raises(fb.FedbanditError, match="not waiting"):
            one.observe(0.5, gone)
        assert one.status()["observed"] == 1


def test_it_may_be_closed_at_once() -> None:
    """Before its thread had a loop nobody could tell it to end: it lived on over a closed store."""
    ports = free_ports(2)
    for _ in range(20):
        one = make(0, ports)
        one.start()
        one.close()
        assert one.problem is None
        assert one._thread is not None
        assert not one._thread.is_alive()
        with pytest.raises(fb.FedbanditError, match="has been closed"):
            one.start()
    assert not [thread for thread in threading.enumerate() if thread.name == "fedbandit-peer"]


FORK = """
import gc, math, os, sys
import numpy as np
import fedbandit as fb
peer = fb.Peer(0, peers=2, dim=3, listen="127.0.0.1:0", neighbours={1: "127.0.0.1:1"}, epsilon=math.inf,
               round_seconds=0.01, patience=0.01, state=sys.argv[1])
if sys.argv[2] == "started":
    peer.start()
peer.observe(0.5, peer.select(np.eye(3)))
for end in (sys.exit, os._exit):
    if os.fork() == 0:
        try:
            peer.select(np.eye(3))
        except fb.FedbanditError as error:
            assert "before a fork" in str(error)
        else:
            os._exit(1)
        peer.close()
        del peer
        gc.collect()
        end(0)
    assert os.wait()[1] == 0
peer.observe(0.5, peer.select(np.eye(3)))
print(peer.rounds.incarnation, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("how", ["started", "opened"])
def test_a_fork_leaves_the_file_alone(tmp_path: Path, how: str) -> None:
    """A child that ended removed the log of the parent's file, and with it the ledger."""
    command = [sys.executable, "-W", "ignore", "-c", FORK, str(tmp_path / "0.db"), how]
    done = subprocess.run(command, check=False, timeout=120, stdout=subprocess.PIPE, text=True)
    assert done.returncode == -signal.SIGKILL
    with make(0, free_ports(2), state=tmp_path / "0.db", observations=10_000) as again:
        assert again.status()["observed"] == 2
        assert str(again.rounds.incarnation) == done.stdout.strip()


def test_whoever_ends_the_process_has_it_end_in_order(tmp_path: Path) -> None:
    ports = free_ports(3)
    process = start(0, ports, tmp_path, "--epsilon", "inf", "--pace", "20", "--patience", "0.2")
    try:
        eventually((tmp_path / "peer-0.db-wal").exists)
        eventually(lambda: answers(ports[0]))
        process.terminate()
        output, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert (process.returncode, json.loads(output)["problem"]) == (0, None), errors
    assert "fault" not in errors
    assert not (tmp_path / "peer-0.db-wal").exists(), "the store was closed"


def answers(port: int) -> bool:
    with socket.socket() as one:
        one.settimeout(1.0)
        return one.connect_ex(("127.0.0.1", port)) == 0
