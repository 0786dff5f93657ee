"""Synchronous communication: when one client asks, everyone uploads and everyone downloads."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedbandit.errors import number, require, unknown, whole_number
from fedbandit.messages import Contribution, Download, Join, Message, Receipt, Request, Upload
from fedbandit.model import TIE
from fedbandit.protocols.coordinator import Coordinator, Messages, not_taken
from fedbandit.protocols.factors import count_portions, count_releases
from fedbandit.protocols.protocol import MessageProtocol
from fedbandit.protocols.trigger import Joining, Reads, Says, Trigger, timed_or_counted
from fedbandit.sharing import Noise, Sharing
from fedbandit.state import State
from fedbandit.sums import Sums
from fedbandit.world import World


def _log_horizon(world: World) -> float:
    return max(math.log(world.horizon), 1.0)


def theorem_threshold(world: World) -> float:
    """D = 2Td/(log(ρ_max/ρ_min + TL²/(dρ_min)) + 1) with T rounds (FedUCB, Theorem 1); T/γ of each of γ estimators."""
    T, (low, high) = max(world.horizon // world.n_clients // world.estimators, 1), world.spectrum
    return 2 * T * world.dim / (math.log(high / low + T * world.bound**2 / (world.dim * low)) + 1)


THRESHOLD_RULES = {
    "T/(N^2 d log T)": lambda w: w.horizon / (w.n_clients**2 * w.parameters * _log_horizon(w)),
    "T/(N^1.5 d log T)": lambda w: w.horizon / (w.n_clients**1.5 * w.parameters * _log_horizon(w)),
    "T/(N d log T)": lambda w: w.horizon / (w.n_clients * w.parameters * _log_horizon(w)),
    "T/(d log T)": lambda w: w.horizon / (w.parameters * _log_horizon(w)),
    "theorem": theorem_threshold,
}
"""Thresholds by name: the first two are Async-LinUCB's App. E, Table 1, the next two those of its authors' code, and
"theorem" is that of FedUCB's Theorem 1, which synchronises about once."""


