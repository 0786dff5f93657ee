"""A server that serves one cluster a round: who needs it asks, clusters wait in a queue."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import FedbanditError, number, require, unknown, whole_number
from fedbandit.messages import Download, Join, Message, Receipt, Request, Threshold, Upload
from fedbandit.model import TIE
from fedbandit.protocols.coordinator import Coordinator, Messages, not_taken
from fedbandit.protocols.factors import growth_releases
from fedbandit.protocols.protocol import MessageProtocol
from fedbandit.protocols.trigger import Joining, Says, TimedGrowth, as_thresholds
from fedbandit.sharing import Noise, Share, Sharing, summed
from fedbandit.state import State
from fedbandit.sums import Sums
from fedbandit.world import World

Order = Literal["fifo", "priority"]
Recluster = bool | Literal["round", "request"]
Shares = Literal["models", "buffers"]
Requests = Literal["largest", "all"]

NOT_AGAIN = 1e300
"""A threshold that nobody exceeds, but finite: it has to travel."""


def _own_horizon(world: World) -> float:
    return max(world.horizon / world.n_clients, math.e)


RULES: dict[str, Callable[[World, int], float]] = {
    "T/(|C| d log T)": lambda w, size: _own_horizon(w) / (size * w.dim * math.log(_own_horizon(w))),
    "T log(|C|T)/(d|C|)": lambda w, size: _own_horizon(w) * math.log(size * _own_horizon(w)) / (w.dim * size),
}
"""D of a cluster of |C| clients, with T the actions of one client: the authors' code (there with the true number of
clusters for N/|C|), and the paper, Alg. 2 line 5. At T = 3,000, d = 25 and |C| = 8 they are 1.9 and 151."""

DEFAULT_RULE = "T/(|C| d log T)"


@dataclass(frozen=True)
class ServerQueue(MessageProtocol):
    """A client asks when Δn · log(det V(λ)/det (V − ΔV)(λ)) > D; at the end of a round one waiting cluster is served.

    To serve a cluster, all its members upload, and each is sent the sum of what all of them have ever released of their
    own (2|C| messages). The server keeps members' data apart, so clusters may overlap.

    threshold: D for all, or a rule by name, "T/(|C| d log T)" (default) or "T log(|C|T)/(d|C|)".
    order: "fifo" (Alg. 2), or "priority" (Alg. 5 line 19): the cluster with the largest Σ Δn log det V/det (V − ΔV).
    recluster: whether everybody uploads and clusters are formed anew: at the end of a "round" in which somebody asked
        (the same as True), or at each "request" (Alg. 5 lines 12–15), which also empties the queue; N more messages.
    shares: what members of a served cluster get: all that its members have released ("models", D1), or what they have
        released since each was last served, added to what they have ("buffers", Alg. 2 lines 19–21).
    every: the server looks at the queue once in so many rounds; the authors' code serves HetoFedBandit (not -E) once in
        N interactions where one client acts a round.
    requests: for which clusters a client asks: its "largest" (D2), or "all" whose D it exceeds, that of itself alone
        included (Alg. 2 lines 11–14).

    Alg. 2 and 5 to the letter have shares="buffers", requests="all", recluster="request" and the paper's threshold.

    Reference: Blaser et al., HetoFedBandit, 2024: Alg. 2 and 5.

    Deviations (D1, D2 and D4 by default only):
        D1. A served member's model is *replaced* by the sum over the cluster, as in the authors' code. The paper adds
            upload buffers, which mixes data of overlapping clusters, and keeps data of clients that have left.
        D2. A client asks once, when it exceeds the smallest D of its clusters, and those with this D wait. It asks
            again if it has not been served when its growth has doubled: requests may get lost.
        D3. The coordinator knows members' growth from uploads and requests, not by looking into clients. When clusters
            are found at the end of exploration, or once a round, it queues every cluster of which a member has exceeded
            D since it was last served. What a member has observed after the re-clustering at a request stays with it
            when its cluster is served in that round.
        D4. Clusters are formed anew once a round, however many asked; waiting clusters do not lose their turn. A member
            that has uploaded in this round does not upload again to be served, and one that shares with nobody is
            not served.
        D5. Before the first clustering everybody is a cluster of one.
    """

    threshold: float | str | None = None
    order: Order = "fifo"
    recluster: Recluster = False
    shares: Shares = "models"
    requests: Requests = "largest"
    every: int = 1
    world: World | None = field(default=None, repr=False, compare=False)

    says: ClassVar[Says] = "request"
    join: ClassVar[Joining] = "member"
    one_by_one: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the parameters."""
        if isinstance(self.threshold, str):
            if self.threshold not in RULES:
                raise unknown("rule for threshold", self.threshold, RULES)
        elif self.threshold is not None:
            number(self.threshold, "threshold", "a finite number ≥ 0, a rule by name or None", at_least=0.0)
        whole_number("every", self.every)
        for name, choices in (
            ("order", ("fifo", "priority")),
            ("recluster", (False, True, "round", "request")),
            ("shares", ("models", "buffers")),
            ("requests", ("largest", "all")),
        ):
            value = getattr(self, name)
            require(value in choices, name, value, " or ".join(map(repr, choices)))

    def told(self, world: World) -> ServerQueue:
        """With the world that rules depend on."""
        return replace(self, world=world, threshold=DEFAULT_RULE if self.threshold is None else self.threshold)

    @property
    def regroups(self) -> bool:
        """When somebody asks, with `recluster`."""
        return bool(self.recluster)

    @property
    def since_served(self) -> bool:
        """To the letter a buffer is emptied when its owner is served, not when it has been uploaded for clustering."""
        return self.recluster == "request" or (self.requests == "all" and not self.recluster)

    def limit(self, size: int) -> float:
        """D of a cluster of this size."""
        if self.threshold is not None and not isinstance(self.threshold, str):
            return float(self.threshold)
        if self.world is None:
            raise FedbanditError(f"threshold {self.threshold!r} has no value before the protocol is told the world.")
        return RULES[self.threshold or DEFAULT_RULE](self.world, size)

    def trigger(self) -> TimedGrowth:
        """Alg. 2 line 12, for a cluster of one; later the coordinator says for which."""
        return TimedGrowth(as_thresholds(self.limit(1)))

    def releases(self, world: World) -> int:
        """Never more than one a round; FedUCB's Prop. 1 would bound it better, but nothing here is private."""
        return growth_releases(world, 0.0)

    def coordinator(
        self, sharing: Sharing, world: World, dim: int, ridge: float, noise: Noise | None
    ) -> QueueCoordinator:
        """The server."""
        return QueueCoordinator(self, sharing, world, dim, ridge, noise)


