"""The systems that the paper compares, and its synthetic world."""

from __future__ import annotations

from fedbandit.studies.declaration import Point
from fedbandit.studies.measured import Value

ALONE, DIS, FCLUB, DYCLU = "N independent LinUCB", "DisLinUCB", "FCLUB_DC", "DyClu"
HFB, HFB_E, PQ, DR = "HetoFedBandit", "HetoFedBandit-E", "HetoFedBandit-PQ", "HetoFedBandit-DR"
OURS = "clustered-linucb (ours)"


def world(n_clients: int, n_clusters: int, horizon: int, gap: float = 0.85, sizes: str = "random") -> str:
    """§4.2: pool of 1000 arms, 25 offered, d = 25, σ = 0.1, spread 1/(N√T), every client acts in every round."""
    spread = 1 / (n_clients * horizon**0.5)
    text = f"clustered:n_clients={n_clients},dim=25,n_arms=25,pool=1000,rounds=all,contexts=sphere"
    return f"{text},n_clusters={n_clusters},gap={gap:g},spread={spread:.6g},sizes={sizes}"


def compared(env: str, horizon: int | None, n_clients: int, value: Value = "", common: str = "") -> list[Point]:
    """All that §4 compares: every client of FCLUB_DC is a server of its own, U = D = 1.2, and its width is theirs."""
    systems = (
        (ALONE, "linucb", ""),
        (DIS, "dislinucb", ""),
        (FCLUB, "fclub-dc", f"upload=1.2,download=1.2,n_servers={n_clients},confidence=0.1"),
        (DYCLU, "dyclu", ""),
        (HFB, "hetofedbandit", ""),
        (HFB_E, "hetofedbandit-e", ""),
        (OURS, "clustered-linucb", ""),
    )
    points = []
    for name, preset, keywords in systems:
        inline = ",".join(filter(None, (keywords, common)))
        text = f"{preset}:{inline}" if inline else preset
        points.append(Point(name, text, env, horizon, value=value, extra="clusters"))
    return points
