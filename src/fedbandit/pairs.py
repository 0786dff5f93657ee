"""Which parts do not go together, why, and what to use instead.

A pair is refused if it cannot be what it is called: nobody would be spoken to, nothing would ever be learnt, or a claim
of privacy would not hold. Every sentence names both parts, and with a keyword the part that has it: whoever reads it
may have called a preset that has no such keyword. `tests/test_combinations.py` tries all combinations of
exported parts: what is not refused here must run, learn, and keep groups apart.
"""

from __future__ import annotations

from typing import NoReturn

from fedbandit.errors import FedbanditError
from fedbandit.policies import Policy
from fedbandit.policies.policy import WidthRule
from fedbandit.privacy import Privacy, PrivateStatistics
from fedbandit.protocols import MessageProtocol, ServerQueue, Synchronous
from fedbandit.structures import Alone, Central, Clustering, Everyone, FixedGroups, OnGraph, Structure

Part = MessageProtocol | Structure | Privacy

KNOWING = "ServerQueue, Scheduled, Synchronous, EventTriggered or CountTriggered"
"""Protocols whose coordinator can know its members."""


def check_pairs(protocol: MessageProtocol, structure: Structure, privacy: Privacy) -> None:
    """Refuse what does not go together, with one sentence."""
    if isinstance(structure, Clustering):
        _check_clusters_speak(structure, protocol)
    else:
        _check_models_speak(structure, protocol)
    match privacy.perturbs:
        case "statistics" if isinstance(structure, Clustering):
            _check_private_clusters(structure, privacy)
        case "statistics":
            _check_private_statistics(structure, protocol, privacy)
        case "reward sums":
            _check_reward_sums(structure, protocol, privacy)


def check_actions(protocol: MessageProtocol, structure: Structure, privacy: Privacy) -> None:
    """Refuse parts that do not know models with one θ for each action, where the world has such actions."""
    if not (structure.homogeneous or isinstance(structure, Central)):
        raise _one_theta(structure, "groups, parts or kernels are those of one θ", "Everyone, FixedGroups or Central")
    if protocol.says == "gossip":
        raise _one_theta(protocol, "peers tell one another sums of one θ", "a protocol with a coordinator")
    if privacy.perturbs in ("statistics", "reward sums"):
        raise _one_theta(privacy, "its noise is calibrated for the sums of one θ", "NoisyRewards, which noises rewards")


def check_width(policy: Policy, privacy: Privacy) -> None:
    """Refuse Prop. 2's printed width, which counts log det V d times, with two different α: only their sum is sent."""
    if not isinstance(privacy, PrivateStatistics) or privacy.width != "printed" or not isinstance(policy, WidthRule):
        return
    if policy.alpha is None and policy.confidence != privacy.failure:
        raise FedbanditError(
            f"The confidence of {type(policy).__name__} is {policy.confidence:g} and the failure of PrivateStatistics "
            f"{privacy.failure:g}, but they must be one α for width='printed'."
        )


def _one_theta(part: Part, why: str, instead: str) -> FedbanditError:
    return FedbanditError(
        f"{type(part).__name__} is refused where each action has a θ of its own: {why}; use {instead}."
    )


def check_forgetting(protocol: MessageProtocol, structure: Structure, privacy: Privacy) -> None:
    """Refuse parts that do not know models which forget."""
    if not structure.homogeneous:
        raise _remembers(structure, "it compares or serves statistics that are not dated", "Everyone or FixedGroups")
    if privacy.perturbs in ("statistics", "reward sums"):
        raise _remembers(privacy, "its noise is calibrated for sums that last", "NoisyRewards, which noises rewards")
    if protocol.reads == "counts":
        why = "it speaks by counts, and intervals that grow with all that was ever counted outlast what is remembered"
        raise _remembers(protocol, why, "EventTriggered, or Synchronous with a threshold, which read determinants")
    if protocol.says != "nothing" and not protocol.dated:
        raise _remembers(protocol, "its messages are not dated", "EventTriggered, Synchronous or Never")


def _remembers(part: Part, why: str, instead: str) -> FedbanditError:
    return FedbanditError(f"{type(part).__name__} is refused with discount or window: {why}; use {instead}.")


def refuse(one: Part, other: Part, why: str, instead: str) -> NoReturn:
    """Say which two parts do not go together, why not, and what does."""
    pair = f"{type(one).__name__} with {type(other).__name__}"
    raise FedbanditError(f"{pair} is refused: {why}; use {instead}.")


# Who speaks to whom


