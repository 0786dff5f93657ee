"""FCLUB (Liu et al., 2022) and what it is compared with: no clustering, and clustering on each server alone.

Where the paper, its authors' code and other settings differ, keywords choose. Defaults are what did best in FCLUB's
world (docs/clusters-fclub.md), and the authors' are:

- α₁ = 1.5, α₂ = 2, λ = 2 for FCLUB, 0.25 for CLUB, α₁ = 1.5, α₂ = 0.75 for SCLUB. Those α₁ are within the reach of
  chance, so that true clusters are torn apart; here λ = 1 and α₁ is 2.5 (SCLUB: 3), and α₂ is 1.5.
- `bonus="paper"` is β √(xᵀV(λ)⁻¹x) with β = 1.5, `bonus="authors"` is that without the square root, as in their code,
  and with fedbandit's width formula as β; `alpha` sets another β, and `alpha=None` the formula. These two are the best
  of each kind and have the same regret on FCLUB's own world; where the same few arms are offered always, the authors'
  stops exploring before users are told apart and has 1.4 to 4 times as much (with Gaussian rewards; with Bernoulli ones
  as much or less), so the default is the paper's. β = 1.5 also with privacy, where the formula would add what noise
  does to the bound; that had more regret too.
- `fresh=False` scores arms with what was last shared only (Alg. 1 line 12; their code uses pending data too).
- `within=True` lets the coordinator also merge clusters of one server, as their code does; the paper does not. As the
  authors is `fclub_dc(alpha_split=1.5, alpha_merge=2, within=True, ridge=2)`, but for their merging, which almost never
  runs (docs/clusters-fclub.md).
"""

from __future__ import annotations

from typing import Literal, Unpack

from fedbandit.errors import require, unknown
from fedbandit.presets.compose import Common, compose, preset
from fedbandit.privacy import Privacy, PrivateStatistics, PublishedClusters
from fedbandit.privacy.private_statistics import Calibration
from fedbandit.privacy.trust import Own, Trust
from fedbandit.protocols import CountTriggered, EventTriggered, MessageProtocol, Never, always
from fedbandit.structures import PhasedClusters, PrunedGraph, ReleasedPhases, Servers, SplitAndMerge, Structure
from fedbandit.system import System

GROWTH, BATCH = 1.5, 16
"""When private users release: half as many observations more, and 16 at least (as in FedUCB)."""

WIDTH = 1.5
"""The width β of the paper's bonus, tuned once on FCLUB's world (docs/clusters-fclub.md)."""

Bonus = Literal["paper", "authors"]


def _compose(
    protocol: MessageProtocol,
    structure: Structure,
    bonus: Bonus = "paper",
    privacy: Privacy | None = None,
    **common: Unpack[Common],
) -> System:
    """With λ = 1 by default, as in CLUB: the radius F(n), which has 1 + n, is made for it.

    The width is β = 1.5 unless another is given, or a noise or confidence, which are numbers of the width formula.
    """
    common.setdefault("ridge", 1.0)
    if bonus not in ("paper", "authors"):
        raise unknown("bonus", bonus, ("paper", "authors"))
    if bonus == "paper" and common.get("policy", "ucb") == "ucb" and not common.keys() & {"noise", "confidence"}:
        common.setdefault("alpha", WIDTH)
    if bonus == "authors":
        require(common.get("policy", "ucb") == "ucb", "policy", common.get("policy"), "'ucb' with the authors' bonus")
        common["policy"] = "squared"
    return compose(protocol, structure, privacy, **common)


@preset
def fclub(
    *,
    alpha_split: float = 2.5,
    alpha_merge: float = 1.5,
    within: bool = False,
    n_servers: int | None = None,
    bonus: Bonus = "paper",
    **common: Unpack[Common],
) -> System:
    """FCLUB that communicates at every interaction: clusters of users on local servers, found in phases."""
    structure = PhasedClusters(alpha_split, alpha_merge, within=within, n_servers=n_servers)
    return _compose(always(), structure, bonus, **common)


