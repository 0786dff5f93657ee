"""Regret and errors of estimates over time (Wang et al. 2020, Fig. 1a, 1b), and Fig. 3 of Async-LinUCB.

`python -m benchmarks collaborative` runs both, `python -m benchmarks.collaborative fig3` one. Table 1 and figures in
the paper's own world: `fedbandit reproduce private-collaborative`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

import fedbandit as fb
from benchmarks.timing import table
from fedbandit.engine.plain import PlainLearner
from fedbandit.engine.simulation import Simulation
from fedbandit.environments import Collaborative
from fedbandit.machines.link import Link
from fedbandit.machines.local_server import LocalServers
from fedbandit.structures.graph_model import GraphModel
from fedbandit.types import Array

DIM = 10


def world() -> Collaborative:
    """§6.1 without groups: a pool of 1,000 arms, 10 shown, users served in turn; σ = 0.1."""
    return Collaborative(n_clients=10, dim=DIM, n_arms=10, pool=1000, arrivals="round-robin")


def estimates(simulation: Simulation) -> Array:
    """What each user's arms are scored with, (N, d)."""
    learner = simulation.learner
    assert isinstance(learner, PlainLearner)
    if isinstance(learner.machines, LocalServers):
        serving = learner.machines.servers[0].serving
        assert isinstance(serving, GraphModel)
        return serving.parameters()
    assert isinstance(learner.machines, Link)
    clients = map(learner.machines.client, range(simulation.env.n_clients))
    return np.stack([client.model.theta for client in clients])


def fig1ab() -> None:
    """Regret and parameter error over 30,000 rounds, ε = 2."""
    systems = {
        "uniform": fb.uniform(),
        "linucb": fb.linucb(),
        "colin": fb.colin(),
        "goblin": fb.goblin(),
        "dp_colin": fb.dp_colin(epsilon=2.0),
        "dp_goblin": fb.dp_goblin(epsilon=2.0),
        "ldp_colin": fb.ldp_colin(epsilon=2.0),
        "ldp_goblin": fb.ldp_goblin(epsilon=2.0),
    }
    points = (4096, 12288, 30000)
    lines = []
    for name, system in systems.items():
        regrets: list[Array] = []
        errors: list[list[float]] = []
        for seed in range(3):
            env = world()
            truth = env.open(seed).parameters[0]
            simulation = Simulation(system, env, 30_000, seed, engine="plain")
            errors.append([])
            while not simulation.finished:
                simulation.advance()
                if simulation.round in points and name != "uniform":
                    errors[-1].append(float(np.mean(np.linalg.norm(estimates(simulation) - truth, axis=1))))
            regrets.append(simulation.result().regret[np.array(points) - 1])
        shown = [f"{value:,.0f}" for value in np.mean(regrets, axis=0)]
        lines.append([name, *shown, *(f"{value:.3f}" for value in np.mean(errors, axis=0))])
    header = ["system", *(f"regret at {t:,}" for t in points), *(f"error at {t:,}" for t in points)]
    print(f"Fig. 1a, 1b: N = 10, d = {DIM}, T = 30,000, 3 runs, ε = 2 (proven)\n\n{table(header, lines)}\n", flush=True)


def fig3() -> None:
    """Async-LinUCB-AM: regret and messages as the shared part grows."""
    lines = []
    for d_global in (4, 8, 12, 16, 20, 24):
        env = fb.environments.global_local(n_clients=1000, dim=25, n_arms=25, d_global=d_global)
        cells = []
        for startup in (True, False):
            runs = [fb.simulate(fb.async_linucb_am(startup=startup), env, 30_000, seed) for seed in range(3)]
            cells.append(f"{np.mean([r.regret[-1] for r in runs]):,.0f}")
            cells.append(f"{np.mean([r.communication.messages for r in runs]):,.0f}")
        alone = np.mean([fb.simulate(fb.linucb(), env, 30_000, seed).regret[-1] for seed in range(3)])
        lines.append([f"{d_global}", *cells, f"{alone:,.0f}"])
        print(lines[-1], flush=True)
    header = ["d_g", "regret", "messages", "regret, no start-up", "messages, no start-up", "regret, all alone"]
    print(f"Fig. 3: N = 1,000, d = K = 25, T = 30,000, γ = 5, 3 runs\n\n{table(header, lines)}\n", flush=True)


FIGURES: dict[str, Callable[[], None]] = {
    "fig1ab": fig1ab,
    "fig3": fig3,
}


def main(names: list[str] | None = None) -> None:
    """Print the figures of these names, or all."""
    for name in names or FIGURES:
        FIGURES[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
