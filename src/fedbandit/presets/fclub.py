"""FCLUB (Liu et al., 2022) and what it is compared with: no clustering, and clustering on each server alone."""

from __future__ import annotations

from typing import Unpack

from fedbandit.presets.compose import Common, compose, preset
from fedbandit.protocols import EventTriggered, Never, always
from fedbandit.structures import PhasedClusters, PrunedGraph, Servers, SplitAndMerge
from fedbandit.system import System


@preset
def fclub(
    *,
    alpha_split: float = 2.5,
    alpha_merge: float = 2.0,
    n_servers: int | None = None,
    **common: Unpack[Common],
) -> System:
    """FCLUB that communicates at every interaction: clusters of users on local servers, found in phases."""
    return compose(always(), PhasedClusters(alpha_split, alpha_merge, n_servers=n_servers), **common)


@preset
def fclub_dc(
    *,
    alpha_split: float = 2.5,
    alpha_merge: float = 2.0,
    upload: float = 1.01,
    download: float = 1.01,
    fresh: bool = True,
    n_servers: int | None = None,
    **common: Unpack[Common],
) -> System:
    """FCLUB with delayed communication, upon events (FCLUB, Alg. 1–4 without noise)."""
    structure = PhasedClusters(alpha_split, alpha_merge, fresh, n_servers)
    return compose(EventTriggered(upload, download), structure, **common)


@preset
def homo(*, n_servers: int | None = None, **common: Unpack[Common]) -> System:
    """Local servers that take all users to be alike and communicate at every interaction (FCLUB, §5)."""
    return compose(always(), Servers(n_servers), **common)


@preset
def homo_dc(
    *, upload: float = 1.01, download: float = 1.01, n_servers: int | None = None, **common: Unpack[Common]
) -> System:
    """Local servers that take all users to be alike, with delayed communication (FCLUB, §5)."""
    return compose(EventTriggered(upload, download), Servers(n_servers), **common)


@preset
def club(*, alpha_split: float = 2.5, n_servers: int | None = None, **common: Unpack[Common]) -> System:
    """CLUB on each local server alone: users share a model until their graph comes apart (Gentile et al., 2014)."""
    return compose(Never(), PrunedGraph(alpha_split, n_servers), **common)


@preset
def sclub(
    *,
    alpha_split: float = 1.5,
    alpha_merge: float = 0.75,
    alpha_frequency: float = 1.0,
    n_servers: int | None = None,
    **common: Unpack[Common],
) -> System:
    """SCLUB on each local server alone: users leave sets, and sets merge again (Li et al., 2019)."""
    return compose(Never(), SplitAndMerge(alpha_split, alpha_merge, alpha_frequency, n_servers), **common)
