"""Slow, obvious oracles for clusters that are found while running, written from HetoFedBandit and the docstrings.

`to_the_letter` is Alg. 1–5 of the paper as printed; `queue` has the deviations that `ServerQueue` lists.

Raw histories are kept and every estimate is a `pinv`; nothing is incremental. Conventions as in `naive`. In each
round every client acts once, in the order of their numbers; what happens between rounds belongs to its last action.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import chi2, ncx2

from tests.oracles.naive import TIE, Array, Log, Policy, choose, logdet

RIDGE = 0.1


@dataclass
class Client:
    """Everything one client has seen and was sent."""

    X: list[Array] = field(default_factory=list)  # own contexts, in order
    y: list[float] = field(default_factory=list)
    sent: int = 0  # how many of them the server has
    given_V: Array | None = None  # what the server last sent, in place of its own released data
    given_b: Array | None = None
    steps: int = 0
    threshold: float = math.inf
    doubled: float | None = None  # while it waits to be served

    def own(self, dim: int, upto: int | None = None, start: int = 0) -> tuple[Array, Array]:
        """Σ x xᵀ and Σ x y of own data start, …, upto − 1."""
        V, b = np.zeros((dim, dim)), np.zeros(dim)
        stop = len(self.X) if upto is None else upto
        for x, y in zip(self.X[start:stop], self.y[start:stop], strict=True):
            V, b = V + np.outer(x, x), b + x * y
        return V, b

    def base(self, dim: int) -> tuple[Array, Array]:
        """What the client has but for what it has not sent."""
        if self.given_V is None or self.given_b is None:
            return self.own(dim, self.sent)
        return self.given_V, self.given_b

    def model(self, dim: int) -> tuple[Array, Array]:
        """What arms are chosen with."""
        V, b = self.base(dim)
        more_V, more_b = self.own(dim, start=self.sent)
        return V + more_V, b + more_b

    def upload(self, dim: int) -> int:
        """Everything is sent; the model stays as it is."""
        n = len(self.X) - self.sent
        self.given_V, self.given_b = self.model(dim)
        self.sent, self.doubled = len(self.X), None
        return n

    def growth(self, dim: int) -> float:
        """Δn log(det V/det (V − ΔV))."""
        ratio = logdet(self.model(dim)[0], RIDGE) - logdet(self.base(dim)[0], RIDGE)
        return (len(self.X) - self.sent) * ratio


def statistic(first: Client, second: Client, sigma: float, dim: int) -> tuple[float, int]:
    """s and df of two clients' released data (HetoFedBandit, Eq. 1 and App. C)."""
    X1, X2 = (np.array(c.X[: c.sent]).reshape(-1, dim) for c in (first, second))
    y1, y2 = (np.array(c.y[: c.sent]) for c in (first, second))
    X12, y12 = np.vstack([X1, X2]), np.concatenate([y1, y2])
    t1, t2, t12 = (np.linalg.pinv(X, rcond=1e-7) @ y for X, y in ((X1, y1), (X2, y2), (X12, y12)))
    s = (np.sum((X1 @ (t1 - t12)) ** 2) + np.sum((X2 @ (t2 - t12)) ** 2)) / sigma**2
    r1, r2, r12 = (int(np.linalg.matrix_rank(X, tol=1e-6)) if X.size else 0 for X in (X1, X2, X12))
    return float(s), r1 + r2 - r12


def critical(tail: float, df: int, psi: float) -> float:
    """F⁻¹(1 − tail; df, ψ)."""
    if df == 0:
        return math.inf
    return float(chi2.isf(tail, df) if psi == 0 else ncx2.isf(tail, df, psi))


def data_psi(first: Client, second: Client, n: int, sigma: float, dim: int) -> float:
    """ψᶜ of Alg. 4, with the inverse, and ε of the client with the larger λ_max."""
    A, B = first.own(dim, first.sent)[0], second.own(dim, second.sent)[0]
    top = max(np.linalg.eigvalsh(A)[-1], np.linalg.eigvalsh(B)[-1])
    if top <= 0:
        return 0.0
    epsilon2 = 1 / (n**2 * top)
    return float(epsilon2 / sigma**2 * max(np.linalg.eigvals(B @ np.linalg.pinv(A + B, hermitian=True) @ A).real))


def maximal_cliques(edges: set[tuple[int, int]], n: int) -> list[list[int]]:
    """All subsets are looked at."""
    found: list[list[int]] = []
    for k in range(n, 0, -1):
        for group in itertools.combinations(range(n), k):
            joined = all((i, j) in edges for i, j in itertools.combinations(group, 2))
            if joined and not any(set(group) <= set(other) for other in found):
                found.append(list(group))
    return sorted(found)


