"""Collaboration on a known graph of users, private too: CoLin (Wu et al. 2016), GOBLin (Cesa-Bianchi et al. 2013), and
their private forms (Wang et al. 2020).

As in the papers, one place learns from every interaction at once. With thresholds (`gamma_upload`, `gamma_download`)
users keep their own data instead, and exchange statistics with a coordinator when their triggers fire: federated
learning on a graph, which runs on a network.
"""

from __future__ import annotations

import math
from typing import Any, Unpack

from numpy.typing import ArrayLike

from fedbandit.errors import FedbanditError, unknown
from fedbandit.presets.compose import Common, compose, preset
from fedbandit.privacy import Privacy, PrivateRewards, PublishedSums
from fedbandit.privacy.private_rewards import Mechanisms
from fedbandit.privacy.private_statistics import CALIBRATIONS, Calibration
from fedbandit.privacy.reward_sums import Trust
from fedbandit.protocols import CountTriggered, EventTriggered, Factor, MessageProtocol, Never
from fedbandit.structures import Laplacian, WeightedGraph
from fedbandit.structures.graph_model import GraphWidth
from fedbandit.system import System


class GraphKeywords(Common, total=False):
    """Keywords of all systems on a graph of users.

    graph: weights between users (N, N), by default the environment's.
    gamma_upload, gamma_download, warm_join: with thresholds users keep their data and exchange statistics (federated).
    width: "user" (default), "model", or "printed", that of the paper's Lemmas 2 and 4 (default as published).
    norm: S of the width.
    isolated: whether users may be without neighbours.
    """

    graph: ArrayLike | None
    gamma_upload: Factor | None
    gamma_download: Factor | None
    warm_join: bool
    width: GraphWidth
    norm: float | None
    isolated: bool


_STRUCTURE = ("graph", "width", "norm", "isolated")


def _on_graph(kind: type[WeightedGraph] | type[Laplacian], privacy: Privacy | None, given: GraphKeywords) -> System:
    """Centralised, or federated if there are thresholds; private models learn from releases only."""
    common: Any = {key: value for key, value in given.items() if key in Common.__annotations__}
    graph: Any = {key: value for key, value in given.items() if key in _STRUCTURE}
    upload, download, warm = given.get("gamma_upload"), given.get("gamma_download"), given.get("warm_join", False)
    if upload is None and download is None:
        if warm:
            raise FedbanditError(
                "warm_join is True, but needs gamma_upload and gamma_download: nobody joins one model."
            )
        return compose(Never(), kind(**graph), privacy, **common)
    upload, download = (5.0 if gamma is None else gamma for gamma in (upload, download))
    protocol: MessageProtocol = EventTriggered(upload, download, warm)
    if privacy is not None:
        protocol = CountTriggered(upload, download, warm)
    return compose(protocol, kind(central=False, fresh=privacy is None, **graph), privacy, **common)


def _private(
    kind: type[WeightedGraph | Laplacian],
    site: Trust,
    epsilon: float,
    delta: float,
    mechanism: Mechanisms,
    calibration: Calibration,
    keywords: GraphKeywords,
) -> System:
    """The same with private rewards, where noise is drawn at the clients or at a coordinator that is trusted."""
    if calibration not in CALIBRATIONS:
        raise unknown("calibration", calibration, CALIBRATIONS)
    if calibration == "published" and (delta > 0 or mechanism != "best"):
        raise FedbanditError(
            "calibration='published' is pure Laplace noise in a tree; it takes no delta, no mechanism."
        )
    gammas = [name for name in ("gamma_upload", "gamma_download") if keywords.get(name) is not None]
    if calibration == "published" and gammas:
        raise FedbanditError(
            f"{' and '.join(gammas)} was given, but calibration='published' is noise on the model of all users in one "
            f"place; leave {' and '.join(gammas)} out, or give calibration='proven'."
        )
    proven = calibration == "proven"
    privacy = PrivateRewards(epsilon, delta, mechanism, site) if proven else PublishedSums(epsilon, site)
    return _on_graph(kind, privacy, _tuned(epsilon, calibration, keywords))


