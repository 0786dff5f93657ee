"""HetoFedBandit (Blaser, Li & Wang, 2024), its variants, DyClu, and this project's own clustered federation."""

from __future__ import annotations

from typing import Any, Unpack

from fedbandit.presets.compose import Basic, Common, compose, preset, trusting
from fedbandit.privacy import Privacy
from fedbandit.privacy.trust import Own, Trust
from fedbandit.protocols import (
    CountTriggered,
    EventTriggered,
    Factor,
    MessageProtocol,
    Never,
    Scheduled,
    ServerQueue,
)
from fedbandit.protocols.queue import Order, Recluster, Requests, Shares
from fedbandit.structures import EvidenceClusters, HomogeneityCliques, Neighbourhoods
from fedbandit.structures.exploration import Exploration
from fedbandit.structures.homogeneity_cliques import Margin, Test
from fedbandit.structures.structure import Explore
from fedbandit.system import System

ONCE_LEVEL = 0.5
"""δ of tests where clusters are found once: to join two that differ costs more than to miss an edge."""


class Queued(Common, total=False):
    """Keywords of HetoFedBandit and its variants.

    exploration: T₀, a number, "theorem" (with `gap` and `n_clusters`) or "doubling"; by default 1.65 d (42 rounds for
        d = 25), none in -E. The authors' code has 70, which alone costs more regret than the paper's Table 1 shows for
        one or four clusters; fewer find wrong clusters.
    explore: "widest" arms (default), or "random" ones as in Alg. 3, of which 1.9 d are needed.
    test_level, pair_level or test_threshold: δ of all tests together (default 0.5 where clusters are found once, 0.01
        where they are formed anew; the paper has 0.1), δ of one test (the authors' code has 0.01), or vᶜ itself.
    margin: ψᶜ; where clusters are found once, by default the proof's "tight" 1/(Nσ)²; "published" is 1/σ².
    gap, n_clusters, regularity: what Theorem 3.3 must know: γ, M and λ_c.
    test: an own test of who is like whom (`HomogeneityCliques`).
    threshold: D of a cluster, by default the authors' T/(|C| d log T); "T log(|C|T)/(d|C|)" is the paper's, which is
        some eighty times larger.
    recluster, shares, requests, every: how the queue is kept (`ServerQueue`, where the deviations are listed).
    as_printed: the paper to the letter, unless another keyword says otherwise: random exploration, for T₀ of Theorem
        3.3 if `gap` and `n_clusters` are given; δ = 0.1; ψᶜ = 1/σ², or that of Alg. 4; the paper's D; buffers added;
        requests for every cluster; and clusters formed anew at each request, where they are.
    """

    exploration: Exploration
    explore: Explore
    test_level: float | None
    pair_level: float | None
    test_threshold: float | None
    margin: Margin
    gap: float | None
    n_clusters: int | None
    regularity: float | None
    test: Test | None
    threshold: float | str | None
    recluster: Recluster
    shares: Shares
    requests: Requests
    every: int
    as_printed: bool


def _queued(order: Order, anew: bool, given: Queued, **default: Unpack[Queued]) -> System:
    """Queue and cliques with what is given, what the paper prints, or these defaults, in this order.

    anew: whether clusters are formed anew while running.
    """
    common: Any = {key: value for key, value in given.items() if key in Common.__annotations__}
    own: dict[str, Any] = {key: value for key, value in given.items() if key not in common}
    chosen: dict[str, Any] = {"recluster": anew, "explore": "widest", **default}
    if own.pop("as_printed", False):
        chosen |= {"explore": "random", "test_level": 0.1, "threshold": "T log(|C|T)/(d|C|)"}
        chosen |= {"shares": "buffers", "requests": "all", "recluster": "request" if anew else False}
        chosen["margin"] = "data" if anew else "published"
        if chosen["exploration"] is None and {"gap", "n_clusters"} <= own.keys():
            chosen["exploration"] = "theorem"
    if any(own.get(name) is not None for name in ("test_level", "pair_level", "test_threshold")):
        chosen["test_level"] = None
    chosen |= own
    queue = {key: chosen.pop(key) for key in ("threshold", "recluster", "shares", "requests", "every") if key in chosen}
    structure = HomogeneityCliques(noise=common.get("noise"), **chosen)
    return compose(ServerQueue(order=order, **queue), structure, **common)


