"""Slow, obvious oracles of systems that find clusters, written from the papers; see `naive.py` for the conventions.

Graphs are sets of pairs, clusters are lists of users, and every estimate is computed afresh from the users' sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from tests.oracles.naive import TIE, Array, Async, Count, Learner, Log, Outcome, Policy, play


def radius(n: float) -> float:
    """F(n) = √((1 + ln(1 + n))/(1 + n))."""
    return math.sqrt((1 + math.log(1 + n)) / (1 + n))


def components(users: Sequence[int], edges: Iterable[frozenset[int]]) -> list[list[int]]:
    """Connected components, each sorted, in the order of their smallest users."""
    found: list[list[int]] = []
    left = sorted(users)
    while left:
        cluster = {left[0]}
        while True:
            reached = {j for edge in edges if edge & cluster for j in edge} | cluster
            if reached == cluster:
                break
            cluster = reached
        found.append(sorted(cluster))
        left = [i for i in left if i not in cluster]
    return found


class Users:
    """The own statistics of all users, who are on local servers."""

    def __init__(self, dim: int, ridge: float, server_of: Sequence[int]) -> None:
        n = len(server_of)
        self.dim, self.ridge, self.server_of = dim, ridge, list(server_of)
        self.V = [np.zeros((dim, dim)) for _ in range(n)]
        self.b = [np.zeros(dim) for _ in range(n)]
        self.n = [0] * n

    def on(self, server: int) -> list[int]:
        """The users of a server."""
        return [i for i, here in enumerate(self.server_of) if here == server]

    def servers(self) -> list[int]:
        """All servers."""
        return sorted(set(self.server_of))

    def add(self, i: int, x: Array, y: float) -> None:
        """User i observes."""
        self.V[i] += np.outer(x, x)
        self.b[i] += x * y
        self.n[i] += 1

    def sums(self, users: Sequence[int]) -> tuple[Array, Array, int]:
        """V, b and n of these users together."""
        V = sum((self.V[i] for i in users), np.zeros((self.dim, self.dim)))
        b = sum((self.b[i] for i in users), np.zeros(self.dim))
        return V, b, sum(self.n[i] for i in users)

    def theta(self, users: Sequence[int]) -> Array:
        """Their estimate."""
        V, b, _ = self.sums(users)
        return np.asarray(np.linalg.solve(V + self.ridge * np.eye(self.dim), b))

    def count(self, users: Sequence[int]) -> int:
        """Their observations."""
        return sum(self.n[i] for i in users)

    def differ(self, i: int, j: int, alpha: float) -> bool:
        """FCLUB, Eq. (3)."""
        gap = float(np.linalg.norm(self.theta([i]) - self.theta([j])))
        return gap > alpha * (radius(self.n[i]) + radius(self.n[j])) + TIE


class Clustered(Learner):
    """What the oracles have in common: users with own statistics; streams are those of users."""

    def __init__(self, dim: int, ridge: float, server_of: Sequence[int]) -> None:
        self.users = Users(dim, ridge, server_of)
        self.local = [self.users.on(server) for server in self.users.servers()]
        self.history: list[list[list[int]]] = []  # partitions after each interaction

    def stream(self, i: int) -> int:
        """The user's."""
        return i

    def join(self, i: int) -> int:  # noqa: ARG002
        """Everyone is there from the start."""
        return 0

    def cluster_of(self, i: int) -> list[int]:
        """The local cluster of user i."""
        return next(cluster for cluster in self.local if i in cluster)

    def partition(self) -> list[list[int]]:
        """Who is together now."""
        return sorted(self.local)

    def model(self, i: int) -> tuple[Array, Array]:
        """The sums of its cluster."""
        V, b, _ = self.users.sums(self.cluster_of(i))
        return V, b

    def servers(self) -> list[tuple[Array, Array]]:
        """None."""
        return []

    def end_interaction(self, done: int) -> tuple[int, int]:  # noqa: ARG002
        """Write down who is together."""
        self.history.append(self.partition())
        return 0, 0


class Club(Clustered):
    """Gentile et al. 2014, Fig. 1, on each server."""

    def __init__(self, dim: int, ridge: float, server_of: Sequence[int], alpha: float) -> None:
        super().__init__(dim, ridge, server_of)
        self.alpha = alpha
        self.edges = {frozenset((i, j)) for users in self.local for i in users for j in users if i < j}

    def observe(self, i: int, x: Array, y: float) -> tuple[int, int]:
        """Update, delete edges of i, find components."""
        self.users.add(i, x, y)
        mine = [edge for edge in self.edges if i in edge]
        for edge in mine:
            (j,) = edge - {i}
            if self.users.differ(i, j, self.alpha):
                self.edges.remove(edge)
        self.local = [c for s in self.users.servers() for c in components(self.users.on(s), self.edges)]
        return 0, 0


