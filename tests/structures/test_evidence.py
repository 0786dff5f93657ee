"""Evidence by updates against evidence by sums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbandit.structures.evidence import MOST_INFORMATION, Evidence, LowRankEvidence, evidence
from fedbandit.structures.homogeneity import Weighted


def observed(seed: int, counts: list[int], dim: int, sigma: float = 0.1) -> Weighted:
    """A_i and c_i of clients with so many observations each, of two parameters."""
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal((2, dim))
    A, c = np.zeros((len(counts), dim, dim)), np.zeros((len(counts), dim))
    for i, n in enumerate(counts):
        X = rng.standard_normal((n, dim)) / np.sqrt(dim)
        A[i], c[i] = X.T @ X / sigma**2, X.T @ (X @ theta[i % 2] + sigma * rng.standard_normal(n)) / sigma**2
    return Weighted(A, c)


@given(st.integers(0, 10_000), st.lists(st.integers(0, 6), min_size=4, max_size=9), st.integers(12, 20))
def test_updates_give_what_sums_give(seed: int, counts: list[int], dim: int) -> None:
    data = observed(seed, counts, dim)
    by_sums, by_updates = Evidence(data), evidence(data)
    assert isinstance(by_updates, LowRankEvidence)
    both, everyone = (by_sums, by_updates), np.arange(len(counts))
    np.testing.assert_allclose(by_updates.alone(), by_sums.alone(), rtol=1e-9, atol=1e-8)
    rng = np.random.default_rng(seed)
    for _ in range(4):
        k, j = rng.choice([k for k in everyone if by_sums.members[k]], 2, replace=False).tolist()
        gain = by_sums.together(k, np.array([j]))[0]
        for one in both:
            one.merge(k, j, gain)
        while True:
            i, here, there = rng.integers(0, len(counts), 3).tolist()
            if i in by_sums.members[here] and here != there:
                break
        for one in both:
            one.move(i, here, there)
        assert by_sums.members == by_updates.members
        for k in (k for k in everyone.tolist() if by_sums.members[k]):
            expected = by_sums.given(k, everyone)
            np.testing.assert_allclose(by_updates.given(k, everyone), expected, rtol=1e-8, atol=1e-7)
        if sum(bool(members) for members in by_sums.members) < 2:
            return


@pytest.mark.parametrize(("counts", "sigma"), [([3, 9, 1], 0.1), ([3, 2, 1], 0.1 / MOST_INFORMATION)])
def test_many_or_very_precise_observations_are_summed(counts: list[int], sigma: float) -> None:
    assert type(evidence(observed(0, counts, 12, sigma))) is Evidence
