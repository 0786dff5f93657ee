"""Who is sent what: how a coordinator puts its members' statistics together.

A structure gives a *sharing*, which says what a member is to be sent; the protocol says when. Where groups are known
beforehand a coordinator keeps one sum for each (`Groups`). Clusters that are found while running, that overlap, or a
graph of users need more: what each member has released so far.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np

from fedbandit.errors import FedbanditError, shown
from fedbandit.members import Members as Members
from fedbandit.members import no_members as no_members
from fedbandit.model import Growing, Model
from fedbandit.sums import EXACT, Slack, Sums
from fedbandit.types import Array, Ints

NEVER = 2**62
"""A round that never comes."""


class Noise(Protocol):
    """What is known about the noise in sums of private uploads."""

    @property
    def weighed(self) -> bool:
        """Whether members keep their own data as they are, and weigh what the others released (`mixing`)."""
        ...

    @property
    def with_own(self) -> bool:
        """Whether what members weigh has their own releases in it, because they learn from nothing else."""
        ...

    def variance(self, member: int, releases: int) -> float:
        """The variance of an entry of a member's V after that many releases."""
        ...

    def slack_of(self, variance: float) -> Slack:
        """What is to be known about a noisy sum whose entries have this variance, before it is made usable."""
        ...

    def repair(self, V: Array, releases: Mapping[int, int], ridge: float) -> tuple[Array, Slack]:
        """A matrix to use in place of a noisy sum V, and what is to be known about it.

        `releases` says of whom the sum is, and how often each has released.
        """
        ...

    def deviations(self, releases: Ints) -> Array:
        """Each client's standard deviation of the noise in a coordinate of b − Vθ, after so many releases of each."""
        ...


@runtime_checkable
class NoiseInSums(Noise, Protocol):
    """Noise in clients' sums Σ x y alone, where every V is exact."""

    def radius(self, precision: Array, columns: Array, released: Ints) -> float:
        """A bound of the noise in Σ_j P_uj s_j in the norm of P_uu⁻¹, given that and all P_uj side by side."""
        ...


class Share(NamedTuple):
    """What a member is to be sent."""

    sums: Sums
    slack: Slack = EXACT
    own: bool = True  # what the member itself released is in it


def usable(sums: Sums, group: Sequence[int], members: Members, noise: Noise | None, ridge: float) -> Share:
    """The share that the sums of a group are; noisy ones are made usable."""
    if noise is None:
        return Share(sums)
    V, slack = noise.repair(sums.V, {i: int(members.releases[i]) for i in group if members.releases[i] > 0}, ridge)
    return Share(Sums(V, sums.b, sums.n), slack)


def summed(members: Members, group: Sequence[int], noise: Noise | None, ridge: float) -> Share:
    """The statistics of a group together; noisy ones are made usable."""

    def share() -> Share:
        who = np.asarray(group, dtype=np.int64)
        sums = Sums(members.V[who].sum(axis=0), members.b[who].sum(axis=0), int(members.n[who].sum()))
        return usable(sums, group, members, noise, ridge)

    return members.once((tuple(group), noise is None), share)


def share_of(member: int, members: Members, group: Sequence[int], noise: Noise | None, ridge: float) -> Share:
    """What a member is sent of its group: the sum, or if there is noise to weigh, that or the others' and its noise."""
    if noise is None or not noise.weighed:
        return summed(members, group, noise, ridge)
    who = np.array([j for j in group if noise.with_own or j != member], dtype=np.int64)
    sums = Sums(members.V[who].sum(axis=0), members.b[who].sum(axis=0), int(members.n[who].sum()))
    variance = sum(members.noise_in(int(j), noise) for j in who)
    return Share(sums, noise.slack_of(variance), own=False)


