"""Who learned together, over time, and how near that is to the truth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedbandit.errors import require
from fedbandit.state import StateError
from fedbandit.types import Ints

Partition = list[list[int]]
"""Clusters of clients. They may overlap where a structure lets them."""


class Partitions:
    """Partitions in the order of time; each holds from the end of its round on, the first from the start (round 0).

    >>> found = Partitions.of_labels([0, 0, 0])
    >>> found.record(12, [5, 5, 8])
    >>> found.rounds, found.lists()
    ([0, 12], [[[0, 1, 2]], [[0, 1], [2]]])
    """

    def __init__(self) -> None:
        self.rounds: list[int] = []
        self._clusters: list[tuple[Ints, Ints]] = []  # all clients, cluster after cluster, and the clusters' sizes

    @classmethod
    def of_labels(cls, labels: ArrayLike) -> Partitions:
        """Begin with this partition."""
        begun = cls()
        begun.record(0, labels)
        return begun

    def record(self, round_number: int, labels: ArrayLike) -> None:
        """From the end of this round on, clients with the same label are together."""
        names, label = np.unique(np.asarray(labels), return_inverse=True)
        self._add(round_number, np.argsort(label, kind="stable"), np.bincount(label, minlength=names.size))

    def record_clusters(self, round_number: int, clusters: Iterable[Sequence[int]]) -> None:
        """From the end of this round on, these are the clusters, which may overlap."""
        listed = [np.asarray(cluster, dtype=np.int64) for cluster in clusters]
        self._add(round_number, np.concatenate(listed), np.array([cluster.size for cluster in listed]))

    def _add(self, round_number: int, clients: Ints, sizes: Ints) -> None:
        if self.rounds and self.rounds[-1] == round_number:  # what held within a round held for nobody's next one
            self.rounds.pop()
            self._clusters.pop()
        self.rounds.append(round_number)
        self._clusters.append((clients.astype(np.int32), sizes.astype(np.int32)))

    def lists(self) -> list[Partition]:
        """All partitions as lists of lists."""
        return [
            [part.tolist() for part in np.split(clients, np.cumsum(sizes)[:-1])] for clients, sizes in self._clusters
        ]

    def rand_index(self, labels: ArrayLike) -> list[float]:
        """The adjusted Rand index of each partition with the truth."""
        return [adjusted_rand(partition, labels) for partition in self.lists()]

    def arrays(self) -> dict[str, Any]:
        """As arrays, for files."""
        clients, sizes = zip(*self._clusters, strict=True)
        return {
            "clusters.rounds": np.array(self.rounds),
            "clusters.clients": np.concatenate(clients),
            "clusters.sizes": np.concatenate(sizes),
            "clusters.counts": np.array([[len(c), len(s)] for c, s in self._clusters]),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Partitions:
        """Read what `arrays` gave."""
        loaded = cls()
        loaded.rounds = arrays["clusters.rounds"].tolist()
        ends = np.cumsum(np.vstack([[0, 0], arrays["clusters.counts"]]), axis=0)
        lengths = [len(arrays[f"clusters.{name}"]) for name in ("clients", "sizes")]
        whole = all(array.dtype.kind == "i" for name, array in arrays.items() if name.startswith("clusters."))
        if not whole or len(ends) != len(loaded.rounds) + 1 or ends[-1].tolist() != lengths:
            raise StateError(f"The stored clusters are of {lengths} clients and sizes, but must be of {ends[-1]}.")
        for (c, s), (c_end, s_end) in pairwise(ends):
            loaded._clusters.append((arrays["clusters.clients"][c:c_end], arrays["clusters.sizes"][s:s_end]))
        return loaded


def adjusted_rand(clusters: Partition, labels: ArrayLike) -> float:
    """The adjusted Rand index (Hubert and Arabie 1985) of clusters with true labels, one a client.

    Pairs that are together in both, above what chance gives: 1 for equal partitions, about 0 for unrelated ones.
    Overlapping clusters are taken by their pairs.

    >>> adjusted_rand([[0, 1], [2, 3]], [7, 7, 2, 2]), round(adjusted_rand([[0, 2], [1, 3]], [7, 7, 2, 2]), 6)
    (1.0, -0.5)
    """
    truth = np.unique(np.asarray(labels), return_inverse=True)[1]
    n = truth.size
    largest = max(max(cluster) for cluster in clusters)
    require(largest < n, "the number of labels", n, f"at least {largest + 1}, one a client")

    def pairs(counts: Ints) -> int:
        return int((counts * (counts - 1) // 2).sum())

    true_pairs, all_pairs = pairs(np.bincount(truth)), n * (n - 1) // 2
    if sum(map(len, clusters)) == n:
        found = sum(pairs(np.array([len(cluster)])) for cluster in clusters)
        both = sum(pairs(np.bincount(truth[cluster])) for cluster in clusters)
    else:
        together = np.zeros((n, n), dtype=np.bool_)
        for cluster in clusters:
            together[np.ix_(cluster, cluster)] = True
        upper = np.triu(together, 1)
        found, both = int(upper.sum()), int((upper & (truth[:, None] == truth)).sum())
    expected = found * true_pairs / max(all_pairs, 1)
    most = (found + true_pairs) / 2
    return 1.0 if most == expected else (both - expected) / (most - expected)
