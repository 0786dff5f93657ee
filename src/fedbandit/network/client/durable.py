"""One client as its device keeps it: the machine, its session, and a journal to recover from.

Theory of operation
-------------------
That of every node (`node`). Whatever changes the machine is an entry: a choice, a reward, an upload, a message that was
taken. Only an upload that carries noise for privacy is written as a snapshot, since the mechanism's own state has
changed in ways that nothing else repeats.

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
| 8 round    | the round (u64) that it is from here on, where models forget          |
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedbandit.errors import FedbanditError, number, require
from fedbandit.machines.client import Choice, ClientMachine
from fedbandit.messages import (
    Collect,
    Download,
    Message,
    Recall,
    Receipt,
    Restate,
    Threshold,
    Upload,
    decode,
    encode,
)
from fedbandit.network.client.choices import LARGEST, not_waiting
from fedbandit.network.client.features import checked_log
from fedbandit.network.client.journal import KIND
from fedbandit.network.client.node import CHAIN, MADE, TOOK
from fedbandit.network.client.restating import RestatingNode
from fedbandit.network.envelope import extend
from fedbandit.network.invitation import Agreement, UnsoundChange
from fedbandit.network.stores import Store
from fedbandit.privacy.noise import Source
from fedbandit.privacy.sum_stream import SumStream
from fedbandit.server_messages import FromServer
from fedbandit.state import State, require_like
from fedbandit.sums import add, arrays_of, sums_of
from fedbandit.types import Array

_CHOICE = struct.Struct("<BQQ")  # kind, number, arms chosen so far
_REWARD = struct.Struct("<BQd")
_ROUND = struct.Struct("<BQ")
_CHOSEN, _REWARDED, _GONE, _REDEEMED, _PASSED = 1, 2, 3, 6, 8
MOST_REDEEMED = 50_000
"""Tokens that are remembered, so that none of them is taken twice."""


class DurableClient(RestatingNode[ClientMachine]):
    """A member of a federation that goes on where its store left off.

    `entropy` draws 64-bit numbers, `source` noise; without a source, noise is that of a simulation. `clock` tells
    the seconds since 1970, for federations that forget.
    """

    kind: ClassVar[str] = KIND

    def __init__(
        self,
        store: Store,
        agreement: Agreement,
        member: int,
        entropy: Callable[[], int],
        source: Source | None = None,
        clock: Callable[[], float] | None = None,
        federation: str = "",
    ) -> None:
        self._source, self._clock = source, clock or (lambda: 0.0)
        if agreement.build().forgets and (agreement.period is None or clock is None):
            raise FedbanditError(
                f"{agreement.system} forgets as rounds go by; say how long a round is: `period` of the agreement."
            )
        machine = ClientMachine(member, agreement.build(), agreement.world, agreement.seed, source=source)
        machine.rehearse()
        self.called: Collect | None = None
        """The call to a secure sum that it has not answered."""
        self.uploaded = machine.form.zero()
        """The sum of all uploads of this incarnation, if `all_uploads` are in it (not in states of format 1)."""
        self._summed = 0  # the round in whose units it is
        self.all_uploads = True
        self._here: int | None = None  # the round at the coordinator, if it may not be as late as was thought
        self.releases = 0
        """Uploads that carried something."""
        self.redeemed: dict[int, None] = {}
        """Tokens that were taken, the latest last."""
        super().__init__(store, agreement, machine, entropy, federation)

    def number_choices_from(self, number: int) -> None:
        """The next choice gets the number after this one."""
        self.machine.number_choices_from(number)

    def renew(self, agreement: Agreement, member: int) -> None:
        """The federation's terms have changed: go on under the new ones, if nothing means something else by that."""
        if member != self.machine.member:
            raise FedbanditError(f"The coordinator takes this client for member {member}, not {self.machine.member}.")
        try:
            self.agreement.require_sound_change(agreement, [member])
        except UnsoundChange as change:
            raise change.of_file(self.store.where) from None
        machine = ClientMachine(member, agreement.build(), agreement.world, agreement.seed, source=self._source)
        with self.lock:
            machine.go_on_from(self.machine)
            self.machine = machine
            self._agree(agreement)
            self.journal.defer()
        self.journal.replace(durable=True)

    def _pass_time(self) -> None:
        """Rounds go by with the clock, and never back; an entry, so that a restart forgets at the same places."""
        round = self.agreement.round_at(self._clock())
        if round > self.machine.now:
            self.machine.at(round)
            self.journal.add(_ROUND.pack(_PASSED, round))

    def hear_time(self, seconds: float) -> None:
        """It is this time at the coordinator, and not later here."""
        self._here = self.agreement.round_at(seconds)

    def _put_back(self, here: int) -> None:
        """The clock was ahead, and is no more: what has not been applied yet is of the round that it is.

        Uploads of rounds that have not begun are refused, so the coordinator has none of them, and they may be made
        anew; what was forgotten too early comes with the next download.
        """
        with self.lock:
            if self.machine.now <= here + 1:
                return
            first = min(self._made, default=0)
            self.machine.put_back(here)
            self.all_uploads = self.all_uploads and self._summed <= here
            self._summed = min(self._summed, here)
            if first:
                self.chain, self._safe = self._made[first][0], min(self._safe, first - 1)
            for n in sorted(self._made):
                data = encode(self.machine.outbox[n])
                self._made[n], self.chain = (self.chain, data), extend(self.chain, data)
            self.journal.defer()
        self._complete = False
        self.journal.replace(durable=True)

    # What the service asks

    def select(self, arms: ArrayLike, explore: float = 0.0) -> Choice:
        """Choose an arm, now and then any of them, and say how probable the choice was."""
        with self.lock:
            return self._select(arms, explore)

    def rank(self, arms: Array, explore: float = 0.0) -> tuple[Choice, Array, Array]:
        """Choose an arm; the probability of each of them, and the reward that is expected of it."""
        with self.lock:
            self._pass_time()
            p, means = self.machine.propensities(arms), self.machine.model.means(self.machine.checked(arms))
            choice = self._select(arms, explore)
        return choice, explore / len(p) + (1 - explore) * p, means

    def _select(self, arms: ArrayLike, explore: float) -> Choice:
        self._pass_time()
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
            self._pass_time()
            perceived = self.machine.perceive(reward)  # the journal has the noised reward: noise is drawn once
            self.journal.add(_REWARD.pack(_REWARDED, choice, perceived))
            self.note(self.machine.take(choice, perceived))
        self.journal.write()

    def redeem(self, choice: int, x: Array, reward: float) -> None:
        """Learn the reward of a choice that was made elsewhere, or exported here; each is taken once."""
        self._check(reward)
        x = self.machine.checked(x[None])[0]
        with self.lock:
            if choice in self.redeemed:
                raise FedbanditError(f"The reward of choice {choice:016x} has been learnt here already.")
            self._pass_time()
            perceived = self.machine.perceive(reward)
            self.journal.add(_REWARD.pack(_REDEEMED, choice, perceived) + x.tobytes())
            self.note(self._redeem(choice, x, perceived))
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
            self._pass_time()
            self.journal.defer()  # one snapshot instead of an entry each
        for x, reward in zip(X, y, strict=True):
            with self.lock:
                self.machine.learn(x, self.machine.perceive(float(reward)))
                self.note(self.machine.speak())
        self.journal.replace(durable=True)

    def _check(self, reward: float) -> None:
        most = self.agreement.reward_bound
        y = number(reward, "reward", "a finite number")
        require(abs(y) <= most, "reward", reward, f"within ±{most:g}, the reward_bound of this federation")

    # What the network asks

    def statement(self) -> Restate | None:
        """What all uploads of this incarnation amount to, if all of them are in the sum."""
        machine, date = self.machine, self._summed if self.machine.forgetting.dated else None
        said = machine.member, machine.sequence, self.releases, self.uploaded, machine.known(), machine.form.actions
        return Restate(*said, date) if self.all_uploads else None

    def receive(self, message: Message) -> None:
        """Take a message from the coordinator. What it changes may be lost: the coordinator sends it again."""
        self.note_heard()
        if isinstance(message, Collect) and isinstance(self.machine.stream, SumStream):
            if message.epoch > self.machine.stream.epoch:
                self.called = message
            return
        if isinstance(message, Recall):
            self.recall(message)
            return
        if isinstance(message, Receipt):
            self.note_receipt(message)
        with self.lock:
            self._pass_time()
            before = self.machine.version, len(self.machine.outbox)
            messages = self.machine.receive(message)
            changed = before != (self.machine.version, len(self.machine.outbox)) or isinstance(message, Threshold)
            if changed:
                self.journal.add(bytes([TOOK]) + encode(message))
            if changed and isinstance(message, Download):
                self.asking = None
            self.note(messages)
        if changed:
            self.journal.write()
        if isinstance(message, Receipt) and self._here is not None:  # from here on it is known what was applied
            here, self._here = self._here, None
            self._put_back(here)

    def contribute(self, epoch: int, included: int) -> Message | None:
        """This client's part of a secure sum: in the store, as spent, when this returns."""
        with self.lock:
            made = self.machine.receive(Collect(self.machine.member, epoch, included))
            self.journal.defer()
        self.journal.replace(durable=True)
        return made[0] if made else None

    # How it is kept

    def kept(self) -> State:
        """The sum of all uploads, and which tokens were taken."""
        uploaded = {"all": self.all_uploads, "n": self.uploaded.n, "releases": self.releases}
        uploaded |= {"round": self._summed} if self.machine.forgetting.dated else {}
        redeemed = np.array(list(self.redeemed), dtype=np.int64)
        total = {f"uploaded.{name}": array for name, array in arrays_of(self.uploaded).items()}
        return State({"uploaded": uploaded}, {**total, "redeemed": redeemed})

    def take_back(self, state: State) -> None:
        """Go on from what was kept, and from the machine's own state."""
        header, arrays = state
        mine, fresh = {name: arrays.pop(name) for name in self.kept().arrays}, self.kept()
        blocks = {f"uploaded.{name}": rule for name, rule in self.machine.form.varying("u").items()}
        require_like(State({}, mine), State({}, fresh.arrays), {"redeemed": (np.int64, ("k",)), **blocks})
        self.machine.restore(State(header["machine"], arrays))
        uploaded = header["uploaded"]
        self.uploaded = sums_of({name.removeprefix("uploaded."): a for name, a in mine.items()}, uploaded["n"])
        self.all_uploads, self.releases = uploaded["all"], uploaded["releases"]
        self._summed = uploaded.get("round", 0)
        self.redeemed = dict.fromkeys(mine["redeemed"].tolist())

    def replay(self, entry: bytes) -> None:
        """Do again what is on record."""
        kind = entry[0]
        if kind == _CHOSEN:
            _, number, self.machine.steps = _CHOICE.unpack_from(entry)
            self.machine.await_reward(number, np.frombuffer(entry, dtype="<f8", offset=_CHOICE.size).copy())
        elif kind == MADE:
            upload = decode(entry[1 + CHAIN :])
            assert isinstance(upload, Upload)
            self.machine.repeat(upload)
            self.chain = int.from_bytes(entry[1 : 1 + CHAIN], "little")
            self.note_made(upload, entry[1 + CHAIN :])
        elif kind == TOOK:
            self.machine.receive(decode(entry[1:]))
            self.forget_acknowledged()
        elif kind == _PASSED:
            self.machine.at(_ROUND.unpack(entry)[1])
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
        if choice < LARGEST:  # earlier versions took others, and wrote entries of them
            self.redeemed[choice] = None
        if len(self.redeemed) > MOST_REDEEMED:
            del self.redeemed[next(iter(self.redeemed))]
        return self.machine.speak() if speak else []

    def record(self, message: Upload | FromServer, data: bytes) -> None:
        """An entry; a snapshot if there is noise in it."""
        assert isinstance(message, Upload)
        if self.machine.stream is None or message.sums.n == 0:
            self.journal.add(self.made_entry(data))
        else:
            self.journal.defer()

    def note_made(self, message: Upload | FromServer, data: bytes) -> None:
        """Also in the sum of all uploads."""
        super().note_made(message, data)
        assert isinstance(message, Upload)
        if message.sums.n > 0:
            date = message.round or 0
            self.uploaded = add(self.machine.forgetting.moved(self.uploaded, self._summed, date), message.sums)
            self._summed = date
            self.releases += 1
