"""Several coordinators on one store, on a faulty network: any of them may be overtaken without knowing it.

Now and then another coordinator takes over, as if the owner had been stopped. The old one stays up with its memory, and
some messages still come to it: whatever it answers, it must not change anything. Now and then a client is erased, and
begins anew.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.rules import Rules
from fedbandit.network.envelope import unseal
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import NotOwner
from fedbandit.testing.crashing import Crash, CrashingStore
from fedbandit.testing.faulty import Faults, FaultyNetwork
from fedbandit.testing.oracle import Node


class SharedStore(CrashingStore):
    """One process's access to journals that several share; every read and write checks its term."""

    def __init__(self, beside: SharedStore | None = None) -> None:
        super().__init__()
        self.terms: dict[str, int] = {} if beside is None else beside.terms
        self.journals = self.journals if beside is None else beside.journals
        self.term = 0

    def claim(self, journal: str, address: str = "", configuration: str = "") -> None:  # noqa: ARG002
        """Overtake whoever is the owner."""
        self.term = self.terms[journal] = self.terms.get(journal, 0) + 1

    def _check(self, journal: str) -> None:
        if self.terms[journal] != self.term:
            raise NotOwner(journal)

    def read(self, journal: str) -> tuple[bytes | None, list[bytes]]:
        """The journal, if it is this process's."""
        self._check(journal)
        return super().read(journal)

    def append(self, journal: str, entries: Sequence[bytes], *, durable: bool = True) -> None:  # type: ignore[override]
        """Add entries, crash, or be refused."""
        self._check(journal)
        super().append(journal, entries, durable=durable)

    def replace(self, journal: str, snapshot: bytes, *, durable: bool = True) -> None:
        """Replace everything, crash, or be refused."""
        self._check(journal)
        super().replace(journal, snapshot, durable=durable)


class TakeOvers(FaultyNetwork):
    """A faulty network with coordinators that take over from one another."""

    rules = Rules(erasure=True)

    def __init__(
        self, agreement: Agreement, seed: int, faults: Faults | None = None, take_over: float = 0.01, erase: float = 0.0
    ) -> None:
        self.overtaken: Federation | None = None
        self.take_overs = self.refused_when_overtaken = self.erasures = 0
        self._odds = take_over, erase
        super().__init__(agreement, seed, faults)

    def make_store(self) -> CrashingStore:
        """The first one's."""
        return SharedStore()

    def _federation(self) -> Federation:
        self.coordinator_store.claim("f")
        return super()._federation()

    def step(self) -> None:
        """One thing happens."""
        super().step()
        if self.random.random() < self._odds[0]:
            self.take_over()
        if self.random.random() < self._odds[1]:
            self.erase(self.random.choice(list(self.nodes.values())))

    def take_over(self) -> None:
        """Another coordinator becomes the owner; the old one does not know."""
        old = self.coordinator_store
        assert isinstance(old, SharedStore)
        old.crash = ""
        self.overtaken, self.coordinator_store = self.coordinator, SharedStore(old)
        self.restart_coordinator()
        self.take_overs += 1

    def _to_coordinator(self, node: Node, frame: bytes) -> None:
        if self.overtaken is None or self.random.random() < 0.5:
            super()._to_coordinator(node, frame)
            return
        before = self.coordinator_store.copy().journals
        try:
            (outcome,) = self.overtaken.receive([(node.client, frame)], float(self.time))
        except Refusal as refusal:
            outcome = refusal
        assert self.coordinator_store.journals == before, "a coordinator that was overtaken has written"
        if isinstance(outcome, Refusal):
            self.refused_when_overtaken += outcome.kind == "elsewhere"
            if self.random.random() < 0.2:
                self.overtaken = None  # it steps down
            return
        lives = node.live is not None and unseal(frame)[0].incarnation == node.live.incarnation
        for answer in outcome:  # on the connection of whoever asked, which ends with its life
            if self.coordinator is not None and lives:
                self._answer(answer, node.name)

    def erase(self, node: Node) -> None:
        """A client is erased, and begins anew; what is on its way to it is lost."""
        if self.coordinator is None or not self.coordinator.register.record(node.client).joined:
            return  # whoever has never joined has nothing to erase, and its greeting may be on its way
        try:
            answers, _ = self.coordinator.erase(node.client, float(self.time))
        except Crash:
            self.crashes += 1
            self.restart_coordinator()
            if self.coordinator.register.record(node.client).joined:
                return  # before it was written
            answers = []
        self.erasures += 1
        self.oracle.note_erased(node)
        self.flying = [one for one in self.flying if one[2] != node.name]
        self.nodes[node.name] = self.make_node(node.name, node.member)
        self.restart(self.nodes[node.name])
        for answer in answers:
            if answer.member != node.member:
                self._answer(answer, "")
