"""The coordinator's half of secure sums on a network: one sum at a time, and what waits for each member.

Nothing of it is kept: a coordinator that restarts has forgotten the sum that was under way, which is then never opened,
and calls again under a new epoch. Clients remember one another's keys; what the coordinator remembers only spares them
a sum that they would leave.
"""

from __future__ import annotations

from fedbandit.errors import FedbanditError
from fedbandit.machines.sums.messages import Step, SumMessage, decode_step
from fedbandit.machines.sums.server import SumServer
from fedbandit.machines.sums.terms import Acquaintances
from fedbandit.messages import Message
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.refusal import Refusal
from fedbandit.network.sums import STEP_SECONDS, mask_terms, session_of


class SumDesk:
    """The sum that is under way in a federation, and the keys that clients have had in those before."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.acquaintances = Acquaintances()
        self.server: SumServer | None = None
        self.told: list[Message] = []
        """Messages that follow from a sum that was opened or given up, to be sent by the host."""
        self._waiting: dict[int, list[SumMessage]] = {}
        self._since = 0.0

    @property
    def most_bytes(self) -> int:
        """The longest step that a client sends."""
        world = self.federation.agreement.world
        return 64 + 8 * self.federation.dim * (self.federation.dim + 3) + 128 * world.n_clients

    def exchange(self, name: str, body: bytes, at: float, session: str = "") -> list[SumMessage]:
        """Take a client's step, if it sends one; the steps that wait for it. A session of a copy is refused."""
        federation = self.federation
        record = federation.register.record(name)
        if not federation.machine.secure_sums:
            raise Refusal("malformed", f"The federation {federation.name!r} has no secure sums.")
        if record.quarantined or not record.verified:
            raise Refusal("session", f"Client {name!r} has not joined, or is in quarantine, and is in no sum.")
        if session and session != session_of(record.incarnation, record.epoch, record.nonce):
            raise Refusal("session", f"Client {name!r} has joined with another state since: this one is in no sum.")
        record.last_heard = at
        self.look(at)
        if body:
            try:
                message = decode_step(body)
            except FedbanditError as error:
                raise Refusal("malformed", str(error)) from None
            if message.member != record.member:
                raise Refusal("identity", f"Client {name!r} cannot speak for member {message.member} in a sum.")
            if self.server is None or message.epoch != self.server.epoch:
                raise Refusal("sum", f"The sum of epoch {message.epoch} is over, or has not begun.")
            try:
                self._say(self.server.receive(message), at)
            except FedbanditError as error:
                if message.step == Step.KEYS:
                    self._say(self.server.leave_out(message.member), at)
                    self._settle(at)
                raise Refusal("sum", str(error)) from None
            if message.step == Step.MASKED:
                federation.masked[record.member] = message.epoch
            self._settle(at)
        return self._waiting.pop(record.member, [])

    def look(self, at: float) -> None:
        """Begin the sum that was called for, and go on without whoever is late."""
        calls = self.federation.machine.calls
        epoch = max(calls, default=0)
        if self.server is not None and self.server.epoch not in calls:
            self.server, self._waiting = None, {}
        if self.server is None and calls:
            terms = mask_terms(self.federation.system, self.federation.agreement)
            self.server, self._since = SumServer(terms, epoch, calls[epoch].missing, self.acquaintances), at
        if self.server is not None and at - self._since > STEP_SECONDS:
            self._since = at
            self._say(self.server.go_on(), at)
            self._settle(at)

    def _say(self, messages: list[SumMessage], at: float) -> None:
        if messages:
            self._since, self._waiting = at, {}
        for message in messages:
            self._waiting.setdefault(message.member, []).append(message)

    def _settle(self, at: float) -> None:
        """What the federation makes of a sum that is over."""
        server = self.server
        if server is None or not server.over:
            return
        self.server, self._waiting = None, {}
        if server.opened is not None:
            self.told += self.federation.open_sum(server.opened, at)
        else:
            self.told += self.federation.give_up_sum(server.failed, at)