class Sharing(Protocol):
    """Who is sent what, at the coordinator: the running state of a structure. Subclass it.

    By default it is one that never changes and has nothing to remember.
    """

    exploring: bool = False
    """Whether clients still explore (`Structure.explore`): the sharing ends that by its first regrouping."""

    disjoint: bool = False
    """Whether groups do not overlap, and a release affects its member's group, all members alike in numbers."""

    def alike(self, noise: Noise | None) -> bool:  # noqa: ARG002 - if in doubt, no
        """Whether all members of a group are sent the same share, given the noise in it; only if `disjoint`."""
        return False

    def groups(self) -> list[list[int]]:
        """Who shares with whom now; groups may overlap."""
        ...

    def affected(self, member: int) -> Sequence[int] | Ints:
        """Whose share changes when this member releases something, the member itself included."""
        ...

    def share(self, member: int, members: Members, noise: Noise | None, ridge: float) -> Share:
        """What this member is to be sent."""
        ...

    def next_wake(self, done: int) -> int:  # noqa: ARG002 - never
        """After `done` rounds: after how many it wants to look at everybody's statistics next (or a large number).

        More than `done`, and by that alone: it is asked first with 0, then with each of its answers (`schedule.Wakes`).
        """
        return NEVER

    def regroup(self, members: Members, done: int, noise: Noise | None = None) -> bool:  # noqa: ARG002
        """Look, after `done` rounds, at what was released with this noise; True if groups have changed."""
        return False

    def forget(self, member: int) -> None:  # noqa: ARG002 - nothing was remembered
        """A member's statistics are gone: as if nobody had ever looked at them."""
        return

    def state(self) -> dict[str, Any]:
        """What it remembers, as plain values: for checkpoints and for a coordinator that restarts."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:  # noqa: ARG002 - nothing was remembered
        """Go on from what `state` gave, before a crash or a move."""
        return


@runtime_checkable
class Grounded(Protocol):
    """A sharing whose members know something before they hear anything, because it is public."""

    def prior(self, member: int) -> Share:
        """What a member starts with."""
        ...


def prior_share(sharing: Sharing | None, member: int) -> Share | None:
    """What a member starts with, if it is more than nothing."""
    return sharing.prior(member) if isinstance(sharing, Grounded) else None


class Others(Sharing):
    """A sharing for groups that never change: a member is sent the sum of what the *others* of its group released.

    Under privacy a member's own data are exact on its own side and noisy at the coordinator; it is better off with the
    first, and mixes the others' in (`mixing`).
    """

    disjoint = True

    def __init__(self, group_of: Ints, n_clients: int) -> None:
        labels = for_all(group_of, n_clients)
        self._group_of = labels.tolist()
        self._groups = [np.flatnonzero(labels == g).tolist() for g in range(int(labels.max()) + 1)]
        self._totals: dict[int, tuple[int, Array, Array, float]] = {}

    def groups(self) -> list[list[int]]:
        """As they always were."""
        return self._groups

    def affected(self, member: int) -> Sequence[int]:
        """The whole group."""
        return self._groups[self._group_of[member]]

    def share(self, member: int, members: Members, noise: Noise | None, ridge: float) -> Share:  # noqa: ARG002
        """The group's total without this member, and what is known about its noise."""
        V, b, n, variance = self._total(self._group_of[member], members, noise)
        sums = Sums(V - members.V[member], b - members.b[member], n - int(members.n[member]))
        if noise is None:
            return Share(sums, own=False)
        mine = members.noise_in(member, noise)
        return Share(sums, noise.slack_of(max(variance - mine, 0.0)), own=False)

    def _total(self, g: int, members: Members, noise: Noise | None) -> tuple[Array, Array, int, float]:
        """The sums of a group, computed once after each change."""
        who, stamp = self._groups[g], members.changes
        if g not in self._totals or self._totals[g][0] != stamp:
            variance = 0.0 if noise is None else sum(members.noise_in(i, noise) for i in who)
            self._totals[g] = stamp, members.V[who].sum(axis=0), members.b[who].sum(axis=0), variance
        _, V, b, variance = self._totals[g]
        return V, b, int(members.n[who].sum()), variance


