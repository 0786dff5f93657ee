"""Clusters of users by cutting their social network, and the weights between clusters.

The papers used graph-cut software (Graclus: Dhillon et al. 2007) to make 100 clusters; it minimises the normalised cut.
Here that is done by regularised spectral clustering (Amini et al. 2013; Ng et al. 2002): the leading eigenvectors of
D^-½ (A + τ/n) D^-½ with τ the mean degree, rows of unit norm, k-means. The constant makes small components that hang
together with nothing else join clusters instead of being clusters.
"""

from __future__ import annotations

import numpy as np

from fedbandit.environments.datasets.contexts import counted, fixed_signs, for_preparing, normalised
from fedbandit.errors import FedbanditError
from fedbandit.types import Array, Ints


def partition(pairs: Ints, n_users: int, n_clusters: int) -> Ints:
    """The cluster of each user, given friends as (pairs, 2); clusters are numbered by their first user."""
    cluster, linalg = for_preparing("sklearn.cluster"), for_preparing("scipy.sparse.linalg")
    if not 1 <= n_clusters < n_users:
        raise FedbanditError(f"n_clusters is {n_clusters}, but must be at least 1 and below the {n_users} users.")
    A = adjacency(pairs, n_users)
    degrees = np.asarray(A.sum(axis=1), dtype=np.float64).ravel()
    tau = degrees.mean()
    root = 1 / np.sqrt(degrees + tau)

    def smoothed(x: Array) -> Array:
        x = root * x.ravel()
        result: Array = root * (A @ x + tau / n_users * x.sum())
        return result

    start = np.random.default_rng(0).standard_normal(n_users)
    operator = linalg.LinearOperator((n_users, n_users), matvec=smoothed, dtype=np.float64)
    _, vectors = linalg.eigsh(operator, k=n_clusters, which="LA", v0=start, tol=0.0)
    vectors = np.asarray(vectors) * fixed_signs(vectors.T)
    labels = cluster.KMeans(n_clusters, n_init=10, random_state=0).fit_predict(normalised(vectors))
    _, first = np.unique(labels, return_index=True)
    renumbered = np.empty(n_clusters, dtype=np.int64)
    renumbered[labels[np.sort(first)]] = np.arange(first.size)
    return renumbered[labels]


def cluster_edges(pairs: Ints, cluster_of: Ints, n_clusters: int) -> Array:
    """c(i, j): friendships between clusters i and j; those within a cluster count for both ends."""
    A = adjacency(pairs, cluster_of.size).tocoo()
    edges = np.zeros((n_clusters, n_clusters))
    np.add.at(edges, (cluster_of[A.row], cluster_of[A.col]), A.data)
    return edges


def weights(edges: Array) -> Array:
    """W with w_ij ∝ c(i, j) and rows that sum to one; whoever has no edges listens to itself alone."""
    W = np.array(edges, dtype=np.float64)
    alone = W.sum(axis=1) == 0
    W[alone, alone] = 1.0
    return W / W.sum(axis=1, keepdims=True)


def adjacency(pairs: Ints, n_users: int):  # type: ignore[no-untyped-def]  # scipy has no types
    """The symmetric 0/1 matrix of who is whose friend."""
    A = counted(pairs[:, 0], pairs[:, 1], (n_users, n_users))
    A = A + A.T
    A.setdiag(0)
    A.eliminate_zeros()
    A.data[:] = 1.0
    return A
