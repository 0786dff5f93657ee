"""From tags, genres and ratings to contexts: TF-IDF, principal components, singular vectors, unit norm.

The same files give the same contexts on every machine: solvers run to machine precision from a fixed start, signs are
fixed, and entries are rounded to six decimals.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedbandit.errors import FedbanditError, needs
from fedbandit.types import Array, Ints

DECIMALS = 6


def for_preparing(module: str) -> Any:
    """A module of scikit-learn, or of SciPy, which comes with it."""
    return needs(module, "data", "Preparing a data set")


def counted(rows: Ints, columns: Ints, shape: tuple[int, int], values: Array | None = None) -> Any:
    """The sparse matrix of how often each pair of row and column occurs, or of the values that stand there."""
    cells = np.ones(rows.size) if values is None else values
    return for_preparing("scipy.sparse").coo_array((cells, (rows, columns)), shape=shape).tocsr()


def tf_idf(items: Ints, terms: Ints, n_items: int, n_terms: int) -> Any:
    """TF-IDF rows (sparse, unit norm): how often an item has a term, times ln((1 + n)/(1 + df)) + 1."""
    transformer = for_preparing("sklearn.feature_extraction.text").TfidfTransformer()
    return transformer.fit_transform(counted(items, terms, (n_items, n_terms)))


def principal_components(rows: Any, dim: int, what: str) -> Array:
    """Scores of the leading `dim` principal components of sparse rows."""
    decomposition = for_preparing("sklearn.decomposition")
    _require_rank(rows.shape, dim, what)
    pca = decomposition.PCA(dim, svd_solver="arpack", tol=0.0, random_state=0)
    scores: Array = pca.fit_transform(rows)
    return scores * fixed_signs(pca.components_)


def left_singular_vectors(matrix: Any, rank: int, what: str) -> Array:
    """The leading left singular vectors of a sparse matrix, times their singular values."""
    _require_rank(matrix.shape, rank, what)
    start = np.random.default_rng(0).standard_normal(min(matrix.shape))
    U, s, Vt = for_preparing("scipy.sparse.linalg").svds(matrix, k=rank, v0=start, tol=0.0, solver="arpack")
    order = np.argsort(s)[::-1]
    scaled: Array = U[:, order] * s[order] * fixed_signs(Vt[order])
    return scaled


def fixed_signs(directions: Array) -> Array:
    """±1 for each row, so that the entry of largest size is positive: the first of those within 1e-9 of it.

    >>> fixed_signs(np.array([[0.6, -0.8], [0.8, 0.6]]))
    array([-1.,  1.])
    """
    sizes = np.abs(directions)
    first = np.argmax(sizes >= sizes.max(axis=1, keepdims=True) - 1e-9, axis=1)
    return np.where(directions[np.arange(len(directions)), first] < 0, -1.0, 1.0)


def normalised(rows: Array) -> Array:
    """Rows of unit norm; a row of zeros stays."""
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    return np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 1e-12)


def trimmed(rows: Array) -> Array:
    """Rows of norm ≤ 1, a few millionths shorter and rounded to six decimals, which leaves their norm ≤ 1."""
    shrink = 1 - 4 * math.ceil(math.sqrt(rows.shape[1])) * 10.0**-DECIMALS
    rounded: Array = np.round(shrink * rows, DECIMALS) + 0.0  # no −0
    return np.ascontiguousarray(rounded)  # solvers give columns, kernels read rows


def _require_rank(shape: tuple[int, int], dim: int, what: str) -> None:
    if min(shape) <= dim:
        raise FedbanditError(
            f"{what}: {shape[0]} × {shape[1]} is too little for {dim} dimensions; use a smaller dim or more data."
        )
