"""Slow, obvious oracles, written from the papers and not from the package.

Every determinant and inverse is computed afresh with NumPy, every buffer of the papers is kept, every loop is plain.
The only thing taken from the package is the definition of the counter-based random stream, which is a contract.

Conventions (DESIGN.md, PAPERS.md):

- V has no ridge; V(λ) = V + λI. A trigger compares logarithms and fires when it is above its threshold by more than
  1e-9; the arm chosen is the lowest index within 1e-9 of the largest score.
- The reward of interaction s is observed just before the action of interaction s + delay[s], in order of choice among
  those that are due at once; with delay 0 at once. Triggers are checked upon observation.
- A message belongs to the interaction at which the observation was made that triggered it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fedbandit.streams import Draw, policy_key

TIE = 1e-9

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


class Log(NamedTuple):
    """Recorded interactions: who acts (T,), and for each round the contexts (K_t, d), means and rewards (K_t,)."""

    clients: Ints
    arms: list[Array]
    means: list[Array]
    rewards: list[Array]
    n_clients: int
    delays: Ints | None = None

    @property
    def dim(self) -> int:
        """The length of a context."""
        return int(self.arms[0].shape[1])


@dataclass(frozen=True)
class Policy:
    """Which arm to pull: "ucb", "squared", "widest", "greedy", "lints", "linphe" or "uniform".

    With `alpha` the width is fixed. Those that sample scatter as the posterior of a Gaussian model does,
    N(θ̂, σ² V⁻¹), unless it is given.
    """

    kind: str = "ucb"
    alpha: float | None = None
    sigma: float = 0.1
    delta: float = 0.1

    def __post_init__(self) -> None:
        """The posterior's scatter."""
        if self.alpha is None and self.kind in ("lints", "linphe"):
            object.__setattr__(self, "alpha", self.sigma)


@dataclass(frozen=True)
class Outcome:
    """What happened, and the statistics (without ridge) of every client that acted and of every coordinator."""

    arms: Ints
    regret: Array
    uploads: Ints
    downloads: Ints
    V: dict[int, Array]
    b: dict[int, Array]
    server_V: list[Array]
    server_b: list[Array]


# ---------------------------------------------------------------------------------------------------------- policies


def logdet(V: Array, ridge: float) -> float:
    """log det (V + λI)."""
    sign, value = np.linalg.slogdet(V + ridge * np.eye(len(V)))
    assert sign > 0
    return float(value)


def width(policy: Policy, V: Array, ridge: float) -> float:
    """α = σ √(log det V(λ)/det λI + 2 log 1/δ) + √λ (Async-LinUCB, Eq. 5), or what was given."""
    if policy.alpha is not None:
        return policy.alpha
    grown = logdet(V, ridge) - logdet(np.zeros_like(V), ridge)
    return policy.sigma * math.sqrt(max(grown, 0.0) + 2 * math.log(1 / policy.delta)) + math.sqrt(ridge)


def semidefinite_factor(V: Array) -> Array:
    """Lower triangular L with L Lᵀ = V for a semi-definite V: a zero pivot leaves a zero column."""
    d = len(V)
    L, rest = np.zeros((d, d)), V.copy()
    for j in range(d):
        pivot = rest[j, j]
        if pivot > 1e-12 * V.diagonal().max():
            L[j:, j] = rest[j:, j] / math.sqrt(pivot)
            rest = rest - np.outer(L[:, j], L[:, j])
    return L