@preset
def hetofedbandit(**keywords: Unpack[Queued]) -> System:
    """HetoFedBandit: exploration, one clustering by tests, then a FIFO queue of clusters (Alg. 1–3).

    The defaults are tuned, not the paper's: widest arms, δ = 0.5, ψᶜ = 1/(Nσ)², the code's D, models replaced.
    `as_printed=True` has the paper's. Keywords: `Queued`.
    """
    return _queued("fifo", False, keywords, exploration=None, margin="tight", test_level=ONCE_LEVEL)


@preset
def hetofedbandit_pq(**keywords: Unpack[Queued]) -> System:
    """HetoFedBandit with a priority queue: the cluster that has learnt most is served first (App. G)."""
    return _queued("priority", False, keywords, exploration=None, margin="tight", test_level=ONCE_LEVEL)


@preset
def hetofedbandit_dr(**keywords: Unpack[Queued]) -> System:
    """HetoFedBandit with data-dependent re-clustering at each collaboration (Alg. 4, App. G), and a FIFO queue."""
    return _queued("fifo", True, keywords, exploration=None, margin="data")


@preset
def hetofedbandit_e(**keywords: Unpack[Queued]) -> System:
    """HetoFedBandit-E: re-clustering at each collaboration and a priority queue, without exploration (Alg. 5)."""
    return _queued("priority", True, keywords, exploration=0, margin="data")


@preset
def hetofedbandit_async(
    *,
    exploration: Exploration = 0,
    test_level: float | None = None,
    pair_level: float | None = None,
    test_threshold: float | None = None,
    recluster: float = 1.3,
    gamma_upload: Factor = 2.0,
    gamma_download: Factor = 2.0,
    margin: Margin = "data",
    test: Test | None = None,
    privacy: Privacy | None = None,
    **common: Unpack[Common],
) -> System:
    """Clusters by tests in which nobody waits: each client uploads, and is sent downloads, on its own triggers.

    What HetoFedBandit leaves open (§3.2): clusters are those of Alg. 4, within them the protocol is Async-LinUCB's.
    When the rounds have grown by `recluster`, everybody uploads and clusters are formed anew.

    With a `privacy` part that noises statistics, triggers count observations instead of reading them: a client uploads
    when it has `gamma_upload` times as many as it has sent.
    """
    structure = HomogeneityCliques(
        exploration,
        test_level,
        test_threshold,
        margin,
        recluster=recluster,
        noise=common.get("noise"),
        pair_level=pair_level,
        test=test,
    )
    if privacy is not None and privacy.perturbs == "statistics":
        protocol: MessageProtocol = CountTriggered(gamma_upload, gamma_download, batch=16)
    else:
        protocol = EventTriggered(gamma_upload, gamma_download)
    return compose(protocol, structure, privacy, **common)


@preset
def dyclu(
    *,
    test_level: float | None = None,
    pair_level: float | None = None,
    test_threshold: float | None = None,
    retest: float = 1.02,
    window: int | None = None,
    **common: Unpack[Basic],
) -> System:
    """DyClu: all data in one place, everybody learns with those who test alike.

    window: with one, 20 say, users whose parameters change (`drift`) are noticed and begin anew (`Neighbourhoods`).
    """
    structure = Neighbourhoods(test_level, test_threshold, retest, common.get("noise"), pair_level, window)
    return compose(Never(), structure, **common)


@preset
def clustered_linucb(
    *,
    growth: float = 1.2,
    batch: int | None = None,
    odds: float | None = None,
    privacy: Privacy | None = None,
    trust: Trust | None = None,
    own: Own | None = None,
    **common: Unpack[Common],
) -> System:
    """This project's own clustered federation: clusters by evidence, synchronised by the clock.

    Members of the likeliest partition share (`EvidenceClusters`); everybody uploads, and is sent what its cluster has,
    when the rounds have grown by `growth` (`Scheduled`). Against HetoFedBandit-E: a client is compared with whole
    clusters instead of single clients, so that it is placed before it has as many observations as dimensions; all
    clusters are served at once, without a queue; and nobody has to ask, so that rounds between synchronisations are
    silent. It knows nothing else: policy, width and ridge are those of all presets.

    With a `privacy` part that noises statistics, clients begin alone (odds −6 instead of 6) and releases are at least
    16 observations apart: early ones say little, and noise is shared with whoever is joined. `trust` and `own` are
    those of that part; clusters are found from what each member has released, so that "nobody" is trusted.
    """
    privacy = trusting(privacy, trust, own)
    noised = privacy is not None and privacy.perturbs == "statistics"
    if batch is None:
        batch = 16 if noised else 1
    if odds is None:
        odds = -6.0 if noised else 6.0
    structure = EvidenceClusters(odds, noise=common.get("noise"))
    return compose(Scheduled(growth, batch), structure, privacy, **common)