class Sclub(Clustered):
    """Li et al. 2019, Alg. 1–3, on each server with its own clock."""

    def __init__(
        self, dim: int, ridge: float, server_of: Sequence[int], split: float, merge: float, frequency: float
    ) -> None:
        super().__init__(dim, ridge, server_of)
        self.split, self.merge, self.frequency = split, merge, frequency
        self.tau = dict.fromkeys(self.users.servers(), 0)
        self.phase = dict.fromkeys(self.users.servers(), 1)
        self.left = dict.fromkeys(self.users.servers(), 2)  # interactions until the phase is over
        self.checked: set[int] = set()
        self.pivot = {tuple(c): (np.zeros(dim), 0) for c in self.local}

    def observe(self, i: int, x: Array, y: float) -> tuple[int, int]:
        """Alg. 1 lines 6–13."""
        server = self.users.server_of[i]
        self.users.add(i, x, y)
        self.tau[server] += 1
        cluster = self.cluster_of(i)
        if len(cluster) > 1 and self.must_leave(i, cluster):
            rest = [j for j in cluster if j != i]
            self.local.remove(cluster)
            self.local += [rest, [i]]
            self.pivot[tuple(rest)] = self.pivot.pop(tuple(cluster))
            self.set_pivot([i])
        self.checked.add(i)
        while (pair := self.find_pair(server)) is not None:
            merged = sorted(pair[0] + pair[1])
            for part in pair:
                self.local.remove(part)
                del self.pivot[tuple(part)]
            self.local.append(merged)
            self.set_pivot(merged)
        self.left[server] -= 1
        if self.left[server] == 0:
            self.phase[server] += 1
            self.left[server] = 2 ** self.phase[server]
            self.checked -= set(self.users.on(server))
            for c in self.local:
                if self.users.server_of[c[0]] == server:
                    self.set_pivot(c)
        return 0, 0

    def set_pivot(self, cluster: list[int]) -> None:
        """θ̃ and ñ are those of now."""
        self.pivot[tuple(cluster)] = self.users.theta(cluster), self.users.count(cluster)

    def must_leave(self, i: int, cluster: list[int]) -> bool:
        """Alg. 2."""
        theta, n = self.pivot[tuple(cluster)]
        gap = float(np.linalg.norm(self.users.theta([i]) - theta))
        if gap > self.split * (radius(self.users.n[i]) + radius(n)) + TIE:
            return True
        tau = self.tau[self.users.server_of[i]]
        return any(
            abs(self.users.n[i] - self.users.n[j]) / tau > 2 * self.frequency * radius(tau) + TIE for j in cluster
        )

    def find_pair(self, server: int) -> tuple[list[int], list[int]] | None:
        """Alg. 3: the first two sets that can merge."""
        tau = self.tau[server]
        here = [c for c in sorted(self.local) if self.users.server_of[c[0]] == server and set(c) <= self.checked]
        for k, first in enumerate(here):
            for second in here[k + 1 :]:
                n, m = self.users.count(first), self.users.count(second)
                apart = abs(n / len(first) - m / len(second)) / tau
                gap = float(np.linalg.norm(self.users.theta(first) - self.users.theta(second)))
                if apart < self.frequency * radius(tau) - TIE and gap < self.merge * (radius(n) + radius(m)) - TIE:
                    return first, second
        return None


