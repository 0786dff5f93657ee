"""The inner loops of drawing, in NumPy: known answers and what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedbandit as fb
from fedbandit.environments.kernels import PLAIN, draw_distinct, expected_rewards, scale_rows, turn_rows, using
from fedbandit.types import Ints

# Of the version that drew with compiled loops only.
CLIENTS = [8, 4, 5, 6]
ARMS = [[15, 6, 5, 17], [8, 11, 3, 5], [1, 8, 9, 19], [9, 10, 4, 7]]
MEANS = [0.33805701666091625, 0.21278143206230618, -0.6846545287897301, 0.877382582045733]
FEDUCB = [0.6571611987186031, 0.7537500639460859]
FCLUB = [0.08827046956428208, -0.18016862377546825, -0.020278192514855842]


def textbook(words: list[int], size: int, n: int, k: int) -> list[list[int]]:
    """Partial Fisher–Yates shuffles of one list, with a 32-bit word for each draw."""
    order, chosen = list(range(size)), []
    for s in range(n):
        for a in range(k):
            j = a + (words[s * k + a] * (size - a) >> 32)
            order[a], order[j] = order[j], order[a]
        chosen.append(order[:k])
    return chosen


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 9), st.integers(0, 10**6))
def test_distinct_draws_are_partial_shuffles(k: int, more: int, n: int, seed: int) -> None:
    """The lower half of each 64-bit number first."""
    size = k + more - 1
    numbers = np.random.default_rng(seed).integers(0, 2**64, size=(n * k + 1) // 2, dtype=np.uint64).tolist()
    words = [word for number in numbers for word in (number % 2**32, number >> 32)]
    drawn = draw_distinct(np.random.default_rng(seed), size, n, k)
    assert drawn.tolist() == textbook(words, size, n, k)
    assert all(len(set(row)) == k for row in drawn.tolist())


def test_distinct_draws_are_uniform() -> None:
    """Every ordered pair of five numbers as often as any other: χ² within five standard deviations."""
    n = 20_000
    drawn = draw_distinct(np.random.default_rng(1), 5, n, 2)
    seen = np.bincount(drawn[:, 0] * 5 + drawn[:, 1], minlength=25).reshape(5, 5)
    assert seen.trace() == 0
    pairs = seen[~np.eye(5, dtype=bool)]
    assert ((pairs - n / 20) ** 2 / (n / 20)).sum() < 19 + 5 * (2 * 19) ** 0.5


def test_rows_get_their_lengths_and_keep_their_directions() -> None:
    """One length for all, or one for each."""
    x = np.random.default_rng(0).standard_normal((7, 3))
    for length in (1.0, np.arange(1.0, 8.0)):
        scaled = x.copy()
        scale_rows(scaled, length)
        np.testing.assert_allclose(np.linalg.norm(scaled, axis=1), length)
        np.testing.assert_allclose(np.cross(x, scaled), 0, atol=1e-12)


def test_rows_are_turned_to_their_means() -> None:
    """Of length one, with the mean asked for, in the plane of x and θ."""
    rng = np.random.default_rng(0)
    theta, x, means = np.array([0.6, 0.0, 0.8]), rng.standard_normal((9, 3)), rng.uniform(0.1, 0.9, 9)
    turned = x.copy()
    turn_rows(turned, means, theta)
    np.testing.assert_allclose(np.linalg.norm(turned, axis=1), 1)
    np.testing.assert_allclose(turned @ theta, means)
    np.testing.assert_allclose(np.einsum("ij,ij->i", np.cross(x, theta), turned), 0, atol=1e-12)


def test_expected_rewards() -> None:
    """θᵀx for each interaction and each of its arms."""
    rng = np.random.default_rng(0)
    x, arms, theta = rng.standard_normal((10, 4)), rng.integers(0, 10, (6, 3)), rng.standard_normal((6, 4))
    means = expected_rewards(x, arms, theta)
    np.testing.assert_allclose(means, [[theta[s] @ x[a] for a in row] for s, row in enumerate(arms)])


def test_kernels_are_used_until_the_end_of_the_with() -> None:
    """Also if it is left by an error."""
    asked = []

    def shuffle(below: Ints, size: int) -> Ints:
        asked.append(size)
        return below

    with pytest.raises(ZeroDivisionError), using(PLAIN._replace(shuffle_partially=shuffle)):
        _draw_and_fail(9)
    draw_distinct(np.random.default_rng(0), 8, 1, 2)
    assert asked == [9]


def _draw_and_fail(size: int) -> None:
    draw_distinct(np.random.default_rng(0), size, 1, 2)
    raise ZeroDivisionError


def test_the_numbers_of_a_seed() -> None:
    """As they have always been."""
    pooled = fb.environments.homogeneous(n_clients=9, dim=3, n_arms=4, pool=20).open(5).block(4094, 4098)
    assert pooled.clients.tolist() == CLIENTS
    assert pooled.arms.tolist() == ARMS
    np.testing.assert_allclose(pooled.means[0], MEANS, rtol=1e-12)
    feducb = fb.environments.feducb(n_clients=2, dim=2).open(5).block(0, 1)
    np.testing.assert_allclose(feducb.X[0], FEDUCB, rtol=1e-12)
    np.testing.assert_allclose(fb.environments.fclub().open(5).block(0, 1).X[0, :3], FCLUB, rtol=1e-12)
