"""Which compositions the fast engine takes. Nothing here imports the compiler: short runs ask, and do without it."""

from __future__ import annotations

from enum import IntEnum

from fedbandit import privacy, protocols, structures
from fedbandit.policies import UCB, Greedy, LinPHE, LinTS, Policy, SquaredBonus, Uniform, Widest
from fedbandit.protocols import CountTriggered, EventTriggered, Never, Scheduled
from fedbandit.structures import Clustering, HomogeneityCliques, Laplacian, WeightedGraph
from fedbandit.system import System


class Code(IntEnum):
    """Which compiled chooser stands for a policy."""

    UNIFORM = 0
    GREEDY = 1
    UCB = 2
    THOMPSON = 3
    PERTURBED = 4
    SQUARED = 5
    WIDEST = 6


CODES: dict[type[Policy], Code] = {
    Uniform: Code.UNIFORM,
    Greedy: Code.GREEDY,
    UCB: Code.UCB,
    LinTS: Code.THOMPSON,
    LinPHE: Code.PERTURBED,
    SquaredBonus: Code.SQUARED,
    Widest: Code.WIDEST,
}
"""The policies that have a kernel. A subclass may choose otherwise, so it has none."""


KNOWN: dict[str, set[type]] = {
    "policy": set(CODES),
    "protocol": {
        protocols.CountTriggered,
        protocols.EventTriggered,
        protocols.Gossip,
        protocols.Never,
        protocols.Scheduled,
        protocols.ServerQueue,
        protocols.Synchronous,
    },
    "structure": {
        structures.Alone,
        structures.Central,
        structures.Everyone,
        structures.EvidenceClusters,
        structures.FixedGroups,
        structures.HomogeneityCliques,
        structures.Laplacian,
        structures.PhasedClusters,
        structures.PrunedGraph,
        structures.ReleasedPhases,
        structures.Servers,
        structures.SplitAndMerge,
        structures.WeightedGraph,
    },
    "privacy": {
        privacy.NoPrivacy,
        privacy.NoisyRewards,
        privacy.PrivateRewards,
        privacy.PrivateStatistics,
        privacy.PublishedClusters,
        privacy.PublishedSums,
        privacy.RewardSums,
    },
}
"""The parts that have kernels; a subclass of one may do something else, and has none."""


def unknown_part(system: System) -> str | None:
    """The first part of a system that has no kernel, in words."""
    for role, kinds in KNOWN.items():
        part = getattr(system, role)
        if type(part) not in kinds:
            return f"the {role} {type(part).__name__}"
    return _unknown_pair(system)


def _unknown_pair(system: System) -> str | None:
    """Parts that have kernels, but not together."""
    if system.world is not None and system.world.actions:
        return "worlds in which each action has a θ of its own"
    if system.forgets:
        return "models that forget (discount, window)"
    policy, structure = type(system.policy).__name__, type(system.structure).__name__
    if isinstance(system.structure, Laplacian | WeightedGraph) and not system.structure.separate:
        return f"the structure {structure} with all users in one place"
    if system.protocol.since_served:
        return (
            f"the protocol {type(system.protocol).__name__} to the letter, whose triggers look at more than is pending"
        )
    if isinstance(system.structure, HomogeneityCliques) and system.structure.exploration == "doubling":
        return f"the structure {structure} that explores again"
    compiled = isinstance(system.protocol, EventTriggered | CountTriggered | Never)
    if isinstance(system.structure, Clustering) and (not compiled or system.privacy.perturbs == "statistics"):
        other = system.protocol if not compiled else system.privacy
        return f"{type(other).__name__} with the structure {structure}"
    if isinstance(system.protocol, EventTriggered) and system.protocol.at_least > 1:
        return "the protocol EventTriggered with a least number of observations in an upload"
    if system.privacy.pooled:
        return f"the privacy {type(system.privacy).__name__} with one total of everybody's statistics"
    if system.privacy.lifts:
        return f"the privacy {type(system.privacy).__name__} as printed, whose triggers have a determinant of their own"
    if system.privacy.waits:
        return f"the privacy {type(system.privacy).__name__} with clients that learn from releases alone"
    if isinstance(system.protocol, Scheduled) and not system.structure.by_member:
        return f"the protocol Scheduled with the structure {structure}"
    sampled = isinstance(system.policy, LinTS | LinPHE)
    waits = system.structure.separate and not system.structure.fresh
    if sampled and (system.privacy.perturbs == "statistics" or waits):
        # Noise widens samples by the largest eigenvalue, of which rows have a bound only.
        return f"the policy {policy} with the privacy {type(system.privacy).__name__}"
    return None
