"""FCLUB (Liu et al., 2022) and what it is compared with: no clustering, and clustering on each server alone.

Where the paper, its authors' code and other settings differ, keywords choose. Defaults are what did best on the
authors' parameters (docs/clusters-fclub.md), and theirs are:

- α₁ = 1.5, α₂ = 2, λ = 2 for FCLUB, 0.25 for CLUB, α₁ = 1.5, α₂ = 0.75 for SCLUB. Those α₁ are within the reach of
  chance, so that true clusters are torn apart; here λ = 1 and α₁ is 2.5 (SCLUB: 3), and α₂ is 1.5.
- The bonus is β √(xᵀV(λ)⁻¹x) with the square root of the paper (their code leaves it out), and β is fedbandit's
  width, or `alpha`.
- `fresh=False` scores arms with what was last shared only (Alg. 1 line 12; their code uses pending data too).
- `within=True` lets the coordinator also merge clusters of one server, as their code does; the paper does not.
"""

from __future__ import annotations

from typing import Unpack

from fedbandit.presets.compose import Common, compose, preset
from fedbandit.protocols import EventTriggered, MessageProtocol, Never, always
from fedbandit.structures import Clustering, PhasedClusters, PrunedGraph, Servers, SplitAndMerge
from fedbandit.system import System


def _compose(protocol: MessageProtocol, structure: Clustering, **common: Unpack[Common]) -> System:
    """With λ = 1 by default, as in CLUB: the radius F(n), which has 1 + n, is made for it."""
    common.setdefault("ridge", 1.0)
    return compose(protocol, structure, **common)


@preset
def fclub(
    *,
    alpha_split: float = 2.5,
    alpha_merge: float = 1.5,
    within: bool = False,
    n_servers: int | None = None,
    **common: Unpack[Common],
) -> System:
    """FCLUB that communicates at every interaction: clusters of users on local servers, found in phases."""
    return _compose(always(), PhasedClusters(alpha_split, alpha_merge, within=within, n_servers=n_servers), **common)


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
    **common: Unpack[Common],
) -> System:
    """FCLUB with delayed communication, upon events (FCLUB, Alg. 1–4 without noise)."""
    structure = PhasedClusters(alpha_split, alpha_merge, fresh, within, n_servers)
    return _compose(EventTriggered(upload, download), structure, **common)


@preset
def homo(*, n_servers: int | None = None, **common: Unpack[Common]) -> System:
    """Local servers that take all users to be alike and communicate at every interaction (FCLUB, §5)."""
    return _compose(always(), Servers(n_servers), **common)


@preset
def homo_dc(
    *, upload: float = 1.01, download: float = 1.01, n_servers: int | None = None, **common: Unpack[Common]
) -> System:
    """Local servers that take all users to be alike, with delayed communication (FCLUB, §5)."""
    return _compose(EventTriggered(upload, download), Servers(n_servers), **common)


@preset
def club(*, alpha_split: float = 2.5, n_servers: int | None = None, **common: Unpack[Common]) -> System:
    """CLUB on each local server alone: users share a model until their graph comes apart (Gentile et al., 2014)."""
    return _compose(Never(), PrunedGraph(alpha_split, n_servers), **common)


@preset
def sclub(
    *,
    alpha_split: float = 3.0,
    alpha_merge: float = 1.5,
    alpha_frequency: float = 1.0,
    n_servers: int | None = None,
    **common: Unpack[Common],
) -> System:
    """SCLUB on each local server alone: users leave sets, and sets merge again (Li et al., 2019)."""
    return _compose(Never(), SplitAndMerge(alpha_split, alpha_merge, alpha_frequency, n_servers), **common)