_REMEMBERED = ("queue", "serving", "regrouping", "asked")
_GIVEN = ("given_V", "given_b", "given_n", "taken_V", "taken_b", "taken_n")


class QueueCoordinator(Coordinator):
    """The server's machine.

    | doing      | at the end of a round                       | on the last Upload                                   |
    |------------|---------------------------------------------|------------------------------------------------------|
    | nothing    | somebody is to regroup: Collect to all N    | –                                                    |
    |            | else a cluster waits: Collect to it         |                                                      |
    | regrouping | –                                           | form clusters, Threshold to whom they concern, queue |
    |            |                                             | those past D; if somebody asked for it, serve one    |
    | serving    | –                                           | Download to its members                              |

    A Request only queues the client's clusters, or asks for regrouping; with recluster="request" that begins at once.
    """

    def __init__(
        self, protocol: ServerQueue, sharing: Sharing, world: World, dim: int, ridge: float, noise: Noise | None
    ) -> None:
        super().__init__(sharing, world, dim, ridge, noise)
        N = world.n_clients
        self.protocol = protocol
        self.queue: list[list[int]] = []
        self.serving: list[int] | None = None
        self.regrouping = False
        self.asked = False  # somebody has, since clusters were last formed
        self.fresh = np.zeros(N, dtype=np.int64)  # observations released since the member was last served
        self.served = np.zeros(N)  # log det of what it was last served
        self.growth = np.zeros(N)  # Δn · log(det V/det (V − ΔV)) since then, as far as known
        self.size = np.ones(N, dtype=np.int64)  # of the largest cluster each is in
        self.asker: int | None = None  # at whose request clusters are being formed anew
        self.times_served = 0  # since this machine was made
        self.last_served: list[int] = []
        self._remembered = (*_REMEMBERED, "asker") if protocol.recluster == "request" else _REMEMBERED
        if protocol.shares == "buffers":
            # What each was given of others, and its own releases up to the time when it was last served.
            self.given_V, self.taken_V = np.zeros((N, dim, dim)), np.zeros((N, dim, dim))
            self.given_b, self.taken_b = np.zeros((N, dim)), np.zeros((N, dim))
            self.given_n, self.taken_n = np.zeros(N, dtype=np.int64), np.zeros(N, dtype=np.int64)

    @property
    def clocked(self) -> bool:
        """A cluster that waits is served between rounds."""
        return True

    def kept(self) -> dict[str, NDArray[Any]]:
        """Also what the queue is ordered by."""
        own = {"fresh": self.fresh, "served": self.served, "growth": self.growth, "size": self.size}
        given = _GIVEN if self.protocol.shares == "buffers" else ()
        return super().kept() | own | {name: getattr(self, name) for name in given}

    def state(self) -> State:
        """Also the queue, and what the call is for."""
        header, arrays = super().state()
        return State({**header, **{name: getattr(self, name) for name in self._remembered}}, arrays)

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        super().restore(state)
        for name in self._remembered:
            setattr(self, name, state.header[name])

    def next_wake(self, done: int) -> int:
        """The next round in which the server looks at the queue, while somebody waits."""
        wanted = self.wakes.after(done)
        if not self.queue and not self.asked:
            return wanted
        return min(wanted, (done // self.protocol.every + 1) * self.protocol.every)

    def end_round(self, done: int) -> Messages:
        """Form clusters anew if that is due, and serve one."""
        self.done = done
        if self.calls:
            return []
        if self.asked or self.wakes.after(done - 1) == done:
            self.regrouping, self.asked = True, False
            return self.collect(range(self.size.size))
        return self._serve(already=range(self.size.size) if self.protocol.recluster == "request" else ())

    def receive(self, message: Message) -> Messages:
        """Apply a Join, a Request or an Upload."""
        match message:
            case Join(member):
                welcomed = self.welcome(message)
                # What it may have missed; before the first call nobody has been told anything.
                return [self._term(member), *welcomed] if self.epoch > 0 else welcomed
            case Request(member, growth):
                self.check_member(member)
                self.growth[member] = max(self.growth[member], growth)
                return self._asked_by(member)
            case Upload(member, sequence, sums, known):
                if not self.add(message):
                    return [Receipt(member, self.applied[member])]
                self.fresh[member] += sums.n
                self.growth[member] = self.fresh[member] * (known - self.served[member])
                return [Receipt(member, sequence), *self.answered(member)]
            case _:
                raise not_taken(message)

    @property
    def inseparable(self) -> str:
        """Buffers are handed out once, and added to what each was given before."""
        return "members keep sums of what they were given of others" if self.protocol.shares == "buffers" else ""

    def _forget(self, member: int) -> Messages:
        self.fresh[member], self.served[member], self.growth[member] = 0, 0.0, 0.0
        return super()._forget(member)

    def erase(self, member: int) -> Messages:
        """Also from the queue."""
        sent = super().erase(member)
        self.queue = [clique for clique in self.queue if clique in self.sharing.groups()]
        for message in sent:
            if isinstance(message, Download):
                self.served[message.member] = self.logdet(self.share(message.member))
        return [*self._terms(), *sent]

    def _asked_by(self, member: int) -> Messages:
        """What a request leads to at once."""
        if self.protocol.recluster == "request":
            if self.calls:
                return []  # it asks again, if it is not served
            self.regrouping, self.asker = True, member
            return self.collect(range(self.size.size))
        if self.protocol.recluster:
            self.asked = True
            return []
        own = [c for c in self.sharing.groups() if member in c]
        if self.protocol.requests == "largest":
            self._wait([c for c in own if len(c) == self.size[member]])
            return []
        limits = [self.protocol.limit(len(c)) for c in own]
        self._wait([c for c, limit in zip(own, limits, strict=True) if self.growth[member] > limit + TIE])
        above = [limit for limit in limits if self.growth[member] <= limit + TIE]
        return [Threshold(member, min(above, default=NOT_AGAIN))]

    def collected(self, members: list[int]) -> Messages:  # noqa: ARG002 - some may have uploaded before
        """Go on with what the uploads were for."""
        if not self.regrouping:
            return self._send()
        self.regrouping = False
        if self.protocol.since_served:  # whoever is past D says so after its next observation
            asker, self.asker = self.asker, None
            terms = self._terms() if self.sharing.regroup(self.members, self.done, self.noise) else []
            self.queue = []
            self._wait(c for c in self.sharing.groups() if asker in c)
            return terms
        last = len(self.queue)
        place = {i: k for k, clique in reversed(list(enumerate(self.queue))) for i in clique}
        changed = self.sharing.regroup(self.members, self.done, self.noise)
        terms = self._terms() if changed else []
        self.queue = []
        due = [c for c in self.sharing.groups() if self.growth[c].max() > self.protocol.limit(len(c)) + TIE]
        if self.protocol.requests == "largest":
            due = [c for c in due if any(self.size[i] == len(c) for i in c)]
        # Whoever waits keeps its turn.
        self._wait(sorted(due, key=lambda c: min(place.get(i, last) for i in c)))
        by_the_clock = self.wakes.after(self.done - 1) == self.done
        return terms if by_the_clock else [*terms, *self._serve(already=range(self.size.size))]

    def _terms(self) -> Messages:
        size = np.ones_like(self.size)
        for clique in self.sharing.groups():
            size[clique] = np.maximum(size[clique], len(clique))
        changed = np.flatnonzero(size != self.size)
        self.size = size
        return [self._term(int(i)) for i in changed]

    def _term(self, member: int) -> Threshold:
        return Threshold(member, self.protocol.limit(int(self.size[member])))

    def _wait(self, cliques: Iterable[list[int]]) -> None:
        for clique in cliques:
            alone = len(clique) == 1 and not self.mixed[clique[0]] and self.protocol.requests == "largest"
            if clique not in self.queue and not alone:
                self.queue.append(clique)

    def _serve(self, already: Iterable[int]) -> Messages:
        """Take the cluster whose turn it is, and call those of its members who have not uploaded already."""
        if not self.queue:
            return []
        place = 0
        if self.protocol.order == "priority":
            place = int(np.argmax([self.growth[clique].sum() for clique in self.queue]))
        self.serving = self.queue.pop(place)
        return self.collect(set(self.serving) - set(already))

    def _send(self) -> Messages:
        assert self.serving is not None
        clique, self.serving = self.serving, None
        self.times_served, self.last_served = self.times_served + 1, clique
        asked = [i for i in clique if self.growth[i] > self.protocol.limit(int(self.size[i])) + TIE]
        self.fresh[clique] = 0
        self.growth[clique] = 0.0
        if self.protocol.shares == "buffers":
            self._give(clique)
            shares = [([i], self.share(i)) for i in clique]
        else:
            shares = [(clique, summed(self.members, clique, self.noise, self.ridge))]
        sent: Messages = []
        for who, share in shares:
            self.served[who] = self.logdet(share)
            sent += self.send(who, share)
        lowered = asked if self.protocol.requests == "all" else []
        return [*(self._term(i) for i in lowered), *sent]

    def share(self, member: int) -> Share:
        """What a member is to be sent now: with "buffers", what it has released and what it was given of others."""
        if self.protocol.shares == "models":
            return super().share(member)
        own = self.members
        V, b = own.V[member] + self.given_V[member], own.b[member] + self.given_b[member]
        return Share(Sums(V, b, int(own.n[member] + self.given_n[member])))

    def _give(self, clique: list[int]) -> None:
        """Everyone is given the others' buffers, and all of them are emptied (Alg. 2 lines 20–21)."""
        own = self.members
        for given, taken, released in (
            (self.given_V, self.taken_V, own.V),
            (self.given_b, self.taken_b, own.b),
            (self.given_n, self.taken_n, own.n),
        ):
            buffers = released[clique] - taken[clique]
            given[clique] += buffers.sum(axis=0) - buffers
            taken[clique] = released[clique]