class Fclub(Clustered):
    """Liu et al. 2022, Alg. 1–4 without noise. Each global cluster is an `Async` whose clients are local clusters."""

    def __init__(
        self,
        dim: int,
        ridge: float,
        server_of: Sequence[int],
        *,
        split: float,
        merge: float,
        upload: float,
        download: float,
        fresh: bool,
        within: bool,
        clustering: bool,
        per_round: int,
        kind: type[Async],
    ) -> None:
        super().__init__(dim, ridge, server_of)
        self.dim, self.ridge, self.split, self.merge, self.fresh, self.within = dim, ridge, split, merge, fresh, within
        self.clustering, self.per_round, self.kind = clustering, per_round, kind
        n = len(server_of)
        self.upload, self.download = dict.fromkeys(range(n), upload), dict.fromkeys(range(n), download)
        self.edges = {frozenset((i, j)) for users in self.local for i in users for j in users if i < j}
        self.merged = [list(range(len(self.local)))]  # global clusters: numbers of local ones
        self.phase = 1
        self.renew()

    def renew(self) -> None:
        """Alg. 2 lines 10–18."""
        self.exchanges: list[Async] = []
        for numbers in self.merged:
            exchange = self.kind(self.dim, self.ridge, self.upload, self.download, warm_join=False)
            V, b, n = self.users.sums([i for k in numbers for i in self.local[k]])
            exchange.Vg, exchange.bg, exchange.ng = V, b, n
            for k in numbers:
                j = self.local[k][0]
                exchange.join(j)
                exchange.V[j], exchange.b[j] = V.copy(), b.copy()
                exchange.owed_V[j], exchange.owed_b[j], exchange.owed_n[j] = 0 * V, 0 * b, 0
                exchange.n_own[j] = self.users.count(self.local[k])
            self.exchanges.append(exchange)

    def place(self, i: int) -> tuple[int, Async]:
        """The name of the local cluster of user i, which is its smallest user, and its exchange."""
        j = self.cluster_of(i)[0]
        return j, next(exchange for exchange in self.exchanges if j in exchange.V)

    def partition(self) -> list[list[int]]:
        """Global clusters of users."""
        return sorted(sorted(i for k in numbers for i in self.local[k]) for numbers in self.merged)

    def model(self, i: int) -> tuple[Array, Array]:
        """Alg. 1 line 12, or with what is pending."""
        j, exchange = self.place(i)
        V, b = exchange.model(j)
        return (V, b) if self.fresh else (V - exchange.dV[j], b - exchange.db[j])

    def observe(self, i: int, x: Array, y: float) -> tuple[int, int]:
        """Alg. 1 lines 13–15."""
        self.users.add(i, x, y)
        j, exchange = self.place(i)
        return exchange.observe(j, x, y)

    def end_interaction(self, done: int) -> tuple[int, int]:
        """Alg. 2, before phase 2, 3, … begins."""
        due = self.clustering and done == self.per_round * (2 ** (self.phase + 1) - 2)
        sent = self.begin_phase() if due else (0, 0)
        super().end_interaction(done)
        return sent

    def begin_phase(self) -> tuple[int, int]:
        """Alg. 2."""
        self.phase += 1
        before = self.local, self.merged
        for edge in list(self.edges):
            i, j = edge
            if self.users.differ(i, j, self.split):
                self.edges.remove(edge)
        self.local = [c for s in self.users.servers() for c in components(self.users.on(s), self.edges)]
        alike = {frozenset((j, k)) for j in range(len(self.local)) for k in range(j) if self.are_alike(j, k)}
        self.merged = components(range(len(self.local)), alike)
        if (self.local, self.merged) == before:
            return len(self.local), 0
        self.renew()
        return len(self.local), len(self.local)

    def are_alike(self, j: int, k: int) -> bool:
        """Eq. (4)."""
        first, second = self.local[j], self.local[k]
        if not self.within and self.users.server_of[first[0]] == self.users.server_of[second[0]]:
            return False
        gap = float(np.linalg.norm(self.users.theta(first) - self.users.theta(second)))
        return gap < self.merge * (radius(self.users.count(first)) + radius(self.users.count(second))) - TIE

    def servers(self) -> list[tuple[Array, Array]]:
        """One a global cluster."""
        return [exchange.servers()[0] for exchange in self.exchanges]


def in_blocks(n_clients: int, n_servers: int) -> list[int]:
    """Consecutive users on each server."""
    return [i * n_servers // n_clients for i in range(n_clients)]


def run(log: Log, learner: Clustered, policy: Policy, ridge: float, seed: int) -> tuple[Outcome, list[list[list[int]]]]:
    """The outcome, and the partition after each interaction."""
    outcome = play(log, learner, policy, ridge, seed)
    return outcome, [*learner.history, learner.partition()]


def fclub(
    log: Log,
    policy: Policy,
    *,
    n_servers: int,
    alpha_split: float = 1.0,
    alpha_merge: float = 1.0,
    upload: float = 1.0,
    download: float = 1.0,
    fresh: bool = True,
    within: bool = False,
    clustering: bool = True,
    per_round: int = 1,
    counting: bool = False,
    ridge: float = 1.0,
    seed: int = 0,
) -> tuple[Outcome, list[list[list[int]]]]:
    """FCLUB(-DC), or without clustering Homo(-DC)."""
    learner = Fclub(
        log.dim,
        ridge,
        in_blocks(log.n_clients, n_servers),
        split=alpha_split,
        merge=alpha_merge,
        upload=upload,
        download=download,
        fresh=fresh,
        within=within,
        clustering=clustering,
        per_round=per_round,
        kind=Count if counting else Async,
    )
    return run(log, learner, policy, ridge, seed)


def club(
    log: Log, policy: Policy, *, n_servers: int, alpha_split: float, ridge: float = 1.0, seed: int = 0
) -> tuple[Outcome, list[list[list[int]]]]:
    """CLUB on each server."""
    learner = Club(log.dim, ridge, in_blocks(log.n_clients, n_servers), alpha_split)
    return run(log, learner, policy, ridge, seed)


def sclub(
    log: Log,
    policy: Policy,
    *,
    n_servers: int,
    alpha_split: float,
    alpha_merge: float,
    alpha_frequency: float = 1.0,
    ridge: float = 1.0,
    seed: int = 0,
) -> tuple[Outcome, list[list[list[int]]]]:
    """SCLUB on each server."""
    servers = in_blocks(log.n_clients, n_servers)
    learner = Sclub(log.dim, ridge, servers, alpha_split, alpha_merge, alpha_frequency)
    return run(log, learner, policy, ridge, seed)
