"""One peer as its device keeps it: the machine, what neighbours have not acknowledged, and a state to recover from.

Theory of operation
-------------------
In round t a peer acts once. Then it makes one *bundle* for each neighbour, of all messages that go there in this round
(perhaps none), numbered t, and writes everything, noise included, before any of it is sent. A bundle is sent until it
is acknowledged, always with the same bytes; a neighbour takes each number once, and acknowledges it when what follows
from it is written. The round ends when the bundles of round t have come from all neighbours that are up; they are taken
in the order of neighbours' numbers, as in a simulation. A late bundle is taken at the end of the round in which it
comes.

A neighbour that delays a round for too long is down: it is not awaited until its bundles are up to date again. A peer
that was down goes on in the round in which its neighbours are; but whatever they say, `MOST_AHEAD` rounds further at
once at most, so that one that lies about its round does not use up all there are. Of bundles that are not taken only
the newest message of each kind and origin is kept, since a Tell holds all that its origin has ever told.

Between snapshots choices and rewards are entries of the journal; an observation after which there is something to tell,
whose noise is drawn then, is written as a snapshot.

Nothing here knows a network or a clock. Methods may be called from any thread.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import ArrayLike

from fedbandit.errors import FedbanditError
from fedbandit.machines.client import Choice
from fedbandit.machines.peer import PeerMachine
from fedbandit.messages import Ask, Message, Tell, Upload, decode, encode
from fedbandit.network.coordinator.limits import Limits
from fedbandit.network.stores import Store
from fedbandit.state import State, StateError, pack, pack_entry, require_like, restoring, unpack, unpack_entry

KIND = "peer"
JOURNAL = "peer"
_CHOICE = struct.Struct("<BQQ")  # kind, number, arms that its estimator has chosen
_REWARD = struct.Struct("<BQd")
_CHOSEN, _REWARDED, _GONE = 1, 2, 3
MOST_BUNDLES = 16
"""Bundles that wait for one neighbour; older ones are joined."""
MOST_AHEAD = 2**28
"""Rounds that may pass at once, after an absence: years of rounds of a second."""
MOST_TO_COME = 1024
"""Bundles of rounds to come that are kept of one neighbour; more come again."""
_LENGTH = struct.Struct("<I")


def bundle(messages: Iterable[Message]) -> bytes:
    """Messages one after the other, each after its length."""
    encoded = [encode(message) for message in messages]
    return b"".join(_LENGTH.pack(len(data)) + data for data in encoded)


def unbundle(data: bytes) -> list[Ask | Tell]:
    """The messages of a bundle; anything that peers do not send is refused."""
    messages: list[Ask | Tell] = []
    while data:
        if len(data) < _LENGTH.size or len(data) < _LENGTH.size + _LENGTH.unpack_from(data)[0]:
            raise FedbanditError("A bundle ends in the middle of a message.")
        (length,) = _LENGTH.unpack_from(data)
        message = decode(data[_LENGTH.size : _LENGTH.size + length])
        if not isinstance(message, Ask | Tell):
            raise FedbanditError(f"A peer does not take a {type(message).__name__}.")
        messages.append(message)
        data = data[_LENGTH.size + length :]
    return messages


class PeerRounds:
    """A peer that goes on where its store left off; `entropy` draws a 64-bit number."""

    def __init__(self, store: Store, machine: PeerMachine, limits: Limits, entropy: Callable[[], int]) -> None:
        self.store = store
        self.machine = machine
        self.limits = limits
        neighbours = machine.node.neighbours
        self.waiting: dict[int, dict[int, bytes]] = {j: {} for j in neighbours}  # neighbour → number → bundle
        self.taken = dict.fromkeys(neighbours, 0)  # neighbour → its last bundle that was taken, and is acknowledged
        self.heard = dict.fromkeys(neighbours, 0)  # neighbour → its last bundle that has arrived
        self.down: set[int] = set()
        self.acted = False  # in this round already
        self.told = 0  # how often statistics were sent to a neighbour
        self.incarnation = 0
        self.known: dict[int, int] = {}  # neighbour → its incarnation
        self.lock = threading.RLock()
        self._inbox: list[tuple[int, int, list[Ask | Tell]]] = []  # neighbour, number, messages
        self._unwritten: list[bytes] = []
        self._recover()
        if self.incarnation == 0:
            self.incarnation = entropy() | 1
        machine.number_choices_from(entropy() >> 1)  # so many random bits: no other peer or opening has these numbers
        self._write()

    @property
    def round(self) -> int:
        """The number of this round, from 1."""
        return self.machine.rounds + 1

    def select(self, arms: ArrayLike) -> Choice:
        """Choose one of the arms with the estimator whose turn it is."""
        with self.lock:
            choice = self.machine.select(arms)
            x = self.machine.waits_for(choice.number)
            assert x is not None
            steps = self.machine.steps_of(choice.number)
            self._unwritten.append(_CHOICE.pack(_CHOSEN, choice.number, steps) + x.tobytes())
        return choice

    def observe(self, choice: int, reward: float) -> None:
        """Learn the reward of a choice; it is in the store when this returns."""
        with self.lock:
            perceived = self.machine.perceive(choice, reward)
            if self.machine.take(choice, perceived):
                self._write()
                return
            self._unwritten.append(_REWARD.pack(_REWARDED, choice, perceived))
            self.store.append(JOURNAL, [pack_entry(KIND, entry) for entry in self._unwritten], durable=False)
            self._unwritten.clear()

    def forget(self, choice: int) -> None:
        """The reward of this choice will never come."""
        with self.lock:
            self.machine.forget(choice)
            self._unwritten.append(_REWARD.pack(_GONE, choice, 0.0))

    def finish_acting(self) -> None:
        """The peer has acted: its bundles are written, and may be sent from now on."""
        with self.lock:
            bundles: dict[int, list[Message]] = {j: [] for j in self.waiting}
            for j, message in self.machine.send():
                bundles[j].append(message)
                self.told += isinstance(message, Tell)
            for j, messages in bundles.items():
                self.waiting[j][self.round] = bundle(messages)
                self._join_old(j)
            self.acted = True
            self._write()

    def take(self, sender: int, number: int, data: bytes) -> None:
        """Take a neighbour's bundle; one that has come before changes nothing, an invalid one is refused whole."""
        with self.lock:
            if sender not in self.heard:
                raise FedbanditError(f"Peer {sender} is not a neighbour of peer {self.machine.member}.")
            if number <= self.heard[sender]:
                return
            if number > self.machine.most_rounds:
                raise FedbanditError(
                    f"Peer {sender} sent bundle {number}, but there are {self.machine.most_rounds} rounds at most."
                )
            if sum(one == sender and n > self.round for one, n, _ in self._inbox) >= MOST_TO_COME:
                raise FedbanditError(
                    f"Peer {sender} has sent {MOST_TO_COME} bundles of rounds to come; more are not taken now."
                )
            messages = unbundle(data)
            for message in messages:
                self._check(message)
            self.heard[sender] = number
            self._inbox.append((sender, number, messages))
            if number >= self.round - 1:
                self.down.discard(sender)

    def missing(self) -> list[int]:
        """Neighbours whose bundle of this round has not come, and who are not down."""
        return [j for j in self.heard if self.heard[j] < self.round and j not in self.down]

    def end_round(self) -> dict[int, int]:
        """Take what has come; what may be acknowledged to each neighbour afterwards."""
        with self.lock:
            self.down.update(self.missing())
            due = sorted(entry for entry in self._inbox if entry[1] <= self.round)
            self._inbox = [entry for entry in self._inbox if entry[1] > self.round]
            for sender, number, messages in due:
                for message in messages:
                    self.machine.receive(sender, message)
                self.taken[sender] = max(self.taken[sender], number)
            self.machine.end_round()
            ahead = min(max(self.heard.values(), default=0) - 1, self.machine.rounds + MOST_AHEAD)
            self.machine.rounds = max(self.machine.rounds, ahead)  # after an absence
            self.acted = False
            self._write()
            return dict(self.taken)

    def acknowledged(self, neighbour: int, number: int) -> None:
        """A neighbour has taken all bundles up to this number."""
        with self.lock:
            kept = self.waiting[neighbour]
            self.waiting[neighbour] = {n: data for n, data in kept.items() if n > number}

    def meet(self, neighbour: int, incarnation: int) -> None:
        """Refuse a neighbour that is not the one that was known: it would count its bundles from 1 again."""
        if neighbour not in self.heard:
            raise FedbanditError(f"Peer {neighbour} is not a neighbour of peer {self.machine.member}.")
        if self.known.setdefault(neighbour, incarnation) != incarnation:
            raise FedbanditError(
                f"Peer {neighbour} has lost its state, or is another; it cannot go on as the same peer."
            )

    def _check(self, message: Ask | Tell) -> None:
        machine = self.machine
        if message.member >= machine.n_peers:
            raise FedbanditError(f"A message comes from peer {message.member}, but there are {machine.n_peers}.")
        if message.estimator >= len(machine.estimators) or message.hops > machine.node.ttl:
            raise FedbanditError(f"A message is for estimator {message.estimator} with {message.hops} hops to go.")
        if isinstance(message, Tell):
            self.limits.check(Upload(message.member, message.sequence, message.sums, 0.0))

    def _join_old(self, neighbour: int) -> None:
        kept = self.waiting[neighbour]
        if len(kept) <= MOST_BUNDLES:
            return
        newest: dict[tuple[type, int, int], Ask | Tell] = {}
        old = sorted(kept)[: len(kept) // 2]
        for number in old:
            for message in unbundle(kept[number]):
                newest[type(message), message.member, message.estimator] = message
        self.waiting[neighbour] = {n: data for n, data in kept.items() if n not in old}
        self.waiting[neighbour][old[-1]] = bundle(newest.values())

    def state(self) -> State:
        """All that has to survive."""
        header, arrays = self.machine.state()
        mine = {
            "incarnation": self.incarnation,
            "known": list(self.known.items()),
            "taken": list(self.taken.items()),
            "acted": self.acted,
            "told": self.told,
            "waiting": [[j, n] for j, kept in self.waiting.items() for n in sorted(kept)],
        }
        bundles = {
            f"bundle.{j}.{n}": np.frombuffer(data, dtype=np.uint8)
            for j, kept in self.waiting.items()
            for n, data in kept.items()
        }
        return State({**mine, "machine": header}, {**arrays, **bundles})

    def _write(self) -> None:
        self.store.replace(JOURNAL, pack(KIND, self.state()))
        self._unwritten.clear()

    def _recover(self) -> None:
        snapshot, entries = self.store.read(JOURNAL)
        if snapshot is None:
            return
        header, arrays = unpack(KIND, snapshot, self.store.where)
        bundles = {name: arrays.pop(name) for name in list(arrays) if name.startswith("bundle.")}
        with restoring(KIND, self.store.where):
            require_like(State(header, {}), State(self.state().header, {}))
            taken = dict(header["taken"])
            if set(taken) != set(self.taken):
                raise FedbanditError(
                    f"The state in {self.store.where} is of a peer with the neighbours {sorted(taken)}, "
                    f"now {sorted(self.taken)}."
                )
            if set(bundles) != {f"bundle.{j}.{n}" for j, n in header["waiting"]}:
                raise StateError(f"The stored bundles are {sorted(bundles)}, but must be those of {header['waiting']}.")
            self.machine.restore(State(header["machine"], arrays))
        self.incarnation, self.acted, self.told = header["incarnation"], header["acted"], header["told"]
        self.known = dict(header["known"])
        self.taken, self.heard = taken, dict(taken)
        for j, number in header["waiting"]:
            self.waiting[j][number] = bundles[f"bundle.{j}.{number}"].tobytes()
        for entry in entries:
            self._replay(unpack_entry(KIND, entry, self.store.where))

    def _replay(self, entry: bytes) -> None:
        if entry[0] == _CHOSEN:
            _, choice, steps = _CHOICE.unpack_from(entry)
            self.machine.repeat(choice, np.frombuffer(entry, dtype="<f8", offset=_CHOICE.size).copy(), steps)
            return
        kind, choice, value = _REWARD.unpack_from(entry)
        if kind == _REWARDED:
            self.machine.learn(choice, value)
        else:
            self.machine.forget(choice)
