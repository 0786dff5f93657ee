"""FedUCB's Alg. 1 with a controller, its decentralised variant, and private LinUCB alone: slow, from the paper's text.

Written from Dubey & Pentland 2020 (Alg. 1, Alg. 2, Prop. 2, §4.2) and, where the paper is silent, from the deviations
that presets/feducb.py and protocols/gossip.py name. What privatisers add is handed in: noise[i][k] = (H, h) is what
agent i's running sums have on top after release k + 1.

Rounds are t = 0, 1, …; in each the agents act in the order of their numbers. X[t][i] are the contexts (K, d) that agent
i is offered in round t, y[t][i] the rewards (K,) of these arms.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tests.oracles.naive import TIE, Array

Noise = Sequence[Sequence[tuple[Array, Array]]]


def best(scores: Array) -> int:
    return int(np.flatnonzero(scores >= scores.max() - TIE)[0])


def logdet(V: Array) -> float:
    return float(np.linalg.slogdet(V)[1])


@dataclass(frozen=True)
class Bounds:
    """ρ_min, ρ_max and κ of Def. 2, α and σ of Prop. 2, and S."""

    low: float
    high: float
    kappa: float
    alpha: float
    sigma: float
    S: float = 1.0
    printed: bool = False


def beta(V: Array, M: int, given: Bounds) -> float:
    """Prop. 2, with log det V or, as printed, d log det V."""
    d = len(V)
    growth = 2 * math.log(2 / given.alpha) + (d if given.printed else 1) * logdet(V) - d * math.log(M * given.low)
    return given.sigma * math.sqrt(growth) + given.S * math.sqrt(M * given.high) + given.kappa * math.sqrt(M)


def controlled(
    X: Array, y: Array, D: float, given: Bounds, noise: Noise, *, as_printed: bool, ridge: float = 0.1
) -> tuple[list[list[int]], int]:
    """Alg. 1; the arms (T, M) and how often agents synchronised.

    Line 12 has Δt + 1 (D4). Without `as_printed` an agent is a LinUCB with ridge λ until the first synchronisation
    (D5), and M(ρ_max − ρ_min)I is on S alone, where line 12 has it on V + xxᵀ (D4).
    """
    T, M, _, d = X.shape
    eye = np.eye(d)
    S, s = (M * given.low * eye if as_printed else ridge * eye), np.zeros(d)
    noisy = as_printed
    U, u = np.zeros((M, d, d)), np.zeros((M, d))  # since the last synchronisation
    total_U, total_u = np.zeros((M, d, d)), np.zeros((M, d))  # Q̂'s two parts, inserted into the tree so far
    since, rounds = [0] * M, 0
    arms = []
    for t in range(T):
        arms.append([0] * M)
        for i in range(M):
            V = S + U[i]
            theta = np.linalg.solve(V, s + u[i])
            if noisy:
                width = beta(V, M, given)
            else:
                grown = logdet(V) - d * math.log(ridge)
                width = given.sigma * math.sqrt(grown + 2 * math.log(1 / given.alpha)) + math.sqrt(ridge)
            norms = np.sqrt(np.einsum("kd,de,ke->k", X[t, i], np.linalg.inv(V), X[t, i]))
            a = best(X[t, i] @ theta + width * norms)
            arms[t][i] = a
            x, r = X[t, i, a], y[t, i, a]
            U[i] += np.outer(x, x)
            u[i] += x * r
            since[i] += 1
            lift = M * (given.high - given.low) * eye
            if as_printed:  # V + xxᵀ is S + U now
                grown = logdet(S + U[i] + lift) - logdet(S)
            else:
                grown = logdet(S + U[i]) - logdet(S) + (logdet(S + lift) - logdet(S) if noisy else 0.0)
            if since[i] * grown > D + TIE:
                total_U += U
                total_u += u
                S, s = np.zeros((d, d)), np.zeros(d)
                for j in range(M):  # the j-th privatiser: sums so far, noise, and the shift by 2Λ that keeps it PSD
                    H, h = noise[j][rounds]
                    S += total_U[j] + H + (given.low + given.high) / 2 * eye
                    s += total_u[j] + h
                U[:], u[:], since, noisy = 0.0, 0.0, [0] * M, True
                rounds += 1
    return arms, rounds


def hops_between(edges: Sequence[tuple[int, int]], M: int) -> list[list[int]]:
    """Breadth-first distances."""
    near = defaultdict(set)
    for i, j in edges:
        near[i].add(j)
        near[j].add(i)
    hops = []
    for i in range(M):
        away, queue = {i: 0}, deque([i])
        while queue:
            j = queue.popleft()
            for k in near[j] - away.keys():
                away[k] = away[j] + 1
                queue.append(k)
        hops.append([away[j] for j in range(M)])
    return hops


def gossip(
    X: Array,
    y: Array,
    hops: list[list[int]],
    ttl: int,
    *,
    growth: float | None = None,
    batch: int = 1,
    D: float | None = None,
    sigma: float,
    alpha: float = 0.1,
    ridge: float = 0.1,
    subsample: bool = True,
    shares: Sequence[set[int]] | None = None,
) -> list[list[int]]:
    """§4.2 without noise; the arms (T, M).

    Estimator g = t mod γ acts in round t. What agent i says in round t reaches whoever is h ≤ γ hops away at the end of
    round t + h − 1; whoever is asked answers, with what it has then, at the end of the round after. `shares[i]` are the
    agents that i shares with, itself included.
    """
    T, M, _, d = X.shape
    period = ttl if subsample else 1
    together = [set(range(M)) for _ in range(M)] if shares is None else shares
    own = [[(np.zeros((d, d)), np.zeros(d), 0) for _ in range(period)] for _ in range(M)]
    told = [[(np.zeros((d, d)), np.zeros(d), 0) for _ in range(period)] for _ in range(M)]
    heard: list[list[dict[int, tuple[Array, Array, int]]]] = [[{} for _ in range(period)] for _ in range(M)]
    arriving: dict[int, list[tuple[int, int, int, tuple[Array, Array, int] | None]]] = defaultdict(list)

    def say(origin: int, g: int, leaves: int, asks: bool) -> None:
        """Tell all there is, and perhaps ask, at the end of round `leaves`."""
        told[origin][g] = own[origin][g]
        for j in together[origin] - {origin}:
            if hops[origin][j] <= ttl:
                arriving[leaves + hops[origin][j] - 1].append((j, origin, g, own[origin][g]))
                if asks:
                    arriving[leaves + hops[origin][j] - 1].append((j, origin, g, None))

    def known(i: int, g: int) -> tuple[Array, Array]:
        others = list(heard[i][g].values())
        V = sum((one[0] for one in others), own[i][g][0] + ridge * np.eye(d))
        return V, sum((one[1] for one in others), own[i][g][1].copy())

    arms = []
    for t in range(T):
        g = t % period
        arms.append([0] * M)
        for i in range(M):
            V, b = known(i, g)
            width = sigma * math.sqrt(logdet(V) - d * math.log(ridge) + 2 * math.log(1 / alpha)) + math.sqrt(ridge)
            norms = np.sqrt(np.einsum("kd,de,ke->k", X[t, i], np.linalg.inv(V), X[t, i]))
            a = best(X[t, i] @ np.linalg.solve(V, b) + width * norms)
            arms[t][i] = a
            x = X[t, i, a]
            own[i][g] = (own[i][g][0] + np.outer(x, x), own[i][g][1] + x * y[t, i, a], own[i][g][2] + 1)
            sent, pending = told[i][g][2], own[i][g][2] - told[i][g][2]
            if growth is not None:
                fires = pending >= batch and own[i][g][2] >= growth * sent - TIE
            else:
                assert D is not None
                after = known(i, g)[0]
                before = after - own[i][g][0] + told[i][g][0]
                fires = pending * (logdet(after) - logdet(before)) > D + TIE
            if fires:
                say(i, g, t, asks=True)
        for j, origin, at, statistics in arriving.pop(t, []):
            if statistics is not None:
                heard[j][at][origin] = statistics
            elif own[j][at][2] - told[j][at][2] >= batch:
                say(j, at, t + 1, asks=False)
    return arms


def noised_gossip(
    X: Array,
    y: Array,
    hops: list[list[int]],
    ttl: int,
    D: float,
    given: Bounds,
    noise: Noise,
    *,
    ridge: float = 0.1,
    subsample: bool = True,
) -> tuple[list[list[int]], int]:
    """§4.2 with the noise and widths of Alg. 1 and 2; the arms (T, M) and how often anybody has told.

    noise[i·γ + g] is that of estimator g of agent i. Until it first hears of another an agent is a LinUCB with ridge λ
    (D5 of feducb); from then on S is the sum of what those it has heard of told, itself included if it has told, each
    shifted by 2Λ, and U what it has seen since it told. Line 12 has Δ + 1, and M(ρ_max − ρ_min)I on S alone (D4).
    """
    T, M, _, d = X.shape
    period, eye = (ttl if subsample else 1), np.eye(d)
    keys = [(i, g) for i in range(M) for g in range(period)]
    seen = {key: (np.zeros((d, d)), np.zeros(d)) for key in keys}  # all of an estimator's own, exact
    told: dict[tuple[int, int], tuple[Array, Array]] = {}  # with its noise
    releases = dict.fromkeys(keys, 0)
    S = {key: (ridge * eye, np.zeros(d), 0) for key in keys}  # with the number of agents in it, 0 for exact ones
    U = {key: (np.zeros((d, d)), np.zeros(d), 0) for key in keys}  # pending
    before = {key: logdet(ridge * eye) for key in keys}  # log det S and the term of line 12
    heard: dict[tuple[int, int], dict[int, tuple[Array, Array]]] = {key: {} for key in keys}
    arriving: dict[int, list[tuple[int, int, int, tuple[Array, Array] | None]]] = defaultdict(list)

    def tell(i: int, g: int, leaves: int, asks: bool) -> None:
        H, h = noise[i * period + g][releases[i, g]]
        releases[i, g] += 1
        told[i, g] = seen[i, g][0] + H, seen[i, g][1] + h
        S[i, g] = S[i, g][0] + U[i, g][0], S[i, g][1] + U[i, g][1], S[i, g][2]
        U[i, g] = np.zeros((d, d)), np.zeros(d), 0
        before[i, g] = logdet(S[i, g][0])
        for j in range(M):
            if j != i and hops[i][j] <= ttl:
                arriving[leaves + hops[i][j] - 1] += [(j, i, g, told[i, g])] + [(j, i, g, None)] * asks

    def synchronise(i: int, g: int) -> None:
        those = [*heard[i, g].values(), *([told[i, g]] if (i, g) in told else [])]
        shifted = len(those) * (given.low + given.high) / 2 * eye
        matrix = sum((V for V, _ in those), shifted)
        S[i, g] = matrix, sum((b for _, b in those), np.zeros(d)), len(those)
        lift = len(those) * (given.high - given.low) * eye
        before[i, g] = 2 * logdet(matrix) - logdet(matrix + lift)

    arms = []
    for t in range(T):
        g = t % period
        arms.append([0] * M)
        for i in range(M):
            V, b, agents = S[i, g][0] + U[i, g][0], S[i, g][1] + U[i, g][1], S[i, g][2]
            if agents:
                width = beta(V, agents, given)
            else:
                grown = logdet(V) - d * math.log(ridge)
                width = given.sigma * math.sqrt(grown + 2 * math.log(1 / given.alpha)) + math.sqrt(ridge)
            norms = np.sqrt(np.einsum("kd,de,ke->k", X[t, i], np.linalg.inv(V), X[t, i]))
            a = best(X[t, i] @ np.linalg.solve(V, b) + width * norms)
            arms[t][i] = a
            x, r = X[t, i, a], y[t, i, a]
            seen[i, g] = seen[i, g][0] + np.outer(x, x), seen[i, g][1] + x * r
            U[i, g] = U[i, g][0] + np.outer(x, x), U[i, g][1] + x * r, U[i, g][2] + 1
            if U[i, g][2] * (logdet(S[i, g][0] + U[i, g][0]) - before[i, g]) > D + TIE:
                tell(i, g, t, asks=True)
        news = set()
        for j, origin, at, statistics in arriving.pop(t, []):
            if statistics is not None:
                heard[j, at][origin] = statistics
                news.add((j, at))
            elif U[j, at][2] >= 1:
                tell(j, at, t + 1, asks=False)
        for i, at in news:
            synchronise(i, at)
    return arms, sum(releases.values())


def alone(
    X: Array,
    y: Array,
    noise: Sequence[tuple[Array, Array]],
    spectral: Sequence[float],
    vector: Sequence[float],
    *,
    growth: float,
    batch: int,
    sigma: float,
    alpha: float = 0.1,
    ridge: float = 0.1,
) -> list[int]:
    """One client of dp_linucb(delta > 0): X is (T, K, d). It learns from its own noisy running sums only.

    ‖N‖ ≤ spectral[k] and ‖h − Nθ‖ ≤ vector[k] at release k + 1. Eigenvalues v below half of ‖N‖'s bound Λ are lifted to
    it, by p; f² = 1 + max (Λ − p)₊/(v + p + λ) and ‖θ‖ ≤ 1 give the width of privacy/pool_noise.py's docstring.
    """
    T, _, d = X.shape
    V, b = ridge * np.eye(d), np.zeros(d)
    sums, sent, n, releases = (np.zeros((d, d)), np.zeros(d)), 0, 0, 0
    f, extra = 1.0, 0.0
    arms = []
    for t in range(T):
        inverse = np.linalg.inv(V)
        growth_of_V = logdet(f**2 * V) - d * math.log(ridge)
        width = f * sigma * math.sqrt(growth_of_V + 2 * math.log(1 / alpha)) + math.sqrt(ridge)
        bonus = width * np.sqrt(np.einsum("kd,de,ke->k", X[t], inverse, X[t]))
        bonus = bonus + extra * np.linalg.norm(X[t] @ inverse, axis=1)
        a = best(X[t] @ (inverse @ b) + bonus)
        arms.append(a)
        x, n = X[t, a], n + 1
        sums = sums[0] + np.outer(x, x), sums[1] + x * y[t, a]
        if n - sent >= batch and n >= growth * sent - TIE:
            H, h = noise[releases]
            bound = spectral[releases]
            values, vectors = np.linalg.eigh(sums[0] + H)
            lift = np.maximum(bound / 2 - values, 0.0)
            V = (vectors * (values + lift)) @ vectors.T + ridge * np.eye(d)
            b = sums[1] + h
            f = math.sqrt(1 + max(0.0, float(((bound - lift) / (values + lift + ridge)).max())))
            extra = vector[releases] + float(lift.max())
            sent, releases = n, releases + 1
    return arms
