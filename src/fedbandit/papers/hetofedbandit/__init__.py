"""Blaser, Li & Wang, Federated Linear Contextual Bandits with Heterogeneous Clients, AISTATS 2024."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from fedbandit.environments import Clustered
from fedbandit.presets import clustered_linucb, dislinucb, dyclu, fclub_dc, hetofedbandit, hetofedbandit_e, linucb
from fedbandit.presets.hetofedbandit import Queued
from fedbandit.studies import MakesSystem, Point, Value
from fedbandit.system import System

ALONE, DIS, FCLUB, DYCLU = "N independent LinUCB", "DisLinUCB", "FCLUB_DC", "DyClu"
HFB, PQ, DR = "HetoFedBandit, tuned", "HetoFedBandit-PQ, tuned", "HetoFedBandit-DR, tuned"
HFB_E, HFB_E_PRINTED = "HetoFedBandit-E", "HetoFedBandit-E, as printed"
HFB_CODE, HFB_PRINTED = "HetoFedBandit, authors' settings", "HetoFedBandit, as printed"
HFB_T0 = "HetoFedBandit, as printed, T₀ = 1.9 d"
OURS = "clustered-linucb (ours)"

TUNED = (
    "'Tuned' is this project's default: widest arms for 1.65 d rounds, δ = 0.5, ψᶜ = 1/(Nσ)², the code's D, a served "
    "member's model replaced. 'Authors' settings' are those of their code: 70 random rounds, p = 0.01 per pair, ψᶜ = "
    "0, the same D. 'As printed' is Alg. 1–3, or 4–5, to the letter: δ = 0.1, ψᶜ = 1/σ² or that of Alg. 4, D of Alg. "
    "2, buffers added, T₀ of Theorem 3.3 unless another is named. -E is without exploration, δ = 0.01, ψᶜ of Alg. 4, "
    "the code's D, clusters formed anew once a round."
)
POOL = (
    "The pool is the authors': entry i of d has the variance (d − i)/d before contexts are normalised. Parameters have "
    "norm one."
)


def as_the_authors(preset: Callable[..., System], **keywords: Any) -> System:
    """With the settings of the authors' code."""
    settings = {"exploration": 70, "explore": "random", "pair_level": 0.01, "margin": "none"}
    return preset(**settings | keywords)


def world(
    n_clients: int,
    n_clusters: int,
    horizon: int,
    gap: float = 0.85,
    sizes: Literal["random"] | tuple[int, ...] = "random",
) -> Clustered:
    """§4.2: the code's pool of 1000 arms, 25 offered, d = 25, σ = 0.1, spread 1/(N√T), all act in every round."""
    return Clustered(
        n_clients=n_clients,
        dim=25,
        n_arms=25,
        pool=1000,
        rounds="all",
        contexts="decaying",
        n_clusters=n_clusters,
        gap=gap,
        spread=1 / (n_clients * horizon**0.5),
        sizes=sizes,
    )


def compared(env: Clustered, horizon: int, value: Value = "") -> list[Point]:
    """All that §4 compares: every client of FCLUB_DC is a server of its own, U = D = 1.2, and its width is theirs.

    Beside the tuned systems, the paper's with the authors' settings and as printed.
    """
    printed: Queued = {"as_printed": True, "gap": env.gap, "n_clusters": env.n_clusters}
    systems: dict[str, MakesSystem] = {
        ALONE: linucb,
        DIS: dislinucb,
        FCLUB: partial(fclub_dc, upload=1.2, download=1.2, n_servers=env.n_clients, confidence=0.1),
        DYCLU: dyclu,
        HFB: hetofedbandit,
        HFB_CODE: partial(as_the_authors, hetofedbandit),
        HFB_T0: partial(hetofedbandit, **printed | {"exploration": 48}),
        HFB_PRINTED: partial(hetofedbandit, **printed),
        HFB_E: hetofedbandit_e,
        HFB_E_PRINTED: partial(hetofedbandit_e, **printed),
        OURS: clustered_linucb,
    }
    return [Point(name, system, env, horizon, value=value, extra="clusters") for name, system in systems.items()]
