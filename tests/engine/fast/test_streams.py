"""The compiled numbers are those of the plain streams."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbandit.engine.fast import rewards as fast_rewards
from fedbandit.engine.fast import streams as fast
from fedbandit.rewards import RewardRule, learnt, reward_plan
from fedbandit.streams import Draw, philox

WORD = st.integers(0, 2**32 - 1)
KEY = st.tuples(WORD, WORD).map(lambda words: np.array(words, dtype=np.uint64))


@given(KEY, WORD, st.integers(0, 2**62), WORD)
def test_words(key: np.ndarray[tuple[int], np.dtype[np.uint64]], client: int, step: int, draw: int) -> None:
    """At any counter."""
    assert tuple(int(word) for word in fast.philox(key, client, step, draw)) == philox(key, client, step, draw)


@given(KEY, WORD, st.integers(0, 2**62), st.integers(1, 10**6), st.integers(0, 30))
def test_indices_and_normals(
    key: np.ndarray[tuple[int], np.dtype[np.uint64]], client: int, step: int, count: int, n: int
) -> None:
    """`uniform_index` and `normal`, each of which begins with block 0."""
    assert fast.uniform_index(key, client, step, count) == Draw(key, client, step).index(count)
    out = np.empty(n)
    fast.normal(key, client, step, out)
    np.testing.assert_allclose(out, Draw(key, client, step).normal(n), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("rule", [RewardRule(), RewardRule(0.0, 1.0, True, 2.0), RewardRule(0.0, 1.0, False, 0.0)])
def test_learnt(rule: RewardRule) -> None:
    """Clipped, refused and noised alike, and counted alike."""
    plain, compiled = reward_plan(rule, 3), reward_plan(rule, 3)
    for step, y in enumerate((-1.0, 0.0, 0.3, 1.0, 7.5)):
        got, expected = fast_rewards.learnt(compiled, y, 4, step), learnt(plain, y, 4, step)
        assert got == pytest.approx(expected, rel=1e-14) or (math.isnan(got) and math.isnan(expected))
    assert plain.clipped[0] == compiled.clipped[0]