def _check_clusters_speak(structure: Clustering, protocol: MessageProtocol) -> None:
    """Users whom local servers cluster."""
    if protocol.says != "nothing" and not structure.federated:
        why = "every local server clusters its own users and nobody coordinates them"
        refuse(structure, protocol, why, "the protocol Never, or PhasedClusters")
    if structure.federated and protocol.says not in ("upload", "request"):
        why = "local clusters of different servers share through a coordinator, and this protocol has none"
        refuse(structure, protocol, why, "EventTriggered, CountTriggered or Synchronous")
    if protocol.one_by_one:
        _refuse_one_by_one(structure, protocol)


def _check_models_speak(structure: Structure, protocol: MessageProtocol) -> None:
    """A model for each client, or one for all of them."""
    if not structure.separate and protocol.says != "nothing":
        why = "one place has all data, so there is nobody to exchange statistics with"
        own = "a structure with a model for each client: Everyone"
        if isinstance(structure, OnGraph):
            own = f"{type(structure).__name__}(central=False)"
        refuse(structure, protocol, why, f"the protocol Never, or {own}")
    if protocol.one_by_one and not structure.by_member:
        _refuse_one_by_one(structure, protocol)
    if isinstance(structure, OnGraph) and structure.separate and protocol.says != "upload":
        why = "users on a graph who keep their own data need a protocol in which they upload"
        all_data = f"{type(structure).__name__}(central=True)"
        refuse(structure, protocol, why, f"EventTriggered, CountTriggered or Scheduled; or Never with {all_data}")
    if structure.by_member and protocol.says not in ("upload", "request"):
        refuse(structure, protocol, "groups are found by a coordinator, and this protocol has none", KNOWING)
    if structure.by_member and not structure.asks_to_regroup and not protocol.regroups:
        why = "nobody says when groups are to be looked for, so that everybody would stay alone"
        again = f"{type(structure).__name__}(recluster=1.3)"
        refuse(structure, protocol, why, f"{again}, or Scheduled, which looks for them whenever it calls")
    if protocol.says == "gossip":
        _check_gossip(structure, protocol)
    if protocol.by_clock and not structure.counted:
        why = "by the clock nothing is sent to whoever is alone, so that nothing would ever be learnt"
        refuse(structure, protocol, why, "CountTriggered, or Synchronous(growth=…)")
    if structure.separate and not structure.fresh and (protocol.says == "nothing" or protocol.reads == "raw"):
        why = "a model that waits for releases has no determinant that grows by itself, so nothing would ever be learnt"
        counts = "CountTriggered, or Synchronous(growth=…)" if not isinstance(structure, OnGraph) else "CountTriggered"
        refuse(structure, protocol, why, f"{counts}, which read counts")

    if not structure.counted and protocol.reads != "counts":
        why = "only what has data of others is sent back, so a client that is alone would never learn"
        refuse(structure, protocol, why, "CountTriggered, or Synchronous(growth=…)")


def _refuse_one_by_one(structure: Structure, protocol: MessageProtocol) -> NoReturn:
    why = "its coordinator forms groups of members whom it knows one by one, and this structure has none to form"
    refuse(structure, protocol, why, "HomogeneityCliques, EvidenceClusters or ReleasedPhases; or Synchronous")


def _check_gossip(structure: Structure, protocol: MessageProtocol) -> None:
    """Peers tell one another sums of whole contexts."""
    if structure.has_personal_part:
        why = "peers exchange statistics of whole contexts, and a model in two parts shares those of one"
        refuse(structure, protocol, why, "EventTriggered, CountTriggered or Synchronous")
    if not structure.counted:
        why = "what is released stays in the house, and peers tell their neighbours"
        refuse(structure, protocol, why, "CountTriggered")


# What may leave


def _check_private_clusters(structure: Clustering, privacy: Privacy) -> None:
    """Sums of local clusters, which form and dissolve."""
    if privacy.guarantee().basis == "proven":
        why = (
            "under calibration 'proven' users may not be clustered by raw statistics, which their uploads then tell, "
            "and clusters that change would release old records again"
        )
        refuse(structure, privacy, why, "ReleasedPhases, which clusters users by what each of them has released")
    if privacy.site != "node" or not structure.federated:
        why = (
            "sums of local clusters leave, if anything does, and nobody knows how to noise those but PublishedClusters"
        )
        refuse(structure, privacy, why, "PublishedClusters with PhasedClusters, or NoisyRewards")


