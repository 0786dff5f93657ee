"""Slow, obvious oracles for learning on a graph of users: everything in dN dimensions, every inverse afresh.

Written from Wang et al. 2020, Alg. 1 and 2; conventions as in tests/naive.py. Of the package they take only random
streams (contracts): the counter-based one of policies, and the noise of a mechanism, whose distribution has tests of
its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedbandit.streams import Draw, policy_key
from tests.oracles.naive import TIE, Array, Ints, Log, Policy, semidefinite_factor


def colin_features(W: Array) -> Callable[[int, Array], Array]:
    """x̃ = vec(x W_uᵀ): block j is w_uj x."""
    return lambda u, x: np.concatenate([W[u, j] * x for j in range(len(W))])


def laplacian_of(W: Array) -> Array:
    """G = I + L of the graph that has an edge wherever W has a weight."""
    N = len(W)
    G = np.eye(N)
    for i in range(N):
        for j in range(N):
            if i != j and (W[i, j] > 0 or W[j, i] > 0):
                G[i, i] += 1
                G[i, j] -= 1
    return G


def goblin_features(W: Array) -> Callable[[int, Array], Array]:
    """x̃ = (G ⊗ I)^{-1/2} vec of the matrix that has x in column u."""
    values, vectors = np.linalg.eigh(laplacian_of(W))
    root = vectors @ np.diag(values**-0.5) @ vectors.T
    return lambda u, x: np.concatenate([root[u, j] * x for j in range(len(W))])


@dataclass
class GraphRun:
    """What happened, and the final A (with its ridge) and b."""

    arms: Ints
    A: Array
    b: Array


Wider = Callable[[Ints, Array, Array], float]
Noise = Callable[[int], Array]


def run_graph(
    log: Log,
    features: Callable[[int, Array], Array],
    policy: Policy,
    *,
    ridge: float = 0.1,
    seed: int = 0,
    model_width: bool = False,
    printed_width: bool = False,
    noise: Noise | None = None,
    wider: Wider | None = None,
    reward: Callable[[float, int, int], float] | None = None,
) -> GraphRun:
    """Choose with x̃ᵀϑ̂ and x̃ᵀA⁻¹x̃.

    `noise(u)` is η ∈ R^dN after user u's latest observation, in b as the papers have it; `wider(observed, inverse, E)`
    what it adds to the width, given A⁻¹ and the features E of user u's unit vectors; `reward(y, u, k)` what user u
    learns from its k-th reward.
    """
    N, d = log.n_clients, log.dim
    A, b, eta = ridge * np.eye(N * d), np.zeros(N * d), np.zeros(N * d)
    key = policy_key(seed)
    steps, observed = np.zeros(N, dtype=np.int64), np.zeros(N, dtype=np.int64)
    arms = np.zeros(len(log.clients), dtype=np.int64)
    due: dict[int, list[tuple[int, Array, float]]] = {}

    def learn(u: int, x: Array, y: float) -> None:
        nonlocal A, b, eta
        xt = features(u, x)
        A = A + np.outer(xt, xt)
        b = b + xt * (y if reward is None else reward(y, u, int(observed[u])))
        observed[u] += 1
        if noise is not None:
            eta = noise(u)

    for t, u in enumerate(map(int, log.clients)):
        for who, x, y in due.pop(t, []):
            learn(who, x, y)
        X = log.arms[t]
        inverse = np.linalg.inv(A)
        theta = inverse @ (b + eta)
        E = np.stack([features(u, np.asarray(e, dtype=np.float64)) for e in np.eye(d)])  # (d, dN)
        P, P0 = E @ inverse @ E.T, E @ E.T / ridge
        if policy.alpha is not None:
            alpha = policy.alpha
        else:
            grown = np.linalg.slogdet(A / ridge)[1] if model_width else -np.linalg.slogdet(P @ np.linalg.inv(P0))[1]
            if printed_width:  # Lemmas 2 and 4: dN log(1 + Σ_t Σ_j w²/(λdN)), where block j of x̃ is w_uj x
                weights = sum(observed[i] * np.sum(features(i, np.eye(d)[0]) ** 2) for i in range(N))
                grown = d * N * math.log(1 + weights / (ridge * d * N))
            S = math.sqrt(N) if model_width or printed_width else 1.0
            alpha = policy.sigma * math.sqrt(max(grown, 0.0) + 2 * math.log(1 / policy.delta)) + math.sqrt(ridge) * S
            alpha += 0.0 if wider is None else wider(observed, np.asarray(inverse, dtype=np.float64), E)
        z = Draw(key, u, int(steps[u])).normal(d)
        means = np.array([features(u, x) @ theta for x in X])
        if policy.kind == "uniform":
            scores = np.zeros(len(X))
            scores[Draw(key, u, int(steps[u])).index(len(X))] = 1.0
        elif policy.kind == "ucb":
            scores = means + [alpha * math.sqrt(features(u, x) @ inverse @ features(u, x)) for x in X]
        elif policy.kind == "greedy":
            scores = means
        elif policy.kind == "lints":
            scores = means + alpha * X @ np.linalg.cholesky(P) @ z
        else:
            V = np.linalg.inv(P) - ridge * np.eye(d)
            scores = means + alpha * X @ P @ semidefinite_factor((V + V.T) / 2) @ z
        a = int(next(k for k, score in enumerate(scores) if score >= max(scores) - TIE))
        arms[t] = a
        steps[u] += 1
        delay = 0 if log.delays is None else int(log.delays[t])
        if delay == 0:
            learn(u, X[a], log.rewards[t][a])
        else:
            due.setdefault(t + delay, []).append((u, X[a], log.rewards[t][a]))
    return GraphRun(arms, A, b)
