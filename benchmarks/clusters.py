"""FCLUB's synthetic experiments: Fig. 2a on the authors' parameters, recovery of clusters, speed, parameter studies.

    FEDBANDIT_FCLUB=path/to/fclub FEDBANDIT_SEEDS=3 python -m benchmarks fclub

The folder holds `m_theta.npy` (40 users, 5 clusters, one on each of 5 servers); without it, drawn parameters with
clusters in blocks stand in for it. One width for all, α = 1.5 and λ = 1, the defaults of these presets;
docs/clusters-fclub.md says how they were tuned, and has figures of seeds not looked at (FEDBANDIT_FIRST_SEED).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

import fedbandit as fb
from benchmarks.timing import table
from fedbandit.presets import Common

HORIZON = 100_000
WIDTH: Common = {"alpha": 1.5, "ridge": 1.0}
FIRST = int(os.environ.get("FEDBANDIT_FIRST_SEED", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("FEDBANDIT_SEEDS", "3")))

SYSTEMS: dict[str, tuple[fb.System, str]] = {
    "FCLUB": (fb.fclub(**WIDTH), "613"),
    "FCLUB-DC": (fb.fclub_dc(**WIDTH), "340"),
    "FCLUB-DC, α₂ = 2 as the authors": (fb.fclub_dc(alpha_merge=2.0, **WIDTH), "340"),
    "CLUB": (fb.club(**WIDTH), "–"),
    "SCLUB": (fb.sclub(**WIDTH), "–"),
    "FCLUB-DC, α₁ = 1.5 as the authors": (fb.fclub_dc(alpha_split=1.5, **WIDTH), "340"),
    "SCLUB, α = 1.5 as the authors": (fb.sclub(alpha_split=1.5, alpha_merge=0.75, **WIDTH), "1,313"),
    "CLUB, α = 0.25 as the authors": (fb.club(alpha_split=0.25, **WIDTH), "1,469"),
    "LinUCB": (fb.linucb(**WIDTH), "1,506"),
    "Homo-DC": (fb.homo_dc(**WIDTH), "1,025"),
    "Homo": (fb.homo(**WIDTH), "–"),
}
"""With the final regret of the authors' code at seed 0 (shared notes on the papers)."""


def authors_world() -> fb.environments.Fclub:
    """m_theta, or something like it."""
    folder = os.environ.get("FEDBANDIT_FCLUB")
    if folder:
        return fb.environments.fclub(theta=str(Path(folder) / "m_theta.npy"))
    print("FEDBANDIT_FCLUB is not set: parameters are drawn, and the authors' figures are not comparable.\n")
    return fb.environments.fclub(placement="blocks", gap=0.6)


def runs(system: fb.System, env: fb.environments.Fclub) -> list[fb.Result]:
    """One run a seed."""
    return [fb.simulate(system, env, HORIZON, seed) for seed in SEEDS]


def mean(numbers: Iterable[float]) -> str:
    """The mean, and its standard error if there is more than one."""
    values = np.array(list(numbers), dtype=float)
    error = f" ± {values.std(ddof=1) / len(values) ** 0.5:,.0f}" if len(values) > 1 else ""
    return f"{values.mean():,.0f}{error}"


def final_rand(result: fb.Result, env: fb.environments.Fclub) -> float:
    """The adjusted Rand index of the last partition; 0 without clusters."""
    return (result.rand_index(env.partition) or [0.0])[-1]


