"""`make bench`: run every benchmark and print its table. `python -m benchmarks speed` runs one."""

from __future__ import annotations

import sys

from benchmarks import clusters, collaborative, graph, hetofed, network, privacy, scale, speed, tradeoff

BENCHMARKS = {
    "speed": speed.main,
    "scale": scale.main,
    "tradeoff": tradeoff.main,
    "fclub": clusters.main,
    "network": network.main,
    "privacy": privacy.main,
    "table1": hetofed.table1,
    "imbalanced": hetofed.imbalanced,
    "recovery": hetofed.recovery,
    "graph": graph.main,
    "collaborative": collaborative.main,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or BENCHMARKS:
        print(f"\n## {name}\n", flush=True)
        BENCHMARKS[name]()
