"""Liu et al., Federated Online Clustering of Bandits, UAI 2022.

Systems have thresholds U = D = 1.01 and ε = 1, δ = 0.1 as in the authors' code, one width, β = 1.5, and λ = 1. The
private one is ours, whose triggers count observations: its thresholds are its own. With the authors' constants FCLUB-DC
also has their λ = 2 and merges within a server, as their code does.
"""

from __future__ import annotations

from functools import partial

from fedbandit.environments import Environment
from fedbandit.presets import cdp_fclub_dc, club, fclub, fclub_dc, homo, homo_dc, linucb, sclub
from fedbandit.studies import MakesEnvironment, Point

PRIVATE = "CDP-FCLUB-DC"
AUTHORS_CLUB, AUTHORS_SCLUB = "CLUB, authors' constants", "SCLUB, authors' constants"
AUTHORS_DC = "FCLUB-DC, authors' constants"
ALONE = partial(linucb, alpha=1.5, ridge=1.0)
SYSTEMS = {
    "CLUB": partial(club),
    "SCLUB": partial(sclub),
    AUTHORS_CLUB: partial(club, alpha_split=0.25),
    AUTHORS_SCLUB: partial(sclub, alpha_split=1.5, alpha_merge=0.75),
    "Homo": partial(homo),
    "Homo-DC": partial(homo_dc, upload=1.01, download=1.01),
    "FCLUB": partial(fclub),
    "FCLUB-DC": partial(fclub_dc, upload=1.01, download=1.01),
    AUTHORS_DC: partial(fclub_dc, upload=1.01, download=1.01, alpha_split=1.5, alpha_merge=2.0, within=True, ridge=2.0),
    PRIVATE: partial(cdp_fclub_dc, epsilon=1.0, delta=0.1),
}
NOT_A_TARGET = (
    "In the authors' code the noise of CDP-FCLUB-DC never reaches the estimator, and its clustering reads raw data; a "
    "system whose noise is real cannot have that regret at ε = 1 and this horizon. Users of ours doubt what does not "
    "fit their own data, so that it is level with LinUCB where noise hides who is alike."
)
MERGING = (
    "In the authors' code servers merge only if some pair can not merge and the list of local clusters differs from "
    "the last partition, so that servers that never split never share, and downloads are forgotten at each phase; its "
    "Homo-DC never merges. Their figures of FCLUB-DC and Homo-DC are of that, and no targets."
)
SILENT = ("LinUCB", "CLUB", "SCLUB", AUTHORS_CLUB, AUTHORS_SCLUB)
"""Series that send nothing."""


def compared(env: Environment | MakesEnvironment, horizon: int, n_servers: int | None = None) -> list[Point]:
    """All of them on one world; `n_servers` where the world has none of its own."""
    given = {} if n_servers is None else {"n_servers": n_servers}
    systems = {"LinUCB": ALONE} | {name: partial(system, **given) for name, system in SYSTEMS.items()}
    return [Point(name, system, env, horizon, extra="clusters") for name, system in systems.items()]
