"""FCLUB's bonus with the root, as in the paper, and without, as in its authors' code.

    FEDBANDIT_SEEDS=10 python -m benchmarks bonus

In FCLUB's world everybody is offered other items each time, so that even a system that does not explore comes to see
everything; where the menu never changes it does not.
"""

from __future__ import annotations

import fedbandit as fb
from benchmarks.clusters import HORIZON, SEEDS, mean
from benchmarks.timing import table
from fedbandit.environments import clustered
from fedbandit.presets import Common

WORLDS = {
    "FCLUB's, a cluster on each server": fb.environments.fclub(placement="blocks"),
    "FCLUB's, all clusters on every server": fb.environments.fclub(),
    "20 of a pool of 200 arms": clustered(n_clients=40, dim=10, n_arms=20, pool=200, gap=0.85, n_servers=2),
    "always the same 20 arms": clustered(n_clients=40, dim=10, n_arms=20, pool=20, gap=0.85, n_servers=2),
    "always the same 5 arms": clustered(n_clients=40, dim=10, n_arms=5, pool=5, gap=0.85, n_servers=2),
    "always the same 10 arms, Bernoulli": clustered(
        n_clients=40, dim=10, n_arms=10, pool=10, gap=0.5, n_servers=2, rewards="bernoulli"
    ),
}
SYSTEMS = {"FCLUB-DC": fb.fclub_dc, "CLUB": fb.club, "SCLUB": fb.sclub}
WIDTHS: dict[str, Common] = {"β = 1.5": {"alpha": 1.5}, "formula": {"alpha": None}}


def main() -> None:
    """Final regret of each system on each world, four ways."""
    lines = []
    for where, env in WORLDS.items():
        for name, make in SYSTEMS.items():
            line = [where, name]
            for bonus in ("paper", "authors"):
                for width in WIDTHS.values():
                    system = make(bonus=bonus, **width)
                    line.append(mean(fb.simulate(system, env, HORIZON, seed).regret[-1] for seed in SEEDS))
            lines.append(line)
            print("|", " | ".join(line), "|", flush=True)
    columns = [f"{root}, {width}" for root in ("root", "no root") for width in WIDTHS]
    print("\n" + table(["world", "system", *columns], lines))
