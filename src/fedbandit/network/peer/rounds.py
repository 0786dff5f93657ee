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
whose noise is drawn then, is written as a snapshot. While the store cannot be written everything stays in memory, and
nothing that is not in the store is sent or acknowledged; `keep` tries again.

The terms of the federation are in the state: it is opened under others only where that is sound, since what it has
released was noised for these.

Nothing here knows a network or a clock. Methods may be called from any thread.
"""

from __future__ import annotations

import contextlib
import logging
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedbandit.errors import FedbanditError
from fedbandit.machines.client import Choice
from fedbandit.machines.peer import PeerMachine
from fedbandit.messages import Ask, Message, Tell, Upload, decode, encode
from fedbandit.network.client.journal import NodeJournal
from fedbandit.network.peer.terms import Terms
from fedbandit.network.stores import Store, StoreError
from fedbandit.state import State, StateError, require_like, restoring, unpack, unpack_entry

KIND = "peer"
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
log = logging.getLogger("fedbandit.peer")


def bundle(messages: Iterable[Message]) -> bytes:
    """Messages one after the other, each after its length."""
    encoded = [encode(message) for message in messages]
    return b"".join(_LENGTH.pack(len(data)) + data for data in encoded)


def unbundle(data: bytes) -> list[Ask | Tell]:
    """The messages of a bundle; anything that peers do not send is refused."""
    messages: list[Ask | Tell] = []
    at = 0
    while at < len(data):
        begin = at + _LENGTH.size
        at = begin + (_LENGTH.unpack_from(data, at)[0] if begin <= len(data) else 0)
        if at > len(data):
            raise FedbanditError("A bundle ends in the middle of a message.")
        message = decode(data[begin:at])
        if not isinstance(message, Ask | Tell):
            raise FedbanditError(f"A peer does not take a {type(message).__name__}.")
        messages.append(message)
    return messages


class PeerRounds:
    """A peer that goes on where its store left off; `entropy` draws a 64-bit number."""

    def __init__(self, store: Store, machine: PeerMachine, terms: Terms, entropy: Callable[[], int]) -> None:
        self.store = store
        self.machine = machine
        self.terms = terms
        neighbours = machine.node.neighbours
        self.waiting: dict[int, dict[int, bytes]] = {j: {} for j in neighbours}  # neighbour → number → bundle
        self.taken = dict.fromkeys(neighbours, 0)  # neighbour → its last bundle that was taken
        self.confirmed = dict(self.taken)
        """What may be acknowledged: that it was taken is in the store."""
        self.heard = dict.fromkeys(neighbours, 0)  # neighbour → its last bundle that has arrived
        self.down: set[int] = set()
        self.acted = False  # in this round already
        self.told = 0  # how often statistics were sent to a neighbour
        self.incarnation = 0
        self.known: dict[int, int] = {}  # neighbour → its incarnation
        self.problem: str | None = None
        """Why the store cannot be written, while it cannot."""
        self.lock = threading.RLock()
        self.journal = NodeJournal(store, KIND, self.lock, self._capture)
        self._safe = 0  # bundles up to this number are in the store: these may be sent
        self._inbox: list[tuple[int, int, list[Ask | Tell]]] = []  # neighbour, number, messages
        self._recover()
        if self.incarnation == 0:
            self.incarnation = entropy() | 1
        machine.number_choices_from(entropy() >> 1)  # so many random bits: no other peer or opening has these numbers
        self.keep()

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
            self.journal.add(_CHOICE.pack(_CHOSEN, choice.number, steps) + x.tobytes())
        return choice

    def observe(self, choice: int, reward: float) -> None:
        """Learn the reward of a choice; it is in the store when this returns.

        After a StoreError it has been learnt, too, and is written as soon as that is possible.
        """
        with self.lock:
            perceived = self.machine.perceive(choice, reward)
            if self.machine.take(choice, perceived):
                self.keep()
                return
            self.journal.add(_REWARD.pack(_REWARDED, choice, perceived))
            self.flush()

    def forget(self, choice: int) -> None:
        """The reward of this choice will never come."""
        with self.lock:
            self.machine.forget(choice)
            self.journal.add(_REWARD.pack(_GONE, choice, 0.0))

    def flush(self) -> None:
        """Write what waits in memory."""
        with self._written():
            self.journal.write()

    def keep(self) -> None:
        """Write all there is, such that it survives a power cut: from then on it may be sent and acknowledged."""
        with self._written():
            self.journal.replace(durable=True)
            self._safe = self.round if self.acted else self.round - 1
            self.confirmed = dict(self.taken)

    @contextlib.contextmanager
    def _written(self) -> Iterator[None]:
        """Around a write; whether the store can be written is said once."""
        with self.lock:
            try:
                yield
            except StoreError as error:
                if self.problem != str(error):
                    log.warning("the store cannot be written", extra={"reason": str(error)})
                self.problem = str(error)
                raise
            if self.problem is not None:
                log.info("the store is written again")
            self.problem = None

    def finish_acting(self) -> None:
        """The peer has acted: its bundles are written, and may be sent from now on; after a StoreError, from `keep`."""
        with self.lock:
            bundles: dict[int, list[Message]] = {j: [] for j in self.waiting}
            for j, message in self.machine.send():
                bundles[j].append(message)
                self.told += isinstance(message, Tell)
            for j, messages in bundles.items():
                self.waiting[j][self.round] = bundle(messages)
                self._join_old(j)
            self.acted = True
            self.keep()

    def to_send(self, neighbour: int) -> list[tuple[int, bytes]]:
        """The bundles that a neighbour has not acknowledged, with their numbers, as far as they are in the store."""
        with self.lock:
            return sorted((n, data) for n, data in self.waiting[neighbour].items() if n <= self._safe)

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
        """Take what has come; what may be acknowledged to each neighbour, unless there is a StoreError: then `keep`."""
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
            self.keep()
            return dict(self.confirmed)

    def acknowledged(self, neighbour: int, number: int) -> None:
        """A neighbour has taken all bundles up to this number."""
        with self.lock:
            kept = self.waiting[neighbour]
            self.waiting[neighbour] = {n: data for n, data in kept.items() if n > number}

    def meet(self, neighbour: int, incarnation: int) -> None:
        """Refuse a neighbour that is not the one that was known: it would count its bundles from 1 again."""
        if neighbour not in self.heard:
            raise FedbanditError(f"Peer {neighbour} is not a neighbour here.")
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
            self.terms.limits.check(Upload(message.member, message.sequence, message.sums, 0.0))

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
            "agreement": self.terms.as_json(),
            "member": self.machine.member,
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

    def _capture(self) -> Callable[[], State]:
        return self.state

    def _recover(self) -> None:
        snapshot, entries = self.store.read(KIND)
        if snapshot is None:
            return
        header, arrays = unpack(KIND, snapshot, self.store.where)
        bundles = {name: arrays.pop(name) for name in list(arrays) if name.startswith("bundle.")}
        with restoring(KIND, self.store.where):
            mine = self.state().header | {"agreement": {}}
            require_like(State(header, {}), State(mine | {"machine": {}}, {}))
            self._require_sound(header["agreement"], header["member"])
            require_like(State(header, {}), State(mine, {}))
            taken = dict(header["taken"])
            if set(taken) != set(self.taken):
                raise FedbanditError(
                    f"The state in {self.store.where} is of a peer with the neighbours {sorted(taken)}, "
                    f"now {sorted(self.taken)}."
                )
            if set(bundles) != {f"bundle.{j}.{n}" for j, n in header["waiting"]}:
                raise StateError(f"The stored bundles are {sorted(bundles)}, but must be those of {header['waiting']}.")
            self.machine.restore(State(header["machine"], arrays))
            if (last := max((origin for origin, _ in self.machine.node.told), default=0)) >= self.terms.peers:
                raise FedbanditError(
                    f"peers is {self.terms.peers}, but the peer whose state is in {self.store.where} has heard of peer "
                    f"{last}."
                )
        self.incarnation, self.acted, self.told = header["incarnation"], header["acted"], header["told"]
        self.known = dict(header["known"])
        self.taken, self.heard = taken, dict(taken)
        for j, number in header["waiting"]:
            self.waiting[j][number] = bundles[f"bundle.{j}.{number}"].tobytes()
        for entry in entries:
            self._replay(unpack_entry(KIND, entry, self.store.where))

    def _require_sound(self, agreement: dict[str, Any], member: int) -> None:
        """Refuse a state of another peer, or under terms that cannot become these; old ones do not say."""
        if member not in (-1, self.machine.member):
            raise FedbanditError(
                f"The state in {self.store.where} is of peer {member}, not of peer {self.machine.member}; keep the "
                "file for that one: each has a file of its own."
            )
        if agreement:
            Terms.of_json(agreement).require_sound_change(self.terms, self.machine.member, self.store.where)

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
