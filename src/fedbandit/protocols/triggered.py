"""A star of clients who speak for themselves: each uploads when its own trigger fires, and is sent what it lacks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import FedbanditError, whole_number
from fedbandit.forgetting import Fading
from fedbandit.messages import Join, Message, Receipt, Upload
from fedbandit.model import TIE
from fedbandit.protocols.coordinator import Coordinator, Messages, not_taken
from fedbandit.protocols.factors import (
    Factor,
    check_factor,
    count_portions,
    count_releases,
    growth_releases,
    settle_factor,
    settled,
)
from fedbandit.protocols.gammas import GAMMA_RULES
from fedbandit.protocols.protocol import MessageProtocol
from fedbandit.protocols.trigger import NOTHING_COUNTED, BatchedGrowth, CountGrowth, Growth, Joining, Reads, log_count
from fedbandit.sharing import Groups, Noise, Share, Sharing
from fedbandit.state import State
from fedbandit.sums import Sums
from fedbandit.types import Array, Ints
from fedbandit.world import World

OVER = 1e-6
"""Log det by which a member has more than there is: more than rounding, on two machines, makes of it."""

NOT_THEIRS = -sys.float_info.max
"""How much a member has whose data are those of another group: less than nothing. Finite, since log γ_D may be ∞."""


@dataclass(frozen=True)
class EventTriggered(MessageProtocol):
    """A client uploads when its own data have grown its determinant by γ_U; a client is sent a download when the
    coordinator's determinant exceeds that of what the client has by γ_D.

        upload:    det V_i(λ) / det (V_i − ΔV_i)(λ) > γ_U           (Eq. 3)
        download:  det V_g(λ) / det (V_g − ΔV_−j)(λ) > γ_D          (Eq. 4)

    A threshold is a number ≥ 1 (1: always, `math.inf`: never), one for each client, or a rule (`protocols.gammas`):
    "exp(1/N)", "exp(1/sqrt(N))", "messages:20000", "regret:2".

    Reference: Li & Wang, Async-LinUCB, 2022: Alg. 1, and Alg. 2 lines 5–7 for clients that join late.

    Deviations:
        D1. Determinants are of V + λI (those of V alone are zero at first).
        D2. A download carries all that the coordinator has instead of the difference; the client keeps its pending
            observations on top. Same result, same size.
        D3. `warm_join=True` sends a client what there is as soon as it joins (and counts it as a download); the
            paper's clients start empty and wait for the next check.
        D4. `at_least` observations are in every upload: in the paper's first ones there is a single one, of which x
            and y can be read off. It makes uploads coarser, not private.
    """

    gamma_upload: Factor = 5.0
    gamma_download: Factor = 5.0
    warm_join: bool = False
    at_least: int = 1

    dated: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the thresholds."""
        object.__setattr__(self, "at_least", whole_number("at_least", self.at_least))
        for name in ("gamma_upload", "gamma_download"):
            object.__setattr__(self, name, check_factor(name, getattr(self, name), GAMMA_RULES))

    @property
    def join(self) -> Joining:
        """With nothing, or with a download."""
        return "warm" if self.warm_join else "cold"

    def told(self, world: World) -> EventTriggered:
        """Thresholds by name become numbers; one for each client must be N."""
        return replace(
            self,
            gamma_upload=settle_factor("gamma_upload", self.gamma_upload, GAMMA_RULES, world),
            gamma_download=settle_factor("gamma_download", self.gamma_download, GAMMA_RULES, world),
        )

    def trigger(self) -> Growth:
        """Eq. (3), in logarithms."""
        logs = np.log(settled(self.gamma_upload))
        return Growth(logs) if self.at_least == 1 else BatchedGrowth(logs, self.at_least)

    def releases(self, world: World) -> int:
        """At most as often as the determinant can grow by γ_U: d log(1 + TL²/(dλ)) / log γ_U, here for λ ≥ 10⁻³."""
        return growth_releases(world, float(np.log(settled(self.gamma_upload)).min()))

    def coordinator(self, sharing: Sharing, world: World, dim: int, ridge: float, noise: Noise | None) -> Star:
        """Alg. 1 lines 4–10."""
        log_gamma = np.log(settled(self.gamma_download))
        return Star(sharing, world, dim, ridge, noise, log_gamma=log_gamma, warm=self.warm_join, counting=False)


def always() -> EventTriggered:
    """Everyone sends every observation and is always up to date: γ = 1 and warm joining."""
    return EventTriggered(gamma_upload=1.0, gamma_download=1.0, warm_join=True)


