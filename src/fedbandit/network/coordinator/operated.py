"""What a person, or a client by a request, asks of a federation: it is in the store when it is said, or never happened.

A write that fails leaves memory ahead of the store. So `whole` forgets what was to be said – events for the log,
connections to end, messages to send – and whatever comes next begins with what the store has; after what a person has
asked for (`act`) memory is as the store is at once, since whoever asked looks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from copy import copy
from typing import Any

from fedbandit.errors import FedbanditError
from fedbandit.messages import Message
from fedbandit.network.coordinator import journal as kinds
from fedbandit.network.coordinator import places
from fedbandit.network.coordinator.checked import CheckedFederation
from fedbandit.network.coordinator.erasure import OWED, UNFINISHED, erase, unfinished
from fedbandit.network.coordinator.journal import KIND, Entry, numbers
from fedbandit.network.coordinator.recorded import FAILS, Event
from fedbandit.network.coordinator.register import MemberRecord
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import NotOwner, StoreError
from fedbandit.state import State, require_like, restoring


class OperatedFederation(CheckedFederation):
    """A federation to which things are done by name."""

    unfinished = ""
    """Why the store could not be compacted after an erasure."""

    def invite(self, name: str, at: float) -> MemberRecord:
        """The record of a client, which becomes a member if it is none."""
        with self.act():
            if name not in self.register.by_name:
                self.register.enrol(name, at)  # first, as the write may be a snapshot
                self.write([Entry(kinds.ENROLMENT, at, name)])
            return self.register.by_name[name]

    def decline(self, name: str, at: float) -> tuple[bool, list[Message]]:
        """A client that was invited does not take part: whether its place is free, and what is to be sent."""
        with self.act():
            return places.decline(self, name, at)

    def quarantine(self, name: str, reason: str, at: float, by: str = "") -> list[Message]:
        """Refuse whatever a client sends from now on, and set aside what it has sent; an empty reason ends that.

        What is to be sent: to whoever had been sent what is set aside.
        """
        with self.act("quarantine" if reason else "end of a quarantine", name, by):
            record = self.register.record(name)
            if not reason and not record.quarantined and not record.suspected:
                raise Refusal("identity", f"Client {name!r} is in no quarantine.")
            if record.quarantined and not reason:
                self.limits.check_horizon(self.count_set_aside([record]), self.count_heard())
            answers = self.suspend(record, reason, by, at)
            self.write([Entry(kinds.SUSPENSION, at, name, json.dumps([reason, by]).encode())])
            return answers

    def free(self, name: str, at: float, by: str = "") -> list[Message]:
        """Take a client's place from it, so that another can have it. What is to be sent."""
        with self.act("freeing of a place", name, by):
            return places.free(self, name, at, by)

    def erase(self, name: str, at: float, by: str = "") -> tuple[list[Message], dict[str, Any]]:
        """Forget all that a client has uploaded: what is to be sent, and a receipt (`erasure.py`)."""
        with self.act("erasure", name, by):
            answers, receipt = erase(self, name, at, by)
            self.compare_all()
            return answers, receipt

    def note_unfinished(self, name: str, reason: str, files: str | None) -> None:
        """The store was not compacted, and why; somebody else may rewrite these files of it, if any are named.

        Files are named only when nobody can look any more at what was deleted: before, it would be copied with the
        rest. None leaves those that were named.
        """
        self.unfinished = reason
        if files is not None:
            self._owe(
                {name: {**one, "files": files and (one["files"] or files)} for name, one in self.receipts.items()}
            )
        self.events.append(Event(UNFINISHED, {"client": name, "count": len(unfinished(self)), "reason": reason}))

    def hand_out(self, name: str) -> None:
        """The store was compacted, so that no erasure is unfinished; this client's receipt is handed out."""
        self.unfinished = ""
        self._owe({other: {**one, "compacted": True} for other, one in self.receipts.items() if other != name})

    def _owe(self, owed: dict[str, Any]) -> None:
        if owed != self.receipts:
            with self.act():
                self.receipts = owed
                self.journal.snapshot(self.state())

    def prove(self) -> None:
        """Write what is known already, to see whether anything can be written."""
        with self.whole():
            self.rounds_kept = self.rounds
            self.write([Entry(kinds.ROUND, 0.0, "", numbers(self.rounds))])

    # How it is done

    @contextmanager
    def whole(self) -> Iterator[None]:
        """What is done inside is in the store when this ends, or nothing of it is said.

        A Refusal has changed nothing, unless a write had failed. That the store fails is said all the same.
        """
        self._catch_up_with_store()
        before = [(said, len(said)) for said in (self.events, self.gone, self.unsent)]
        try:
            yield
        except BaseException as error:
            self.journal.behind = self.journal.behind or not isinstance(error, Refusal)
            if self.journal.behind:
                failures = [event for event in self.events[before[0][1] :] if event.what == FAILS]
                for said, known in before:
                    del said[known:]
                self.events += failures
            raise

    @contextmanager
    def answering(self) -> Iterator[None]:
        """The same of what clients wait for: of a store that fails they are told no more than that it does."""
        try:
            with self.whole():
                yield
        except StoreError as error:
            raise self._unavailable(error) from None

    @contextmanager
    def act(self, what: str = "", client: str = "", by: str = "") -> Iterator[None]:
        """The same of what somebody waits for: if it fails, memory is at once as the store is, and the log says so."""
        self._catch_up_with_store()  # here, and not by `whole`: nothing was refused yet where the store cannot be read
        try:
            with self.whole():
                yield
        except BaseException as error:
            if self.journal.behind:
                with suppress(FedbanditError):  # whatever comes next tries again, and says why it cannot
                    self.recover()
                if what:
                    self.events.append(Event(f"{what} refused", {"client": client, "by": by, "reason": str(error)}))
            raise

    def recover(self) -> None:
        """Go on from what the store has, in another object, whose contents then take the place of this one's at once.

        Who looks meanwhile, for metrics or the page, sees what there was, and not half a history.
        """
        fresh, before = copy(self), dict(vars(self))
        fresh.events = []
        super(OperatedFederation, fresh).recover()
        self.events += fresh.events
        fresh.events = before["events"]
        # `events`, `gone` and `unsent` stay the lists that they are: `whole` cuts those that it has seen before
        vars(self).update({name: value for name, value in vars(fresh).items() if value is not before.get(name, self)})

    def _restore(self, state: State) -> None:
        super()._restore(state)
        with restoring(KIND, self.store.where):
            for one in self.receipts.values():
                require_like(State({"receipts": one}, {}), State({"receipts": OWED}, {}))

    def _catch_up_with_store(self) -> None:
        """After a write has failed: back to what the store has."""
        try:
            if self.journal.behind:
                self.recover()
        except StoreError as error:
            raise self._unavailable(error) from None

    def _unavailable(self, error: StoreError) -> Refusal:
        """What clients are told: not why, which is an operator's to know; but where to go if another is the owner."""
        if isinstance(error, NotOwner):
            return Refusal("elsewhere", str(error), error.address)
        self.events.append(Event(FAILS, {"reason": str(error)}))
        return Refusal("unavailable", "The coordinator cannot write now; try again later.")
