"""Blaser, Li & Wang, Federated Linear Contextual Bandits with Heterogeneous Clients, AISTATS 2024."""

from __future__ import annotations

from functools import partial
from typing import Literal

from fedbandit.environments import Clustered
from fedbandit.presets import clustered_linucb, dislinucb, dyclu, fclub_dc, hetofedbandit, hetofedbandit_e, linucb
from fedbandit.studies import MakesSystem, Point, Value

ALONE, DIS, FCLUB, DYCLU = "N independent LinUCB", "DisLinUCB", "FCLUB_DC", "DyClu"
HFB, HFB_E, PQ, DR = "HetoFedBandit", "HetoFedBandit-E", "HetoFedBandit-PQ", "HetoFedBandit-DR"
OURS = "clustered-linucb (ours)"


def world(
    n_clients: int,
    n_clusters: int,
    horizon: int,
    gap: float = 0.85,
    sizes: Literal["random"] | tuple[int, ...] = "random",
) -> Clustered:
    """§4.2: pool of 1000 arms, 25 offered, d = 25, σ = 0.1, spread 1/(N√T), every client acts in every round."""
    return Clustered(
        n_clients=n_clients,
        dim=25,
        n_arms=25,
        pool=1000,
        rounds="all",
        contexts="sphere",
        n_clusters=n_clusters,
        gap=gap,
        spread=1 / (n_clients * horizon**0.5),
        sizes=sizes,
    )


def compared(env: Clustered, horizon: int, value: Value = "") -> list[Point]:
    """All that §4 compares: every client of FCLUB_DC is a server of its own, U = D = 1.2, and its width is theirs."""
    systems: dict[str, MakesSystem] = {
        ALONE: linucb,
        DIS: dislinucb,
        FCLUB: partial(fclub_dc, upload=1.2, download=1.2, n_servers=env.n_clients, confidence=0.1),
        DYCLU: dyclu,
        HFB: hetofedbandit,
        HFB_E: hetofedbandit_e,
        OURS: clustered_linucb,
    }
    return [Point(name, system, env, horizon, value=value, extra="clusters") for name, system in systems.items()]
