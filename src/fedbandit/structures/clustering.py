"""What structures have in common whose clusters are found while running: local servers, a rule, and two tests.

A *local server* serves several users and sees their raw statistics. A *local cluster* is a set of users of one server
that share a model row. The tests compare estimates of parameters by the radius

    F(n) = √((1 + log(1 + n)) / (1 + n))                                  (FCLUB, below Eq. 3; Gentile et al. 2014)

within which n observations determine them, up to a factor α.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedbandit.engine.fast.jit import compiled_lean
from fedbandit.errors import number, require, whole_number
from fedbandit.model import TIE
from fedbandit.structures.structure import Structure
from fedbandit.types import Array, Ints
from fedbandit.world import World


class Rule(IntEnum):
    """When clusters change."""

    FIXED = 0  # never
    PHASES = 1  # between phases: edges are deleted on each server, then clusters of different servers merge
    PRUNING = 2  # at every observation: edges of the user who acted
    SETS = 3  # at every observation: the user who acted leaves its cluster, or two clusters merge


class Law(NamedTuple):
    """A clustering rule as the engine's loop sees it."""

    rule: int
    split: float  # α of the test that parts users
    merge: float  # α of the test that joins clusters
    frequency: float  # α of the test on how often users act
    fresh: bool  # arms are scored with pending observations too
    within: bool  # clusters of one server may merge too


@runtime_checkable
class Clustering(Structure, Protocol):
    """A structure whose rows are local clusters."""

    federated: ClassVar[bool]
    """Whether a coordinator shares between local clusters; if not, every server is on its own."""

    def law(self) -> Law:
        """The rule, in numbers."""
        ...

    def servers(self, world: World) -> Ints:
        """The local server of each user."""
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


@compiled_lean
def radius(n: float) -> float:
    """F(n)."""
    return math.sqrt((1.0 + math.log(1.0 + n)) / (1.0 + n))


@compiled_lean
def distance(x: Array, y: Array) -> float:
    """‖x − y‖."""
    total = 0.0
    for k in range(x.shape[0]):
        total += (x[k] - y[k]) * (x[k] - y[k])
    return math.sqrt(total)


@compiled_lean
def differ(x: Array, n: float, y: Array, m: float, alpha: float) -> bool:
    """‖x − y‖ > α (F(n) + F(m)): estimates from n and m observations belong to different parameters (Eq. 3)."""
    return distance(x, y) > alpha * (radius(n) + radius(m)) + TIE


@compiled_lean
def alike(x: Array, n: float, y: Array, m: float, alpha: float) -> bool:
    """‖x − y‖ < α (F(n) + F(m)): estimates from n and m observations may be of one parameter (Eq. 4)."""
    return distance(x, y) < alpha * (radius(n) + radius(m)) - TIE


def components(edges: NDArray[np.bool_]) -> Ints:
    """The connected component of each vertex of a graph (n, n), numbered in the order of their first vertices.

    >>> components(np.array([[0, 0, 1], [0, 0, 0], [1, 0, 0]], dtype=bool)).tolist()
    [0, 1, 0]
    """
    label, queue = np.full(len(edges), -1), np.zeros(len(edges), dtype=np.int64)
    label_components(np.ascontiguousarray(edges), label, queue)
    return label


@compiled_lean
def label_components(edges: NDArray[np.bool_], label: Ints, queue: Ints) -> None:
    """Breadth first from every vertex that has no label yet."""
    found = 0
    for first in range(label.shape[0]):
        if label[first] >= 0:
            continue
        label[first] = found
        queue[0] = first
        end = 1
        at = 0
        while at < end:
            i = queue[at]
            at += 1
            for j in range(label.shape[0]):
                if edges[i, j] and label[j] < 0:
                    label[j] = found
                    queue[end] = j
                    end += 1
        found += 1