def _tuned(epsilon: float, calibration: Calibration, given: GraphKeywords) -> GraphKeywords:
    """Ridge and width that suit rewards with Laplace(1/ε) noise, of standard deviation √2/ε, unless they were given.

    Noise asks for a larger ridge, λ = 20 times its variance; and as the noise is known to have mean zero, for less
    optimism than a bound of it would allow: α is one standard deviation of a noisy reward whose own is 0.1. Chosen
    from twelve pairs on `collaborative` with N = d = 10, T = 10,000, ε from 0.5 to 10, seeds 0, 1; other seeds are in
    docs/collaborative.md. Privacy does not depend on either.
    As published λ is 1, the most that the paper allows and the least that its Lemma 2 needs, and widths are printed.
    """
    if math.isinf(epsilon) or not epsilon > 0:
        return given
    tuned = given.copy()
    if calibration == "published":
        tuned.setdefault("ridge", 1.0)
        tuned.setdefault("width", "printed")
        return tuned
    tuned.setdefault("ridge", max(0.1, 40 / epsilon**2))
    if given.get("policy", "ucb") in ("ucb", "lints", "linphe") and not {"alpha", "noise", "confidence"} & set(given):
        tuned["alpha"] = math.hypot(0.1, math.sqrt(2) / epsilon)
    return tuned


@preset
def colin(**keywords: Unpack[GraphKeywords]) -> System:
    """Collaborative LinUCB on a weighted graph of users; federated if thresholds are given."""
    return _on_graph(WeightedGraph, None, keywords)


@preset
def goblin(**keywords: Unpack[GraphKeywords]) -> System:
    """Gang of bandits: LinUCB whose users are tied to their neighbours; federated if thresholds are given."""
    return _on_graph(Laplacian, None, keywords)


@preset
def dp_colin(
    *,
    epsilon: float = 1.0,
    delta: float = 0.0,
    mechanism: Mechanisms = "best",
    calibration: Calibration = "proven",
    **keywords: Unpack[GraphKeywords],
) -> System:
    """CoLin with private rewards where the coordinator is trusted (global; Wang et al. 2020, Alg. 1).

    calibration: "proven" (`PrivateRewards`) or "published" (`PublishedSums`).
    mechanism: under "proven", noise on each reward ("rewards"), on users' sums ("sums"), or what has less ("best").
    With thresholds these apply to numbers of observations. Under "proven" ridge and alpha have defaults that suit the
    noise: λ = max(0.1, 40/ε²), α = √(0.01 + 2/ε²); under "published" λ = 1 and the width is the printed one.
    """
    return _private(WeightedGraph, "coordinator", epsilon, delta, mechanism, calibration, keywords)


@preset
def ldp_colin(
    *,
    epsilon: float = 1.0,
    delta: float = 0.0,
    mechanism: Mechanisms = "best",
    calibration: Calibration = "proven",
    **keywords: Unpack[GraphKeywords],
) -> System:
    """CoLin with private rewards where nobody is trusted (local; Wang et al. 2020, Alg. 2); keywords as `dp_colin`."""
    return _private(WeightedGraph, "client", epsilon, delta, mechanism, calibration, keywords)


@preset
def dp_goblin(
    *,
    epsilon: float = 1.0,
    delta: float = 0.0,
    mechanism: Mechanisms = "best",
    calibration: Calibration = "proven",
    **keywords: Unpack[GraphKeywords],
) -> System:
    """GOBLin with private rewards where the coordinator is trusted (Wang et al. 2020, §5.2); keywords as `dp_colin`."""
    return _private(Laplacian, "coordinator", epsilon, delta, mechanism, calibration, keywords)


@preset
def ldp_goblin(
    *,
    epsilon: float = 1.0,
    delta: float = 0.0,
    mechanism: Mechanisms = "best",
    calibration: Calibration = "proven",
    **keywords: Unpack[GraphKeywords],
) -> System:
    """GOBLin with private rewards where nobody is trusted (Wang et al. 2020, §5.3); keywords as `dp_colin`."""
    return _private(Laplacian, "client", epsilon, delta, mechanism, calibration, keywords)