def choose(policy: Policy, V: Array, b: Array, X: Array, ridge: float, seed: int, client: int, step: int) -> int:
    """The arm that a model with these statistics pulls in its `step`-th action."""
    d = len(b)
    draw = Draw(policy_key(seed), client, step)
    if policy.kind == "uniform":
        return draw.index(len(X))
    inverse = np.linalg.inv(V + ridge * np.eye(d))
    theta = inverse @ b
    alpha = width(policy, V, ridge)
    z = draw.normal(d)
    if policy.kind == "ucb":
        scores = [float(x @ theta + alpha * math.sqrt(x @ inverse @ x)) for x in X]
    elif policy.kind == "squared":
        scores = [float(x @ theta + alpha * (x @ inverse @ x)) for x in X]
    elif policy.kind == "widest":  # the arm that is known least, whatever its mean
        scores = [math.sqrt(x @ inverse @ x) for x in X]
    elif policy.kind == "greedy":
        scores = [float(x @ theta) for x in X]
    elif policy.kind == "lints":
        sampled = theta + alpha * np.linalg.cholesky(inverse) @ z
        scores = [float(x @ sampled) for x in X]
    elif policy.kind == "linphe":
        sampled = theta + alpha * inverse @ semidefinite_factor(V) @ z
        scores = [float(x @ sampled) for x in X]
    else:
        raise ValueError(policy.kind)
    return next(a for a, score in enumerate(scores) if score >= max(scores) - TIE)


# ---------------------------------------------------------------------------------------------------------- learners


class Learner(Protocol):
    """Everything but the choice of arms: who knows what, who speaks when."""

    def join(self, i: int) -> int:
        """Client i acts for the first time; the number of downloads that this takes."""
        ...

    def model(self, i: int) -> tuple[Array, Array]:
        """V and b that client i chooses with."""
        ...

    def stream(self, i: int) -> int:
        """The number by which the random stream of client i's policy is keyed."""
        ...

    def observe(self, i: int, x: Array, y: float) -> tuple[int, int]:
        """Client i observes (x, y); the uploads and downloads that follow."""
        ...

    def end_interaction(self, done: int) -> tuple[int, int]:  # noqa: ARG002
        """What is due after `done` interactions, the last excepted; the uploads and downloads of it."""
        return 0, 0

    def servers(self) -> list[tuple[Array, Array]]:
        """V and b of every coordinator."""
        ...


class Independent(Learner):
    """LinUCB, one per client; or one for all (`central`)."""

    def __init__(self, dim: int, *, central: bool) -> None:
        self.dim, self.central = dim, central
        self.V: dict[int, Array] = {}
        self.b: dict[int, Array] = {}

    def stream(self, i: int) -> int:
        """The model's number."""
        return 0 if self.central else i

    def join(self, i: int) -> int:
        """A new model, if there is none."""
        self.V.setdefault(self.stream(i), np.zeros((self.dim, self.dim)))
        self.b.setdefault(self.stream(i), np.zeros(self.dim))
        return 0

    def model(self, i: int) -> tuple[Array, Array]:
        """The client's own, or the only one."""
        return self.V[self.stream(i)], self.b[self.stream(i)]

    def observe(self, i: int, x: Array, y: float) -> tuple[int, int]:
        """V += x xᵀ, b += x y."""
        self.V[self.stream(i)] += np.outer(x, x)
        self.b[self.stream(i)] += x * y
        return 0, 0

    def servers(self) -> list[tuple[Array, Array]]:
        """None."""
        return []