def _check_private_statistics(structure: Structure, protocol: MessageProtocol, privacy: Privacy) -> None:
    """A mechanism's claim is worth nothing if something else tells what it hides."""
    if privacy.site == "node":
        why = "its noise is that of local servers which cluster their users"
        refuse(privacy, structure, why, "PhasedClusters, or PrivateStatistics")
    if isinstance(structure, OnGraph):
        why = "on a graph of users, noise in V would make its kernel indefinite"
        refuse(privacy, structure, why, "PrivateRewards or NoisyRewards, which protect rewards")
    if structure.has_personal_part:
        why = (
            "in a model of two parts, what is shared holds estimates made with the personal one, of unknown sensitivity"
        )
        refuse(privacy, structure, why, "NoisyRewards, which protects rewards")
    if not structure.separate or protocol.says == "nothing":
        other = structure if not structure.separate else protocol
        why = "nothing is ever released, so there is nothing to make private"
        refuse(
            privacy, other, why, "the structure Alone with CountTriggered (preset dp_linucb) where a client is alone"
        )
    printed = isinstance(privacy, PrivateStatistics) and (privacy.as_printed or privacy.width == "printed")
    if printed and not _is_algorithm_1(structure, protocol):
        other = protocol if isinstance(structure, Everyone) else structure
        why = "as printed all agents synchronise with one controller"
        refuse(privacy, other, why, "Synchronous with Everyone")
    if privacy.pooled:
        _check_pooled(structure, protocol, privacy)
    if privacy.padded and not protocol.by_clock:
        refuse(privacy, protocol, "padded counts are those of a clock, by which every client is called", "Scheduled")
    if privacy.padded and not structure.homogeneous:
        why = "how much a member knows decides what is made of it, and padded counts do not tell"
        refuse(privacy, structure, why, "Everyone or FixedGroups")
    if privacy.waits and protocol.says == "gossip":
        refuse(
            privacy,
            protocol,
            "with own='released' peers may not learn from their own data",
            "own='exact' of PrivateStatistics",
        )
    if privacy.contribution is not None and protocol.period > 1:
        why = (
            f"a client has {protocol.period} estimators with a stream each, so `contribution` would not bound its part"
        )
        refuse(privacy, protocol, why, "Gossip(ttl=1), or one interaction as the unit")
    if isinstance(protocol, ServerQueue) and protocol.shares == "buffers":
        refuse(
            privacy,
            protocol,
            "noise in buffers would be added up again with each service",
            "ServerQueue(shares='models')",
        )
    if privacy.guarantee().basis == "proven" and protocol.reads == "raw":
        why = (
            "under calibration 'proven' its trigger reads raw data, so the times at which a client speaks depend on "
            "single records and no finite ε holds"
        )
        refuse(
            privacy, protocol, why, "CountTriggered, Synchronous(growth=…) or Gossip(growth=…), which read counts only"
        )


def _is_algorithm_1(structure: Structure, protocol: MessageProtocol) -> bool:
    return isinstance(structure, Everyone) and isinstance(protocol, Synchronous)


def _check_pooled(structure: Structure, protocol: MessageProtocol, privacy: Privacy) -> None:
    """One noisy total of everybody's statistics needs everybody at once, and tells nothing about anybody."""
    if structure.by_member:
        why = "who belongs together is found from what each member has released, and a total tells nothing of that"
        refuse(privacy, structure, why, "trust='nobody' of PrivateStatistics")
    if isinstance(structure, Alone | FixedGroups):  # others' structures say their groups when they know the world
        why = "a total is one of everybody, and here groups are kept apart"
        groups = "a federation for each group, with a quorum of its own"
        refuse(privacy, structure, why, f"{groups}, or trust='nobody' of PrivateStatistics")
    if not protocol.at_once:
        why = "a total of everybody needs everybody at once"
        refuse(privacy, protocol, why, "Synchronous(growth=…) or Scheduled; or trust='nobody' of PrivateStatistics")


def _check_reward_sums(structure: Structure, protocol: MessageProtocol, privacy: Privacy) -> None:
    """Contexts of chosen arms are sent as they are, so choices must depend on rewards through releases only."""
    if not structure.separate:
        if not isinstance(structure, OnGraph):
            why = "sums of rewards are released of users on a graph, or of a client that learns alone"
            refuse(privacy, structure, why, "WeightedGraph, Laplacian or Alone; or NoisyRewards")
        return
    if privacy.guarantee().basis == "as published":
        why = "the paper's noise is on the model of all users in one place"
        refuse(privacy, structure, why, "WeightedGraph(central=True) or Laplacian(central=True); or PrivateRewards")
    if structure.fresh:
        why = (
            "a model that learns from its own rewards at once chooses arms, whose contexts it sends as they are, by "
            "rewards that were not noised"
        )
        waits = f"{type(structure).__name__}(fresh=False)" if isinstance(structure, OnGraph) else "the structure Alone"
        refuse(privacy, structure, why, f"{waits}, or NoisyRewards")
    if protocol.reads != "counts":
        why = "the times of uploads must not depend on the rewards that they hide"
        refuse(privacy, protocol, why, "CountTriggered, which reads counts")
    if privacy.site == "coordinator" and not structure.by_member:
        why = "a coordinator that draws noise has to know its members"
        refuse(privacy, structure, why, f"{type(privacy).__name__}(site='client')")
