"""`make bench`: run every benchmark and print its table. `python -m benchmarks speed` runs one."""

from __future__ import annotations

import sys

from benchmarks import (
    ablation,
    bonus,
    cluster_privacy,
    clusters,
    collaborative,
    coordinators,
    doubt,
    fclub_speed,
    functions,
    gateway,
    graph,
    hetofed,
    install,
    liars,
    network,
    privacy,
    processor,
    scale,
    speed,
    tradeoff,
)


def recovery() -> None:
    """Who finds well-separated clusters exactly, in HetoFedBandit's world and in FCLUB's."""
    hetofed.recovery()
    print()
    clusters.recovery()


BENCHMARKS = {
    "speed": speed.main,
    "scale": scale.main,
    "tradeoff": tradeoff.main,
    "fclub": clusters.main,
    "bonus": bonus.main,
    "fclub-speed": fclub_speed.main,
    "cluster-privacy": cluster_privacy.main,
    "doubt": doubt.main,
    "network": network.main,
    "coordinators": coordinators.main,
    "processor": processor.main,
    "liars": liars.main,
    "gateway": gateway.main,
    "install": install.main,
    "privacy": privacy.main,
    "imbalanced": hetofed.imbalanced,
    "recovery": recovery,
    "graph": graph.main,
    "collaborative": collaborative.main,
    "functions": functions.main,
    "ablation": ablation.main,
}
LONG = ("ablation",)
"""Run only if they are named."""

if __name__ == "__main__":
    for name in sys.argv[1:]:
        if name not in BENCHMARKS:
            sys.exit(f"There is no benchmark {name!r}; there are: {', '.join(BENCHMARKS)}.")
    for name in sys.argv[1:] or [name for name in BENCHMARKS if name not in LONG]:
        print(f"\n## {name}\n", flush=True)
        BENCHMARKS[name]()
