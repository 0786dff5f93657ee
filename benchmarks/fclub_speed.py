"""Interactions per second of FCLUB-DC, next to a loop in NumPy that does what its authors' code does in each round.

    python -m benchmarks fclub-speed

The loop has no phases, which cost it little: in each round it scores ten items with the inverse of the cluster's last
shared matrix, updates the user and the upload buffer, computes the two determinants of Eq. 5 and, at an upload, adds
to the global matrix and checks Eq. 6 for every server. The authors' own code does 934–4,600 interactions a second.
"""

from __future__ import annotations

import time

import numpy as np

import fedbandit as fb
from benchmarks.timing import table

D, SERVERS, USERS, ITEMS = 10, 5, 40, 10


def numpy_loop(rounds: int, upload: float = 1.01, download: float = 1.01, width: float = 1.5) -> float:
    """Seconds."""
    rng = np.random.default_rng(0)
    theta = rng.standard_normal(D) / D**0.5
    items = rng.standard_normal((rounds, ITEMS, D)) / D**0.5
    users, noise = rng.integers(0, USERS, rounds), rng.standard_normal(rounds)
    V, b = np.zeros((USERS, D, D)), np.zeros((USERS, D))
    S, u = np.stack([np.eye(D)] * SERVERS), np.zeros((SERVERS, D))
    dS, du = np.zeros((SERVERS, D, D)), np.zeros((SERVERS, D))
    S_all, u_all = np.eye(D), np.zeros(D)
    begin = time.perf_counter()
    for t in range(rounds):
        i = users[t]
        server = i * SERVERS // USERS
        inverse = np.linalg.inv(S[server])
        X = items[t]
        spread = np.sqrt(np.einsum("ij,jk,ik->i", X, inverse, X))
        x = X[np.argmax(X @ (inverse @ u[server]) + width * spread)]
        y = x @ theta + noise[t]
        V[i] += np.outer(x, x)
        b[i] += x * y
        dS[server] += np.outer(x, x)
        du[server] += x * y
        if np.linalg.det(S[server] + dS[server]) / np.linalg.det(S[server]) >= upload:
            S_all, u_all = S_all + dS[server], u_all + du[server]
            S[server], u[server] = S[server] + dS[server], u[server] + du[server]
            dS[server], du[server] = 0.0, 0.0
            for other in range(SERVERS):
                if np.linalg.det(S_all) / np.linalg.det(S[other]) >= download:
                    S[other], u[other] = S_all, u_all
    return time.perf_counter() - begin


def main() -> None:
    """Print both, five times each: the machine is shared."""
    env, system = fb.environments.fclub(), fb.fclub_dc()
    fb.simulate(system, env, 1_000)  # compile
    lines = []
    for seed in range(5):
        begin = time.perf_counter()
        fb.simulate(system, env, 200_000, seed)
        ours, theirs = 200_000 / (time.perf_counter() - begin), 5_000 / numpy_loop(5_000)
        lines.append([f"{ours:,.0f}", f"{theirs:,.0f}", f"{ours / theirs:,.0f}"])
    print(table(["fclub_dc", "NumPy loop", "times"], lines))