class Sync(Learner):
    """Async-LinUCB paper, Alg. 4, for these members; with `warm` all of them take part from the start."""

    def __init__(self, dim: int, members: Sequence[int], ridge: float, threshold: float, *, warm: bool) -> None:
        self.members, self.ridge, self.D, self.warm = list(members), ridge, threshold, warm
        self.V = {i: np.zeros((dim, dim)) for i in members}
        self.b = {i: np.zeros(dim) for i in members}
        self.dV = {i: np.zeros((dim, dim)) for i in members}
        self.db = {i: np.zeros(dim) for i in members}
        self.dt = dict.fromkeys(members, 0)
        self.Vg, self.bg = np.zeros((dim, dim)), np.zeros(dim)

    def stream(self, i: int) -> int:
        """The client's number."""
        return i

    def join(self, i: int) -> int:
        """Lines 5–6: "if client i_t is new then initialize client i_t: V = 0, b = 0, ΔV = 0, Δb = 0, Δt = 0"."""
        if not self.warm:
            for statistics in (self.V[i], self.b[i], self.dV[i], self.db[i]):
                statistics[:] = 0
            self.dt[i] = 0
        return 0

    def model(self, i: int) -> tuple[Array, Array]:
        """The client's own."""
        return self.V[i], self.b[i]

    def observe(self, i: int, x: Array, y: float) -> tuple[int, int]:
        """Lines 8–16."""
        self.V[i] += np.outer(x, x)
        self.b[i] += x * y
        self.dV[i] += np.outer(x, x)
        self.db[i] += x * y
        self.dt[i] += 1
        grown = logdet(self.V[i], self.ridge) - logdet(self.V[i] - self.dV[i], self.ridge)
        if not self.dt[i] * grown > self.D + TIE:
            return 0, 0
        for j in self.members:
            self.Vg += self.dV[j]
            self.bg += self.db[j]
            self.dV[j][:] = 0
            self.db[j][:] = 0
            self.dt[j] = 0
        for j in self.members:
            self.V[j] = self.Vg.copy()
            self.b[j] = self.bg.copy()
        return len(self.members), len(self.members)

    def servers(self) -> list[tuple[Array, Array]]:
        """The one."""
        return [(self.Vg, self.bg)]


class Async(Learner):
    """Async-LinUCB, Alg. 1 and 2, with a download buffer for each client that has acted."""

    def __init__(
        self, dim: int, ridge: float, upload: dict[int, float], download: dict[int, float], *, warm_join: bool
    ) -> None:
        self.dim, self.ridge, self.upload, self.download, self.warm_join = dim, ridge, upload, download, warm_join
        self.Vg, self.bg, self.ng = np.zeros((dim, dim)), np.zeros(dim), 0
        self.V: dict[int, Array] = {}
        self.b: dict[int, Array] = {}
        self.dV: dict[int, Array] = {}  # upload buffer
        self.db: dict[int, Array] = {}
        self.dn: dict[int, int] = {}
        self.n_own: dict[int, int] = {}
        self.owed_V: dict[int, Array] = {}  # download buffer
        self.owed_b: dict[int, Array] = {}
        self.owed_n: dict[int, int] = {}

    def stream(self, i: int) -> int:
        """The client's number."""
        return i

    def join(self, i: int) -> int:
        """Alg. 2 lines 5–7: a new client has nothing and is owed everything."""
        self.V[i], self.b[i] = np.zeros((self.dim, self.dim)), np.zeros(self.dim)
        self.dV[i], self.db[i], self.dn[i] = np.zeros((self.dim, self.dim)), np.zeros(self.dim), 0
        self.n_own[i] = 0
        self.owed_V[i], self.owed_b[i], self.owed_n[i] = self.Vg.copy(), self.bg.copy(), self.ng
        if self.warm_join and self.ng > 0:
            self.send_download(i)
            return 1
        return 0

    def model(self, i: int) -> tuple[Array, Array]:
        """The client's own."""
        return self.V[i], self.b[i]

    def observe(self, i: int, x: Array, y: float) -> tuple[int, int]:
        """Alg. 2 line 9, then Alg. 1."""
        self.add(i, x, y)
        return self.communicate(i)

    def add(self, i: int, x: Array, y: float) -> None:
        """Alg. 2 line 9."""
        self.V[i] += np.outer(x, x)
        self.b[i] += x * y
        self.dV[i] += np.outer(x, x)
        self.db[i] += x * y
        self.dn[i] += 1
        self.n_own[i] += 1

    def communicate(self, i: int) -> tuple[int, int]:
        """Alg. 1."""
        if not self.wants_to_upload(i):
            return 0, 0
        self.Vg += self.dV[i]
        self.bg += self.db[i]
        self.ng += self.dn[i]
        for j in self.V:
            if j != i:
                self.owed_V[j] += self.dV[i]
                self.owed_b[j] += self.db[i]
                self.owed_n[j] += self.dn[i]
        self.dV[i][:] = 0
        self.db[i][:] = 0
        self.dn[i] = 0
        stale = [j for j in self.V if self.is_stale(j)]
        for j in stale:
            self.send_download(j)
        return 1, len(stale)

    def wants_to_upload(self, i: int) -> bool:
        """Eq. (3)."""
        grown = logdet(self.V[i], self.ridge) - logdet(self.V[i] - self.dV[i], self.ridge)
        return grown > math.log(self.upload[i]) + TIE

    def is_stale(self, j: int) -> bool:
        """Eq. (4)."""
        missing = logdet(self.Vg, self.ridge) - logdet(self.Vg - self.owed_V[j], self.ridge)
        return missing > math.log(self.download[j]) + TIE

    def send_download(self, j: int) -> None:
        """Alg. 1 lines 8–10."""
        self.V[j] += self.owed_V[j]
        self.b[j] += self.owed_b[j]
        self.owed_V[j][:] = 0
        self.owed_b[j][:] = 0
        self.owed_n[j] = 0

    def servers(self) -> list[tuple[Array, Array]]:
        """The one."""
        return [(self.Vg, self.bg)]