@dataclass(frozen=True)
class CountTriggered(MessageProtocol):
    """A client uploads when its number of observations has grown by `factor_upload` since its last upload, and is
    sent a download when the coordinator has `factor_download` times as many observations as it shares.

        upload:    n_i ≥ factor_upload · n_i(at the last upload) and Δn_i ≥ batch        (∞: never)
        download:  n_g > factor_download · n_j

    Messages carry the same statistics as under `EventTriggered`; only the conditions differ. Because they read public
    counts and no data, this protocol can be made private without its timing giving anything away (where the counts
    themselves are public: neighbours that replace an interaction, not ones that add or remove it).
    """

    factor_upload: Factor = 2.0
    factor_download: Factor = 2.0
    warm_join: bool = False
    batch: int = 1

    counting: ClassVar[bool] = True
    reads: ClassVar[Reads] = "counts"

    def __post_init__(self) -> None:
        """Check the factors."""
        for name in ("factor_upload", "factor_download"):
            object.__setattr__(self, name, check_factor(name, getattr(self, name), {}))
        whole_number("batch", self.batch)

    @property
    def join(self) -> Joining:
        """With nothing, or with a download."""
        return "warm" if self.warm_join else "cold"

    def told(self, world: World) -> CountTriggered:
        """One factor for each client must be N."""
        return replace(
            self,
            factor_upload=settle_factor("factor_upload", self.factor_upload, {}, world),
            factor_download=settle_factor("factor_download", self.factor_download, {}, world),
        )

    def trigger(self) -> CountGrowth:
        """The condition on counts."""
        return CountGrowth(settled(self.factor_upload), self.batch)

    def releases(self, world: World) -> int:
        """As often as the count of a client that acts in every round grows by the smallest factor."""
        rounds = max(world.horizon // world.per_round, 1)
        return count_releases(float(settled(self.factor_upload).min()), rounds, self.batch)

    def portions(self, world: World) -> tuple[int, ...]:
        """As its own count grows, if all clients have one factor."""
        factors, rounds = np.unique(settled(self.factor_upload)), max(world.horizon // world.per_round, 1)
        return count_portions(float(factors[0]), rounds, self.batch) if factors.size == 1 else ()

    def coordinator(self, sharing: Sharing, world: World, dim: int, ridge: float, noise: Noise | None) -> Star:
        """The star of `EventTriggered`, comparing counts."""
        log_factor = np.log(settled(self.factor_download))
        return Star(sharing, world, dim, ridge, noise, log_gamma=log_factor, warm=self.warm_join, counting=True)


class Star(Coordinator):
    """Clients upload on their own triggers; each that is stale is sent its share (Async-LinUCB, Alg. 1).

    A member is stale when measure(its share) − measure(what it has) > log γ_D (Eq. 4), with measure = log det V(λ)/det
    λI, or the log of the number of observations. An upload says what its member has (`known`), so no matrix is kept for
    that. When the sharing wakes, everybody is called, groups are formed anew, and whoever is in another group is sent
    its new share.
    """

    def __init__(
        self,
        sharing: Sharing,
        world: World,
        dim: int,
        ridge: float,
        noise: Noise | None,
        *,
        log_gamma: Array,
        warm: bool,
        counting: bool,
    ) -> None:
        super().__init__(sharing, world, dim, ridge, noise)
        self.log_gamma = np.resize(log_gamma, world.n_clients)
        self.warm = warm
        self.counting = counting
        self.known = np.full(world.n_clients, NOTHING_COUNTED if counting else 0.0)
        self._fresh: dict[int, Fresh] = {}  # by slot, since nobody was stale

    def kept(self) -> dict[str, NDArray[Any]]:
        """Also how much each member has."""
        return super().kept() | {"known": self.known}

    def receive(self, message: Message) -> Messages:
        """Apply a Join or an Upload."""
        match message:
            case Join():
                self._fresh.clear()  # one more may be stale
                return self.welcome(message)
            case Upload(member, sequence, _, known):
                self.check_member(member)
                if not (self.joined[member] or self.is_asked(member)):
                    raise FedbanditError(f"Client {member} sent an upload before it joined.")
                if not self.add(message):
                    return [Receipt(member, self.applied[member])]
                self.known[member] = known
                if message.round is not None:  # it may have been some time ago
                    self.known[member] = self._moved(np.asarray(known), message.round, self.members.round)
                self.joined[member] = True
                called = self.is_awaited(member)
                answers = self.answered(member)
                if not called and not self.calls and not self._nobody_is_stale(member):
                    group = np.asarray(self.sharing.affected(member))  # while a call is open, `collected` will look
                    group = group[self.joined[group]]
                    answers = self._refresh(group)
                    if not answers:
                        self._note_fresh(member, group)
                return [Receipt(member, sequence), *answers]
            case _:
                raise not_taken(message)

    def move(self, of: int, to: int) -> None:
        """Members forget too: with windows, as much of log det as is forgotten here."""
        forgetting = self.members.forgetting
        groups = [np.array(group) for group in self.sharing.groups()] if forgetting.slots else []
        before = [self.logdet(self.share(int(group[0]))) for group in groups] if forgetting.moves(of, to) else []
        super().move(of, to)
        for group, had in zip(groups, before, strict=False):
            lost = had - self.logdet(self.share(int(group[0])))
            self.known[group] = np.maximum(self.known[group] - lost, 0.0)
        self.known = self.known if forgetting.slots else self._moved(self.known, of, to)
        self._fresh.clear()

    def _moved(self, known: Array, of: int, to: int) -> Array:
        """What members have fades as what there is: Σ log(1 + v/λ) over eigenvalues v that are g times as large.

        All that is known of them is that sum. It is least, for given log det, if they are all the same (a log-moment
        generating function is convex), and so members are sent a download rather too early than too late. With windows
        whoever is late counts as one that knows nothing.
        """
        forgetting = self.members.forgetting
        if not isinstance(forgetting, Fading):
            return 0.0 * known if forgetting.moves(of, to) else known
        d = self.form.dim * max(self.form.actions, 1)
        return np.asarray(d * np.log1p(forgetting.factor(of, to) * np.expm1(np.maximum(known, 0.0) / d)))

    def _forget(self, member: int) -> Messages:
        self.known[member] = NOTHING_COUNTED if self.counting else 0.0
        self._fresh.clear()
        return super()._forget(member)

    def newcomer(self, member: int) -> Messages:
        """A warm start, if that is how clients join and there is anything."""
        return self.send_shares([member]) if self.warm and self.share(member).sums.n > 0 else []

    def end_round(self, done: int) -> Messages:
        """Call everybody, to form groups anew."""
        self.done = done
        return [] if self.calls else self.collect(range(self.known.size))

    def collected(self, members: list[int]) -> Messages:
        """All is in: regroup."""
        self._fresh.clear()
        before = [self._sum(j) for j in members]
        if self.sharing.regroup(self.members, self.done, self.noise):
            moved = [j for j, V in zip(members, before, strict=True) if not np.array_equal(self._sum(j), V)]
            self.known[moved] = NOT_THEIRS
        if not self.sharing.disjoint:
            return self._refresh(np.array(members))
        return [message for group in self.sharing.groups() for message in self._refresh(np.array(group))]

    def send(self, who: Sequence[int] | Ints, share: Share) -> Messages:
        """Whoever is sent a share has that."""
        if len(who) > 0:
            self.known[who] = self._measure(int(who[0]), share)
            self._fresh.clear()
        return super().send(who, share)

    def _sum(self, member: int) -> Array:
        return self.sharing.share(member, self.members, None, self.ridge).sums.V

    def _refresh(self, group: Ints) -> Messages:
        """Send their share to those of a group who are stale."""
        if group.size == 0:
            return []
        first, limits = int(group[0]), self.known[group] + self.log_gamma[group] + TIE
        if self.sharing.alike(self.noise):
            share = self.share(first)
            measure = self._measure(first, share)
            stale = measure > limits
            if self.members.forgetting.slots:  # whoever has more than there is has what is over
                stale |= self.known[group] > measure + OVER
            return self.send(group[stale], share)
        if self.counting and self.sharing.disjoint:  # all of them would have as many
            few = log_count(int(self.members.n[self.sharing.affected(first)].sum())) <= limits
            group, limits = group[~few], limits[~few]
        sent: Messages = []
        for j, limit in zip(group.tolist(), limits.tolist(), strict=True):
            share = self.share(j)
            sent += self.send([j], share) if self._measure(j, share) > limit else []
        return sent

    def _nobody_is_stale(self, member: int) -> bool:
        """Whether that is certain after this member's upload, without a determinant."""
        slot = int(self.slot_of[member])
        if slot not in self._fresh:
            return False
        fresh = self._fresh[slot]
        fresh.due = min(fresh.due, float(self.known[member] + self.log_gamma[member]))
        return fresh.bound(self.members.V[slot]) < fresh.due

    def _note_fresh(self, member: int, group: Ints) -> None:
        """Nobody of a group was stale."""
        plain = self.noise is None and not self.counting and not self.form.actions
        if plain and isinstance(self.sharing, Groups) and self.sharing.as_it_is:
            share, slot = self.share(member), int(self.slot_of[member])
            due = float((self.known[group] + self.log_gamma[group]).min())
            inverse = np.linalg.inv(share.sums.V + self.ridge * np.eye(self.dim))
            constant = self.logdet(share) - self.dim + self.ridge * float(np.trace(inverse))
            self._fresh[slot] = Fresh(due, inverse.astype(np.float64, copy=False), constant)

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        super().restore(state)
        self._fresh.clear()

    def _measure(self, member: int, share: Share) -> float:
        """How much a member would have with this share and its own data."""
        if self.counting:
            return log_count(share.sums.n + (0 if share.own else int(self.members.n[member])))
        if share.own:
            return self.logdet(share)
        V, b, n = share.sums
        return self.logdet(share._replace(sums=Sums(V + self.members.V[member], b, n)))


@dataclass(eq=False)
class Fresh:
    """A time when nobody of a group was stale, and the measure at which the first will be.

    log det is concave, so with A = V₀ + λI of that time, whatever V is now,

        log det V(λ)/λᵈ ≤ log det A/λᵈ + tr A⁻¹(V(λ) − A)

    which takes d² operations instead of d³: most uploads make nobody stale.
    """

    due: float
    inverse: Array
    constant: float

    def bound(self, V: Array) -> float:
        """The right-hand side, rounded up."""
        bound = self.constant + float(np.vdot(self.inverse, V))
        return bound + TIE * (1.0 + abs(bound))
