"""Regret against communication (Async-LinUCB, Fig. 2): N = 1000, T = 30,000, d = K = 25, five decades of thresholds."""

from __future__ import annotations

import numpy as np

import fedbandit as fb
from benchmarks.timing import table

SEEDS = range(3)
THRESHOLDS = np.logspace(-2, 3, 11)
WARM = (False, True)


def measure(system: fb.System, env: fb.environments.Homogeneous) -> tuple[float, float]:
    """Mean regret and messages over the seeds."""
    results = [fb.simulate(system, env, 30_000, seed) for seed in SEEDS]
    return float(np.mean([r.regret[-1] for r in results])), float(np.mean([r.communication.messages for r in results]))


def main() -> None:
    """Print the protocols under uniform and under skewed arrivals.

    Cold: a client starts with nothing (Alg. 2 and 4), so that the first pulls of a thousand clients are blind, whatever
    the threshold. Warm: it is sent what there is when it joins.
    """
    for arrivals in ("uniform", "skewed"):
        env = fb.environments.homogeneous(n_clients=1000, dim=25, n_arms=25, arrivals=arrivals)
        lines = []
        for threshold in THRESHOLDS:
            gamma = 1 + float(threshold)
            systems = [fb.async_linucb(gamma_upload=gamma, gamma_download=gamma, warm_join=warm) for warm in WARM]
            systems += [fb.sync_linucb(threshold=float(threshold), warm_join=warm) for warm in WARM]
            cells = ("{:,.0f} @ {:,.0f}".format(*measure(system, env)) for system in systems)
            lines.append([f"{threshold:.3g}", *cells])
        header = ["threshold", "async, cold", "async, warm", "sync, cold", "sync, warm"]
        print(f"{arrivals} arrivals: regret @ messages\n\n{table(header, lines)}\n", flush=True)
