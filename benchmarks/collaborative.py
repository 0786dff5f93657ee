"""The figures of Wang et al. 2020 (private collaborative bandits) and Fig. 3 of Async-LinUCB, next to what is printed.

`python -m benchmarks collaborative` runs all of them; `python -m benchmarks.collaborative table1 fig3` some.
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
from fedbandit.machines.local_server import ServedUsers
from fedbandit.structures.graph_model import GraphModel
from fedbandit.types import Array

EPSILONS = (0.5, 1, 2, 5, 10)
RUNS = 5
DIM = 10
USERS = ("dp_colin", "ldp_colin", "dp_goblin", "ldp_goblin")
PRINTED = {
    "dp_linucb": (3083, 2684, 1504, 911, 496),
    "dp_colin": (2620, 2451, 1328, 884, 297),
    "dp_goblin": (2673, 2550, 965, 686, 247),
    "ldp_colin": (3311, 3095, 2389, 1795, 939),
    "ldp_goblin": (3269, 3005, 2335, 1744, 1061),
}


def world(n_clients: int = 10, dim: int = DIM, *, signed: bool = False) -> Collaborative:
    """§6.1: a pool of 1,000 arms, 10 shown, users served in turn; σ = 0.1."""
    return Collaborative(n_clients=n_clients, dim=dim, n_arms=10, pool=1000, arrivals="round-robin", signed=signed)


def regret(system: fb.System, env: Collaborative, horizon: int, runs: int = RUNS) -> str:
    """Mean and standard deviation over runs."""
    found = [fb.simulate(system, env, horizon, seed).regret[-1] for seed in range(runs)]
    return f"{np.mean(found):,.0f} ± {np.std(found):,.0f}"


def estimates(simulation: Simulation) -> Array:
    """What each user's arms are scored with, (N, d)."""
    learner = simulation.learner
    assert isinstance(learner, PlainLearner)
    if isinstance(learner.federation, ServedUsers):
        serving = learner.federation.servers[0].serving
        assert isinstance(serving, GraphModel)
        return serving.parameters()
    assert isinstance(learner.federation, Link)
    clients = map(learner.federation.client, range(simulation.env.n_clients))
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


def table1() -> None:
    """Regret at T = 10,000 for five budgets: printed, as published, proven."""
    alone = np.eye(10)
    lines = []
    for name, printed in PRINTED.items():
        lines.append([name, "printed", *(f"{value:,}" for value in printed)])
        for calibration in ("published", "proven"):
            cells = []
            for epsilon in EPSILONS:
                if name == "dp_linucb":
                    system = isolated(alone, epsilon) if calibration == "published" else fb.dp_linucb(epsilon=epsilon)
                else:
                    system = getattr(fb, name)(epsilon=epsilon, calibration=calibration)
                cells.append(regret(system, world(), 10_000))
            lines.append([name, calibration, *cells])
            print(lines[-1], flush=True)
    header = ["system", "", *(f"ε = {epsilon:g}" for epsilon in EPSILONS)]
    baseline = {s.name: regret(s, world(), 10_000) for s in (fb.uniform(), fb.linucb(), fb.colin(), fb.goblin())}
    print(
        f"Table 1: N = 10, d = {DIM}, T = 10,000, {RUNS} runs; without privacy {baseline}\n\n{table(header, lines)}\n"
    )


def isolated(graph: Array, epsilon: float) -> fb.System:
    """DP-LinUCB as published: DP-CoLin on a graph without edges (§4.1)."""
    return fb.System(
        fb.policies.UCB(),
        fb.protocols.Never(),
        fb.structures.WeightedGraph(graph, isolated=True),
        fb.privacy.PublishedSums(epsilon),
        ridge=1.0,
    )


def fig1c() -> None:
    """Regret at T = 10,000 for more and more users, ε = 2."""
    lines = []
    for n_clients in (5, 10, 20, 50):
        env = world(n_clients)
        for calibration in ("published", "proven"):
            cells = [regret(getattr(fb, name)(epsilon=2.0, calibration=calibration), env, 10_000, 3) for name in USERS]
            lines.append([f"{n_clients}", calibration, *cells])
        print(lines[-2:], flush=True)
    print(f"Fig. 1c: d = {DIM}, T = 10,000, ε = 2, 3 runs\n\n{table(['N', '', *USERS], lines)}\n", flush=True)


def signed() -> None:
    """Table 1 and Fig. 1c as published with contexts of either sign, of which random arms have enough regret."""
    lines = []
    for name, printed in PRINTED.items():
        cells = []
        for epsilon in EPSILONS:
            published = isolated(np.eye(10), epsilon)
            if name != "dp_linucb":
                published = getattr(fb, name)(epsilon=epsilon, calibration="published")
            cells.append(regret(published, world(signed=True), 10_000))
        lines += [[name, "printed", *(f"{value:,}" for value in printed)], ["", "published", *cells]]
        if name in ("dp_colin", "dp_goblin"):
            proven = [regret(getattr(fb, name)(epsilon=e), world(signed=True), 10_000) for e in EPSILONS]
            lines.append(["", "proven", *proven])
        print(lines[-1], flush=True)
    header = ["system", "", *(f"ε = {epsilon:g}" for epsilon in EPSILONS)]
    print(f"Table 1, contexts of either sign: random arms {regret(fb.uniform(), world(signed=True), 10_000)}\n")
    print(f"{table(header, lines)}\n", flush=True)
    lines = []
    for n_clients in (5, 10, 20, 50):
        env = world(n_clients, signed=True)
        plain = [regret(system, env, 10_000, 2) for system in (fb.uniform(), fb.linucb(), fb.colin(), fb.goblin())]
        private = [getattr(fb, name)(epsilon=10.0, calibration="published") for name in USERS]
        lines.append([f"{n_clients}", *plain, *(regret(system, env, 10_000, 2) for system in private)])
        print(lines[-1], flush=True)
    header = ["N", "uniform", "linucb", "colin", "goblin", *USERS]
    print(f"Fig. 1c, contexts of either sign, ε = 10, 2 runs\n\n{table(header, lines)}\n", flush=True)


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
    "table1": table1,
    "fig1c": fig1c,
    "signed": signed,
    "fig3": fig3,
}


def main(names: list[str] | None = None) -> None:
    """Print the figures of these names, or all."""
    for name in names or FIGURES:
        FIGURES[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
