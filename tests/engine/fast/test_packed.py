"""Packed symmetric matrices do what whole ones do."""

from __future__ import annotations

import numpy as np
import pytest

from fedbandit.engine.fast.packed import (
    add_outer_packed,
    add_outers_packed,
    add_to_diagonal,
    add_unpacked,
    multiply_packed,
    pack,
    packed_length,
    square_packed,
    unpacked,
)
from fedbandit.types import Array

DIMS = [1, 2, 3, 4, 5, 6, 7, 8, 11, 25, 32]


def symmetric(rng: np.random.Generator, d: int) -> tuple[Array, Array]:
    """A random symmetric matrix, whole and packed."""
    A = rng.standard_normal((d, d))
    A = A + A.T
    P = np.full(packed_length(d), np.nan)
    pack(A, P)
    return A, P


@pytest.mark.parametrize("d", DIMS)
def test_packing_loses_nothing(d: int) -> None:
    A, P = symmetric(np.random.default_rng(d), d)
    assert np.array_equal(unpacked(P, d), A)
    add_to_diagonal(P, d, 2.0)
    assert np.array_equal(unpacked(P, d), A + 2 * np.eye(d))
    add_to_diagonal(P, d, -2.0)
    B = np.ones((d, d))
    add_unpacked(P, B)
    assert np.allclose(B, A + 1)
    if d >= 8:
        assert len(P) <= 0.75 * d * d


@pytest.mark.parametrize("d", DIMS)
def test_products(d: int) -> None:
    rng = np.random.default_rng(d)
    A, P = symmetric(rng, d)
    x, u = rng.standard_normal(d), np.full(d, np.nan)
    multiply_packed(P, x, u)
    np.testing.assert_allclose(u, A @ x, atol=1e-12 * d)
    assert square_packed(P, x) == pytest.approx(x @ A @ x, abs=1e-12 * d * d)


@pytest.mark.parametrize("n", [0, 1, 4, 7, 8])
@pytest.mark.parametrize("d", DIMS)
def test_sums_of_outer_products(d: int, n: int) -> None:
    rng = np.random.default_rng(d)
    A, P = symmetric(rng, d)
    X = rng.standard_normal((8, d))
    add_outers_packed(P, X, n)
    A = A + X[:n].T @ X[:n]
    np.testing.assert_allclose(unpacked(P, d), A, atol=1e-12)
    add_outer_packed(P, X[0], -0.5)
    np.testing.assert_allclose(unpacked(P, d), A - 0.5 * np.outer(X[0], X[0]), atol=1e-12)
