"""Who can talk to whom directly: graphs by name, or given."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from fedbandit.errors import FedbanditError, require, unknown
from fedbandit.types import Array

Topology: TypeAlias = str | Array | Any
"""A name of `TOPOLOGIES`, an adjacency matrix, or a networkx graph whose nodes are 0, …, N − 1."""


def _erdos_renyi(n: int) -> Any:
    """The densest sparse one: p = 2 log N/N, drawn with seeds 0, 1, … until it is connected."""
    import networkx as nx

    p = min(1.0, 2 * math.log(max(n, 2)) / n)
    seed = 0
    while not nx.is_connected(graph := nx.gnp_random_graph(n, p, seed=seed)):
        seed += 1
    return graph


def _grid(n: int) -> Any:
    """As square as N allows."""
    import networkx as nx

    rows = next(r for r in range(math.isqrt(n), 0, -1) if n % r == 0)
    return nx.convert_node_labels_to_integers(nx.grid_2d_graph(rows, n // rows))


def _by_networkx(name: str, *, fewer: int = 0) -> Callable[[int], Any]:
    def make(n: int) -> Any:
        import networkx as nx  # here: it takes a tenth of a second

        return getattr(nx, name)(n - fewer)

    return make


TOPOLOGIES: dict[str, Callable[[int], Any]] = {
    "complete": _by_networkx("complete_graph"),
    "line": _by_networkx("path_graph"),
    "ring": _by_networkx("cycle_graph"),
    "star": _by_networkx("star_graph", fewer=1),
    "grid": _grid,
    "erdos-renyi": _erdos_renyi,
}


def neighbours_of(topology: Topology, n: int) -> tuple[tuple[int, ...], ...]:
    """Each agent's direct neighbours; a graph that is not connected is refused.

    >>> neighbours_of("line", 3)
    ((1,), (0, 2), (1,))
    """
    import networkx as nx

    if isinstance(topology, str):
        if topology not in TOPOLOGIES:
            raise unknown("topology", topology, TOPOLOGIES)
        graph = TOPOLOGIES[topology](n)
    elif isinstance(topology, nx.Graph):
        graph = topology
    else:
        matrix = np.asarray(topology)
        require(
            matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] and bool((matrix == matrix.T).all()),
            "topology",
            topology,
            "a name, a symmetric adjacency matrix or a networkx graph",
        )
        graph = nx.from_numpy_array((matrix != 0).astype(int))
    require(set(graph.nodes) == set(range(n)), "the nodes of the topology", sorted(graph.nodes), f"0, …, {n - 1}")
    if not nx.is_connected(graph):
        parts = [sorted(part) for part in nx.connected_components(graph)]
        raise FedbanditError(f"The topology is not connected: agents {parts[0]} cannot reach agents {parts[1]}.")
    return tuple(tuple(sorted(j for j in graph.neighbors(i) if j != i)) for i in range(n))
