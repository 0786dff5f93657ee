"""Peer to peer: no coordinator, statistics travel from neighbour to neighbour."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from fedbandit.errors import FedbanditError, number, require, whole_number
from fedbandit.protocols.factors import count_portions, count_releases
from fedbandit.protocols.protocol import MessageProtocol
from fedbandit.protocols.synchronous import theorem_threshold
from fedbandit.protocols.topology import Topology, clique_cover, diameter, neighbours_of
from fedbandit.protocols.trigger import Reads, Says, Trigger, timed_or_counted
from fedbandit.world import World


@dataclass(frozen=True)
class Gossip(MessageProtocol):
    """Decentralised FedUCB: messages travel one hop a round and live `ttl` = γ hops; every agent has γ estimators.

    In round t all agents use their estimator g = t mod γ, and what they observe counts for that one alone. When the
    trigger of estimator g fires, an agent tells all it has released for g and asks the agents within γ hops to do the
    same (`peer_node`). Its model of g is then its own data of g and those of the agents it has heard of: a message that
    is sent when g was used has arrived everywhere within γ hops by the time that g is used again.

    The trigger is `growth` (as many times the observations as were released, and at least `batch` more: reads counts
    only) or `threshold` = D (Δn · growth of log det V > D: reads raw data), a number or "theorem": Theorem 1's for the
    T/γ rounds of each estimator, as Theorem 2 prints none.

    `topology` is "complete", "line", "ring", "star", "grid", "erdos-renyi", an adjacency matrix or a networkx graph; it
    must be connected, and γ at most its diameter: a message lives no longer than it takes to reach everybody.

    `cliques`: an agent synchronises with the agents of its clique of G_γ only, as in Remark 2; the cover by cliques is
    `topology.clique_cover`. `subsample=False`: one estimator instead of γ, used in every round with whatever has
    arrived. The paper conjectures that this has less regret, and has no proof.

    Reference: Dubey & Pentland 2020, §4.2 (its pseudo-code is in an appendix that we do not have).

    Deviations:
        D1. By default an agent synchronises with everybody within γ hops. The paper's "each agent only communicates
            within its clique" (Remark 2) is `cliques=True`, with a greedy cover (it does not say which).
        D2. An agent whose own trigger fires tells at once, instead of waiting to be asked.
        D3. Who is asked answers if it has `batch` new observations or more, otherwise what it told last is all there
            is. An agent that asks all the time gains nothing by it (Remark 4).
    """

    topology: Topology = "complete"
    ttl: int = 1
    growth: float | None = 1.5
    batch: int = 16
    threshold: float | str | None = None
    cliques: bool = False
    subsample: bool = True
    neighbours: tuple[tuple[int, ...], ...] = field(default=(), repr=False, compare=False)

    says: ClassVar[Says] = "gossip"
    counting: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the parameters; the topology is checked when the number of agents is known."""
        whole_number("ttl", self.ttl)
        whole_number("batch", self.batch)
        if self.growth is not None:
            number(self.growth, "growth", "a finite number ≥ 1, or None", at_least=1.0)
        if self.threshold is not None and self.threshold != "theorem":
            number(self.threshold, "threshold", "a number ≥ 0, 'theorem' or None", at_least=0.0)
        require(
            (self.growth is None) != (self.threshold is None), "threshold", self.threshold, "given if growth is not"
        )

    @property
    def period(self) -> int:
        """γ estimators, used in turn; or one."""
        return self.ttl if self.subsample else 1

    @property
    def reads(self) -> Reads:
        """Determinants of raw data, or public counts."""
        return "raw" if self.growth is None else "counts"

    def told(self, world: World) -> Gossip:
        """The topology becomes lists of neighbours."""
        if world.per_round != world.n_clients:
            raise FedbanditError(
                "Gossip needs rounds in which every agent acts, since messages travel one hop a round; "
                "use an environment with rounds='all'."
            )
        neighbours = neighbours_of(self.topology, world.n_clients)
        known = not (isinstance(self.topology, str) and self.topology == "unknown")
        longest = diameter(neighbours) if self.ttl > 1 and known else self.ttl
        require(self.ttl <= longest, "ttl", self.ttl, f"at most {longest}, the diameter of the topology")
        threshold = theorem_threshold(world) if self.threshold == "theorem" else self.threshold
        return replace(self, neighbours=neighbours, threshold=threshold)

    def companions(self, member: int) -> tuple[int, ...]:
        """With whom a member of a protocol that was told the world synchronises: its clique, or all agents."""
        if not self.cliques:
            return tuple(range(len(self.neighbours)))
        clique = clique_cover(self.neighbours, self.ttl)
        return tuple(j for j, label in enumerate(clique) if label == clique[member])

    def trigger(self) -> Trigger:
        """On counts, or on determinants."""
        return timed_or_counted(self.threshold, self.growth, self.batch)

    def releases(self, world: World) -> int:
        """Of one estimator, which an agent uses in every round, or in every γ-th."""
        rounds = self._rounds(world)
        return count_releases(self.growth, rounds, self.batch) if self.growth is not None else rounds

    def portions(self, world: World) -> tuple[int, ...]:
        """By counts: as they grow."""
        return () if self.growth is None else count_portions(self.growth, self._rounds(world), self.batch)

    def _rounds(self, world: World) -> int:
        """In which an agent uses one of its estimators."""
        return max(world.horizon // world.per_round // self.period, 1)
