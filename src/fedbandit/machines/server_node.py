"""A local server on a network: the machine that serves its users, and what it says, numbered. No I/O, no clock.

| it gets             | it does                                                       | it sends             |
|---------------------|---------------------------------------------------------------|----------------------|
| a reward            | lets the user's model learn, and speak                        | FromServer           |
| Collect             | finds local clusters anew                                     | FromServer, a report |
| ToServer            | hands what is inside to its models, if they are of that phase | FromServer, if asked |
| ToServer, a renewal | its local clusters begin anew, or go on                       | –                    |
| Receipt             | need not send what has that number or a lower one again       | –                    |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import FedbanditError, require
from fedbandit.machines.cluster_server import ClusterServer, ExchangingServer, MemberServer
from fedbandit.machines.exchange import Exchange
from fedbandit.machines.local_server import Kept, LocalServer, Server
from fedbandit.machines.phases import Renewal
from fedbandit.machines.servers_coordinator import local_servers
from fedbandit.messages import Collect, Download, Join, Message, Recall, Receipt, Upload, decode, encode
from fedbandit.privacy.noise import label_of
from fedbandit.server_messages import FromServer, ToServer
from fedbandit.state import State, joined, parts_of
from fedbandit.structures import Clustering
from fedbandit.system import System
from fedbandit.world import World


class ServerNode:
    """Server `member` of a system that was told the world; its users are those that the structure puts there.

    Where users' models exchange nothing (CLUB, SCLUB) it only serves them.
    """

    def __init__(self, member: int, system: System, world: World, seed: int = 0, **kept: Unpack[Kept]) -> None:
        server_of = local_servers(system, world)
        alone = server_of is None
        if server_of is None:
            if not isinstance(system.structure, Clustering):
                raise FedbanditError(f"{system.name} has no local servers; they are clients' systems or clusterings.")
            server_of = system.structure.servers(world)
        require(0 <= member <= server_of.max(), "the number of a local server", member, f"at most {server_of.max()}")
        users = np.flatnonzero(server_of == member)
        self.server: Server
        if alone:
            self.server = LocalServer(users, system, world, seed, **kept)
        elif system.structure.separate:
            self.server = MemberServer(users, system, world, seed, **kept)
        else:
            self.server = ClusterServer(member, users, system, world, seed, **kept)
        self.member, self.dim = member, world.dim
        claims = [system.guarantee_of(user) for user in self.server.users]
        claim = max(claims, key=lambda claim: claim.epsilon)
        kinds = [each.stream.mechanism.noise for each in self.exchanges.values() if each.stream is not None]
        source = kept.get("source")
        self.guarantee = claim if source is None else replace(claim, noise=label_of(source, kinds))
        """The weakest of what holds for its users, and how noise is drawn."""
        self.users = frozenset(self.server.users)
        self.sequence = 0
        """The number of the last message that has to be acknowledged."""
        self.outbox: dict[int, FromServer] = {}
        self.phase = 0
        """The last phase that it took part in and that changed anything."""
        self.called = 0
        """The last phase in which it has reported."""
        self.settled = 0
        """The last of them of which it knows what came of it. It does not report again before that."""

    @property
    def exchanges(self) -> dict[int, Exchange]:
        """Models that take part in the federation."""
        return self.server.exchanges if isinstance(self.server, ExchangingServer) else {}

    def join(self) -> list[Message]:
        """The message to begin a connection with."""
        return [Join(self.member, 0, self.called)] if self.exchanges else []

    def ask(self) -> FromServer:
        """What to say when nothing is open: which downloads its models have, so that what they missed is sent."""
        joins = [join for exchange in self.exchanges.values() for join in exchange.join()]
        return FromServer(self.member, 0, self.phase, tuple(joins))  # type: ignore[arg-type]

    def take(self, choice: int, y: float) -> list[Message]:
        """Learn a choice's reward as it was perceived, and say what to send."""
        return self._numbered(self.server.take(choice, y))

    def receive(self, message: Message) -> list[Message]:
        """Take a message from the coordinator, and say what to send."""
        require(message.member == self.member, "the addressee", message.member, f"server {self.member}")
        match message:
            case Receipt(_, sequence):
                self._acknowledged(sequence)
            case Collect(_, epoch) if isinstance(self.server, ClusterServer) and epoch > self.called:
                return [self._report(self.server, epoch) if self.settled == self.called else self.ask()]
            case ToServer(_, phase, _, renewal) if renewal and isinstance(self.server, ClusterServer):
                if phase == self.called > self.settled:
                    self._renew(self.server, message)
            case ToServer(_, phase, messages) if not message.renewal and phase == self.phase:
                assert isinstance(self.server, ExchangingServer)
                return self._numbered([said for inner in messages for said in self.server.receive(inner)])
            case ToServer() | Collect() | Recall():
                pass
            case _:
                raise FedbanditError(f"A local server does not take a {type(message).__name__}.")
        return []

    def _report(self, server: ClusterServer, phase: int) -> FromServer:
        report, self.called = server.begin_phase(phase + 1), phase
        uploads = tuple(Upload(r, 0, sums, 0.0) for r, sums in report.clusters.items())
        return self._number(FromServer(self.member, self.sequence + 1, phase, uploads, report=True))

    def _renew(self, server: ClusterServer, message: ToServer) -> None:
        downloads = tuple(inner for inner in message.messages if isinstance(inner, Download))
        server.renew(Renewal(self.member, message.phase, downloads))
        self.settled = message.phase
        if downloads:
            self.phase = message.phase

    def _numbered(self, messages: list[Message]) -> list[Message]:
        """What models say, as what the server says."""
        return [
            self._number(FromServer(self.member, self.sequence + 1, self.phase, (message,)))
            if isinstance(message, Upload)
            else FromServer(self.member, 0, self.phase, (message,))  # type: ignore[arg-type]
            for message in messages
        ]

    def _number(self, message: FromServer) -> FromServer:
        self.sequence = message.sequence
        self.outbox[message.sequence] = message
        return message

    def _acknowledged(self, sequence: int) -> None:
        for number in [number for number in self.outbox if number <= sequence]:
            message = self.outbox.pop(number)
            for inner in message.messages:
                if not message.report and message.phase == self.phase:
                    self.exchanges[inner.member].receive(Receipt(inner.member, inner.sequence))  # type: ignore[union-attr]

    # After a crash

    def take_again(self, message: Message) -> None:
        """A message on record: what is said to it is on record too."""
        sequence, outbox = self.sequence, dict(self.outbox)
        self.receive(message)
        if self.sequence != sequence:
            self.sequence, self.outbox = sequence, outbox

    def repeat(self, message: FromServer, state: State | None = None) -> None:
        """An upload on record, in place of one that would be made now; if it is noised, with the model's state then."""
        (upload,) = message.messages
        assert isinstance(upload, Upload)
        if state is None:
            self.exchanges[upload.member].repeat(upload)
        else:
            self.exchanges[upload.member].restore(state)
        self._number(message)

    def capture(self) -> Callable[[], State]:
        """The state as it is now."""
        homes = self.server.homes if isinstance(self.server, ClusterServer) else {}
        sent: dict[str, NDArray[Any]] = {
            f"sent.{n}": np.frombuffer(encode(message), dtype=np.uint8) for n, message in self.outbox.items()
        }
        header = {"sequence": self.sequence, "phases": [self.phase, self.called, self.settled]}
        mine = State(header, {**sent, "homes": np.array(list(homes.items()), dtype=np.int64).reshape(-1, 2)})
        state = joined({}, {"node": mine, "machine": self.server.state()})
        return lambda: state

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        parts = parts_of(state)
        header, arrays = parts["node"]
        self.server.restore(parts["machine"])
        self.sequence, (self.phase, self.called, self.settled) = header["sequence"], header["phases"]
        if isinstance(self.server, ClusterServer):
            self.server.homes = dict(arrays["homes"].tolist())
        self.outbox = {}
        for name in sorted((name for name in arrays if name.startswith("sent.")), key=lambda name: int(name[5:])):
            message = decode(arrays[name].tobytes())
            assert isinstance(message, FromServer)
            self.outbox[message.sequence] = message
