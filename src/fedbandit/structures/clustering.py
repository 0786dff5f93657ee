"""What structures have in common whose clusters are found while running: local servers, users' statistics, and tests.

A *local server* serves several users and sees their raw statistics. A *local cluster* is a set of users of one server
that share a model. The tests compare estimates of parameters by the radius

    F(n) = √((1 + log(1 + n)) / (1 + n))                                  (FCLUB, below Eq. 3; Gentile et al. 2014)

within which n observations determine them, up to a factor α.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import FedbanditError, number, require, whole_number
from fedbandit.model import REFRESH_EVERY, TIE, RidgeModel
from fedbandit.solving import invert
from fedbandit.state import State, stored
from fedbandit.structures.serving import FederatedServing, Serving
from fedbandit.structures.structure import Structure
from fedbandit.sums import Sums
from fedbandit.types import Array, Ints
from fedbandit.world import World

MOST_EDGES = 2**31
"""Pairs of users of one server: a byte each."""


@runtime_checkable
class Clustering(Structure, Protocol):
    """A structure whose models are those of local clusters."""

    separate: ClassVar[bool] = False
    federated: ClassVar[bool] = False
    """Whether a coordinator shares between local clusters; if not, every server is on its own."""

    n_servers: int | None
    """How many blocks of consecutive users have a server each; None for what the world says."""

    def servers(self, world: World) -> Ints:
        """The local server of each user: by default one for all."""
        return servers_of(world, self.n_servers, 1)


@runtime_checkable
class FederatedClustering(Clustering, Protocol):
    """Local clusters that take part in a federation, each as a member with the number of its smallest user.

    They share by the system's protocol; between phases local clusters and who shares with whom may change.
    """

    federated: ClassVar[bool] = True

    def servers(self, world: World) -> Ints:
        """The local server of each user: by default one for each."""
        return servers_of(world, self.n_servers, world.n_clients)

    def model(self, world: World, member: int, ridge: float) -> RidgeModel:  # noqa: ARG002 - all are alike
        """What a local cluster chooses with and learns."""
        return RidgeModel(world.dim, ridge)

    def local_clusters(self, world: World, users: Ints, ridge: float) -> FederatedServing:
        """The local clusters of one server, before anything has happened."""
        ...

    def next_phase(self, done: int) -> int:
        """After `done` rounds: after how many the next phase begins."""
        ...

    def merge(self, V: Array, b: Array, n: Array, server: Ints, ridge: float) -> Ints:
        """At the coordinator: the global cluster of each local one, numbered from 0.

        V (C, d, d), b (C, d) and n (C,) are sums without ridge; `server` (C,) says where each local cluster is.
        """
        ...


def check_alpha(name: str, value: float) -> float:
    """Refuse a factor with which the test could never, or would always, come out."""
    wanted = "a finite number > 0 (a test with 0 or inf always comes out the same)"
    factor = number(value, name, wanted)
    require(factor > 0, name, value, wanted)
    return factor


def servers_of(world: World, n_servers: int | None, otherwise: int) -> Ints:
    """The server of each user: `n_servers` blocks of consecutive users; None for what the world says, or `otherwise`.

    >>> servers_of(World(n_clients=5, dim=2, horizon=9), 2, 1).tolist()
    [0, 0, 0, 1, 1]
    """
    if n_servers is None and world.server_of:
        return np.array(world.server_of, dtype=np.int64)
    count = otherwise if n_servers is None else n_servers
    require(
        whole_number("n_servers", count, 1) <= world.n_clients,
        "n_servers",
        count,
        f"at most {world.n_clients}, the number of clients (a server without users has nothing to do)",
    )
    return np.arange(world.n_clients) * count // world.n_clients


# Tests


def radius(n: float) -> float:
    """F(n)."""
    return math.sqrt((1.0 + math.log(1.0 + n)) / (1.0 + n))


def radii(n: Array | Ints) -> Array:
    """F(n) of each n."""
    return np.asarray(np.sqrt((1.0 + np.log1p(n)) / (1.0 + n)))


def differ(x: Array, n: float, y: Array, m: float, alpha: float) -> bool:
    """‖x − y‖ > α (F(n) + F(m)): estimates from n and m observations belong to different parameters (Eq. 3)."""
    gap = x - y
    return math.sqrt(float(gap @ gap)) > alpha * (radius(n) + radius(m)) + TIE


def different(i: int, others: Ints, theta: Array, reach: Array, alpha: float) -> NDArray[np.bool_]:
    """Whether estimates i and j belong to different parameters (Eq. 3), for each j of `others`; `reach` is F(n)."""
    gaps = theta[others] - theta[i]
    return np.sqrt(np.einsum("jk,jk->j", gaps, gaps)) > alpha * (reach[others] + reach[i]) + TIE


def alike(theta: Array, n: Array, first: Ints, second: Ints, alpha: float) -> NDArray[np.bool_]:
    """‖θ_j − θ_k‖ < α (F(n_j) + F(n_k)) for each pair (j, k): they may be estimates of one parameter (Eq. 4)."""
    gaps, reach = theta[first] - theta[second], radii(n)
    return np.sqrt(np.einsum("jk,jk->j", gaps, gaps)) < alpha * (reach[first] + reach[second]) - TIE


def components(edges: NDArray[np.bool_]) -> Ints:
    """The connected component of each vertex of a graph (n, n), numbered in the order of their first vertices.

    >>> components(np.array([[0, 0, 1], [0, 0, 0], [1, 0, 0]], dtype=bool)).tolist()
    [0, 1, 0]
    """
    label = np.full(len(edges), -1)
    found = 0
    for first in range(len(edges)):
        if label[first] >= 0:
            continue
        newly = np.array([first])
        while newly.size:
            label[newly] = found
            newly = np.flatnonzero(edges[newly].any(axis=0) & (label < 0))
        found += 1
    return label


# Statistics


class UserStatistics:
    """V, b and n of each user of a server, by which clusters are found, and θ̂ = (V + λI)⁻¹ b.

    With `follow`, θ̂ is that of now, by a rank-one update at each observation; otherwise that of the last `estimate`.
    """

    def __init__(self, n_users: int, dim: int, ridge: float, *, follow: bool) -> None:
        self.ridge = ridge
        self.V: Array = np.zeros((n_users, dim, dim))
        self.b: Array = np.zeros((n_users, dim))
        self.n = np.zeros(n_users, dtype=np.int64)
        self.theta = np.zeros((n_users, dim))
        self.reach = np.ones(n_users)
        """F(n)."""
        self._inverse = np.zeros((n_users, dim, dim)) if follow else None  # of users with observations

    def observe(self, i: int, x: Array, y: float) -> None:
        """Add the observation (x, y) of user i."""
        self.V[i] += np.multiply.outer(x, x)
        self.b[i] += y * x
        n = self.n[i] = int(self.n[i]) + 1
        self.reach[i] = radius(n)
        if self._inverse is None:
            return
        if n == 1 or n % REFRESH_EVERY == 0:
            self._inverse[i], _ = invert(self.V[i], self.ridge)
            self.theta[i] = self._inverse[i] @ self.b[i]
            return
        inverse, theta = self._inverse[i], self.theta[i]
        u = inverse @ x
        growth = 1.0 + float(x @ u)
        theta += ((y - float(x @ theta)) / growth) * u
        inverse -= np.multiply.outer(u, u / growth)

    def estimate(self) -> None:
        """Compute every θ̂ afresh."""
        seen = np.flatnonzero(self.n)
        A = self.V[seen] + self.ridge * np.eye(self.b.shape[1])
        self.theta[seen] = np.linalg.solve(A, self.b[seen, :, None])[:, :, 0]

    def sums(self, who: Ints) -> Sums:
        """All that was observed of these users."""
        return Sums(self.V[who].sum(axis=0), self.b[who].sum(axis=0), int(self.n[who].sum()))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """V, b and n."""
        return {"V": self.V.copy(), "b": self.b.copy(), "n": self.n.copy()}

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        self.V, self.b = (stored(state, name, getattr(self, name).shape).copy() for name in ("V", "b"))
        self.n = stored(state, "n", self.n.shape).astype(np.int64)
        self.reach = radii(self.n)
        self.estimate()
        if self._inverse is not None:
            for i in np.flatnonzero(self.n):
                self._inverse[i], _ = invert(self.V[i], self.ridge)


class Clusters:
    """Who is in which cluster on one server; a cluster has the number of its smallest user.

    Inside, users are counted in the order of their numbers: `place`. `home` (n,) holds the place of the smallest user
    of each user's cluster.
    """

    def __init__(self, users: Ints) -> None:
        self.users = users
        self.place = {user: k for k, user in enumerate(users.tolist())}
        self.home = np.zeros(users.size, dtype=np.int64)
        self._groups: list[list[int]] | None = None

    def leaders(self) -> list[int]:
        """The place of the smallest user of each cluster."""
        return np.flatnonzero(self.home == np.arange(self.home.size)).tolist()

    def members(self, r: int) -> Ints:
        """The places of the users of cluster r."""
        return np.flatnonzero(self.home == r)

    def assign(self, home: Ints) -> None:
        """These are the clusters now."""
        self.home, self._groups = home, None

    def groups(self) -> list[list[int]]:
        """The users of each cluster."""
        if self._groups is None:
            self._groups = [self.users[self.members(r)].tolist() for r in self.leaders()]
        return self._groups


class ServedClusters(Serving):
    """Users of one server in clusters, each with one model: V = Σ V_i, b = Σ b_i. Subclasses say when they change."""

    def __init__(self, users: Ints, dim: int, ridge: float) -> None:
        self.dim, self.ridge = dim, ridge
        self.own = UserStatistics(users.size, dim, ridge, follow=True)
        self.clusters = Clusters(users)
        self.models = {0: RidgeModel(dim, ridge)}

    def model(self, user: int) -> RidgeModel:
        """That of the user's cluster."""
        return self.models[int(self.clusters.home[self.clusters.place[user]])]

    def observe(self, user: int, x: Array, y: float) -> None:
        """Learn, and look whether clusters change."""
        i = self.clusters.place[user]
        self.models[int(self.clusters.home[i])].observe(x, y)
        self.own.observe(i, x, y)
        self.rearrange(i)

    def rearrange(self, i: int) -> None:
        """The user at place i has one more observation: what becomes of the clusters?"""
        raise NotImplementedError

    def regroup(self, home: Ints) -> None:
        """These are the clusters now; those that are new or smaller get models made anew."""
        before = self.clusters.home
        changed = np.isin(before, before[before != home]) | (before != home)
        self.clusters.assign(home)
        self.models = {r: self.models[r] for r in self.clusters.leaders() if r in self.models}
        for r in np.unique(home[changed]).tolist():
            self.models[r] = self.fitted(r)

    def fitted(self, r: int) -> RidgeModel:
        """A model of all that the users of cluster r have observed."""
        model = RidgeModel(self.dim, self.ridge)
        model.adopt(self.own.sums(self.clusters.members(r)))
        return model

    def groups(self) -> list[list[int]]:
        """The clusters."""
        return self.clusters.groups()

    def state(self) -> State:
        """Users' statistics and clusters: the models follow."""
        return State({}, {**self.own.arrays(), "home": self.clusters.home})

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        self.own.restore(state)
        self.clusters.assign(stored(state, "home", self.clusters.home.shape).copy())
        self.models = {r: self.fitted(r) for r in self.clusters.leaders()}


class SimilarityGraph:
    """A graph of the users of one server, at first complete, that loses edges."""

    def __init__(self, n_users: int) -> None:
        if n_users**2 > MOST_EDGES:
            raise FedbanditError(
                f"The largest local server has {n_users:,} users, whose graph has too many edges; spread them over "
                "more servers, or use sclub, which keeps no graph."
            )
        self.edges = np.ones((n_users, n_users), dtype=np.bool_)

    def prune(self, i: int, own: UserStatistics, alpha: float) -> Ints:
        """Delete the edges of user i to those it differs from (Eq. 3), and say who that is."""
        others = np.flatnonzero(self.edges[i])
        lost = others[different(i, others, own.theta, own.reach, alpha)]
        self.edges[i, lost] = False
        self.edges[lost, i] = False
        return lost

    def still_together(self, i: int, lost: Ints) -> bool:
        """Whether user i still has a common neighbour with each of those it lost: then nothing has come apart."""
        return bool((self.edges[lost] & self.edges[i]).any(axis=1).all())

    def clusters(self) -> Ints:
        """For each user, the smallest one of its connected component."""
        label = components(self.edges)
        return np.unique(label, return_index=True)[1][label]
