"""HetoFedBandit (Blaser, Li & Wang, 2024), its variants, DyClu, and this project's own clustered federation."""

from __future__ import annotations

from typing import Unpack

from fedbandit.presets.compose import Common, compose, preset, trusting
from fedbandit.privacy import Privacy
from fedbandit.privacy.private_statistics import Own, Trust
from fedbandit.protocols import (
    CountTriggered,
    EventTriggered,
    Factor,
    MessageProtocol,
    Never,
    Scheduled,
    ServerQueue,
)
from fedbandit.protocols.queue import Order
from fedbandit.structures import EvidenceClusters, HomogeneityCliques, Neighbourhoods
from fedbandit.structures.homogeneity_cliques import Margin
from fedbandit.structures.structure import Explore
from fedbandit.system import System

ONCE_LEVEL = 0.5
"""δ of tests where clusters are found once: to join two that differ costs more than to miss an edge."""


def _queued(
    order: Order,
    recluster: bool,
    exploration: int | None,
    test_level: float | None,
    test_threshold: float | None,
    threshold: float | str | None,
    margin: Margin,
    explore: Explore,
    common: Common,
) -> System:
    if not recluster and test_level is None and test_threshold is None:
        test_level = ONCE_LEVEL
    structure = HomogeneityCliques(
        exploration, test_level, test_threshold, margin, noise=common.get("noise"), explore=explore
    )
    return compose(ServerQueue(threshold, order, recluster), structure, **common)


@preset
def hetofedbandit(
    *,
    exploration: int | None = None,
    test_level: float | None = None,
    test_threshold: float | None = None,
    threshold: float | str | None = None,
    margin: Margin = "tight",
    explore: Explore = "widest",
    **common: Unpack[Common],
) -> System:
    """HetoFedBandit: exploration, one clustering by tests, then a FIFO queue of clusters (Alg. 1–3).

    exploration: T₀; by default 1.65 d (42 rounds for d = 25). The authors' code has 70, which alone costs more regret
        than the paper's Table 1 shows for one or four clusters; fewer find wrong clusters.
    explore: "widest" arms, or "random" ones as in Alg. 3, of which 1.9 d are needed.
    test_level or test_threshold: δ (default 0.5; the paper has 0.1) or vᶜ itself (`HomogeneityCliques`).
    threshold: D of a cluster, by default the authors' T/(|C| d log T); "T log(|C|T)/(d|C|)" is the paper's, which is
        some eighty times larger (`ServerQueue`, where the other deviations are listed).
    margin: ψᶜ, by default the proof's "tight" 1/(Nσ)²; "published" is 1/σ².
    """
    return _queued("fifo", False, exploration, test_level, test_threshold, threshold, margin, explore, common)


@preset
def hetofedbandit_pq(
    *,
    exploration: int | None = None,
    test_level: float | None = None,
    test_threshold: float | None = None,
    threshold: float | str | None = None,
    margin: Margin = "tight",
    explore: Explore = "widest",
    **common: Unpack[Common],
) -> System:
    """HetoFedBandit with a priority queue: the cluster that has learnt most is served first (App. G)."""
    return _queued("priority", False, exploration, test_level, test_threshold, threshold, margin, explore, common)


@preset
def hetofedbandit_dr(
    *,
    exploration: int | None = None,
    test_level: float | None = None,
    test_threshold: float | None = None,
    threshold: float | str | None = None,
    margin: Margin = "data",
    explore: Explore = "widest",
    **common: Unpack[Common],
) -> System:
    """HetoFedBandit with data-dependent re-clustering at each collaboration (Alg. 4, App. G), and a FIFO queue."""
    return _queued("fifo", True, exploration, test_level, test_threshold, threshold, margin, explore, common)


@preset
def hetofedbandit_e(
    *,
    exploration: int | None = 0,
    test_level: float | None = None,
    test_threshold: float | None = None,
    threshold: float | str | None = None,
    margin: Margin = "data",
    explore: Explore = "widest",
    **common: Unpack[Common],
) -> System:
    """HetoFedBandit-E: re-clustering at each collaboration and a priority queue, without exploration (Alg. 5)."""
    return _queued("priority", True, exploration, test_level, test_threshold, threshold, margin, explore, common)


@preset
def hetofedbandit_async(
    *,
    exploration: int | None = 0,
    test_level: float | None = None,
    test_threshold: float | None = None,
    recluster: float = 1.3,
    gamma_upload: Factor = 2.0,
    gamma_download: Factor = 2.0,
    margin: Margin = "data",
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
        exploration, test_level, test_threshold, margin, recluster=recluster, noise=common.get("noise")
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
    test_threshold: float | None = None,
    retest: float = 1.02,
    **common: Unpack[Common],
) -> System:
    """DyClu for parameters that do not change: all data in one place, everybody learns with those who test alike."""
    structure = Neighbourhoods(test_level, test_threshold, retest, common.get("noise"))
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
