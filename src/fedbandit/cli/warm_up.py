"""`fedbandit warm-up`: compile the fast engine now, for an image or a machine that others will use."""

from __future__ import annotations

import argparse

SUMMARY = "Compile the fast engine and keep it in the cache, so that nobody has to wait for it."


def add_flags(command: argparse.ArgumentParser) -> None:
    """None."""


def run(options: argparse.Namespace) -> int:
    """Simulate a little with everything that has a kernel."""
    import json
    import math
    import tempfile
    from pathlib import Path
    from typing import Any

    import fedbandit as fb
    from fedbandit.engine.fast import compiling_seconds
    from fedbandit.engine.simulation import Simulation

    shape: dict[str, Any] = {"n_clients": 6, "dim": 5, "n_arms": 4}
    alike = fb.environments.homogeneous(**shape, delay=(0, 2))
    pooled = fb.environments.homogeneous(**shape, pool=30)
    served = fb.environments.fclub(**shape, n_clusters=2, n_servers=2)
    together = fb.environments.homogeneous(**shape, rounds="all")
    cases: list[tuple[fb.System, Any]] = [
        (make(), env) for make in (fb.async_linucb, fb.linucb_central) for env in (alike, pooled)
    ]
    cases += [(fb.async_linucb(policy=policy), alike) for policy in ("lints", "linphe", "squared", "greedy", "uniform")]
    cases += [(make(), alike) for make in (fb.sync_linucb, fb.count_linucb, fb.clustered_linucb)]
    cases += [(make(), served) for make in (fb.fclub_dc, fb.homo_dc, fb.club, fb.sclub)]
    cases += [(fb.dp_linucb(), alike)]
    # Noise is drawn outside of kernels, so these are the same without any, for which another extra would be needed.
    cases += [(fb.feducb(epsilon=math.inf, topology=topology), together) for topology in ("central", "ring")]
    with tempfile.TemporaryDirectory() as folder:
        for k, (system, env) in enumerate(cases):
            simulation = Simulation(system, env, 64, 0, engine="fast")
            simulation.keep(Path(folder) / f"{k}.npz", 1)
            while not simulation.finished:
                simulation.advance()
            again = Simulation(system, env, 64, 0, engine="fast")
            again.keep(Path(folder) / f"{k}.npz", 1)
    seconds = round(compiling_seconds(), 1)
    print(json.dumps({"seconds": seconds}) if options.json else f"Compiled in {seconds} s; later runs start at once.")
    return 0