class Count(Async):
    """The same exchange, triggered by numbers of observations instead of determinants."""

    def wants_to_upload(self, i: int) -> bool:
        """n_i ≥ factor · n_i(at the last upload), so always on the first observation; an infinite factor is never."""
        sent = self.n_own[i] - self.dn[i]
        return math.isfinite(self.upload[i]) and self.n_own[i] >= self.upload[i] * sent - TIE

    def is_stale(self, j: int) -> bool:
        """n_g > factor · n_j, where n_j is what the coordinator knows client j to have."""
        shared = self.ng - self.owed_n[j]
        return math.isfinite(self.download[j]) and self.ng > self.download[j] * shared * (1 + TIE)


class Grouped(Learner):
    """Clients with the same label have a coordinator of their own."""

    def __init__(self, labels: Sequence[int], learners: dict[int, Learner]) -> None:
        self.labels, self.learners = labels, learners

    def stream(self, i: int) -> int:
        """The client's number."""
        return i

    def join(self, i: int) -> int:
        """In its group."""
        return self.learners[self.labels[i]].join(i)

    def model(self, i: int) -> tuple[Array, Array]:
        """In its group."""
        return self.learners[self.labels[i]].model(i)

    def observe(self, i: int, x: Array, y: float) -> tuple[int, int]:
        """In its group."""
        return self.learners[self.labels[i]].observe(i, x, y)

    def servers(self) -> list[tuple[Array, Array]]:
        """One for each group, in the order of labels."""
        return [server for label in sorted(self.learners) for server in self.learners[label].servers()]


# -------------------------------------------------------------------------------------------------------------- runs


def play(log: Log, learner: Learner, policy: Policy, ridge: float, seed: int) -> Outcome:
    """Go through the log from beginning to end."""
    T = len(log.clients)
    arms = np.zeros(T, dtype=np.int64)
    regret = np.zeros(T)
    uploads = np.zeros(T, dtype=np.int64)
    downloads = np.zeros(T, dtype=np.int64)
    known: set[int] = set()
    steps: dict[int, int] = {}
    due: dict[int, list[tuple[int, Array, float]]] = {}

    def observe(t: int, i: int, x: Array, y: float) -> None:
        up, down = learner.observe(i, x, y)
        uploads[t] += up
        downloads[t] += down

    for t in range(T):
        for late in due.pop(t, []):
            observe(t, *late)
        i = int(log.clients[t])
        if i not in known:
            known.add(i)
            downloads[t] += learner.join(i)
        V, b = learner.model(i)
        step = steps.get(learner.stream(i), 0)
        steps[learner.stream(i)] = step + 1
        a = choose(policy, V, b, log.arms[t], ridge, seed, learner.stream(i), step)
        arms[t] = a
        regret[t] = max(log.means[t]) - log.means[t][a]
        x, y = log.arms[t][a], float(log.rewards[t][a])
        delay = 0 if log.delays is None else int(log.delays[t])
        if delay == 0:
            observe(t, i, x, y)
        else:
            due.setdefault(t + delay, []).append((i, x, y))
        if t + 1 < T:
            up, down = learner.end_interaction(t + 1)
            uploads[t] += up
            downloads[t] += down

    servers = learner.servers()
    return Outcome(
        arms,
        np.cumsum(regret),
        uploads,
        downloads,
        V={i: learner.model(i)[0] for i in known},
        b={i: learner.model(i)[1] for i in known},
        server_V=[V for V, _ in servers],
        server_b=[b for _, b in servers],
    )


