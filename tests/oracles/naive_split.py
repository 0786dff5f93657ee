"""A slow, obvious oracle for Async-LinUCB-AM, written from Alg. 3 and 5: histories are kept, alternations are run."""

from __future__ import annotations

import math

import numpy as np

from fedbandit.streams import Draw, policy_key
from tests.oracles.naive import TIE, Array, Async, Ints, Log, Policy, choose, semidefinite_factor, width

SETTLED = 1e-14


def solve(V: Array, b: Array, ridge: float) -> Array:
    """V(λ)⁻¹ b."""
    return np.asarray(np.linalg.solve(V + ridge * np.eye(len(b)), b), dtype=np.float64)


def projected_estimate(V: Array, b: Array, ridge: float) -> Array:  # noqa: ARG001 - Eq. (7) has none
    """proj(V⁻ b): the least-squares solution of smallest norm, shortened to length one if it is longer."""
    values, vectors = np.linalg.eigh(V)
    kept = values > 1e-10 * np.max(values, initial=0.0)
    theta = vectors[:, kept] @ ((vectors[:, kept].T @ b) / values[kept])
    return np.asarray(theta / max(1.0, np.linalg.norm(theta)), dtype=np.float64)


def is_full_rank(V: Array) -> bool:
    """The smallest eigenvalue is above 10⁻⁶ of the largest."""
    values = np.linalg.eigvalsh(V)
    return bool(values[0] > 1e-6 * values[-1])


