"""Models on a graph: interactions a second against the obvious way, with everything in dN dimensions."""

from __future__ import annotations

import time

import numpy as np

import fedbandit as fb
from benchmarks.timing import table
from fedbandit.types import Array


def naive_seconds(env: fb.environments.Collaborative, W: Array, rounds: int, warm: int) -> float:
    """Seconds an interaction of CoLin with x̃ᵀA⁻¹x̃ for each arm and a Sherman–Morrison step on A⁻¹, as in papers."""
    block = env.open(0).block(0, warm + rounds)
    size = env.n_clients * env.dim
    inverse, b = np.eye(size) / 0.1, np.zeros(size)
    begin = time.perf_counter()
    for s in range(rounds):
        u = int(block.clients[s])
        X = np.stack([np.kron(W[u], x) for x in block.X[block.arms[s]]])
        U = X @ inverse
        a = int(np.argmax(X @ (inverse @ b) + 0.3 * np.sqrt(np.einsum("ij,ij->i", U, X))))
        inverse -= np.outer(U[a], U[a]) / (1 + U[a] @ X[a])
        b += X[a] * (block.means[s, a] + block.noise[s])
    return (time.perf_counter() - begin) / rounds


def main() -> None:
    """Print a table for several sizes."""
    lines = []
    for n_clients, dim, n_arms, horizon, rounds in (
        (10, 10, 10, 30_000, 2_000),
        (50, 25, 25, 4_000, 100),
        (100, 25, 25, 2_000, 30),
    ):
        env = fb.environments.collaborative(n_clients=n_clients, dim=dim, n_arms=n_arms, pool=1000)
        system = fb.colin(alpha=0.3)
        fb.simulate(system, env, 200)
        ours = min(_seconds(system, env, horizon) for _ in range(3))
        theirs = min(naive_seconds(env, env.graph_of(0), rounds, 0) for _ in range(2))
        lines.append(
            [f"{n_clients}", f"{dim}", f"{n_arms}", f"{1 / theirs:,.0f}", f"{1 / ours:,.0f}", f"{theirs / ours:,.0f}×"]
        )
    print(table(["N", "d", "K", "naive, interactions/s", "fedbandit, interactions/s", "faster"], lines))


def _seconds(system: fb.System, env: fb.environments.Collaborative, horizon: int) -> float:
    begin = time.perf_counter()
    fb.simulate(system, env, horizon)
    return (time.perf_counter() - begin) / horizon
