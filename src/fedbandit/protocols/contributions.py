"""What each member has contributed to what a coordinator has, so that it can be taken out again.

A coordinator whose groups never change keeps one sum a group, and what came from whom is lost in it. With
`Contributions` beside it each member's own sums are kept too (d² numbers a member): those of a member in quarantine are
*set aside* – they are in nobody's share, and come back if the quarantine ends –, and a coordinator that was restored
from a backup can be told by a member what all its uploads amount to.

Whatever a sum consists of is added up anew, never subtracted: afterwards it is that of the others, to the last digits.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import FedbanditError
from fedbandit.forgetting import Forgetting
from fedbandit.messages import Message, Restate, Upload
from fedbandit.protocols.ahead import Ahead
from fedbandit.protocols.pool import Pool
from fedbandit.sharing import Groups, Members, Noise, Sharing, no_members
from fedbandit.sums import Form, Sums, add, nothing, place
from fedbandit.types import Ints

_NAMES = ("V", "b", "n", "releases")


class Contributions:
    """Each member's sums, which of them are set aside, and what members left behind that are gone.

    `own` has all that a client has uploaded under its number, also from states that it has lost since; `gone` what is
    in the sums and no present member's.
    """

    def __init__(self, slot_of: Ints, form: Form, slots: int) -> None:
        self.slot_of = slot_of
        self.own = no_members(slot_of.size, form)
        self.gone = no_members(slot_of.size, form, slots)
        self.aside = np.zeros(slot_of.size, dtype=np.bool_)
        self._lost: dict[int, Sums] = {}
        self._lost_releases: dict[int, int] = {}

    def add(self, member: int, sums: Sums) -> None:
        """A member has released these."""
        self.own.add(member, member, sums)

    def move(self, forgetting: Forgetting, of: int, to: int) -> None:
        """It is a later round: some of what was released is forgotten."""
        for part in (self.own, self.gone):
            forgetting.move(part.V, part.b, of, to)
        self._lost = {i: forgetting.moved(sums, of, to) for i, sums in self._lost.items()}

    def sums_of(self, member: int) -> Sums:
        """All that a member has uploaded, whether it is set aside or not."""
        own = self.own
        return Sums(own.V[member], own.b[member], int(own.n[member]))

    def begin_anew(self, member: int) -> None:
        """A member has lost its state: what it uploads from now on comes on top of what it had uploaded."""
        V, b, n = self.sums_of(member)
        self._lost[member] = Sums(V.copy(), b.copy(), n)
        self._lost_releases[member] = int(self.own.releases[member])

    def n_lost(self, member: int) -> int:
        """How many observations a member has uploaded from states that it has lost since."""
        return self._lost[member].n if member in self._lost else 0

    def with_these(self, message: Upload | Restate) -> Sums:
        """All that a member will have uploaded, when this is taken."""
        if isinstance(message, Upload):
            return add(self.sums_of(message.member), message.sums)
        lost = self._lost.get(message.member)
        return message.sums if lost is None else add(lost, message.sums)

    def restate(self, member: int, sums: Sums, releases: int) -> None:
        """All that a member has uploaded from its present state is this, in so many releases."""
        lost, own = self._lost.get(member), self.own
        own.V[member], own.b[member], own.n[member] = 0.0, 0.0, sums.n
        at = place(member, sums)
        own.V[at], own.b[at] = sums.V, sums.b
        if lost is not None:
            own.V[member] += lost.V
            own.b[member] += lost.b
            own.n[member] += lost.n
        own.releases[member] = max(int(own.releases[member]), self._lost_releases.get(member, 0) + releases)

    def leave(self, member: int, behind: bool) -> None:
        """A member is gone for good; with `behind`, what it has contributed stays in the sums."""
        own, gone, slot = self.own, self.gone, int(self.slot_of[member])
        if behind and not self.aside[member]:
            gone.V[slot] += own.V[member]
            gone.b[slot] += own.b[member]
            gone.n[member] += own.n[member]
            gone.releases[member] += own.releases[member]
        for name in _NAMES:
            getattr(own, name)[member] = 0
        self.aside[member] = False
        self._lost.pop(member, None)
        self._lost_releases.pop(member, None)

    def sum_up(self, members: Members, slot: int) -> None:
        """Let a slot of `members` be the sum of what belongs there."""
        own, gone = self.own, self.gone
        here = np.flatnonzero(self.slot_of == slot)
        who = here[~self.aside[here]]
        members.V[slot] = gone.V[slot] + own.V[who].sum(axis=0)
        members.b[slot] = gone.b[slot] + own.b[who].sum(axis=0)
        members.n[here], members.releases[here] = gone.n[here], gone.releases[here]
        members.n[who] += own.n[who]
        members.releases[who] += own.releases[who]
        members.forget_shares()

    def start_from(self, members: Members) -> None:
        """Begin with sums of which nobody knows whose they are, unless each slot is one member's."""
        apart = np.array_equal(self.slot_of, np.arange(self.slot_of.size))
        for name in _NAMES:
            getattr(self.own if apart else self.gone, name)[:] = getattr(members, name)

    # How it is kept

    def kept(self) -> dict[str, NDArray[Any]]:
        """Arrays by name."""
        arrays = {f"{part}.{name}": getattr(getattr(self, part), name) for part in ("own", "gone") for name in _NAMES}
        return {**arrays, "aside": self.aside}

    def lost(self) -> dict[str, NDArray[Any]]:
        """What came from states that were lost, by member."""
        arrays: dict[str, NDArray[Any]] = {}
        for i, (V, b, n) in self._lost.items():
            arrays |= {f"lost.{i}.V": V, f"lost.{i}.b": b, f"lost.{i}.n": np.array(n)}
        return arrays | {f"lost.{i}.releases": np.array(n) for i, n in self._lost_releases.items()}

    def restore_lost(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Go on from `lost`; earlier versions did not write how many releases those were."""
        numbers = {int(name.split(".")[1]) for name in arrays if name.startswith("lost.")}
        self._lost = {
            i: Sums(arrays[f"lost.{i}.V"], arrays[f"lost.{i}.b"], int(arrays[f"lost.{i}.n"])) for i in sorted(numbers)
        }
        known = {i: f"lost.{i}.releases" for i in sorted(numbers)}
        self._lost_releases = {i: int(arrays[name]) for i, name in known.items() if name in arrays}


class Contributing(typing.Protocol):
    """What a coordinator can do that keeps its members' contributions."""

    members: Members
    sharing: Sharing
    slot_of: Ints
    form: Form
    applied: dict[int, int]
    owed: dict[int, int]
    ahead: Ahead
    joined: NDArray[np.bool_]
    mixed: NDArray[np.bool_]
    sent: Ints
    called_in: Ints
    contributions: Contributions | None
    pool: Pool | None
    noise: Noise | None
    done: int

    def check_member(self, member: int) -> None:
        """Refuse numbers that are none."""
        ...

    def excuse(self, members: Iterable[int]) -> list[Message]:
        """Wait for these members no longer."""
        ...

    def send_shares(self, who: Iterable[int]) -> list[Message]:
        """Send each of these members its share."""
        ...

    def forget_by(self, forgetting: Forgetting) -> None:
        """Before anything has happened: statistics are dated, and perhaps kept in blocks of time."""
        if forgetting.slots:
            self.form = Form(self.form.dim, forgetting.slots)
            self.members = no_members(self.slot_of.size, self.form, len(self.members.V))
        self.members.forgetting = forgetting

    def in_units(self, sums: Sums, round: int | None) -> Sums:
        """Statistics of a round as what they are now; what came before is moved, if this one is later."""
        if round is None or not self.members.forgetting.dated:
            return sums
        if round > self.members.round:
            self.move(self.members.round, round)
        return self.members.forgetting.moved(sums, round, self.members.round)

    def move(self, of: int, to: int) -> None:
        """A later round has begun: some of what was released is forgotten."""
        self.members.move(to)
        if self.contributions is not None:
            self.contributions.move(self.members.forgetting, of, to)

    @property
    def date(self) -> int | None:
        """The round that downloads carry, where models forget."""
        return self.members.round if self.members.forgetting.dated else None

    def keep_contributions(self) -> Contributions:
        """From now on, keep each member's sums apart too."""
        self.contributions = Contributions(self.slot_of, self.form, len(self.members.V))
        self.contributions.start_from(self.members)
        return self.contributions

    def set_aside(self, member: int, aside: bool) -> list[Message]:
        """Let a member's contributions be in nobody's share, or in shares again; whoever had them is sent a new one."""
        if self.contributions is None or self.contributions.aside[member] == aside:
            return []
        self.contributions.aside[member] = aside
        return self._sum_up(member)

    def restate(self, message: Restate) -> list[Message]:
        """Uploads of a member were lost here: take what all of them amount to, by its own account."""
        member = message.member
        self.check_member(member)
        if self.contributions is None:
            raise FedbanditError("This coordinator keeps no member's sums apart, so none can be stated anew.")
        check_upload(Upload(member, message.sequence, message.sums, message.known), self.form)
        self.contributions.restate(member, self.in_units(message.sums, message.round), message.releases)
        self.applied[member] = message.sequence
        self.members.note_relayed(member, message.relayed)
        return self._sum_up(member)

    @property
    def inseparable(self) -> str:
        """Why no member's part could be taken out of what others have, a sentence; empty if it can."""
        return ""

    def erase(self, member: int) -> list[Message]:
        """Take out all that a member has released: what is left is that of the others, as if it never had.

        Groups that were found with its help are looked for again. Whoever was sent a download is sent another one.
        """
        if self.contributions is None:
            raise FedbanditError("This coordinator keeps no member's sums apart, so none can be erased.")
        concerned = np.asarray(self.sharing.affected(member))
        self.contributions.leave(member, behind=False)
        self.contributions.sum_up(self.members, int(self.slot_of[member]))
        answers = self._forget(member)
        self.sharing.forget(member)
        formed = any(len(group) > 1 for group in self.sharing.groups())
        if formed and self.sharing.regroup(self.members, self.done, self.noise):
            concerned = np.arange(self.slot_of.size)
        return [*answers, *self.send_shares(concerned[self.sent[concerned] > 0].tolist())]

    def _forget(self, member: int) -> list[Message]:
        """A member's history is over; what is to be sent to those who waited for it."""
        if self.pool is not None:
            self.pool.forget(member)
        answers = self.excuse([member])
        self.applied.pop(member, None)
        self.owed.pop(member, None)
        self.ahead.forget(member)
        self.joined[member] = self.mixed[member] = False
        self.members.told.pop(member, None)
        self.sent[member] = self.called_in[member] = 0
        return answers

    def vacate(self, member: int) -> list[Message]:
        """A member is gone for good, and its number free. In a group's sum its contributions stay, if nothing is odd.

        Where each member's statistics are looked at by themselves they go: whoever gets the number is another client.
        """
        answers = self._forget(member)
        if self.contributions is not None:
            self.contributions.leave(member, behind=isinstance(self.sharing, Groups))
            return [*answers, *self._sum_up(member)]
        return answers

    def _sum_up(self, member: int) -> list[Message]:
        """A member's contributions have changed: whoever was sent a download of them is sent another."""
        assert self.contributions is not None
        self.contributions.sum_up(self.members, int(self.slot_of[member]))
        concerned = np.asarray(self.sharing.affected(member))
        return self.send_shares(concerned[self.sent[concerned] > 0].tolist())


def check_upload(upload: Upload, form: Form) -> None:
    """Refuse statistics of another form and numbers that are none; what they may say is the network's to check."""
    V, b, n = upload.sums
    if not form.fits(upload.sums):
        raise FedbanditError(f"Client {upload.member} sent statistics {form.said(upload.sums)}.")
    if not math.isfinite(upload.known):
        raise FedbanditError(f"Client {upload.member} says that it knows {upload.known}, which is not finite.")
    untouched = n == 0 and upload.sums is nothing(len(b))
    if not untouched and not (np.isfinite(V).all() and np.isfinite(b).all()):
        raise FedbanditError(f"Client {upload.member} sent statistics that are not finite.")
