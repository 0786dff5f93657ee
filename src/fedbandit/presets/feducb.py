"""FedUCB (Dubey & Pentland, 2020): private federated LinUCB; and private LinUCB for a client that learns alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from fedbandit.errors import FedbanditError, require, shown, unknown
from fedbandit.presets.compose import Common, compose, preset
from fedbandit.privacy import NoisyRewards, Privacy, PrivateStatistics
from fedbandit.privacy.private_statistics import CALIBRATIONS, Calibration, Epsilon, Width
from fedbandit.privacy.published_sums import SeparateSums
from fedbandit.privacy.trust import Own, Trust
from fedbandit.protocols import CountTriggered, Gossip, MessageProtocol, Never, Synchronous
from fedbandit.protocols.topology import Topology
from fedbandit.structures import Alone, Everyone
from fedbandit.structures.weighted_graph import Unconnected
from fedbandit.system import System

GROWTH, BATCH = 1.5, 16
"""When clients synchronise by counts: half as many observations more, and 16 at least. Few enough releases that their
noise is near that of a single one, and often enough that little is learnt late."""

EARLY = 4
"""Where all share the noise of one (`trust`): from so many observations on."""


@preset
def feducb(
    *,
    epsilon: Epsilon = 1.0,
    delta: float = 1e-5,
    threshold: float | str | None = None,
    topology: Topology = "central",
    ttl: int = 1,
    cliques: bool = False,
    subsample: bool = True,
    calibration: Calibration | None = None,
    as_printed: bool = False,
    width: Width = "corrected",
    trust: Trust = "nobody",
    own: Own | None = None,
    **common: Unpack[Common],
) -> System:
    """Federated private UCB (FedUCB, Alg. 1 and 2); `epsilon=inf` is the same without noise.

    `threshold` is D of Alg. 1 line 12, a number or a rule by name: "theorem" is Theorem 1's. `as_printed` is Alg. 1 to
    the letter, but for Δt + 1 (D4): calibration "published", Theorem 1's D unless another is given, V = Mρ_min I at
    first, and the determinant of line 12; with `width="printed"` Prop. 2 is to the letter, too.
    `epsilon` may be one for each agent. `topology` is "central" for a coordinator, or the graph of agents that talk to
    each other directly ("complete", "line", "ring", "star", "grid", "erdos-renyi", an adjacency matrix or a networkx
    graph), where messages live `ttl` = γ hops (`protocols.Gossip`, §4.2); `cliques` has agents share within cliques
    only, and `subsample=False` has one estimator instead of γ.

    `trust` says who is trusted with what: "nobody", only "sums" over many agents, or the "coordinator"; `own` whether
    an agent chooses by its own "exact" data too, or by what is "released" alone (`PrivateStatistics`).

    Deviations:
        D1. Under "proven" agents synchronise when their number of observations has grown by half, not on Alg. 1's
            determinant of raw data: *when* an agent spoke would reveal single records, and no finite ε would hold. A
            threshold is then refused.
        D2. Under "proven" the noise is calibrated tightly (`gram_mechanism`) and widths are recomputed for the noise
            that is really added (`pool_noise`); under "published" scale, shift and width are the paper's, with
            log det V in Prop. 2, where `d log det V` is printed (`width="printed"`: √d times the exploration and more;
            where Mρ_min is so small that d log det V is negative, its root is taken without it).
        D3. Under "proven" an agent learns from its own data as they are, and weighs what the others released by how
            much that is worth (`mixing`). The paper has agents learn from noisy sums of their own data, and trust
            noisy ones as exact: with much noise that is far worse than learning alone.
        D4. Under "published" Alg. 1 line 12 divides by Δt + 1, as §4.2 does: it would divide by 0 in the first round
            after a synchronisation. Unless `as_printed`, M(ρ_max − ρ_min)I is added to S alone and not to V + xxᵀ, so
            that no determinant has to be computed in between; agents synchronise no later.
        D5. Under "published", before the first synchronisation an agent's V is its own data and λI; Mρ_min I
            (`as_printed`) hides what an agent has seen itself. Trees have 1 + ⌈log T⌉ levels, as no number of
            synchronisations is fixed beforehand: no agent's budget is spent before the end.
        D6. With `trust` other than "nobody", where one agent's noise is in everybody's total, α is 0.6 by default.
    """
    if calibration is None:
        calibration = "published" if as_printed else "proven"
    if calibration not in CALIBRATIONS:
        raise unknown("calibration", calibration, CALIBRATIONS)
    if as_printed and threshold is None:
        threshold = "theorem"
    failure = common.get("confidence", 0.1) if calibration == "published" else 0.05  # the paper has one α
    private = PrivateStatistics(
        epsilon, delta, calibration, as_printed=as_printed, width=width, failure=failure, trust=trust, own=own
    )
    if threshold is not None and private.guarantee().basis == "proven":
        raise FedbanditError(
            f"threshold is {shown(threshold)}, but under calibration 'proven' agents speak by counts: a trigger that "
            "reads raw data tells single records by its times, and no finite ε holds; give calibration='published', "
            "or no threshold."
        )
    if as_printed or width == "printed":
        with_controller = "'central' for what is printed: Alg. 1 and Prop. 2 have one controller"
        require(isinstance(topology, str) and topology == "central", "topology", topology, with_controller)
    by_counts = calibration == "proven" and threshold is None
    protocol: MessageProtocol
    if isinstance(topology, str) and topology == "central":
        for name, value, usual in (("ttl", ttl, 1), ("cliques", cliques, False), ("subsample", subsample, True)):
            require(value == usual, name, value, f"{usual} with a coordinator; it belongs to a topology of peers")
        batch = EARLY if private.pooled else BATCH
        when = Synchronous(growth=GROWTH, batch=batch) if by_counts else Synchronous(threshold)
        protocol = replace(when, warm_join=True)  # Alg. 1: all M agents are there from the start
    elif by_counts:
        protocol = Gossip(topology, ttl, GROWTH, BATCH, cliques=cliques, subsample=subsample)
    else:
        D = "theorem" if threshold is None else threshold
        protocol = Gossip(topology, ttl, None, 1, D, cliques, subsample)
    return compose(protocol, Everyone(), privacy=private, **common)


@preset
def dp_linucb(
    *,
    epsilon: float = 1.0,
    delta: float = 0.0,
    calibration: Calibration = "proven",
    **common: Unpack[Common],
) -> System:
    """One private LinUCB for each client: rewards are protected, and contexts too if `delta` > 0.

    With δ = 0 every reward is noised at once (pure ε, `NoisyRewards`). With δ > 0 a model learns from noisy running
    sums only, released when a client has 5 % more observations (Shariff & Sheffet 2018 release after each): the arms
    pulled for others then reveal a single interaction with (ε, δ) at most.

    As published with δ = 0 it is the baseline of Wang et al. 2020 ([29] there): N learners, each with a Laplace tree of
    T/N releases on its own Σ x y, and λ = 1.
    """
    if delta == 0 and calibration == "published":
        common.setdefault("ridge", 1.0)
        return compose(Never(), Unconnected(), privacy=SeparateSums(epsilon), **common)
    if delta == 0:
        return compose(Never(), Everyone(), privacy=NoisyRewards(epsilon), **common)
    private: Privacy = PrivateStatistics(epsilon, delta, calibration)
    return compose(CountTriggered(1.05, 1.0, batch=BATCH), Alone(), privacy=private, **common)