def comparison(env: fb.environments.Fclub) -> None:
    """Fig. 2a."""
    lines = []
    for name, (system, authors) in SYSTEMS.items():
        fb.simulate(system, env, 1000)  # compile
        begin = time.process_time()
        results = runs(system, env)
        speed = len(results) * HORIZON / (time.process_time() - begin)
        halves = [r.regret[-1] / r.regret[HORIZON // 2 - 1] for r in results]
        lines.append(
            [
                name,
                mean(r.regret[-1] for r in results),
                authors,
                f"{np.mean(halves):.2f}",
                mean(r.communication.messages for r in results),
                f"{np.mean([final_rand(r, env) for r in results]):.2f}",
                f"{speed:,.0f}",
            ]
        )
    header = ["system", "regret", "authors' code", "R(T)/R(T/2)", "messages", "adjusted Rand", "interactions/s"]
    print(f"T = {HORIZON:,}, {len(SEEDS)} seeds, α = 1.5, λ = 1; R(T)/R(T/2) is 2 for linear regret\n")
    print(table(header, lines), "\n", flush=True)


def recovery() -> None:
    """Ten seeds of well-separated clusters: every one must be found exactly."""
    mixed = fb.environments.fclub(n_clusters=4, gap=0.9)
    blocks = fb.environments.fclub(n_clusters=5, gap=0.9, placement="blocks")
    cases: dict[str, tuple[fb.System, fb.environments.Fclub]] = {
        "FCLUB-DC, 4 clusters on every server": (fb.fclub_dc(alpha_split=3.0, alpha_merge=2.5, **WIDTH), mixed),
        "FCLUB, 4 clusters on every server": (fb.fclub(alpha_split=3.0, alpha_merge=2.5, **WIDTH), mixed),
        "CLUB, a cluster on each server": (fb.club(alpha_split=3.5, **WIDTH), blocks),
        "CLUB, two clusters on one server": (
            fb.club(alpha_split=3.5, **WIDTH),
            fb.environments.fclub(n_clients=16, n_clusters=2, n_servers=1, gap=0.9),
        ),
        "SCLUB, two clusters on one server": (
            fb.sclub(alpha_split=4.0, alpha_merge=3.0, **WIDTH),
            fb.environments.fclub(n_clients=16, n_clusters=2, n_servers=1, gap=0.9),
        ),
        "SCLUB, four clusters on one server": (
            fb.sclub(alpha_split=4.0, alpha_merge=3.0, **WIDTH),
            fb.environments.fclub(n_clients=20, n_clusters=4, n_servers=1, gap=0.9),
        ),
    }
    lines = []
    for name, (system, env) in cases.items():
        index = [final_rand(fb.simulate(system, env, HORIZON, seed), env) for seed in range(FIRST, FIRST + 10)]
        lines.append([name, f"{sum(value == 1.0 for value in index)} of 10", f"{min(index):.2f}"])
    print(table(["", "seeds with all clusters exact", "smallest adjusted Rand"], lines), "\n", flush=True)


def studies() -> None:
    """FCLUB's parameter studies: regret, messages and adjusted Rand of FCLUB-DC."""
    worlds: dict[str, list[tuple[str, fb.System, fb.environments.Fclub]]] = {}
    system, make = fb.fclub_dc(**WIDTH), fb.environments.fclub
    worlds["users"] = [(str(n), system, make(n_clients=n)) for n in (20, 40, 60, 80)]
    worlds["clusters"] = [(str(m), system, make(n_clusters=m)) for m in (2, 4, 6, 8, 10)]
    worlds["dimension"] = [(str(d), system, make(dim=d)) for d in (5, 10, 15, 20)]
    worlds["servers"] = [(str(s), system, make(n_servers=s)) for s in (2, 4, 6, 8)]
    worlds["U = D"] = [
        (f"{u:g}", fb.fclub_dc(upload=u, download=u, **WIDTH), make()) for u in (1.01, 1.1, 1.5, 2.0, 5.0)
    ]
    lines = []
    for what, cases in worlds.items():
        for value, chosen, env in cases:
            results = runs(chosen, env)
            lines.append(
                [
                    what,
                    value,
                    mean(r.regret[-1] for r in results),
                    mean(r.communication.messages for r in results),
                    f"{np.mean([final_rand(r, env) for r in results]):.2f}",
                ]
            )
    print(table(["study", "value", "regret", "messages", "adjusted Rand"], lines), flush=True)


def main() -> None:
    """Print everything."""
    parts: tuple[Callable[[], None], ...] = (lambda: comparison(authors_world()), studies)
    for part in parts:
        part()
