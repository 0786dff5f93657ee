"""The papers' scales as printed, and what is true about them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedbandit.audit.likelihood import attack
from fedbandit.errors import FedbanditError
from fedbandit.privacy.mechanism import epsilon_of, gram_mechanism, reward_mechanism
from fedbandit.privacy.published import (
    fclub_depth,
    fclub_privatiser,
    feducb_depth,
    feducb_privatiser,
    l2_laplace_tree,
)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 100, 127, 128, 129, 1000])
def test_depths_are_those_of_the_papers(n: int) -> None:
    """1 + ⌈log₂ n⌉ and 1 + ⌈log₂(n + 1)⌉, never fewer than the nodes that an increment is in."""
    assert feducb_depth(n) == 1 + math.ceil(math.log2(n))
    assert fclub_depth(n) == 1 + math.ceil(math.log2(n + 1))
    assert n.bit_length() <= feducb_depth(n) <= fclub_depth(n)


def test_scales_are_those_of_the_papers() -> None:
    """FedUCB 16 m (L²+1)² log(2/δ)²/ε², FCLUB 64 ν log(2/δ)²/ε²."""
    feducb = feducb_privatiser(0.5, 0.1, 100, 3, context_bound=2.0)
    assert feducb.scale**2 == pytest.approx(16 * 8 * 25 * math.log(20) ** 2 / 0.25)
    fclub = fclub_privatiser(0.5, 0.1, 100, 3)
    assert fclub.scale**2 == pytest.approx(64 * 8 * math.log(20) ** 2 / 0.25)
    for mechanism in (feducb, fclub, l2_laplace_tree(0.5, 100, 3)):
        assert mechanism.basis == "as published"
        assert "as published" in mechanism.description


@pytest.mark.parametrize(
    ("epsilon", "delta", "times"), [(1.0, 1e-5, 13), (1.0, 0.1, 11), (0.1, 1e-5, 16), (10.0, 0.1, 4)]
)
def test_feducb_is_private_with_many_times_the_noise(epsilon: float, delta: float, times: int) -> None:
    """Than the same tree needs."""
    published = feducb_privatiser(epsilon, delta, 128, 3)
    proven = gram_mechanism(epsilon, delta, 128, 3, reward_weight=1.0, kind="tree")
    assert round(published.scale / proven.scale) == times
    assert epsilon_of(published) < epsilon / 10


def test_a_reward_bound_that_the_paper_does_not_know_is_seen() -> None:
    """FedUCB's scale has B = 1 built in: with B = 10 the true ε exceeds the claim."""
    assert epsilon_of(feducb_privatiser(1.0, 1e-5, 128, 3, reward_bound=10.0)) > 1.0


def test_l2_laplace_is_not_what_it_claims() -> None:
    """True ε = claim · √dim by the formula, and an attack on a single release sees it; gamma noise withstands."""
    dim = 25
    record, other = np.full(dim, dim**-0.5), np.zeros(dim)
    published = l2_laplace_tree(1.0, 1, dim)
    proven = reward_mechanism(1.0, 0.0, 1, dim, kind="tree")
    assert epsilon_of(published) == pytest.approx(5.0)
    assert epsilon_of(proven) == pytest.approx(1.0)
    found = attack(published, record, other, np.random.default_rng(0), trials=50_000)
    assert found.lower_bound > 1.5
    withstands = attack(proven, record, other, np.random.default_rng(0), trials=50_000)
    assert 0.1 < withstands.lower_bound < 1.0
    assert epsilon_of(l2_laplace_tree(1.0, 64, 250)) == pytest.approx(math.sqrt(250))


def test_bad_input() -> None:
    """One sentence each."""
    for make in (feducb_privatiser, fclub_privatiser):
        with pytest.raises(FedbanditError, match="epsilon is 0"):
            make(0.0, 0.1, 8, 2)
        with pytest.raises(FedbanditError, match="delta is 2"):
            make(1.0, 2.0, 8, 2)
        with pytest.raises(FedbanditError, match="n_max is 0"):
            make(1.0, 0.1, 0, 2)
        with pytest.raises(FedbanditError, match="dim is 0"):
            make(1.0, 0.1, 8, 0)
    with pytest.raises(FedbanditError, match="epsilon is -1"):
        l2_laplace_tree(-1.0, 8, 2)
    with pytest.raises(FedbanditError, match="sensitivity is 0"):
        l2_laplace_tree(1.0, 8, 2, sensitivity=0)
