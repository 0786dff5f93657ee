"""One client as its device keeps it: the machine, its session, and a journal to recover from.

Theory of operation
-------------------
The journal is a snapshot and the entries since. Whatever changes the machine is an entry: a choice, a reward, an
upload, a message that was taken. Only an upload that carries noise for privacy is written as a snapshot, since the
mechanism's own state has changed in ways that nothing else repeats.

An upload is in the store, with its noise, before it can be sent, and the store has been told to survive a power cut
(`outgoing`). From then on the same bytes are sent until they are acknowledged. Opening a state increments its epoch,
in the store, before all else. Nothing here knows a network: `greeting` and `outgoing` give frames, `receive` takes one.

Threads: `select`, `forget` and `export` may be called at any time and never wait for the store; of the other methods
the caller runs one at a time.

| entry      | bytes after its kind (u8)                                             |
|------------|-----------------------------------------------------------------------|
| 1 chosen   | number (u64), arms chosen so far (u64), context (d floats)            |
| 2 rewarded | number (u64), the reward as it was perceived (f64)                    |
| 3 gone     | number (u64), 0.0: forgotten, or handed over as a token               |
| 4 made     | the chain before (16 bytes), the upload as it is sent                 |
| 5 took     | the message as it came                                                |
| 6 redeemed | number (u64), perceived reward (f64), context: the choice was a token |
| 7 sending  | number (u64) of the last upload that may be sent                      |
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedbandit.errors import FedbanditError, number, require
from fedbandit.machines.client import Choice, ClientMachine
from fedbandit.messages import (
    Collect,
    Download,
    Message,
    Recall,
    Receipt,
    Request,
    Restate,
    Threshold,
    Upload,
    decode,
    encode,
)
from fedbandit.network.client.choices import not_waiting
from fedbandit.network.client.features import checked_log
from fedbandit.network.client.journal import KIND, Journal
from fedbandit.network.envelope import Envelope, Frame, extend, seal
from fedbandit.network.invitation import Agreement
from fedbandit.network.stores import Store
from fedbandit.privacy.noise import Source
from fedbandit.privacy.sum_stream import SumStream
from fedbandit.state import State, require_like, restoring, unpack, unpack_entry
from fedbandit.sums import add, arrays_of, sums_of
from fedbandit.types import Array

_CHOICE = struct.Struct("<BQQ")  # kind, number, arms chosen so far
_REWARD = struct.Struct("<BQd")
_CHOSEN, _REWARDED, _GONE, _MADE, _TOOK, _REDEEMED, _SENDING = 1, 2, 3, 4, 5, 6, 7
_CHAIN = 16
MOST_REDEEMED = 50_000
"""Tokens that are remembered, so that none of them is taken twice."""


class DurableClient:
    """A member of a federation that goes on where its store left off.

    `entropy` draws 64-bit numbers, `source` noise; without a source, noise is that of a simulation.
    """

    def __init__(
        self, store: Store, agreement: Agreement, member: int, entropy: Callable[[], int], source: Source | None = None
    ) -> None:
        self.store = store
        self._agree(agreement)
        self._source = source
        self.lock = threading.Lock()
        """Held while the machine is touched, never while the store is written."""
        self.machine = ClientMachine(member, agreement.build(), agreement.world, agreement.seed, source=source)
        self.machine.rehearse()
        self.incarnation = 0
        self.epoch = 0
        self.chain = 0
        self.called: Collect | None = None
        """The call to a secure sum that it has not answered."""
        self.asking: Request | None = None
        """A request that has to be sent."""
        self.uploaded = self.machine.form.zero()
        """The sum of all uploads of this incarnation, if `all_uploads` are in it (not in states of format 1)."""
        self.all_uploads = True
        self.releases = 0
        """Uploads that carried something."""
        self._made: dict[int, tuple[int, bytes]] = {}  # unacknowledged upload → the chain before it, its bytes
        self.redeemed: dict[int, None] = {}
        """Tokens that were taken, the latest last."""
        self.journal = Journal(store, self.lock, self._capture)
        self._safe = 0  # uploads up to this number are in the store and survive a power cut: these may be sent
        self._restating, self._stated = False, 0  # whether the coordinator has lost uploads; up to where it was told
        self._applied = 0  # uploads that the coordinator has, as far as it said so since the last greeting
        self._complete = True  # the last greeting was sent with an empty outbox
        self._recover()
        self.incarnation = self.incarnation or entropy() | 1  # zero stands for none
        self.epoch += 1
        self.nonce = entropy()
        self.machine.number_choices_from(entropy() >> 1)  # of 62 random bits: no other client or opening has them
        self.journal.replace(durable=True)
        self._safe = self.machine.sequence

    def _agree(self, agreement: Agreement) -> None:
        self.agreement = agreement
        self._agreed = agreement.as_json()
        self.terms = agreement.digest
        """The digest of what was agreed on."""

    def renew(self, agreement: Agreement, member: int) -> None:
        """The federation's terms have changed: go on under the new ones, if nothing means something else by that."""
        if member != self.machine.member:
            raise FedbanditError(f"The coordinator takes this client for member {member}, not {self.machine.member}.")
        self.agreement.require_sound_change(agreement)
        machine = ClientMachine(member, agreement.build(), agreement.world, agreement.seed, source=self._source)
        with self.lock:
            machine.go_on_from(self.machine)
            self.machine = machine
            self._agree(agreement)
            self.journal.defer()
        self.journal.replace(durable=True)

    # What the service asks

    def select(self, arms: ArrayLike, explore: float = 0.0) -> Choice:
        """Choose an arm, now and then any of them, and say how probable the choice was."""
        with self.lock:
            return self._select(arms, explore)

    def rank(self, arms: Array, explore: float = 0.0) -> tuple[Choice, Array, Array]:
        """Choose an arm; the probability of each of them, and the reward that is expected of it."""
        with self.lock:
            p, means = self.machine.propensities(arms), self.machine.model.means(self.machine.checked(arms))
            choice = self._select(arms, explore)
        return choice, explore / len(p) + (1 - explore) * p, means

    def _select(self, arms: ArrayLike, explore: float) -> Choice:
        choice = self.machine.select(arms, explore=explore, propensity=True)
        x = self.machine.waits_for(choice.number)
        assert x is not None
        self.journal.add(_CHOICE.pack(_CHOSEN, choice.number, self.machine.steps) + x.tobytes())
        return choice

    def observe(self, choice: int, reward: float) -> None:
        """Learn the reward of a choice; it is in the store when this returns."""
        self._check(reward)
        with self.lock:
            if self.machine.waits_for(choice) is None:
                raise not_waiting(choice)
            perceived = self.machine.perceive(reward)  # the journal has the noised reward: noise is drawn once
            self.journal.add(_REWARD.pack(_REWARDED, choice, perceived))
            self._note(self.machine.take(choice, perceived))
        self.journal.write()

    def redeem(self, choice: int, x: Array, reward: float) -> None:
        """Learn the reward of a choice that was made elsewhere, or exported here; each is taken once."""
        self._check(reward)
        x = self.machine.checked(x[None])[0]
        with self.lock:
            if choice in self.redeemed:
                raise FedbanditError(f"The reward of choice {choice:016x} has been learnt here already.")
            perceived = self.machine.perceive(reward)
            self.journal.add(_REWARD.pack(_REDEEMED, choice, perceived) + x.tobytes())
            self._note(self._redeem(choice, x, perceived))
        self.journal.write()

    def forget(self, choice: int) -> None:
        """The reward of this choice will never come."""
        with self.lock:
            self.machine.forget(choice)
            self.journal.add(_REWARD.pack(_GONE, choice, 0.0))

    def export(self, choice: int) -> Array:
        """The context of a choice that is handed over: from now on only a token brings its reward."""
        with self.lock:
            x = self.machine.waits_for(choice)
            if x is None:
                raise not_waiting(choice)
            self.machine.forget(choice)
            self.journal.add(_REWARD.pack(_GONE, choice, 0.0))
        return x

    def learn(self, contexts: Array, rewards: Array) -> None:
        """Learn from past logs: a warm start. Uploads follow when the trigger says so."""
        X, y = checked_log(self.machine, contexts, rewards, self.agreement.reward_bound)
        with self.lock:
            self.journal.defer()  # one snapshot instead of an entry each
        for x, reward in zip(X, y, strict=True):
            with self.lock:
                self.machine.learn(x, self.machine.perceive(float(reward)))
                self._note(self.machine.speak())
        self.journal.replace(durable=True)

    def flush(self) -> None:
        """Write what waits in memory."""
        self.journal.write()

    def _check(self, reward: float) -> None:
        most = self.agreement.reward_bound
        y = number(reward, "reward", "a finite number")
        require(abs(y) <= most, "reward", reward, f"within ±{most:g}, which this federation has agreed on")

    # What the network asks

    def greeting(self) -> bytes | None:
        """The frame to begin a connection with; None if nothing is ever exchanged."""
        messages = self.machine.join()
        self._complete, self._applied = not self.machine.outbox, 0
        return self._seal(self.chain, encode(messages[0])) if messages else None

    def outgoing(self, most: int = 1) -> list[Frame]:
        """The first frames that have to be sent, in this order, until they are acknowledged.

        Of uploads that the coordinator has but for their receipts, only the last is sent again: a coordinator that was
        told a sum (`Restate`) does not know those before it one by one.
        """
        if self._restating:
            if self.machine.sequence > self._safe:
                self._make_safe()
            machine, total = self.machine, self.uploaded
            said = machine.member, machine.sequence, self.releases, total, machine.known(), machine.form.actions
            stated, self._stated = Restate(*said), machine.sequence
            return [Frame(self._seal(self.chain, encode(stated)), machine.sequence)]
        if self.machine.outbox:
            numbers = [n for n in sorted(self.machine.outbox) if n >= self._applied][:most]
            if numbers[0] > self._safe:
                self._make_safe()
            return [Frame(self._seal(*self._made[n]), n) for n in numbers if n <= self._safe]
        if not self._complete:
            greeting = self.greeting()  # once more, now that nothing is open: what was missed is sent after this
            return [] if greeting is None else [Frame(greeting, 0)]
        request, self.asking = self.asking, None  # one that gets lost is made again when the trigger fires again
        return [] if request is None else [Frame(self._seal(self.chain, encode(request)), None)]

    def receive(self, message: Message) -> None:
        """Take a message from the coordinator. What it changes may be lost: the coordinator sends it again."""
        if isinstance(message, Collect) and isinstance(self.machine.stream, SumStream):
            if message.epoch > self.machine.stream.epoch:
                self.called = message
            return
        if isinstance(message, Recall):
            first = min(self.machine.outbox, default=self.machine.sequence + 1)
            self._restating, self._stated = message.sequence < first - 1 and self.all_uploads, 2**64
            self._applied = min(message.sequence, self.machine.sequence)
            return
        if isinstance(message, Receipt) and message.sequence >= self._stated:
            self._restating = False
        with self.lock:
            before = self.machine.version, len(self.machine.outbox)
            messages = self.machine.receive(message)
            changed = before != (self.machine.version, len(self.machine.outbox)) or isinstance(message, Threshold)
            if changed:
                self.journal.add(bytes([_TOOK]) + encode(message))
            if changed and isinstance(message, Download):
                self.asking = None
            self._note(messages)
        if changed:
            self.journal.write()

    def contribute(self, epoch: int, included: int) -> Message | None:
        """This client's part of a secure sum: in the store, as spent, when this returns."""
        with self.lock:
            made = self.machine.receive(Collect(self.machine.member, epoch, included))
            self.journal.defer()
        self.journal.replace(durable=True)
        return made[0] if made else None

    # How it is kept

    def state(self) -> State:
        """All that has to survive."""
        return self._capture()()

    def _capture(self) -> Callable[[], State]:
        finish_machine, made, redeemed = self.machine.capture(), dict(self._made), list(self.redeemed)
        mine: dict[str, Any] = {
            "agreement": self._agreed,
            "member": self.machine.member,
            "incarnation": self.incarnation,
            "epoch": self.epoch,
            "chain": self.chain,
            "chains": [[n, chain] for n, (chain, _) in made.items()],
            "uploaded": {"all": self.all_uploads, "n": self.uploaded.n, "releases": self.releases},
        }
        total = {f"uploaded.{name}": array for name, array in arrays_of(self.uploaded).items()}

        def finish() -> State:
            header, arrays = finish_machine()
            sent = {f"upload.{n}": np.frombuffer(data, dtype=np.uint8) for n, (_, data) in made.items()}
            own: dict[str, NDArray[Any]] = {**total, "redeemed": np.array(redeemed, dtype=np.int64)}
            return State({**mine, "machine": header}, {**arrays, **sent, **own})

        return finish

    def _recover(self) -> None:
        snapshot, entries = self.store.read(KIND)
        if snapshot is None:
            return
        header, arrays = unpack(KIND, snapshot, self.store.where)
        with restoring(KIND, self.store.where):
            require_like(State(header, {}), State(self.state().header | {"agreement": {}}, {}))  # it reads itself
            if Agreement.of_json(header["agreement"]).as_json() != self._agreed:
                raise FedbanditError(
                    f"The client's state in {self.store.where} belongs to a federation with another agreement; "
                    "every federation needs a file of its own."
                )
            fresh = {name: a for name, a in self.state().arrays.items() if name.startswith(("uploaded.", "redeemed"))}
            mine, uploaded = {name: arrays.pop(name) for name in fresh}, header["uploaded"]
            blocks = {f"uploaded.{name}": rule for name, rule in self.machine.form.varying("u").items()}
            require_like(State({}, mine), State({}, fresh), {"redeemed": (np.int64, ("k",)), **blocks})
            self.machine.restore(State(header["machine"], arrays))
            self._made = {n: (chain, arrays[f"upload.{n}"].tobytes()) for n, chain in header["chains"]}
            self.uploaded = sums_of({name.removeprefix("uploaded."): a for name, a in mine.items()}, uploaded["n"])
            self.all_uploads, self.releases = uploaded["all"], uploaded["releases"]
            self.redeemed = dict.fromkeys(mine["redeemed"].tolist())
        self.incarnation, self.epoch, self.chain = header["incarnation"], header["epoch"], header["chain"]
        for entry in entries:
            self._replay(unpack_entry(KIND, entry, self.store.where))

    def _replay(self, entry: bytes) -> None:
        kind = entry[0]
        if kind == _CHOSEN:
            _, number, self.machine.steps = _CHOICE.unpack_from(entry)
            self.machine.await_reward(number, np.frombuffer(entry, dtype="<f8", offset=_CHOICE.size).copy())
        elif kind == _MADE:
            upload = decode(entry[1 + _CHAIN :])
            assert isinstance(upload, Upload)
            self.machine.repeat(upload)
            self.chain = int.from_bytes(entry[1 : 1 + _CHAIN], "little")
            self._note_upload(upload, entry[1 + _CHAIN :])
        elif kind == _TOOK:
            self.machine.receive(decode(entry[1:]))
            self._forget_acknowledged()
        elif kind == _REDEEMED:
            _, number, value = _REWARD.unpack_from(entry)
            self._redeem(number, np.frombuffer(entry, dtype="<f8", offset=_REWARD.size).copy(), value, speak=False)
        elif kind in (_REWARDED, _GONE):
            _, number, value = _REWARD.unpack_from(entry)
            x = self.machine.waits_for(number)
            self.machine.forget(number)
            if kind == _REWARDED and x is not None:
                self.machine.learn(x, value)

    def _redeem(self, choice: int, x: Array, perceived: float, *, speak: bool = True) -> list[Message]:
        self.machine.forget(choice)
        self.machine.learn(x, perceived)
        self.redeemed[choice] = None
        if len(self.redeemed) > MOST_REDEEMED:
            del self.redeemed[next(iter(self.redeemed))]
        return self.machine.speak() if speak else []

    def _note(self, messages: list[Message]) -> None:
        """Take messages of the machine that have to be sent: an upload extends the chain."""
        for message in messages:
            if isinstance(message, Upload):
                data = encode(message)
                if self.machine.stream is None or message.sums.n == 0:
                    self.journal.add(bytes([_MADE]) + self.chain.to_bytes(_CHAIN, "little") + data)
                else:
                    self.journal.defer()
                self._note_upload(message, data)
                self.asking = None
            elif isinstance(message, Request):
                self.asking = message
        self._forget_acknowledged()

    def _note_upload(self, upload: Upload, data: bytes) -> None:
        self._made[upload.sequence] = self.chain, data
        self.chain = extend(self.chain, data)
        if upload.sums.n > 0:
            self.uploaded = add(self.uploaded, upload.sums)
            self.releases += 1

    def _forget_acknowledged(self) -> None:
        if len(self._made) > len(self.machine.outbox):
            self._made = {n: made for n, made in self._made.items() if n in self.machine.outbox}

    def _make_safe(self) -> None:
        """Write all there is, such that it survives a power cut."""
        with self.lock:
            sequence = self.machine.sequence
            self.journal.add(struct.pack("<BQ", _SENDING, sequence))
        self.journal.write(durable=True)
        self._safe = sequence

    def _seal(self, chain: int, message: bytes) -> bytes:
        envelope = Envelope(self.incarnation, self.epoch, self.nonce, self.machine.sequence, chain, self.terms)
        return seal(envelope, message)