@dataclass(frozen=True)
class Synchronous(MessageProtocol):
    """A client asks for a synchronisation when Δn · log(det V(λ)/det (V − ΔV)(λ)) > D; then all N upload and download.

    `threshold` is D ≥ 0 or a rule by name; by default "T/(N d log T)" with T the interactions of all clients together.

    With `growth`, a client asks instead when it has `growth` times as many observations as it has sent, and at least
    `batch` unsent ones. That reads no data: the timing can be public.

    A client that first acts starts empty (lines 5–6) and has what the others know after the next synchronisation. With
    `warm_join=True` all N are members from the start: one that first acts has what was last downloaded.

    Reference: Wang et al. 2019 (DisLinUCB, App. G), as in Li & Wang, Async-LinUCB, 2022, Alg. 4.

    Deviations:
        D1. After a download the model is used at once; the authors' code keeps choosing with the old inverse.
    """

    threshold: float | str | None = None
    growth: float | None = None
    batch: int = 1
    warm_join: bool = False

    says: ClassVar[Says] = "request"
    at_once: ClassVar[bool] = True
    dated: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the threshold."""
        if isinstance(self.threshold, str):
            if self.threshold not in THRESHOLD_RULES:
                raise unknown("rule for threshold", self.threshold, THRESHOLD_RULES)
        elif self.threshold is not None:
            infinite = not hasattr(self.threshold, "__len__") and self.threshold == math.inf
            finite = 0.0 if infinite else self.threshold
            number(finite, "threshold", "a number ≥ 0, or None for the default", at_least=0.0)
        whole_number("batch", self.batch)
        if self.growth is not None:
            number(self.growth, "growth", "a finite number ≥ 1, or None", at_least=1.0)
            require(self.threshold is None, "threshold", self.threshold, "None where growth is given")

    @property
    def reads(self) -> Reads:
        """Determinants of raw data, or public counts."""
        return "raw" if self.growth is None else "counts"

    @property
    def join(self) -> Joining:
        """With nothing, or as a member from the start."""
        return "member" if self.warm_join else "cold"

    def told(self, world: World) -> Synchronous:
        """The default or a rule becomes a number."""
        if self.growth is None and (isinstance(self.threshold, str) or self.threshold is None):
            return replace(self, threshold=THRESHOLD_RULES[self.threshold or "T/(N d log T)"](world))
        return self

    def trigger(self) -> Trigger:
        """Alg. 4 line 10, or counts."""
        return timed_or_counted(self.threshold, self.growth, self.batch)

    def had_reason(self, before: int, since: int) -> bool:
        """By counts: whether they have grown as the trigger says."""
        return self.growth is None or since >= max(self.growth * before - TIE, before + self.batch)

    def releases(self, world: World) -> int:
        """By counts: as often as they grow. By determinants: up to every round (FedUCB, Remark 4 and Alg. 2 line 2).

        Prop. 1's bound does not hold for FedUCB's trigger: M(ρ_max − ρ_min)I counts anew after each synchronisation.
        """
        rounds = max(world.horizon // world.per_round, 1)
        return rounds if self.growth is None else count_releases(self.growth, rounds, self.batch)

    def portions(self, world: World) -> tuple[int, ...]:
        """By counts: as they grow."""
        if self.growth is None:
            return ()
        return count_portions(self.growth, max(world.horizon // world.per_round, 1), self.batch)

    def coordinator(
        self, sharing: Sharing, world: World, dim: int, ridge: float, noise: Noise | None
    ) -> SynchronousCoordinator:
        """Alg. 4 lines 11–16."""
        return SynchronousCoordinator(sharing, world, dim, ridge, noise, warm=self.warm_join)


class SynchronousCoordinator(Coordinator):
    """The machine of a synchronous federation.

    | a group is | on Request            | on Upload                                                        |
    |------------|-----------------------|------------------------------------------------------------------|
    | idle       | Collect to the group  | added: the answer to a call that was lost with the store         |
    | called     | ignored: under way    | added; the last one is answered by a Download to all it concerns |

    Groups that do not overlap may be called at the same time. When the sharing wakes, everybody is called, and groups
    are formed anew before the downloads.

    Everybody takes part in a call, as lines 11–16 say, also who has not joined. Unless joining is `warm`, a download to
    such a member is empty: whatever it had, it would start with nothing.
    """

    def __init__(
        self, sharing: Sharing, world: World, dim: int, ridge: float, noise: Noise | None = None, *, warm: bool = False
    ) -> None:
        super().__init__(sharing, world, dim, ridge, noise)
        self.warm = warm
        self.regrouping = False

    def receive(self, message: Message) -> Messages:
        """Apply a Join, a Request or an Upload."""
        match message:
            case Join():
                return self.welcome(message)
            case Request(member):
                self.check_member(member)
                if self.pool is not None and self.pool.ignores_request():
                    return []
                group = set(np.asarray(self.sharing.affected(member)).tolist())
                busy = any(not group.isdisjoint(call.members) for call in self.calls.values())
                return [] if busy else self.collect(group)
            case Upload(member, sequence):
                if not self.add(message):
                    return [Receipt(member, self.applied[member])]
                return [Receipt(member, sequence), *self.answered(member)]
            case Contribution():
                return self.contribute(message)
            case _:
                raise not_taken(message)

    def newcomer(self, member: int) -> Messages:
        """Whoever comes after the first synchronisation is sent what there is, if that is how clients join."""
        return self.send_shares([member]) if self.warm and self.share(member).sums.n > 0 else []

    def end_round(self, done: int) -> Messages:
        """Call everybody, to form groups anew."""
        self.done = done
        if self.calls:
            return []
        self.regrouping = True
        return self.collect(range(self.joined.size))

    def collected(self, members: list[int]) -> Messages:
        """Everybody who was called is sent its share; whoever has not joined, nothing."""
        if self.regrouping:
            self.sharing.regroup(self.members, self.done, self.noise)
            self.regrouping = False
        if self.warm:
            return self.send_shares(members)
        sent = self.send_shares(i for i in members if self.joined[i])
        absent = (i for i in members if not self.joined[i])
        nothing = Sums(np.zeros_like(self.members.V[0]), np.zeros_like(self.members.b[0]), 0)
        empty = Download(0, 0, 0, nothing, actions=self.form.actions, round=self.date)
        at = [(i, self.version + self.ahead.versions(i), self.applied.get(i, 0)) for i in absent]
        return sent + [replace(empty, member=i, version=version, acknowledged=n) for i, version, n in at]

    def state(self) -> State:
        """Also what the call is for."""
        header, arrays = super().state()
        return State({**header, "regrouping": self.regrouping}, arrays)

    def restore(self, state: State) -> None:
        """Go on in the middle of a call."""
        super().restore(state)
        self.regrouping = state.header["regrouping"]
