"""The arm that UCB pulls, against scores that are spelled out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbandit.engine.fast.choose import choose, scratch
from fedbandit.engine.fast.plan import plan_of
from fedbandit.engine.fast.row import NOISE, empty_rows, start_row
from fedbandit.model import TIE
from fedbandit.policies import UCB
from fedbandit.types import Array
from fedbandit.world import World

RIDGE = 0.2


def lengths(kind: str, rng: np.random.Generator, n: int) -> Array:
    """Norms of contexts; the last kind has some that differ by less than a tie."""
    if kind == "one":
        return np.ones(n)
    if kind == "any":
        return np.asarray(rng.random(n))
    return np.asarray(0.5 + rng.integers(-2, 3, size=n) * TIE / 20)


@given(
    st.sampled_from(["one", "any", "nearly one half"]),
    st.integers(1, 9),
    st.integers(1, 6),
    st.sampled_from([0.0, 0.7]),
    st.sampled_from([1.0, 1.5]),
    st.integers(0, 2**20),
)
def test_a_model_that_knows_nothing(kind: str, n: int, d: int, noise: float, bound: float, seed: int) -> None:
    """The lowest of the longest contexts, whether or not the first is as long as any may be."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((12, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    arms = rng.integers(0, 12, size=n)
    X *= lengths(kind, rng, 12)[:, None]
    row: Array = empty_rows(1, d)[0]
    start_row(row, d, RIDGE)
    row[NOISE] = noise
    world = World(n_clients=1, dim=d, horizon=10, bound=bound, noise=0.5)
    plan = plan_of(UCB(), world, RIDGE, np.zeros(2, dtype=np.uint64))
    work = scratch(n, d)
    chosen = choose(plan, row, 0, X, arms, work)

    norms = np.linalg.norm(X[arms], axis=1)
    alpha = 0.5 * np.sqrt(2 * np.log(1 / 0.1)) + np.sqrt(RIDGE)
    scores = alpha * norms / np.sqrt(RIDGE) + noise * norms / RIDGE
    assert chosen == np.flatnonzero(scores >= scores.max() - TIE)[0]
    assert work.best_u == pytest.approx(X[arms[chosen]] / RIDGE)
