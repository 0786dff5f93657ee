"""Who can talk to whom directly: graphs by name, or given."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import combinations, pairwise
from typing import Any, TypeAlias

import numpy as np

from fedbandit.errors import FedbanditError, require, unknown
from fedbandit.types import Array

Topology: TypeAlias = str | Array | Any
"""A name of `TOPOLOGIES`, an adjacency matrix, or a networkx graph whose nodes are 0, …, N − 1; "unknown" for peers on
a network, each of whom knows its own neighbours alone."""

Edges: TypeAlias = Iterable[tuple[int, int]]


def _ring(n: int) -> Edges:
    return [*pairwise(range(n)), (n - 1, 0)]


def _grid(n: int) -> Edges:
    """As square as N allows."""
    rows = next(r for r in range(math.isqrt(n), 0, -1) if n % r == 0)
    columns = n // rows
    right = [(i, i + 1) for i in range(n) if (i + 1) % columns]
    return right + [(i, i + columns) for i in range(n - columns)]


def _erdos_renyi(n: int) -> Edges:
    """The densest sparse one: p = 2 log N/N, drawn with seeds 0, 1, … until it is connected."""
    p = min(1.0, 2 * math.log(max(n, 2)) / n)
    seed = 0
    while True:
        rng = random.Random(seed)
        edges = [pair for pair in combinations(range(n), 2) if rng.random() < p]
        if len(_parts(_adjacent(edges, n))) == 1:
            return edges
        seed += 1


TOPOLOGIES: dict[str, Callable[[int], Edges]] = {
    "complete": lambda n: combinations(range(n), 2),
    "line": lambda n: pairwise(range(n)),
    "ring": _ring,
    "star": lambda n: ((0, i) for i in range(1, n)),
    "grid": _grid,
    "erdos-renyi": _erdos_renyi,
}


def neighbours_of(topology: Topology, n: int) -> tuple[tuple[int, ...], ...]:
    """Each agent's direct neighbours; a graph that is not connected is refused.

    >>> neighbours_of("line", 3)
    ((1,), (0, 2), (1,))
    """
    if isinstance(topology, str):
        topology = "complete" if topology == "unknown" else topology
        if topology not in TOPOLOGIES:
            raise unknown("topology", topology, TOPOLOGIES)
        edges, nodes = TOPOLOGIES[topology](n), set(range(n))
    elif hasattr(topology, "nodes") and hasattr(topology, "edges"):  # a networkx graph
        edges, nodes = topology.edges(), set(topology.nodes)
    else:
        matrix = np.asarray(topology)
        require(
            matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] and bool((matrix == matrix.T).all()),
            "topology",
            topology,
            "a name, a symmetric adjacency matrix or a networkx graph",
        )
        edges, nodes = zip(*(ends.tolist() for ends in np.nonzero(matrix)), strict=True), set(range(len(matrix)))
    require(nodes == set(range(n)), "the nodes of the topology", sorted(nodes), f"0, …, {n - 1}")
    adjacent = _adjacent(edges, n)
    parts = _parts(adjacent)
    if len(parts) > 1:
        raise FedbanditError(f"The topology is not connected: agents {parts[0]} cannot reach agents {parts[1]}.")
    return tuple(tuple(sorted(near)) for near in adjacent)


def distances(neighbours: Sequence[Iterable[int]]) -> list[list[int]]:
    """Hops between any two agents of a connected graph.

    >>> distances(neighbours_of("line", 3))
    [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    """
    hops = []
    for i in range(len(neighbours)):
        away, new = {i: 0}, [i]
        for j in new:  # it grows
            fresh = [k for k in neighbours[j] if k not in away]
            away |= dict.fromkeys(fresh, away[j] + 1)
            new += fresh
        hops.append([away[j] for j in range(len(neighbours))])
    return hops


def diameter(neighbours: Sequence[Iterable[int]]) -> int:
    """The most hops between two agents."""
    return max(map(max, distances(neighbours)))


@cache
def clique_cover(neighbours: tuple[tuple[int, ...], ...], ttl: int) -> tuple[int, ...]:
    """A partition of the agents into cliques of G_γ, the graph of who is within γ = `ttl` hops: each agent's clique.

    Largest cliques first: of those that an agent with the fewest neighbours left can be in, one is grown greedily. The
    number of cliques is an upper bound of χ̄(G_γ); finding χ̄ itself is NP-hard. On lines it is χ̄ = ⌈M/(γ + 1)⌉.

    >>> clique_cover(neighbours_of("line", 5), 1)
    (0, 0, 1, 1, 2)
    """
    hops = distances(neighbours)
    left = set(range(len(hops)))
    near = [{j for j in left if j != i and hops[i][j] <= ttl} for i in sorted(left)]
    cliques = []
    while left:
        first = min(left, key=lambda i: (len(near[i] & left), i))
        clique, rest = {first}, near[first] & left
        while rest:  # whoever leaves the most candidates; of those, whoever others need least
            best = min(rest, key=lambda j: (-len(near[j] & rest), len(near[j] & left), j))
            clique.add(best)
            rest &= near[best]
        cliques.append(sorted(clique))
        left -= clique
    label = {i: k for k, clique in enumerate(sorted(cliques)) for i in clique}
    return tuple(label[i] for i in range(len(hops)))


def _adjacent(edges: Edges, n: int) -> list[set[int]]:
    """The neighbours of each, itself excluded."""
    adjacent: list[set[int]] = [set() for _ in range(n)]
    for i, j in edges:
        if i != j:
            adjacent[i].add(j)
            adjacent[j].add(i)
    return adjacent


def _parts(adjacent: list[set[int]]) -> list[list[int]]:
    """The connected components, in the order of their first members."""
    left, parts = set(range(len(adjacent))), []
    while left:
        part, new = set(), {min(left)}
        while new:
            part |= new
            new = set().union(*(adjacent[i] for i in new)) - part
        left -= part
        parts.append(sorted(part))
    return parts