def cluster(
    clients: Sequence[Client], sigma: float, dim: int, level: float, margin: str, *, per_pair: bool = False
) -> list[list[int]]:
    """Alg. 1 or 4; the level is that of all pairs together, δ/N² for each, or `per_pair`."""
    n = len(clients)
    tail = level if per_pair else level / n**2
    edges = set()
    for i, j in itertools.combinations(range(n), 2):
        s, df = statistic(clients[i], clients[j], sigma, dim)
        psi = {"tight": 1 / (n * sigma) ** 2, "published": 1 / sigma**2, "none": 0.0}.get(margin)
        if psi is None:
            psi = data_psi(clients[i], clients[j], n, sigma, dim)
        if s <= critical(tail, df, psi):
            edges.add((i, j))
    return maximal_cliques(edges, n)


@dataclass
class Run:
    """What happened."""

    arms: list[int]
    uploads: list[int]
    downloads: list[int]
    clusters: list[list[int]]


def act(client: Client, i: int, log: Log, s: int, policy: Policy, seed: int) -> int:
    """One interaction; the arm."""
    V, b = client.model(log.dim)
    a = choose(policy, V, b, log.arms[s], RIDGE, seed, i, client.steps)
    client.steps += 1
    client.X.append(log.arms[s][a])
    client.y.append(float(log.rewards[s][a]))
    return a


