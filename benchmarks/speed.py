"""End to end against a plain NumPy LinUCB: what a person would write in a dozen lines.

Both run N clients on the same contexts (K of a pool of 1,000 arms). The yardstick learns alone and exchanges
nothing; fedbandit runs Async-LinUCB with γ = 5, drawing of contexts, uploads and downloads included. The last line is
one model for all clients, which always finds its matrix in the cache.
"""

from __future__ import annotations

from functools import partial

import numpy as np

import fedbandit as fb
from benchmarks.timing import best_seconds, table

RIDGE = 0.1


def numpy_linucb(env: fb.environments.Homogeneous, horizon: int, alpha: float = 1.0) -> float:
    """The yardstick: V⁻¹ by Sherman–Morrison, scores with one `X @ Vinv`."""
    stream = env.open(0)
    Vinv = np.repeat(np.eye(env.dim)[None] / RIDGE, env.n_clients, axis=0)
    b = np.zeros((env.n_clients, env.dim))
    total = 0.0
    for start in range(0, horizon, stream.chunk):
        block = stream.block(start, min(start + stream.chunk, horizon))
        for s, i in enumerate(block.clients):
            X = block.X[block.arms[s]]
            XV = X @ Vinv[i]
            a = int(np.argmax(XV @ b[i] + alpha * np.sqrt((XV * X).sum(axis=1))))
            x, y = X[a], block.means[s, a] + block.noise[s]
            Vinv[i] -= np.outer(XV[a], XV[a]) / (1 + XV[a] @ x)
            b[i] += y * x
            total += y
    return total


def main() -> None:
    """Print interactions per second and the ratio, for several shapes and horizons."""
    federated, central = fb.async_linucb(gamma_upload=5.0, gamma_download=5.0), fb.linucb_central()
    lines = []
    for system, clients, dim, arms, horizon, repeats in (
        (federated, 1000, 25, 25, 1_000_000, 9),
        (federated, 1000, 25, 25, 300_000, 15),
        (federated, 1000, 25, 25, 30_000, 15),
        (federated, 1000, 10, 10, 300_000, 9),
        (federated, 1000, 25, 100, 300_000, 5),
        (federated, 1000, 50, 25, 300_000, 5),
        (federated, 200, 100, 25, 50_000, 3),
        (federated, 50, 200, 25, 10_000, 3),
        (central, 1000, 25, 25, 1_000_000, 5),
    ):
        env = fb.environments.homogeneous(n_clients=clients, dim=dim, n_arms=arms, pool=1000, contexts="sphere")
        short = max(200_000 // dim, horizon // 25)  # about as long: a quiet moment is as likely for both
        fb.simulate(system, env, 5000)  # compile
        best = best_seconds(
            {
                "numpy": partial(numpy_linucb, env, short),
                "fedbandit": partial(fb.simulate, system, env, horizon),
            },
            repeats,
        )
        ours, theirs = horizon / best["fedbandit"], short / best["numpy"]
        lines.append(
            [
                system.name,
                f"{clients:,}",
                f"{dim}",
                f"{arms}",
                f"{horizon:,}",
                f"{theirs:,.0f}",
                f"{ours:,.0f}",
                f"{ours / theirs:.1f}×",
            ]
        )
    print(table(["system", "N", "d", "K", "T", "NumPy loop, 1/s", "fedbandit, 1/s", "ratio"], lines))
