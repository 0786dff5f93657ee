"""Graphs by name are those of networkx; given ones are taken as matrices or as networkx graphs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest

from fedbandit.errors import FedbanditError
from fedbandit.protocols.topology import TOPOLOGIES, clique_cover, diameter, distances, neighbours_of


def grid(n: int) -> Any:
    """As square as N allows."""
    rows = next(r for r in range(math.isqrt(n), 0, -1) if n % r == 0)
    return nx.convert_node_labels_to_integers(nx.grid_2d_graph(rows, n // rows))


def erdos_renyi(n: int) -> Any:
    """p = 2 log N/N, the first seed that gives a connected graph."""
    p, seed = min(1.0, 2 * math.log(max(n, 2)) / n), 0
    while not nx.is_connected(graph := nx.gnp_random_graph(n, p, seed=seed)):
        seed += 1
    return graph


THEIRS: dict[str, Callable[[int], Any]] = {
    "complete": nx.complete_graph,
    "line": nx.path_graph,
    "ring": nx.cycle_graph,
    "star": lambda n: nx.star_graph(n - 1),
    "grid": grid,
    "erdos-renyi": erdos_renyi,
}


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 12, 30])
def test_names_matrices_and_graphs_agree(name: str, n: int) -> None:
    """The same neighbours, whichever way the graph is given."""
    graph = THEIRS[name](n)
    expected = tuple(tuple(sorted(set(graph.neighbors(i)) - {i})) for i in range(n))
    for given in (name, graph, nx.to_numpy_array(graph)):
        found = neighbours_of(given, n)
        assert found == expected
        assert all(type(j) is int for near in found for j in near)


@pytest.mark.parametrize(
    ("topology", "sentence"),
    [
        ("rnig", "There is no topology 'rnig'; did you mean 'ring'?"),
        (np.kron(np.eye(2), np.ones((2, 2))), r"not connected: agents \[0, 1\] cannot reach agents \[2, 3\]"),
        (nx.path_graph(3), r"the nodes of the topology is \[0, 1, 2\], but must be 0, …, 3"),
        (np.triu(np.ones((4, 4))), "a name, a symmetric adjacency matrix or a networkx graph"),
    ],
)
def test_bad_topologies_are_refused(topology: object, sentence: str) -> None:
    """One sentence each."""
    with pytest.raises(FedbanditError, match=sentence):
        neighbours_of(topology, 4)


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("n", [1, 2, 5, 12])
@pytest.mark.parametrize("ttl", [1, 2, 3])
def test_distances_diameter_and_clique_covers(name: str, n: int, ttl: int) -> None:
    """Hops and diameter are networkx's; a cover is a partition into cliques of the graph's power."""
    graph, near = THEIRS[name](n), neighbours_of(name, n)
    hops = dict(nx.all_pairs_shortest_path_length(graph))
    assert distances(near) == [[hops[i][j] for j in range(n)] for i in range(n)]
    assert diameter(near) == nx.diameter(graph)
    clique = clique_cover(near, ttl)
    assert set(clique) == set(range(max(clique) + 1))
    assert all(hops[i][j] <= ttl for i in range(n) for j in range(n) if clique[i] == clique[j])


@pytest.mark.parametrize(
    ("name", "n", "ttl", "fewest"),
    [("line", 9, 1, 5), ("line", 9, 2, 3), ("ring", 9, 2, 3), ("star", 9, 1, 8), ("star", 9, 2, 1)],
)
def test_covers_by_the_fewest_cliques_where_they_are_known(name: str, n: int, ttl: int, fewest: int) -> None:
    """χ̄ of a line's power is ⌈M/(γ + 1)⌉, of a star M − 1, with two hops 1."""
    assert max(clique_cover(neighbours_of(name, n), ttl)) + 1 == fewest
