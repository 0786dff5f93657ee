"""One client as its device keeps it: the machine, its session, and a journal to recover from.

Theory of operation
-------------------
A choice and a reward are entries of the journal. Making an upload replaces the journal by a snapshot: the upload is in
the store, with the noise that was drawn for it, before it can be sent. From then on the same bytes are sent until they
are acknowledged. Opening a state increments its epoch, in the store, before anything else happens. Nothing here knows
a network: `greeting` and `outgoing` give the frames to send, `receive` takes a message.

Threads: `select` and `forget` may be called at any time and never wait for the store; of the other methods the caller
runs one at a time.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedbandit.errors import FedbanditError, require
from fedbandit.machines.client import Choice, ClientMachine
from fedbandit.messages import Download, Message, Request, Upload, encode
from fedbandit.network.envelope import Envelope, extend, seal
from fedbandit.network.invitation import Agreement
from fedbandit.network.stores import Store
from fedbandit.privacy.noise import Source
from fedbandit.state import State, pack, pack_entry, require_like, restoring, unpack, unpack_entry
from fedbandit.types import Array

KIND = "client"
JOURNAL = "client"
SNAPSHOT_EVERY = 1000
_CHOICE = struct.Struct("<BQQ")  # kind, number, arms chosen so far
_REWARD = struct.Struct("<BQd")
_CHOSEN, _REWARDED, _FORGOTTEN = 1, 2, 3
MOST_UNWRITTEN = 4096
"""Choices that may wait in memory for the next write."""


class Frame(NamedTuple):
    """A frame to send, and the upload whose receipt is awaited then: 0 for a greeting, None if no answer is due."""

    data: bytes
    awaits: int | None


def stored_agreement(store: Store) -> tuple[Agreement, int] | None:
    """The agreement and the member number that a store was made for."""
    snapshot, _ = store.read(JOURNAL)
    if snapshot is None:
        return None
    header = unpack(KIND, snapshot, store.where).header
    return Agreement.of_json(header["agreement"]), int(header["member"])


class DurableClient:
    """A member of a federation that goes on where its store left off.

    `entropy` draws 64-bit numbers, `source` noise; without a source, noise is that of a simulation.
    """

    def __init__(
        self, store: Store, agreement: Agreement, member: int, entropy: Callable[[], int], source: Source | None = None
    ) -> None:
        self.store = store
        self.agreement = agreement
        self._agreed = agreement.as_json()
        self._terms = agreement.digest
        self.lock = threading.Lock()
        """Held while the machine is touched, never while the store is written."""
        self.machine = ClientMachine(member, agreement.build(), agreement.world, agreement.seed, source=source)
        self.machine.rehearse()
        self.incarnation = 0
        self.epoch = 0
        self.chain = 0
        self.asking: Request | None = None
        """A request that has to be sent."""
        self._encoded: dict[int, tuple[int, bytes]] = {}  # unacknowledged upload → the chain before it, its bytes
        self._unwritten: list[bytes] = []
        self._entries = 0
        self._kept = 0  # uploads up to this number are in the store, and may be sent
        self._complete = True  # the last greeting was sent with an empty outbox
        self._overdue = False  # a snapshot could not be written
        self._recover()
        if self.incarnation == 0:
            self.incarnation = entropy() | 1  # zero stands for none
        self.epoch += 1
        self.nonce = entropy()
        self.machine.number_choices_from(self.epoch << 32)  # numbers that a crash has lost are never given again
        self._snapshot(durable=True)

    # What the service asks

    def select(self, arms: ArrayLike) -> Choice:
        """Choose an arm."""
        with self.lock:
            choice = self.machine.select(arms)
            x = self.machine.waits_for(choice.number)
            assert x is not None
            if len(self._unwritten) < MOST_UNWRITTEN:
                chosen = _CHOICE.pack(_CHOSEN, choice.number, self.machine.steps) + x.tobytes()
                self._unwritten.append(pack_entry(KIND, chosen))
            else:
                self._overdue = True  # the store has not been written for long: a snapshot has them all
        return choice

    def observe(self, choice: int, reward: float) -> None:
        """Learn the reward of a choice; it is in the store when this returns."""
        most = self.agreement.reward_bound
        require(abs(reward) <= most, "reward", reward, f"within ±{most:g}, which this federation has agreed on")
        if self.machine.waits_for(choice) is None:
            raise FedbanditError(f"Choice {choice} is not waiting for a reward.")
        with self.lock:
            perceived = self.machine.perceive(reward)  # the journal has the noised reward: noise is drawn once
            self._note(self.machine.take(choice, perceived))
            if not self.machine.sequence > self._kept:
                self._unwritten.append(pack_entry(KIND, _REWARD.pack(_REWARDED, choice, perceived)))
        if self.machine.sequence > self._kept:
            self._snapshot(durable=True)
            return
        self._append()
        if self._entries >= SNAPSHOT_EVERY:
            self._snapshot(durable=False)

    def forget(self, choice: int) -> None:
        """The reward of this choice will never come."""
        with self.lock:
            self.machine.forget(choice)
            self._unwritten.append(pack_entry(KIND, _REWARD.pack(_FORGOTTEN, choice, 0.0)))

    def learn(self, contexts: Array, rewards: Array) -> None:
        """Learn from past logs: a warm start. Uploads follow when the trigger says so."""
        X, y = np.ascontiguousarray(contexts, dtype=np.float64), np.asarray(rewards, dtype=np.float64)
        shape = f"({X.shape[0] if X.ndim else 0}, {self.machine.context_dim})"
        require(X.ndim == 2 and X.shape[1] == self.machine.context_dim, "the shape of contexts", X.shape, shape)
        require(y.shape == (len(X),), "the shape of rewards", y.shape, f"({len(X)},)")
        bound, most = self.machine.bound, self.agreement.reward_bound
        longest = float(np.sqrt((X * X).sum(axis=1)).max(initial=0.0))
        require(longest <= bound * (1 + 1e-9), "the norm of a context", longest, f"at most {bound:g}")
        largest = float(np.abs(y).max(initial=0.0))
        require(largest <= most, "the largest |reward|", largest, f"at most {most:g}")
        for x, reward in zip(X, y, strict=True):
            with self.lock:
                self.machine.learn(x, self.machine.perceive(float(reward)))
                self._note(self.machine.speak())
        self._snapshot(durable=True)

    def flush(self) -> None:
        """Write what waits in memory."""
        if self._unwritten or self._overdue:
            self._append()

    # What the network asks

    def greeting(self) -> bytes | None:
        """The frame to begin a connection with; None if nothing is ever exchanged."""
        messages = self.machine.join()
        self._complete = not self.machine.outbox
        return self._seal(self.chain, encode(messages[0])) if messages else None

    def outgoing(self, most: int = 1) -> list[Frame]:
        """The first frames that have to be sent, in this order, until they are acknowledged."""
        if self.machine.outbox:
            numbers = [n for n in sorted(self.machine.outbox)[:most] if n <= self._kept]
            return [Frame(self._seal(*self._encoded[n]), n) for n in numbers]
        if not self._complete:
            greeting = self.greeting()  # once more, now that nothing is open: what was missed is sent after this
            return [] if greeting is None else [Frame(greeting, 0)]
        request, self.asking = self.asking, None  # one that gets lost is made again when the trigger fires again
        return [] if request is None else [Frame(self._seal(self.chain, encode(request)), None)]

    def receive(self, message: Message) -> None:
        """Take a message from the coordinator."""
        before = self.machine.version, len(self.machine.outbox)
        with self.lock:
            messages = self.machine.receive(message)
            self._note(messages)
        if messages:
            self._snapshot(durable=True)
        elif before != (self.machine.version, len(self.machine.outbox)):
            if isinstance(message, Download):
                self.asking = None
            self._snapshot(durable=False)  # the coordinator can send it again

    # How it is kept

    def state(self) -> State:
        """All that has to survive."""
        header, arrays = self.machine.state()
        mine = {
            "agreement": self._agreed,
            "member": self.machine.member,
            "incarnation": self.incarnation,
            "epoch": self.epoch,
            "chain": self.chain,
            "chains": [[n, chain] for n, (chain, _) in self._encoded.items()],
        }
        return State({**mine, "machine": header}, arrays)

    def _recover(self) -> None:
        snapshot, entries = self.store.read(JOURNAL)
        if snapshot is None:
            return
        header, arrays = unpack(KIND, snapshot, self.store.where)
        with restoring(KIND, self.store.where):
            require_like(State(header, {}), State(self.state().header, {}))
            if Agreement.of_json(header["agreement"]).as_json() != self._agreed:
                raise FedbanditError(
                    f"The client's state in {self.store.where} belongs to a federation with another agreement; "
                    "every federation needs a file of its own."
                )
            self.machine.restore(State(header["machine"], arrays))
            self._encoded = {n: (chain, encode(self.machine.outbox[n])) for n, chain in header["chains"]}
        self.incarnation, self.epoch, self.chain = header["incarnation"], header["epoch"], header["chain"]
        for entry in entries:
            self._replay(unpack_entry(KIND, entry, self.store.where))

    def _replay(self, entry: bytes) -> None:
        kind, number, value = _REWARD.unpack_from(entry)
        if kind == _CHOSEN:
            _, number, self.machine.steps = _CHOICE.unpack_from(entry)
            self.machine.await_reward(number, np.frombuffer(entry, dtype=np.float64, offset=_CHOICE.size).copy())
            return
        x = self.machine.waits_for(number)
        self.machine.forget(number)
        if kind == _REWARDED and x is not None:
            self.machine.learn(x, value)

    def _note(self, messages: list[Message]) -> None:
        """Take messages of the machine that have to be sent: an upload extends the chain."""
        for message in messages:
            if isinstance(message, Upload):
                data = encode(message)
                self._encoded[message.sequence] = self.chain, data
                self.chain = extend(self.chain, data)
                self.asking = None
            elif isinstance(message, Request):
                self.asking = message
        self._encoded = {n: kept for n, kept in self._encoded.items() if n in self.machine.outbox}

    def _append(self) -> None:
        if self._overdue:
            self._snapshot(durable=True)
            return
        with self.lock:
            entries, self._unwritten = self._unwritten, []
        try:
            self.store.append(JOURNAL, entries, durable=False)
        except BaseException:
            with self.lock:
                self._unwritten = entries + self._unwritten
            raise
        self._entries += len(entries)

    def _snapshot(self, *, durable: bool) -> None:
        self._overdue = True
        with self.lock:
            state, covered, sequence = pack(KIND, self.state()), len(self._unwritten), self.machine.sequence
        self.store.replace(JOURNAL, state, durable=durable)
        with self.lock:
            del self._unwritten[:covered]
        self._overdue = False
        self._kept = sequence
        self._entries = 0

    def _seal(self, chain: int, message: bytes) -> bytes:
        envelope = Envelope(self.incarnation, self.epoch, self.nonce, self.machine.sequence, chain, self._terms)
        return seal(envelope, message)
