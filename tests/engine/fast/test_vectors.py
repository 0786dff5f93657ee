"""Vectors of four: compiled and plain, the same operations in the same order, but for what FMA leaves unrounded."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from fedbandit.engine.fast.algebra import largest
from fedbandit.engine.fast.jit import compiled
from fedbandit.engine.fast.vectors import load, matrix_at, store, total, zeros
from fedbandit.types import Array


@compiled
def scale_and_add(x: Array, y: Array, out: Array, factor: float) -> float:
    """Out = factor · x + x y, four entries in the middle; their total."""
    four = zeros() + (load(x, 1) * factor + load(x, 1) * load(y, 2))
    store(out, 3, four)
    return total(four)


def test_four_numbers_are_computed_as_numpy_does() -> None:
    x, y = np.random.default_rng(0).standard_normal((2, 9))
    out = np.zeros(9)
    expected = x[1:5] * 0.3 + x[1:5] * y[2:6]
    sum_of_four = scale_and_add(x, y, out, 0.3)
    np.testing.assert_allclose(out, [0, 0, 0, *expected, 0, 0], rtol=1e-14, atol=1e-15)
    assert sum_of_four == (out[3] + out[5]) + (out[4] + out[6])


@pytest.mark.parametrize("n", [1, 3, 4, 5, 7, 8, 13])
def test_the_largest(n: int) -> None:
    """Of the first n, wherever it is."""
    for place in range(n):
        values = -1.0 - np.random.default_rng(n).random(n + 4)
        values[place], values[n] = -0.5, 1.0
        assert largest(values, n) == -0.5


def test_a_matrix_is_a_view() -> None:
    @compiled
    def write(vector: Array) -> Array:
        matrix = matrix_at(vector, 2, 2, 3)
        matrix[1, 2] = 7.0
        return matrix

    vector = np.arange(9.0)
    matrix = write(vector)
    assert vector[7] == 7.0
    np.testing.assert_array_equal(matrix, vector[2:8].reshape(2, 3))
    assert np.shares_memory(matrix, vector)


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="plain arrays may have gaps")
def test_vectors_with_gaps_are_refused() -> None:
    x = np.arange(20.0)
    with pytest.raises(numba.TypingError, match="contiguous"):
        scale_and_add(x[::2], x, x, 1.0)
