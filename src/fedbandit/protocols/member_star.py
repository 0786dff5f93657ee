"""A star of members: each speaks when its own trigger fires, and is answered by itself."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from fedbandit.engine.fast.hub import NOTHING_COUNTED
from fedbandit.engine.fast.statistics import TIE
from fedbandit.errors import FedbanditError
from fedbandit.messages import Join, Message, Receipt, Upload
from fedbandit.protocols.members import MemberKeeper, Messages
from fedbandit.sharing import Noise, Share, Sharing
from fedbandit.state import State
from fedbandit.sums import Sums
from fedbandit.types import Array


class MemberStar(MemberKeeper):
    """Members upload on their own triggers; each that is stale is sent its share (Async-LinUCB, Alg. 1, per member).

    A member is stale when measure(its share) − measure(what it has) > log γ_D, as in `protocols.hub`. When the sharing
    wakes, everybody is called, groups are formed anew, and whoever is in another group is sent its new share.
    """

    def __init__(
        self,
        sharing: Sharing,
        n_clients: int,
        dim: int,
        ridge: float,
        noise: Noise | None,
        *,
        log_gamma: Array,
        warm: bool,
        counting: bool,
    ) -> None:
        super().__init__(sharing, n_clients, dim, ridge, noise)
        self.log_gamma = np.resize(log_gamma, n_clients)
        self.warm = warm
        self.counting = counting
        self.known = np.full(n_clients, NOTHING_COUNTED if counting else 0.0)

    def state(self) -> State:
        """Also how much each member has."""
        header, arrays = super().state()
        return State(header, {**arrays, "known": self.known})

    def restore(self, state: State) -> None:
        """Go on from there."""
        super().restore(state)
        self.known = state.arrays["known"].copy()

    def end_round(self, done: int) -> Messages:
        """Call everybody, to form groups anew."""
        self.done = done
        return [] if self.awaited else self.collect(range(self.members.n.size))

    def collected(self) -> Messages:
        """All is in: regroup."""
        everyone = range(self.members.n.size)
        before = [self._sum(j) for j in everyone]
        if self.sharing.regroup(self.members, self.done, self.noise):
            moved = [j for j in everyone if not np.array_equal(self._sum(j), before[j])]
            self.known[moved] = -np.inf  # whatever they have, it is not their group's
        return self._refresh(everyone)

    def receive(self, message: Message) -> Messages:
        """Apply a Join or an Upload."""
        match message:
            case Join():
                return self.welcome(message)
            case Upload(member, sequence, _, known):
                if not self.add(message):
                    return [Receipt(member, self.applied[member])]
                self.known[member] = known
                self.joined[member] = True
                if member in self.awaited:
                    return [Receipt(member, sequence), *self.answered(member)]
                self.answered(member)
                stale = [] if self.awaited else [j for j in self.sharing.affected(member) if self.joined[j]]
                return [Receipt(member, sequence), *self._refresh(stale)]
            case _:
                raise FedbanditError(f"This coordinator does not take a {type(message).__name__}.")

    def newcomer(self, member: int) -> Messages:
        """A warm start, if that is how clients join."""
        return self._refresh([member]) if self.warm else []

    def _sum(self, member: int) -> Array:
        return self.sharing.share(member, self.members, None, self.ridge).sums.V

    def _refresh(self, candidates: Iterable[int]) -> Messages:
        sent: Messages = []
        counts: dict[int, float] = {}  # by group, since a group's members are counted alike
        for j in candidates:
            limit = self.known[j] + self.log_gamma[j] + TIE
            if self.counting:
                group = self.sharing.affected(j)
                if id(group) not in counts:
                    counts[id(group)] = self._log_count(int(self.members.n[group].sum()))
                if counts[id(group)] <= limit:
                    continue
            share = self.share(j)
            measured = self._measure(j, share)
            if measured > limit:
                self.known[j] = measured
                sent.append(self.download(j, share))
        return sent

    def _measure(self, member: int, share: Share) -> float:
        """How much a member would have with this share and its own data."""
        if self.counting:
            return self._log_count(share.sums.n + (0 if share.own else int(self.members.n[member])))
        if share.own:
            return self.logdet(share)
        V, b, n = share.sums
        return self.logdet(share._replace(sums=Sums(V + self.members.V[member], b, n)))

    @staticmethod
    def _log_count(n: int) -> float:
        return math.log(n) if n > 0 else NOTHING_COUNTED