class LocalModel(Model, Growing, Protocol):
    """A model that takes part in a federation: what is exchanged is its shared part."""

    @property
    def theta(self) -> Array:
        """θ̂ of the shared part."""
        ...

    @property
    def version(self) -> int:
        """Of the last download."""
        ...

    @property
    def silent(self) -> bool:
        """Whether it has nothing to exchange yet, whatever its trigger says."""
        ...

    def observe(self, x: Array, y: float) -> None:
        """Add an observation of its own."""
        ...

    def pending(self) -> Sums:
        """A copy of what has been observed and not uploaded."""
        ...

    def in_common(self) -> Sums:
        """What coordinator and model have in common."""
        ...

    def mark_sent(self) -> None:
        """What was pending is now in common with the coordinator."""
        ...

    def adopt(self, sums: Sums, slack: Slack = EXACT, version: int = 0) -> None:
        """Replace what is in common with the coordinator."""
        ...

    def dump(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Numbers and arrays from which `load` makes the same model."""
        ...

    def load(self, numbers: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Go on from what `dump` gave."""
        ...


def for_all(values: Ints, n_clients: int) -> Ints:
    """One value a client: as many as there are, over and over. (`np.resize` joins an array a client for that.)

    >>> for_all(np.array([0, 1]), 3).tolist()
    [0, 1, 0]
    """
    return values[np.arange(n_clients) % values.size]


class Groups(Sharing):
    """Groups that never change: a member is sent the sum of what its group released. A slot a group.

    A client whose label is −1 is no member.
    """

    disjoint = True
    as_it_is: ClassVar[bool] = True
    """Whether without noise a share is the slot as it is."""

    def __init__(self, group_of: Ints, n_clients: int) -> None:
        self.group_of: Ints = for_all(group_of, n_clients)
        self._groups = [np.flatnonzero(self.group_of == g) for g in range(int(self.group_of.max()) + 1)]

    def alike(self, noise: Noise | None) -> bool:  # noqa: ARG002 - a member's own part is in the sum
        """They are."""
        return True

    def groups(self) -> list[list[int]]:
        """As they always were."""
        return [group.tolist() for group in self._groups]

    def affected(self, member: int) -> Ints:
        """The whole group."""
        return self._groups[self.group_of[member]]

    def share(self, member: int, members: Members, noise: Noise | None, ridge: float) -> Share:
        """The group's sum."""
        g = int(self.group_of[member])

        def share() -> Share:
            who = self._groups[g]
            sums = Sums(members.V[g].copy(), members.b[g].copy(), int(members.n[who].sum()))
            return usable(sums, who.tolist() if noise is not None else (), members, noise, ridge)

        return members.once((g, noise is None), share)


class GroupsWithPrior(Groups):
    """Groups that never change, whose members all start with the same public statistics."""

    def __init__(self, group_of: Ints, n_clients: int, prior: Share) -> None:
        super().__init__(group_of, n_clients)
        self._prior = prior

    def prior(self, member: int) -> Share:  # noqa: ARG002 - the same for all
        """What a member starts with."""
        return self._prior


class FoundGroups(Sharing):
    """Groups that are found while running and do not overlap; at first everybody is alone.

    Write `find`, and `next_wake`, which says when it is called.
    """

    disjoint = True

    def __init__(self, n_clients: int) -> None:
        if type(self).next_wake is Sharing.next_wake:
            raise FedbanditError(
                f"{type(self).__name__} does not say when to look for groups, so nobody would ever share; write "
                "next_wake(self, done), with fedbandit.schedule.next_growth for instance."
            )
        self._use([[i] for i in range(n_clients)])

    def find(self, members: Members, done: int, noise: Noise | None) -> list[list[int]]:
        """Who belongs together after `done` rounds, given what was released with this noise: groups, in any order."""
        raise NotImplementedError

    def _use(self, groups: list[list[int]]) -> None:
        self._groups = groups
        self._home = {i: group for group in groups for i in group}

    def alike(self, noise: Noise | None) -> bool:
        """All members of a group are sent its sum, unless they weigh the others' noise."""
        return noise is None or not noise.weighed

    def groups(self) -> list[list[int]]:
        """As they are now."""
        return self._groups

    def affected(self, member: int) -> Sequence[int]:
        """The member's group."""
        return self._home[member]

    def share(self, member: int, members: Members, noise: Noise | None, ridge: float) -> Share:
        """The sum over the member's group."""
        return share_of(member, members, self._home[member], noise, ridge)

    def regroup(self, members: Members, done: int, noise: Noise | None = None) -> bool:
        """Look again; True if groups have changed."""
        before, found = self._groups, self.find(members, done, noise)
        try:
            groups = sorted(sorted(operator.index(i) for i in group) for group in found if len(group) > 0)
        except TypeError:
            raise FedbanditError(
                f"What {type(self).__name__}.find returned is {shown(found)}, but must be a list of groups, each a "
                "list of clients' numbers."
            ) from None
        self._require_partition([i for group in groups for i in group])
        self._use(groups)
        return self._groups != before

    def _require_partition(self, named: list[int]) -> None:
        """Refuse groups in which a client is missing, in two places, or unknown."""
        known, times = self._home.keys(), Counter(named)
        for what, who in (
            ("leaves out", sorted(known - times.keys())),
            ("names twice", sorted(i for i, n in times.items() if n > 1 and self.disjoint)),
            ("names, though they do not exist,", sorted(times.keys() - known)),
        ):
            if who:
                clients = f"client{'s' * (len(who) > 1)} {', '.join(map(str, who[:8]))}{', …' * (len(who) > 8)}"
                raise FedbanditError(
                    f"What {type(self).__name__}.find returned {what} {clients}; every client must be in one group."
                )

    def state(self) -> dict[str, Any]:
        """The groups."""
        return {"groups": self._groups}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        self._use(state["groups"])
