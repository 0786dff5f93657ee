"""Continual release of running sums, seen as a factorisation A = B C.

Increments x₁, x₂, … arrive and every running sum x₁ + … + x_k is released: A x, with A the lower triangle of ones.
Each mechanism here releases

    A x + B z = B (C x + z),        A = B C,        z₁, z₂, … independent,

so it is the noisy vector C x + z, post-processed. One record enters exactly one increment. Replacing it moves one
increment by a difference D, hence C x by (C e_k) D, and the sensitivity is the *largest column norm* of C times
the norm of D: the ℓ2 norm of the column for Gaussian z, the ℓ1 norm for pure ε. The noise of the k-th release has the
standard deviation ‖B_k‖₂ (row k of B) in units of z. Good factorisations make the product of both small:

| releases | independent | `Tree` | `blt` | `dense` | A = B C with |
|---|---|---|---|---|---|
| 16 | 4.0 | 4.5 | 1.9 | 1.7 | independent: C = I, B = A |
| 128 | 11.3 | 7.5 | 2.6 | 2.3 | tree: C sums dyadic intervals, B takes a prefix apart |
| 1024 | 32.0 | 10.5 | 3.3 | – | BLT: B and C are Toeplitz, C ≈ √A; dense: the optimum, certified |

All are streaming (x_k may depend on earlier releases: Denisov et al. 2022, Thm 2.1) and have a hard cap n_max, but
`endless`.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from fedbandit.types import Array


class Factorisation(Protocol):
    """A = B C for at most `n_max` releases, with a memory from which B z is computed one release at a time."""

    @property
    def n_max(self) -> int:
        """The cap on the number of releases."""
        ...

    def column_norm(self, order: int, releases: int | None = None) -> float:
        """The largest ℓ1 or ℓ2 norm of a column of C, or of its first `releases` rows."""
        ...

    def row_norms(self) -> Array:
        """‖B_k‖₂ for k = 1, …, n_max: the standard deviation of the k-th release if z has 1."""
        ...

    def encoder(self, releases: int | None = None) -> Array:
        """C itself, lower triangular, or its first `releases` rows and columns."""
        ...

    def start(self, shape: tuple[int, ...]) -> Array:
        """The memory of `encode` or `step` before the first release, of slots × `shape`."""
        ...

    def encode(self, memory: Array, k: int, x: Array) -> tuple[Array, Array]:
        """(C x)_k and the memory afterwards, from the memory after release k − 1 and increment x_k. Changes nothing."""
        ...

    def step(self, memory: Array, k: int, u: Array) -> tuple[Array, Array]:
        """(B u)_k and the memory afterwards, from the memory after release k − 1 and fresh u_k. Changes nothing."""
        ...


def decoder(factorisation: Factorisation, releases: int | None = None) -> Array:
    """B = A C⁻¹, or its first `releases` rows and columns.

    >>> from fedbandit.privacy.tree import Tree
    >>> decoder(Tree(3))
    array([[1., 0., 0.],
           [0., 1., 0.],
           [0., 1., 1.]])
    """
    return np.cumsum(np.linalg.inv(factorisation.encoder(releases)), axis=0)


def largest_error(factorisation: Factorisation) -> float:
    """Standard deviation of the noisiest release, in units of what a single release would need.

    >>> from fedbandit.privacy.blt import blt
    >>> from fedbandit.privacy.tree import Tree
    >>> [round(largest_error(Tree(n)), 1) for n in (16, 128, 1024)]
    [4.5, 7.5, 10.5]
    >>> [round(largest_error(blt(n)), 1) for n in (16, 128, 1024)]
    [1.9, 2.6, 3.3]
    """
    return factorisation.column_norm(2) * float(factorisation.row_norms().max())
