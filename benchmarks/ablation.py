"""What each optimisation of the fast engine is worth: processor time without it, divided by that with it.

Each process has one version, with everything or without one optimisation (`engine/fast/switches.py`), and they take
turns, since the machine may be busy with something else; time is that of the main thread. A version compiles when it
first runs, about a minute of an idle core, which is not measured. Not part of `make bench`: with
four processes it takes about an hour; `python -c "from benchmarks.ablation import main; main('huge-pages')"` has one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from statistics import median

import fedbandit as fb
from benchmarks.timing import table
from fedbandit.engine.fast.switches import OPTIMISATIONS

PROCESSES = int(os.environ.get("FEDBANDIT_PROCESSES", "4"))
REPEATS = 5
SETTINGS = {  # clients, d, K, interactions: as in `speed` and `scale`
    "speed 3·10⁵": (1_000, 25, 25, 300_000),
    "speed 3·10⁴": (1_000, 25, 25, 30_000),
    "scale 10³": (1_000, 10, 25, 300_000),
    "scale 10⁵": (100_000, 10, 25, 300_000),
    "scale 10⁶": (1_000_000, 10, 25, 1_000_000),
}
SECOND_THREAD = "second-thread"


def measure() -> dict[str, float]:
    """Seconds of this process's main thread, the median of each setting."""
    system = fb.async_linucb(gamma_upload=5.0, gamma_download=5.0)
    found = {}
    for name, (clients, dim, n_arms, interactions) in SETTINGS.items():
        env = fb.environments.homogeneous(n_clients=clients, dim=dim, n_arms=n_arms, pool=1000, contexts="sphere")
        times = []
        for _ in range(1 + REPEATS):  # the first compiles, and waits for memory that later ones use again
            begin = time.thread_time()
            fb.simulate(system, env, interactions, engine="fast")
            times.append(time.thread_time() - begin)
        found[name] = median(times[1:])
    return found


def without(optimisation: str) -> dict[str, float]:
    """`measure` in a process of its own, without an optimisation; "" is with all of them."""
    env = {**os.environ, "FEDBANDIT_WITHOUT": "" if optimisation == SECOND_THREAD else optimisation}
    env["FEDBANDIT_THREADS"] = "1" if optimisation == SECOND_THREAD else "2"
    script = "import json; from benchmarks.ablation import measure; print(json.dumps(measure()))"
    done = subprocess.run([sys.executable, "-c", script], env=env, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


def main(*optimisations: str) -> None:
    """Print ratios without/with, above 1 where it helps: medians over neighbouring processes, and their range."""
    lines = []
    for optimisation in optimisations or (*OPTIMISATIONS, SECOND_THREAD):
        pairs = [(without(optimisation), without("")) for _ in range(PROCESSES)]
        ratios = [[less[name] / full[name] for less, full in pairs] for name in SETTINGS]
        lines.append([optimisation, *(f"{median(r):.2f} ({min(r):.2f}–{max(r):.2f})" for r in ratios)])
        print(*lines[-1], sep="  ", flush=True)
    print(table(["without", *SETTINGS], lines))
