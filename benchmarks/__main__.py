"""`make bench`: run every benchmark and print its table. `python -m benchmarks speed` runs one."""

from __future__ import annotations

import sys

from benchmarks import collaborative, graph, scale, speed, tradeoff

BENCHMARKS = {
    "speed": speed.main,
    "scale": scale.main,
    "tradeoff": tradeoff.main,
    "graph": graph.main,
    "collaborative": collaborative.main,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or BENCHMARKS:
        print(f"\n## {name}\n", flush=True)
        BENCHMARKS[name]()
