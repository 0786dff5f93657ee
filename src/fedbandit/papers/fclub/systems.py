"""The systems that the paper compares, with thresholds U = D = 1.01 and ε = 1, δ = 0.1 as in the authors' code.

All have one width, β = 1.5, and λ = 1.

The private one is ours, whose triggers count observations: its thresholds are its own.
"""

from __future__ import annotations

from fedbandit.studies.declaration import Point

PRIVATE = "CDP-FCLUB-DC"
AUTHORS_CLUB, AUTHORS_SCLUB = "CLUB, authors' constants", "SCLUB, authors' constants"
ALONE = "linucb:alpha=1.5,ridge=1"
SYSTEMS = (
    ("LinUCB", ALONE),
    ("CLUB", "club"),
    ("SCLUB", "sclub"),
    (AUTHORS_CLUB, "club:alpha_split=0.25"),
    (AUTHORS_SCLUB, "sclub:alpha_split=1.5,alpha_merge=0.75"),
    ("Homo", "homo"),
    ("Homo-DC", "homo-dc:upload=1.01,download=1.01"),
    ("FCLUB", "fclub"),
    ("FCLUB-DC", "fclub-dc:upload=1.01,download=1.01"),
    (PRIVATE, "cdp-fclub-dc:epsilon=1,delta=0.1"),
)
NOT_A_TARGET = (
    "In the authors' code the noise of CDP-FCLUB-DC never reaches the estimator, and its clustering reads raw data; a "
    "system whose noise is real cannot have that regret at ε = 1 and this horizon."
)


def compared(env: str, horizon: int, servers: int | None = None) -> list[Point]:
    """All of them on one world; `servers` where the world has none of its own."""
    points = []
    for name, text in SYSTEMS:
        if servers is not None and name != "LinUCB":
            text += f"{',' if ':' in text else ':'}n_servers={servers}"
        points.append(Point(name, text, env, horizon, extra="clusters"))
    return points
