"""One local server as its machine keeps it: the machine that serves its users, its session, and a journal.

Theory of operation
-------------------
That of every node (`node`); entries are a client's with the user in them. An upload that carries noise has the state of
the model that released it beside it, so that what is written does not grow with the number of users; the beginning of
a phase is a snapshot.

Threads: `select` and `forget` may be called at any time and never wait for the store; of the other methods the caller
runs one at a time.

| entry      | bytes after its kind (u8)                                                                       |
|------------|-------------------------------------------------------------------------------------------------|
| 1 chosen   | number (u64), user (u64), context (d floats)                                                    |
| 2 rewarded | number (u64), the reward as it was perceived (f64)                                              |
| 3 gone     | number (u64), 0.0                                                                               |
| 4 made     | the chain before (16 bytes), the message as it is sent                                          |
| 5 took     | the message as it came                                                                          |
| 7 sending  | number (u64) of the last message that may be sent                                               |
| 8 released | the chain before, the length of the message (u32), the message as it is sent, the model's state |
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from fedbandit.errors import FedbanditError, number, require, shown
from fedbandit.machines.client import Choice
from fedbandit.machines.server_node import ServerNode
from fedbandit.messages import Collect, Message, Recall, Receipt, Upload, decode, encode
from fedbandit.network.client.choices import not_waiting
from fedbandit.network.client.node import CHAIN, MADE, TOOK, DurableNode
from fedbandit.network.invitation import Agreement
from fedbandit.network.stores import Store
from fedbandit.privacy.noise import Source
from fedbandit.server_messages import FromServer, ToServer
from fedbandit.state import State, pack, unpack
from fedbandit.types import Array

KIND = "local-server"
_CHOICE = struct.Struct("<BQQ")  # kind, number, user
_REWARD = struct.Struct("<BQd")
_LENGTH = struct.Struct("<I")
_CHOSEN, _REWARDED, _GONE, _RELEASED = 1, 2, 3, 8


class DurableServer(DurableNode[ServerNode]):
    """A local server of a federation that goes on where its store left off.

    `entropy` draws 64-bit numbers, `source` noise; without a source, noise is that of a simulation.
    """

    kind: ClassVar[str] = KIND

    def __init__(
        self,
        store: Store,
        agreement: Agreement,
        member: int,
        entropy: Callable[[], int],
        source: Source | None = None,
        federation: str = "",
    ) -> None:
        node = ServerNode(member, agreement.build(), agreement.world, agreement.seed, source=source)
        self._source = source
        super().__init__(store, agreement, node, entropy, federation)

    def number_choices_from(self, number: int) -> None:
        """The next choice gets the number after this one."""
        self.machine.server.number_choices_from(number)

    def renew(self, agreement: Agreement, member: int) -> None:
        """Other terms would be other models of all users: they are refused."""
        raise FedbanditError(
            f"Local server {member} cannot go on under other terms ({agreement.digest.hex()[:8]}); begin a new "
            "federation with them."
        )

    # What the service asks

    def select(self, user: int, arms: Array) -> Choice:
        """Choose an arm for a user."""
        with self.lock:
            choice = self.machine.server.select(self.checked_user(user), arms)
            waiting = self.machine.server.waits_for(choice.number)
            assert waiting is not None
            self.journal.add(_CHOICE.pack(_CHOSEN, choice.number, user) + waiting[1].tobytes())
        return choice

    def checked_user(self, user: int) -> int:
        """The user, if it is one of this server's."""
        users = self.machine.server.users
        if isinstance(user, bool) or not isinstance(user, int | np.integer) or user not in self.machine.users:
            listed = f"{users[0]} to {users[-1]}" if users == list(range(users[0], users[-1] + 1)) else shown(users)
            raise FedbanditError(
                f"User {shown(user)} is not known to local server {self.machine.member}, whose users are {listed}."
            )
        return int(user)

    def observe(self, choice: int, reward: float) -> None:
        """Learn the reward of a choice; it is in the store when this returns."""
        y, most = number(reward, "reward", "a finite number"), self.agreement.reward_bound
        require(abs(y) <= most, "reward", reward, f"within ±{most:g}, the reward_bound of this federation")
        server = self.machine.server
        with self.lock:
            waiting = server.waits_for(choice)
            if waiting is None:
                raise not_waiting(choice)
            perceived = server.perceive(waiting[0], y)  # the journal has the noised reward: noise is drawn once
            self.journal.add(_REWARD.pack(_REWARDED, choice, perceived))
            self.note(self.machine.take(choice, perceived))
        self.journal.write()

    def forget(self, choice: int) -> None:
        """The reward of this choice will never come."""
        with self.lock:
            self.machine.server.forget(choice)
            self.journal.add(_REWARD.pack(_GONE, choice, 0.0))

    # What the network asks

    def greeting(self) -> bytes | None:
        """The frame to begin a connection with; what its models have missed is asked for when nothing is open."""
        greeting = super().greeting()
        self._complete = False
        return greeting

    def greet_again(self) -> bytes | None:
        """Which downloads its models have."""
        self._complete = True
        return self._seal(self.chain, encode(self.machine.ask()))

    def receive(self, message: Message) -> None:
        """Take a message from the coordinator. What it changes may be lost: the coordinator sends it again."""
        self.note_heard()
        if isinstance(message, Recall):
            self.recall(message)
        elif isinstance(message, Receipt):
            self.note_receipt(message)
        with self.lock:
            before = self._progress()
            messages = self.machine.receive(message)
            changed = before != self._progress() or isinstance(message, ToServer)
            if isinstance(message, Collect) or (isinstance(message, ToServer) and message.renewal):
                if before != self._progress():
                    self.journal.defer()  # clusters are found anew: a snapshot has them
            elif changed:
                self.journal.add(bytes([TOOK]) + encode(message))
            self.note(messages)
        if changed:
            self.journal.write()

    def _progress(self) -> tuple[int, int, int]:
        return self.machine.called, self.machine.settled, len(self.machine.outbox)

    # How it is kept

    def record(self, message: Upload | FromServer, data: bytes) -> None:
        """An entry; with the model's state if there is noise in it, and a snapshot if it is a report."""
        assert isinstance(message, FromServer)
        upload = message.messages[0]
        assert isinstance(upload, Upload)
        exchange = self.machine.exchanges.get(upload.member)
        if message.report or exchange is None:
            self.journal.defer()
        elif exchange.stream is None or upload.sums.n == 0:
            self.journal.add(self.made_entry(data))
        else:
            head = bytes([_RELEASED]) + self.chain.to_bytes(CHAIN, "little") + _LENGTH.pack(len(data))
            self.journal.add(head + data + pack(KIND, exchange.state()))

    def kept(self) -> State:
        """Nothing more."""
        return State({}, {})

    def take_back(self, state: State) -> None:
        """Go on from what was kept, and from the machine's own state."""
        mine = {name: array for name, array in state.arrays.items() if not name.startswith("upload.")}
        self.machine.restore(State(state.header["machine"], mine))

    def replay(self, entry: bytes) -> None:
        """Do again what is on record."""
        kind, server = entry[0], self.machine.server
        if kind == _CHOSEN:
            _, choice, user = _CHOICE.unpack_from(entry)
            server.await_reward(choice, user, np.frombuffer(entry, dtype="<f8", offset=_CHOICE.size).copy())
        elif kind in (_REWARDED, _GONE):
            _, choice, value = _REWARD.unpack_from(entry)
            waiting = server.waits_for(choice)
            server.forget(choice)
            if kind == _REWARDED and waiting is not None:
                server.count_reward(waiting[0])
                server.learn(*waiting, value)
        elif kind == MADE:
            self._repeat(entry, entry[1 + CHAIN :])
        elif kind == _RELEASED:
            (length,) = _LENGTH.unpack_from(entry, 1 + CHAIN)
            start = 1 + CHAIN + _LENGTH.size
            state = unpack(KIND, entry[start + length :], self.store.where)
            self._repeat(entry, entry[start : start + length], state)
        elif kind == TOOK:
            message = decode(entry[1:])
            self.machine.take_again(message)
            if isinstance(message, Receipt):
                self.forget_acknowledged()

    def _repeat(self, entry: bytes, data: bytes, state: State | None = None) -> None:
        message = decode(data)
        assert isinstance(message, FromServer)
        self.machine.repeat(message, state)
        self.chain = int.from_bytes(entry[1 : 1 + CHAIN], "little")
        self.note_made(message, data)