def linucb(log: Log, policy: Policy, *, ridge: float = 0.1, seed: int = 0) -> Outcome:
    """One model per client."""
    return play(log, Independent(log.dim, central=False), policy, ridge, seed)


def linucb_central(log: Log, policy: Policy, *, ridge: float = 0.1, seed: int = 0) -> Outcome:
    """One model for all; its random stream is that of client 0, one step an action of anybody."""
    return play(log, Independent(log.dim, central=True), policy, ridge, seed)


def uniform(log: Log, *, seed: int = 0) -> Outcome:
    """Uniformly random arms."""
    return linucb(log, Policy("uniform"), seed=seed)


def groups_of(labels: Sequence[int] | None, n_clients: int) -> tuple[list[int], dict[int, list[int]]]:
    """The label of each client (one for all if none are given) and the members of each label."""
    label_of = [0] * n_clients if labels is None else list(labels)
    return label_of, {g: [i for i in range(n_clients) if label_of[i] == g] for g in sorted(set(label_of))}


def sync_linucb(
    log: Log,
    policy: Policy,
    *,
    threshold: float | None = None,
    warm_join: bool = False,
    labels: Sequence[int] | None = None,
    ridge: float = 0.1,
    seed: int = 0,
) -> Outcome:
    """Alg. 4, in each group by itself; the default threshold is T/(N d log T), T being all interactions."""
    T = len(log.clients)
    D = T / (log.n_clients * log.dim * max(math.log(T), 1.0)) if threshold is None else threshold
    label_of, members = groups_of(labels, log.n_clients)
    learners: dict[int, Learner] = {g: Sync(log.dim, members[g], ridge, D, warm=warm_join) for g in members}
    return play(log, Grouped(label_of, learners), policy, ridge, seed)


def async_linucb(
    log: Log,
    policy: Policy,
    *,
    gamma_upload: float | Sequence[float] = 5.0,
    gamma_download: float | Sequence[float] = 5.0,
    warm_join: bool = False,
    labels: Sequence[int] | None = None,
    ridge: float = 0.1,
    seed: int = 0,
    kind: type[Async] = Async,
) -> Outcome:
    """Alg. 1 and 2, in each group by itself."""
    label_of, members = groups_of(labels, log.n_clients)
    upload = dict(enumerate(np.broadcast_to(gamma_upload, log.n_clients).tolist()))
    download = dict(enumerate(np.broadcast_to(gamma_download, log.n_clients).tolist()))
    learners: dict[int, Learner] = {g: kind(log.dim, ridge, upload, download, warm_join=warm_join) for g in members}
    return play(log, Grouped(label_of, learners), policy, ridge, seed)


def count_linucb(
    log: Log,
    policy: Policy,
    *,
    factor_upload: float | Sequence[float] = 2.0,
    factor_download: float | Sequence[float] = 2.0,
    warm_join: bool = False,
    labels: Sequence[int] | None = None,
    ridge: float = 0.1,
    seed: int = 0,
) -> Outcome:
    """The asynchronous exchange, triggered by counts."""
    return async_linucb(
        log,
        policy,
        gamma_upload=factor_upload,
        gamma_download=factor_download,
        warm_join=warm_join,
        labels=labels,
        ridge=ridge,
        seed=seed,
        kind=Count,
    )