def queue(
    log: Log,
    *,
    exploration: int,
    order: str,
    recluster: bool,
    limit: Callable[[int], float],
    margin: str,
    sigma: float = 0.1,
    level: float = 0.01,
    per_pair: bool = False,
    seed: int = 0,
    explorer: Policy | None = None,
) -> Run:
    """HetoFedBandit and its variants (Alg. 2 and 5, with the deviations of `ServerQueue`)."""
    explorer = explorer or Policy("uniform")
    n, d = log.n_clients, log.dim
    clients = [Client(threshold=limit(1)) for _ in range(n)]
    groups = [[i] for i in range(n)]
    waiting: list[list[int]] = []
    fresh, growth, served = [0] * n, [0.0] * n, [0.0] * n
    mixed: set[int] = set()
    run = Run([], [], [], groups)
    nothing = logdet(np.zeros((d, d)), RIDGE)

    def largest(i: int) -> int:
        return max(len(g) for g in groups if i in g)

    def line_up(group: list[int]) -> None:
        if group not in waiting and not (len(group) == 1 and group[0] not in mixed):
            waiting.append(group)

    def collect(i: int) -> None:
        fresh[i] += clients[i].upload(d)
        growth[i] = fresh[i] * (logdet(clients[i].model(d)[0], RIDGE) - nothing - served[i])

    for t in range(len(log.clients) // n):
        asked = False
        for i in range(n):
            s = t * n + i
            exploring = t < exploration
            run.arms.append(act(clients[i], i, log, s, explorer if exploring else Policy(sigma=sigma), seed))
            run.uploads.append(0)
            run.downloads.append(0)
            value, waits = clients[i].growth(d), clients[i].doubled
            if not exploring and value > (clients[i].threshold if waits is None else waits) + TIE:
                clients[i].doubled = 2 * value
                growth[i] = max(growth[i], value)
                asked = True
                if not recluster:
                    for group in groups:
                        if i in group and len(group) == largest(i):
                            line_up(group)
        uploaded: set[int] = set()
        if (recluster and asked) or t + 1 == exploration:
            for i in range(n):
                collect(i)
            uploaded = set(range(n))
            run.uploads[-1] += n
            groups = run.clusters = cluster(clients, sigma, d, level, margin, per_pair=per_pair)
            for i in range(n):
                clients[i].threshold = limit(largest(i))
            before, waiting = waiting, []
            due = [g for g in groups if max(growth[i] for i in g) > limit(len(g)) + TIE]
            due = [g for g in due if any(largest(i) == len(g) for i in g)]
            for waited in before:  # in their order, whatever their members are in now
                for group in due:
                    if set(group) & set(waited):
                        line_up(group)
            for group in due:
                line_up(group)
        if waiting and t + 1 != exploration:
            group = waiting[0]
            if order == "priority":
                group = max(waiting, key=lambda g: sum(growth[i] for i in g))
            waiting.remove(group)
            for i in group:
                if i not in uploaded:
                    collect(i)
                    run.uploads[-1] += 1
            V = sum((clients[j].own(d)[0] for j in group), np.zeros((d, d)))
            b = sum((clients[j].own(d)[1] for j in group), np.zeros(d))
            for i in group:
                clients[i].given_V, clients[i].given_b, clients[i].doubled = V, b, None
                fresh[i], growth[i], served[i] = 0, 0.0, logdet(V, RIDGE) - nothing
                (mixed.add if any(j != i and clients[j].X for j in group) else mixed.discard)(i)
            run.downloads[-1] += len(group)
    return run


def to_the_letter(
    log: Log,
    *,
    exploration: int,
    order: str,
    recluster: bool,
    limit: Callable[[int], float],
    margin: str,
    level: float = 0.1,
    shares: str = "buffers",
    sigma: float = 0.1,
    seed: int = 0,
) -> Run:
    """Alg. 2 with 1 and 3, or Alg. 5 with 4 (`recluster`), line by line, with the papers' buffers ΔV, Δb, Δt.

    Where the text leaves something open: growth is compared with D by >; a cluster stands in Q once; in Alg. 5 the
    server shares what it was sent in line 13, and what a client has observed since then stays in its buffer.
    shares="models" replaces lines 20–21: everyone is given the sum of all own data of the cluster instead.
    """
    n, d = log.n_clients, log.dim
    clients = [Client() for _ in range(n)]  # own histories H; `sent` is what the server has of them
    V, b = [np.zeros((d, d)) for _ in range(n)], [np.zeros(d) for _ in range(n)]
    dV, db, dt = [np.zeros((d, d)) for _ in range(n)], [np.zeros(d) for _ in range(n)], [0] * n
    first = [0] * n  # the first own observation that is in the buffer
    C = [[i] for i in range(n)]
    Q: list[list[int]] = []
    run = Run([], [], [], C)

    def growth(i: int) -> float:
        return dt[i] * (logdet(V[i], RIDGE) - logdet(V[i] - dV[i], RIDGE))

    known = [0.0] * n  # the growth of each, as the server knows it: from uploads and requests
    passed: list[set[float]] = [set() for _ in range(n)]  # the thresholds that each has exceeded

    def send_all() -> None:
        for i in range(n):
            clients[i].sent, known[i] = len(clients[i].X), growth(i)
        run.uploads[-1] += n

    for t in range(len(log.clients) // n):
        for i in range(n):
            s = t * n + i
            policy = Policy("uniform") if t < exploration else Policy(sigma=sigma)
            a = choose(policy, V[i], b[i], log.arms[s], RIDGE, seed, i, t)
            x, y = log.arms[s][a], float(log.rewards[s][a])
            clients[i].X.append(x)
            clients[i].y.append(y)
            V[i], b[i] = V[i] + np.outer(x, x), b[i] + x * y
            dV[i], db[i], dt[i] = dV[i] + np.outer(x, x), db[i] + x * y, dt[i] + 1
            run.arms.append(a)
            run.uploads.append(0)
            run.downloads.append(0)
            if t < exploration:
                continue
            mine = [c for c in C if i in c]
            if not recluster:  # Alg. 2 lines 11–15
                for c in mine:
                    if growth(i) > limit(len(c)) + TIE:
                        if limit(len(c)) not in passed[i]:  # a request, by which the server knows
                            passed[i].add(limit(len(c)))
                            known[i] = growth(i)
                        if c not in Q:
                            Q.append(c)
            elif growth(i) > min(limit(len(c)) for c in mine) + TIE:  # Alg. 5 lines 11–16
                Q = []
                send_all()
                C = run.clusters = cluster(clients, sigma, d, level, margin)
                Q = [c for c in C if i in c]
        if t + 1 == exploration:
            send_all()
            C = run.clusters = cluster(clients, sigma, d, level, margin)
        elif Q:
            c = max(Q, key=lambda c: sum(known[i] for i in c)) if order == "priority" else Q[0]
            Q.remove(c)
            if not recluster:
                for j in c:
                    clients[j].sent = len(clients[j].X)
                run.uploads[-1] += len(c)
            run.downloads[-1] += len(c)
            buffers = {j: clients[j].own(d, clients[j].sent, first[j]) for j in c}
            sync_V = sum((buffers[j][0] for j in c), np.zeros((d, d)))
            sync_b = sum((buffers[j][1] for j in c), np.zeros(d))
            for i in c:
                if shares == "buffers":
                    V[i], b[i] = V[i] + sync_V - buffers[i][0], b[i] + sync_b - buffers[i][1]
                dV[i], db[i] = clients[i].own(d, start=clients[i].sent)
                if shares == "models":
                    V[i] = dV[i] + sum((clients[j].own(d, clients[j].sent)[0] for j in c), np.zeros((d, d)))
                    b[i] = db[i] + sum((clients[j].own(d, clients[j].sent)[1] for j in c), np.zeros(d))
                passed[i].clear()
                first[i], dt[i], known[i] = clients[i].sent, len(clients[i].X) - clients[i].sent, 0.0
    return run


def log_evidence(clients: Sequence[Client], group: Sequence[int], sigma: float, dim: int) -> float:
    """Log density of the group's released rewards with θ ~ N(0, I/d): the Gaussian itself, with its covariance."""
    X = np.array([x for i in group for x in clients[i].X[: clients[i].sent]]).reshape(-1, dim)
    y = np.array([v for i in group for v in clients[i].y[: clients[i].sent]])
    covariance = X @ X.T / dim + sigma**2 * np.eye(len(y))
    _, value = np.linalg.slogdet(covariance)
    return float(-0.5 * (y @ np.linalg.solve(covariance, y) + value + len(y) * math.log(2 * math.pi)))


def likeliest(clients: Sequence[Client], sigma: float, dim: int, odds: float) -> list[list[int]]:
    """Merge while two clusters gain, then move single clients while that gains."""
    groups = [[i] for i in range(len(clients))]

    def score(group: Sequence[int]) -> float:
        return log_evidence(clients, group, sigma, dim) if group else 0.0

    while True:
        pairs = list(itertools.combinations(range(len(groups)), 2))
        gains = [score(groups[p] + groups[q]) - score(groups[p]) - score(groups[q]) + odds for p, q in pairs]
        if not pairs or max(gains) <= TIE:
            break
        p, q = pairs[int(np.argmax(np.array(gains) >= max(gains) - TIE))]
        groups[p] = groups[p] + groups.pop(q)
    for _ in range(10):
        moved = False
        for i in range(len(clients)):
            home = next(g for g in groups if i in g)
            home.remove(i)
            places = [g for g in groups if g] + [[]]
            gains = [score([*g, i]) - score(g) - (0.0 if g else odds) for g in places]
            here = next((k for k, g in enumerate(places) if g is home), len(places) - 1)
            best = int(np.argmax(np.array(gains) >= max(gains) - TIE))
            to = best if gains[best] > gains[here] + TIE else here
            moved = moved or to != here
            places[to].append(i)
            groups = [g for g in places if g]
        if not moved:
            break
    return sorted(sorted(g) for g in groups)


def scheduled(log: Log, *, growth: float, odds: float, sigma: float = 0.1, seed: int = 0) -> Run:
    """Clusters by evidence, and everybody synchronised after 1, 2, … rounds, ever more seldom."""
    n, d = log.n_clients, log.dim
    clients = [Client() for _ in range(n)]
    run = Run([], [], [], [[i] for i in range(n)])
    due, mixed = 1, set[int]()
    for t in range(len(log.clients) // n):
        for i in range(n):
            run.arms.append(act(clients[i], i, log, t * n + i, Policy(sigma=sigma), seed))
            run.uploads.append(0)
            run.downloads.append(0)
        if t + 1 == due:
            due = max(math.ceil(growth * due - TIE), due + 1)
            for client in clients:
                client.upload(d)
            run.uploads[-1] += n
            run.clusters = likeliest(clients, sigma, d, odds)
            for group in run.clusters:
                V = sum((clients[j].own(d)[0] for j in group), np.zeros((d, d)))
                b = sum((clients[j].own(d)[1] for j in group), np.zeros(d))
                for i in group:
                    if len(group) > 1 or i in mixed:
                        clients[i].given_V, clients[i].given_b = V, b
                        run.downloads[-1] += 1
                    (mixed.add if len(group) > 1 else mixed.discard)(i)
    return run


def neighbourhoods(
    log: Log,
    *,
    retest: float = 1.0,
    window: int | None = None,
    sigma: float = 0.1,
    level: float = 0.01,
    seed: int = 0,
) -> Run:
    """DyClu: the model is the sum over everyone who tests alike; with a window, also over models left at a change."""
    n, d = log.n_clients, log.dim
    clients = [Client() for _ in range(n)]  # after the first n: models that were left behind
    near = {(i, j): True for i in range(n) for j in range(n)}  # user, slot
    tested, steps = [0] * n, [0] * n
    recent: list[list[bool]] = [[] for _ in range(n)]
    run = Run([], [], [], [])
    for s, i in enumerate(log.clients.tolist()):
        group = [clients[j] for j in range(len(clients)) if near[i, j]]
        V = sum((client.own(d)[0] for client in group), np.zeros((d, d)))
        b = sum((client.own(d)[1] for client in group), np.zeros(d))
        a = choose(Policy(sigma=sigma), V, b, log.arms[s], RIDGE, seed, i, steps[i])
        steps[i] += 1
        run.arms.append(a)
        client, x, y = clients[i], log.arms[s][a], float(log.rewards[s][a])
        if window is not None:
            X, unlikely = np.array(client.X).reshape(-1, d), False
            if np.linalg.matrix_rank(X) == d:
                theta = np.linalg.lstsq(X, np.array(client.y), rcond=None)[0]
                variance = sigma**2 * (1 + x @ np.linalg.inv(X.T @ X) @ x)
                unlikely = bool(chi2.sf((y - x @ theta) ** 2 / variance, 1) < 0.01)
            recent[i] = [*recent[i], unlikely][-window:]
            if unlikely:
                k = len(recent[i])
                if sum(recent[i]) / k > 0.01 + math.sqrt(math.log(10) / (2 * k)) + TIE:
                    left = len(clients)
                    clients.append(client)
                    clients[i], tested[i], recent[i] = Client(), 0, []
                    for j in range(n):
                        near[j, left] = near[j, i] and j != i
                    for j in range(n):
                        near[i, j] = near[j, i] = True
                continue
        client.X.append(x)
        client.y.append(y)
        client.sent = len(client.X)
        if client.sent >= retest * tested[i] - TIE:
            tested[i] = client.sent
            for j in range(len(clients)):
                if j != i:
                    value, df = statistic(client, clients[j], sigma, d)
                    near[i, j] = value <= critical(level / n**2, df, 0.0)
                    if j < n:
                        near[j, i] = near[i, j]
    return run


def star(
    log: Log,
    *,
    log_gamma_upload: float,
    log_gamma_download: float,
    exploration: int,
    recluster: float,
    sigma: float = 0.1,
    level: float = 0.01,
    seed: int = 0,
) -> Run:
    """Cliques in which everybody uploads, and is sent downloads, on its own triggers."""
    n, d = log.n_clients, log.dim
    clients = [Client() for _ in range(n)]
    home = [[i] for i in range(n)]
    run = Run([], [], [], list(home))
    nothing = logdet(np.zeros((d, d)), RIDGE)
    known = [0.0] * n  # log det of what server and client have in common

    def refresh(candidates: Sequence[int]) -> None:
        for j in candidates:
            V = sum((clients[k].own(d, clients[k].sent)[0] for k in home[j]), np.zeros((d, d)))
            b = sum((clients[k].own(d, clients[k].sent)[1] for k in home[j]), np.zeros(d))
            measured = logdet(V, RIDGE) - nothing
            if measured > known[j] + log_gamma_download + TIE:
                known[j] = measured
                clients[j].given_V, clients[j].given_b = V, b
                run.downloads[-1] += 1

    def upload(i: int) -> None:
        clients[i].upload(d)
        known[i] = logdet(clients[i].model(d)[0], RIDGE) - nothing
        run.uploads[-1] += 1

    due = max(exploration, 1)
    for t in range(len(log.clients) // n):
        for i in range(n):
            exploring = t < exploration
            policy = Policy("uniform") if exploring else Policy(sigma=sigma)
            run.arms.append(act(clients[i], i, log, t * n + i, policy, seed))
            run.uploads.append(0)
            run.downloads.append(0)
            grown = logdet(clients[i].model(d)[0], RIDGE) - logdet(clients[i].base(d)[0], RIDGE)
            if not exploring and grown > log_gamma_upload + TIE:
                upload(i)
                refresh([j for j in range(n) if i in home[j]])
        if t + 1 == due:
            due = max(math.ceil(recluster * due - TIE), due + 1)
            for i in range(n):
                upload(i)
            before = [list(h) for h in home]
            run.clusters = cluster(clients, sigma, d, level, "data")
            weight = [(sum(clients[i].sent for i in g), len(g)) for g in run.clusters]
            for k in sorted(range(len(weight)), key=lambda k: weight[k]):
                for i in run.clusters[k]:
                    home[i] = run.clusters[k]
            for j in range(n):
                if home[j] != before[j]:
                    known[j] = -math.inf
            refresh(range(n))
    return run