class Split:
    """One run. x^(g) = x[:d_g]; x^(l) = x[first : first + sizes[i]]."""

    def __init__(
        self, log: Log, d_g: int, first: int, sizes: list[int], ridge: float, gammas: tuple[float, float], warm: bool
    ) -> None:
        self.projected = False
        self.log, self.d_g, self.first, self.sizes, self.ridge = log, d_g, first, sizes, ridge
        N = range(log.n_clients)
        self.shared = Async(d_g, ridge, dict.fromkeys(N, gammas[0]), dict.fromkeys(N, gammas[1]), warm_join=warm)
        self.V = {i: np.zeros((sizes[i], sizes[i])) for i in N}
        self.b = {i: np.zeros(sizes[i]) for i in N}
        self.history: dict[int, list[tuple[Array, float]]] = {i: [] for i in N}
        self.running = {i: sizes[i] == 0 for i in N}

    def cut(self, i: int, x: Array) -> tuple[Array, Array]:
        """x^(g) and x^(l)."""
        return x[: self.d_g], x[self.first : self.first + self.sizes[i]]

    def used(self, i: int) -> Ints:
        """Entries of a context that client i looks at."""
        return np.unique(np.r_[0 : self.d_g, self.first : self.first + self.sizes[i]])

    def partial_rewards(self, i: int, data: list[tuple[Array, float]]) -> list[tuple[float, float]]:
        """Alternate until nothing changes; start with what is known, the personal part first.

        With `projected` by Eq. (7) as printed: generalised inverses, projections to the unit ball, at most 100 times.
        """
        pieces = [self.cut(i, x) for x, _ in data]
        y = np.array([value for _, value in data])
        Xg, Xl = np.stack([g for g, _ in pieces]), np.stack([own for _, own in pieces])
        estimate = projected_estimate if self.projected else solve
        theta_g = estimate(self.shared.V[i], self.shared.b[i], self.ridge)
        theta_l = estimate(self.V[i], self.b[i], self.ridge)
        for _ in range(100 if self.projected else 200_000):
            before = np.r_[theta_g, theta_l]
            theta_l = estimate(self.V[i] + Xl.T @ Xl, self.b[i] + Xl.T @ (y - Xg @ theta_g), self.ridge)
            theta_g = estimate(self.shared.V[i] + Xg.T @ Xg, self.shared.b[i] + Xg.T @ (y - Xl @ theta_l), self.ridge)
            if np.abs(np.r_[theta_g, theta_l] - before).max() < (1e-12 if self.projected else SETTLED):
                break
        return list(zip(y - Xl @ theta_l, y - Xg @ theta_g, strict=True))

    def learn(self, i: int, data: list[tuple[Array, float]]) -> None:
        """Alg. 3 lines 9–10 for one observation, Alg. 5 lines 12–14 for those of the start-up."""
        partial = self.partial_rewards(i, data)
        for (x, _), (y_g, y_l) in zip(data, partial, strict=True):
            x_g, x_l = self.cut(i, x)
            self.shared.add(i, x_g, float(y_g))
            self.V[i] += np.outer(x_l, x_l)
            self.b[i] += x_l * y_l

    def observe(self, i: int, x: Array, y: float) -> tuple[int, int]:
        """Alg. 5 lines 8–19."""
        if self.running[i]:
            self.learn(i, [(x, y)])
            return self.shared.communicate(i)
        self.history[i].append((x, y))
        X = np.stack([x[self.used(i)] for x, _ in self.history[i]])
        if not (is_full_rank(X.T @ X) or is_full_rank(self.shared.V[i])):
            return 0, 0
        self.learn(i, self.history[i])
        self.running[i] = True
        return self.shared.communicate(i)

    def scores(self, i: int, policy: Policy, X: Array, z: Array) -> Array:
        """Eq. (8), or sampled parameters of both parts."""
        total = np.zeros(len(X))
        own = slice(self.first, self.first + self.sizes[i])
        parts: list[tuple[Array, Array, Array, Array]] = [
            (self.shared.V[i], self.shared.b[i], X[:, : self.d_g], z[: self.d_g]),
            (self.V[i], self.b[i], X[:, own], z[self.d_g :][: self.sizes[i]]),
        ]
        for V, b, x, noise in parts:
            if len(b) == 0:
                continue
            inverse, alpha = np.linalg.inv(V + self.ridge * np.eye(len(b))), width(policy, V, self.ridge)
            total += x @ inverse @ b
            if policy.kind == "ucb":
                total += alpha * np.sqrt(np.einsum("ij,jk,ik->i", x, inverse, x))
            elif policy.kind == "lints":
                total += alpha * x @ np.linalg.cholesky(inverse) @ noise
            elif policy.kind == "linphe":
                total += alpha * x @ inverse @ semidefinite_factor(V) @ noise
        return total

    def play(self, policy: Policy, seed: int) -> tuple[Ints, Ints, Ints]:
        """Arms, uploads and downloads of each round."""
        log, T = self.log, len(self.log.clients)
        arms, uploads, downloads = (np.zeros(T, dtype=np.int64) for _ in range(3))
        steps: dict[int, int] = {}
        due: dict[int, list[tuple[int, Array, float]]] = {}
        for t, i in enumerate(map(int, log.clients)):
            for late in due.pop(t, []):
                up, down = self.observe(*late)
                uploads[t] += up
                downloads[t] += down
            if i not in steps:
                downloads[t] += self.shared.join(i)
            step = steps[i] = steps.get(i, -1) + 1
            X = log.arms[t]
            if not self.running[i]:
                seen = np.zeros_like(X)
                seen[:, self.used(i)] = X[:, self.used(i)]
                S = sum((np.outer(x, x) for x, _ in self._masked(i)), np.zeros((log.dim, log.dim)))
                s = sum((x * y for x, y in self._masked(i)), np.zeros(log.dim))
                a = choose(policy, S, s, seen, self.ridge, seed, i, step)
            elif policy.kind == "uniform":
                a = Draw(policy_key(seed), i, step).index(len(X))
            else:
                z = Draw(policy_key(seed), i, step).normal(self.d_g + max(self.sizes))
                scores = self.scores(i, policy, X, z)
                a = next(k for k, score in enumerate(scores) if score >= max(scores) - TIE)
            arms[t] = a
            delay = 0 if log.delays is None else int(log.delays[t])
            if delay:
                due.setdefault(t + delay, []).append((i, X[a], float(log.rewards[t][a])))
                continue
            up, down = self.observe(i, X[a], float(log.rewards[t][a]))
            uploads[t] += up
            downloads[t] += down
        return arms, uploads, downloads

    def _masked(self, i: int) -> list[tuple[Array, float]]:
        found = []
        for x, y in self.history[i]:
            seen = np.zeros_like(x)
            seen[self.used(i)] = x[self.used(i)]
            found.append((seen, y))
        return found


def async_linucb_am(
    log: Log,
    policy: Policy,
    *,
    d_g: int,
    first: int,
    sizes: list[int],
    gamma: float,
    startup: bool = True,
    warm: bool = False,
    projected: bool = False,
    ridge: float = 0.1,
    seed: int = 0,
) -> tuple[Ints, Ints, Ints]:
    """Arms, uploads and downloads of each round."""
    run = Split(log, d_g, first, sizes, ridge, (gamma, gamma), warm)
    run.projected = projected
    if not startup:
        run.running = dict.fromkeys(run.running, True)
    assert math.isfinite(ridge)
    return run.play(policy, seed)
