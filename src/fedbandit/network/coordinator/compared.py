"""A federation whose members are compared with one another (`robust.py`), if that is a rule."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from fedbandit.messages import Message, Restate, Upload
from fedbandit.network.coordinator import journal as kinds
from fedbandit.network.coordinator.journal import Entry, numbers
from fedbandit.network.coordinator.recorded import RecordedFederation
from fedbandit.network.coordinator.register import MemberRecord
from fedbandit.network.coordinator.robust import Comparison
from fedbandit.network.refusal import Refusal


class ComparedFederation(RecordedFederation):
    """Whoever contradicts more members than there can be liars is put in quarantine."""

    def __init__(self, *arguments: Any) -> None:
        self.unsent: list[Message] = []
        """Messages that are no answers to what was received, to be sent by the host."""
        super().__init__(*arguments)

    def recover(self) -> None:
        """Also who contradicts whom."""
        super().recover()
        self.compare_all()

    def compare_all(self) -> None:
        """Begin to compare members with one another, if that is a rule."""
        self.comparison: Comparison | None = None
        contributions, rule = self.machine.contributions, self.rules.robust
        if rule is None or contributions is None:
            return
        world, machine = self.agreement.world, self.machine
        self.comparison = Comparison(rule, machine.slot_of, self.dim, machine.ridge, world.noise)
        for record in self.register.present:
            if not record.quarantined:
                self.comparison.note(record.member, contributions.sums_of(record.member))

    def compare(self, record: MemberRecord, message: Upload | Restate, at: float, entries: list[Entry]) -> None:
        """Put whoever contradicts the others in quarantine, perhaps the one who says this."""
        contributions = self.machine.contributions
        if self.comparison is None or contributions is None:
            return
        if isinstance(message, Restate):  # it takes the place of what was compared before, however much that was
            self.comparison.forget(record.member)
        elif message.sums.n == 0:
            return
        whole = contributions.with_these(message)
        for i in self.comparison.compare(record.member, whole):
            accused = self.register.by_number[i]
            if not accused.trusted:
                reason = self.comparison.reason(i)
                self.unsent += self.suspend(accused, reason, "robust", at)
                entries.append(Entry(kinds.SUSPENSION, at, accused.name, json.dumps([reason, "robust"]).encode()))
        suspects = self.comparison.suspects()
        for other in self.register.present:
            if other.suspected != (other.member in suspects) and not other.trusted:
                self.unsent += self.suspect(other, not other.suspected, at)
                entries.append(Entry(kinds.SUSPICION, at, other.name, numbers(other.suspected)))
        if record.quarantined:
            raise Refusal("quarantined", f"Client {record.name!r} is in quarantine: {record.quarantined}")

    def count_heard(self) -> int:
        """Observations of everybody, suspects too, but not of those in quarantine: they would use up the horizon."""
        kept, records = self.machine.contributions, self.register.by_number
        aside = [] if kept is None else [records[i] for i in np.flatnonzero(kept.aside[: len(records)])]
        return int(self.machine.members.n.sum()) + self.count_set_aside([r for r in aside if not r.quarantined])

    def count_set_aside(self, records: list[MemberRecord]) -> int:
        """Observations of these members that are in nobody's share."""
        kept = self.machine.contributions
        return 0 if kept is None else sum(int(kept.own.n[r.member]) for r in records if kept.aside[r.member])