@preset
def fclub_dc(
    *,
    alpha_split: float = 2.5,
    alpha_merge: float = 1.5,
    upload: float = 1.01,
    download: float = 1.01,
    fresh: bool = True,
    within: bool = False,
    n_servers: int | None = None,
    bonus: Bonus = "paper",
    privacy: Privacy | None = None,
    **common: Unpack[Common],
) -> System:
    """FCLUB with delayed communication, upon events (FCLUB, Alg. 1–4 without noise).

    `privacy` may be `NoisyRewards`: local privacy, of which clusters and triggers are post-processing. For noise on
    statistics see `cdp_fclub_dc`.
    """
    structure = PhasedClusters(alpha_split, alpha_merge, fresh, within, n_servers)
    return _compose(EventTriggered(upload, download), structure, bonus, privacy, **common)


@preset
def cdp_fclub_dc(
    *,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    alpha_split: float = 2.5,
    alpha_merge: float = 1.5,
    upload: float | None = None,
    download: float | None = None,
    n_servers: int | None = None,
    bonus: Bonus = "paper",
    calibration: Calibration = "proven",
    trust: Trust = "nobody",
    own: Own | None = None,
    **common: Unpack[Common],
) -> System:
    """FCLUB-DC with differential privacy; `epsilon=inf` is the same without noise.

    calibration "proven": every user has one stream of noised releases for ever (`PrivateStatistics`), clusters are
        found from releases (`ReleasedPhases`), and users release when their number of observations has grown by
        `upload` (1.5) and by 16 at least, and are sent a download when their cluster has `download` (1.5) times as
        many as they know of. (ε, δ)-DP for one interaction against the coordinator and all other users.
    calibration "published": Alg. 1–5 as printed (`PublishedClusters`), with U = D = 1.01; no finite ε holds.

    Deviations, under "proven":
        D1. Triggers count observations; FCLUB's determinants and its clustering read raw data (Eqs. 3, 5).
        D2. One stream a user, summed afterwards: a regrouping releases nothing again. Noise is calibrated tightly.
        D3. Users learn from their own data as they are, and weigh what others released by its noise (`mixing`) and by
            how well it fits their own data (`doubt`): clusters found from noise may be wrong.
    """
    if calibration == "published":
        structure: Structure = PhasedClusters(alpha_split, alpha_merge, fresh=False, n_servers=n_servers)
        protocol: MessageProtocol = EventTriggered(upload or 1.01, download or 1.01)
        require(trust == "nobody" and own is None, "trust", trust, "'nobody', and own None, as published")
        return _compose(protocol, structure, bonus, PublishedClusters(epsilon, delta), **common)
    private = PrivateStatistics(epsilon, delta, calibration, trust=trust, own=own)
    structure = ReleasedPhases(alpha_split, alpha_merge, BATCH, n_servers)
    by, to = (GROWTH if factor is None else factor for factor in (upload, download))
    protocol = CountTriggered(by, to, batch=BATCH)
    return _compose(protocol, structure, bonus, private, **common)


@preset
def homo(*, n_servers: int | None = None, bonus: Bonus = "paper", **common: Unpack[Common]) -> System:
    """Local servers that take all users to be alike and communicate at every interaction (FCLUB, §5)."""
    return _compose(always(), Servers(n_servers), bonus, **common)


@preset
def homo_dc(
    *,
    upload: float = 1.01,
    download: float = 1.01,
    n_servers: int | None = None,
    bonus: Bonus = "paper",
    **common: Unpack[Common],
) -> System:
    """Local servers that take all users to be alike, with delayed communication (FCLUB, §5)."""
    return _compose(EventTriggered(upload, download), Servers(n_servers), bonus, **common)


@preset
def club(
    *, alpha_split: float = 2.5, n_servers: int | None = None, bonus: Bonus = "paper", **common: Unpack[Common]
) -> System:
    """CLUB on each local server alone: users share a model until their graph comes apart (Gentile et al., 2014)."""
    return _compose(Never(), PrunedGraph(alpha_split, n_servers), bonus, **common)


@preset
def sclub(
    *,
    alpha_split: float = 3.0,
    alpha_merge: float = 1.5,
    alpha_frequency: float = 1.0,
    n_servers: int | None = None,
    bonus: Bonus = "paper",
    **common: Unpack[Common],
) -> System:
    """SCLUB on each local server alone: users leave sets, and sets merge again (Li et al., 2019)."""
    return _compose(Never(), SplitAndMerge(alpha_split, alpha_merge, alpha_frequency, n_servers), bonus, **common)
