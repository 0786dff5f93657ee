"""Whether a federation's store can be written; what the log says about that, and about whatever else has happened."""

from __future__ import annotations

import logging
import time

from fedbandit.network.coordinator.backup import MENDED
from fedbandit.network.coordinator.erasure import UNFINISHED
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.pacing import QuietLog
from fedbandit.network.coordinator.places import DECLINED
from fedbandit.network.coordinator.recorded import COPIED, FAILS, FAULT, Event

FAILING_SECONDS = 60.0
"""For how long a write that failed counts if none as long succeeds; clients try again within 30 s."""
BAD = (FAILS, FAULT, COPIED, MENDED, UNFINISHED, "quarantine")
"""What is a warning, and so is whatever was refused to an operator."""
OF_CLIENTS = (DECLINED, FAULT, COPIED)
"""What one client can bring about as often as it likes."""
SPENT = "The budget is spent: the last total there can be is out, and what clients learn from now on is theirs alone."
log = logging.getLogger("fedbandit.coordinator")


class Health:
    """What has happened in a federation, and whether its last writes are in the store.

    On a full disk short writes succeed between longer ones that do not. So one that failed counts until one that is as
    long succeeds, or for a minute, in which every client that waits tries again: where nothing comes any more, nothing
    else would tell. A snapshot that is due and does not fit counts until one does.
    """

    def __init__(self, federation: Federation) -> None:
        self._federation, self._quiet = federation, QuietLog()
        self.failing: str | None = None
        """Why a write failed."""
        self._failed_at = 0.0
        self._spent = False
        self._late_snapshots = 0

    def say(self) -> None:
        """Log what has happened since the last time."""
        name, journal = self._federation.name, self._federation.journal
        events, self._federation.events = self._federation.events, []
        if journal.late_snapshots > self._late_snapshots:
            self._late_snapshots = journal.late_snapshots
            events.append(Event(FAILS, {"reason": journal.late}))
        if faults := [event.facts["reason"] for event in events if event.what == FAILS]:
            self.failing, self._failed_at = faults[-1], time.monotonic()
        elif self.failing and not journal.late and (not journal.unproven or self._has_been_quiet()):
            self.failing = None
            log.info("the store is back", extra={"federation": name})
        if not self._spent and is_spent(self._federation):
            self._spent = True
            log.warning("the budget is spent", extra={"federation": name, "reason": SPENT})
        for event in events:
            if self._is_said(event):
                bad = event.what in BAD or event.what.endswith(" refused")
                level = logging.WARNING if bad else logging.INFO
                log.log(level, event.what, extra={"federation": name, **event.facts})

    def _has_been_quiet(self) -> bool:
        return time.monotonic() - self._failed_at > FAILING_SECONDS

    def _is_said(self, event: Event) -> bool:
        """Whether this is new: what comes again and again must not fill a disk."""
        if event.what in OF_CLIENTS:
            return self._quiet.says(f"{event.what}/{event.facts['client']}")
        return event.what != FAILS or self._quiet.says("store")


def releases_left(federation: Federation) -> int | None:
    """How many more totals a pooled federation can open or publish; None of one that is not."""
    pool = federation.machine.pool
    return None if pool is None else max(pool.total.epochs - pool.total.epoch, 0)


def is_spent(federation: Federation) -> bool:
    """Whether everybody's total will never change again."""
    return releases_left(federation) == 0
