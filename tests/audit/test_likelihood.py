"""The audit kernel passes the right mechanisms and fails every planted fault."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import stats

from fedbandit.audit.likelihood import (
    Sampler,
    attack,
    clopper_pearson,
    counting_bound,
    gaussian_bound,
    noise_matrix,
    released_distance,
    run_stream,
    scale_interval,
    whiten,
)
from fedbandit.errors import FedbanditError
from fedbandit.privacy.calibration import gaussian_epsilon
from fedbandit.privacy.factorisation import Factorisation, decoder
from fedbandit.privacy.mechanism import (
    FactorisationKind,
    Mechanism,
    distance,
    epsilon_of,
    gram_mechanism,
    release,
    reward_mechanism,
    start,
)
from fedbandit.privacy.noise import DRAW, ENERGY, Size, Source, gram_neighbours
from fedbandit.privacy.published import feducb_privatiser, l2_laplace_tree
from fedbandit.privacy.tree import Tree
from fedbandit.types import Array

EPSILON, DELTA, KAPPA = 1.0, 1e-5, 0.5
RECORD, OTHER = gram_neighbours(1.0, 1.0, KAPPA, dim=2)
DIFFERENCE = RECORD - OTHER


def right(kind: FactorisationKind, n_max: int = 4) -> Mechanism:
    """What the faults below are compared with."""
    return gram_mechanism(EPSILON, DELTA, n_max, 2, kind=kind, reward_weight=KAPPA)


def exact_epsilon(mechanism: Mechanism) -> float:
    """The ε that the code gives."""
    return gaussian_epsilon(released_distance(mechanism, [DIFFERENCE]), DELTA)


def running(mechanism: Mechanism) -> Sampler:
    """The code of another mechanism, to be attacked as if it were the right one."""
    return lambda increments, streams, rng: run_stream(mechanism, increments, streams, rng)


def twice(mechanism: Mechanism) -> Sampler:
    """A client that draws fresh noise when it repeats the first upload; the attacker sees the mean of both."""

    def sample(increments: Array, streams: int, rng: np.random.Generator) -> Array:
        both = [
            release(mechanism, start(mechanism, (streams,)), np.broadcast_to(x, (streams, *x.shape)), rng)[0]
            for x in (increments[0], increments[0])
        ]
        return np.asarray(sum(both) / 2)[None]

    return sample


@dataclass(frozen=True)
class ForgetfulTree(Tree):
    """A tree that draws the noise of all its nodes anew at each release."""

    def step(self, memory: Array, k: int, z: Array) -> tuple[Array, Array]:
        """Only the last draw is kept, as if it were the noise of the whole sum."""
        return z * math.sqrt(k.bit_count()), memory


@pytest.mark.parametrize("kind", ["blt", "tree", "independent"])
def test_the_right_mechanisms_are_exact(kind: FactorisationKind) -> None:
    """The code's own matrix has the claimed ε: attained by the worst pair, exceeded by no other."""
    mechanism = right(kind, n_max=11)
    assert exact_epsilon(mechanism) == pytest.approx(EPSILON, rel=1e-6)
    vector = reward_mechanism(EPSILON, DELTA, 11, 1, kind=kind)
    np.testing.assert_allclose(noise_matrix(vector, 11), vector.scale * decoder(vector.factorisation), atol=1e-9)
    assert released_distance(vector, [np.ones(1)]) == pytest.approx(distance(vector))
    rng = np.random.default_rng(0)
    differences = []
    for _ in range(50):
        x, y = rng.standard_normal((2, 2)), rng.choice([-1.0, 1.0], 2)
        a, b = np.column_stack((x / np.linalg.norm(x, axis=1, keepdims=True), KAPPA * y))
        differences.append(np.outer(a, a) - np.outer(b, b))
    assert released_distance(mechanism, differences) <= distance(mechanism) * (1 + 1e-9)


@pytest.mark.parametrize("kind", ["blt", "tree"])
def test_the_right_mechanisms_withstand_the_attack(kind: FactorisationKind) -> None:
    """And the attack is nearly as good as any: it finds 90 % of ε."""
    found = attack(right(kind), RECORD, OTHER, np.random.default_rng(0))
    assert 0.9 * EPSILON < found.lower_bound <= EPSILON
    assert (found.delta, found.confidence, found.trials) == (DELTA, 0.99, 200_000)


FAULTS = {
    "sensitivity without its √2": ("blt", math.sqrt(0.5)),
    "noise 10 % low": ("blt", 0.9),
    "one tree level too few": ("tree", math.sqrt(2 / 3)),  # n_max = 4 has 3 levels
}


@pytest.mark.parametrize("fault", FAULTS)
def test_wrong_scales_fail(fault: str) -> None:
    """Each by the exact check, by the attack, and by the test of the scale."""
    kind, factor = FAULTS[fault]
    claimed = right(kind)  # type: ignore[arg-type]
    faulty = replace(claimed, scale=factor * claimed.scale)
    assert exact_epsilon(faulty) > 1.1 * EPSILON
    found = attack(claimed, RECORD, OTHER, np.random.default_rng(1), sample=running(faulty), trials=400_000)
    assert found.lower_bound > EPSILON
    zeros = np.zeros((4, 3, 3))
    z = whiten(claimed, zeros, run_stream(faulty, zeros, 2_000, np.random.default_rng(2)))
    low, high = scale_interval(claimed, z)
    assert low < factor < high < 1


def test_one_level_too_few_at_many_releases() -> None:
    """At 128 releases the missing level is 7 % of the scale: the exact check sees it."""
    claimed = reward_mechanism(EPSILON, DELTA, 128, 1, kind="tree")
    faulty = replace(claimed, scale=claimed.scale * math.sqrt(7 / 8))
    for mechanism, factor in ((claimed, 1.0), (faulty, 8 / 7)):
        found = released_distance(mechanism, [np.ones(1)])
        assert found == pytest.approx(distance(claimed) * math.sqrt(factor), rel=1e-9)
        assert (gaussian_epsilon(found, DELTA) > 1.05 * EPSILON) == (mechanism is faulty)


def test_fresh_noise_on_retry_fails() -> None:
    """Two draws for the same data are worth √2 of the noise; sending the same numbers again is worth nothing."""
    claimed = right("blt", n_max=1)
    found = attack(claimed, RECORD, OTHER, np.random.default_rng(3), sample=twice(claimed))
    assert found.lower_bound > 1.2 * EPSILON
    honest = attack(claimed, RECORD, OTHER, np.random.default_rng(3))
    assert honest.lower_bound <= EPSILON


def test_a_forgetful_tree_fails() -> None:
    """Every release alone has the right variance, but nodes drawn anew leak: the exact check sees all releases."""
    claimed = reward_mechanism(EPSILON, DELTA, 15, 1, kind="tree")
    forgetful: Factorisation = ForgetfulTree(15)
    faulty = replace(claimed, factorisation=forgetful)
    np.testing.assert_allclose(
        np.linalg.norm(noise_matrix(faulty, 15), axis=1), np.linalg.norm(noise_matrix(claimed, 15), axis=1)
    )
    assert gaussian_epsilon(released_distance(faulty, [np.ones(1)]), DELTA) > 1.2 * EPSILON


@pytest.mark.parametrize("slip", ["(N + Nᵀ)/2", "one variance for the whole triangle"])
def test_noise_of_the_wrong_shape_fails(slip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exact check runs the code that draws, so it sees what the scale alone does not show."""

    def draw(source: Source, size: Size) -> Array:
        N = source.standard_normal(size)
        if slip == "(N + Nᵀ)/2":
            return np.asarray((N + N.swapaxes(-1, -2)) / 2)
        return np.asarray(np.triu(N) + np.triu(N, 1).swapaxes(-1, -2))

    monkeypatch.setitem(DRAW, "symmetric", draw)
    assert exact_epsilon(right("blt")) > 1.1 * EPSILON


@pytest.mark.parametrize(
    "mechanism",
    [
        right("blt", 8),
        right("tree", 8),
        feducb_privatiser(EPSILON, DELTA, 8, 2),
        reward_mechanism(EPSILON, DELTA, 8, 3),
        reward_mechanism(EPSILON, 0.0, 8, 3, kind="tree"),
        l2_laplace_tree(EPSILON, 8, 3),
    ],
    ids=lambda mechanism: mechanism.description,
)
def test_the_scale_is_accepted_and_ten_per_cent_is_not(mechanism: Mechanism) -> None:
    """From 4,000 streams, whatever the data; both ways."""
    increments = np.random.default_rng(1).standard_normal((8, *mechanism.shape))
    for factor in (0.9, 1.0, 1.1):
        other = replace(mechanism, scale=factor * mechanism.scale)
        releases = run_stream(other, increments, 4_000, np.random.default_rng(6))
        low, high = scale_interval(mechanism, whiten(mechanism, increments, releases), confidence=0.999)
        assert low < factor < high
        assert (low <= 1 <= high) == (factor == 1.0)


def test_pure_mechanisms() -> None:
    """By counting alone: gamma noise withstands (nearly tight in one dimension), ℓ2-Laplace does not, nor low noise."""
    for dim, at_least in ((1, 0.85), (5, 0.4)):
        record = np.full(dim, dim**-0.5)
        gamma = reward_mechanism(EPSILON, 0.0, 1, dim, kind="tree")
        found = attack(gamma, record, -0 * record, np.random.default_rng(7))
        assert at_least < found.lower_bound <= EPSILON
    low = replace(reward_mechanism(EPSILON, 0.0, 1, 1, kind="tree"), scale=0.8)
    found = attack(low, np.ones(1), np.zeros(1), np.random.default_rng(7))
    assert EPSILON < found.lower_bound <= 1.25
    tree = reward_mechanism(EPSILON, 0.0, 4, 5, kind="tree")
    record = np.full(5, 5**-0.5)
    assert attack(tree, record, 0 * record, np.random.default_rng(8)).lower_bound <= EPSILON
    laplace = l2_laplace_tree(EPSILON, 4, 5)
    assert EPSILON < attack(laplace, record, 0 * record, np.random.default_rng(8)).lower_bound <= epsilon_of(laplace)


def test_the_last_bits_of_simulated_noise_leak() -> None:
    """Why NumPy's noise is labelled "simulation": an attack on rounding errors finds more than ε."""
    mechanism = replace(reward_mechanism(1.0, 0.0, 1, 1, kind="tree"), scale=0.8)  # ε = 1.25
    rng = np.random.default_rng(7)
    known, worlds = np.ones((1, 1)), (np.ones((1, 1)), np.zeros((1, 1)))
    scores = []
    for world in worlds:
        z = whiten(mechanism, known, run_stream(mechanism, world, 200_000, rng))
        scores.append((ENERGY["gamma"](z) - ENERGY["gamma"](z + 1.25)).sum(axis=0))
    assert counting_bound(scores[0], scores[1], 0.0) > 1.3
    assert 1.15 < counting_bound(np.round(scores[0], 9), np.round(scores[1], 9), 0.0) <= 1.25


def test_bounds_are_sound() -> None:
    """Over many audits with few samples, a true claim is refused less often than one in a hundred."""
    rng = np.random.default_rng(9)
    d = 1.0
    truth = gaussian_epsilon(d, 0.1)
    refused = {"gaussian": 0, "counting": 0}
    for _ in range(400):
        null, alternative = rng.standard_normal(500), rng.standard_normal(500) + d
        refused["gaussian"] += gaussian_bound(null, alternative, 0.1) > truth
        refused["counting"] += counting_bound(null, alternative, 0.1) > truth
    assert max(refused.values()) <= 8  # 4 expected at most; 9 have a probability of 2 %
    far = gaussian_bound(rng.standard_normal(100_000), rng.standard_normal(100_000) + d, 0.1)
    counted = counting_bound(rng.standard_normal(100_000), rng.standard_normal(100_000) + d, 0.1)
    assert 0.9 * truth < counted < truth
    assert 0.95 * truth < far < truth


def test_identical_worlds_tell_nothing() -> None:
    """ε ≥ 0 is all that can be said."""
    mechanism = right("blt", n_max=1)
    assert attack(mechanism, RECORD, RECORD + 0.0, np.random.default_rng(0), trials=2_000).lower_bound == 0.0


@pytest.mark.parametrize("hits", [0, 1, 7, 49, 50])
def test_clopper_pearson(hits: int) -> None:
    """As SciPy has it."""
    low, high = clopper_pearson(np.array(hits), 50, 0.99)
    theirs = stats.binomtest(hits, 50).proportion_ci(0.99, "exact")
    assert [float(low), float(high)] == pytest.approx([theirs.low, theirs.high])


def test_nothing_to_attack() -> None:
    """Without noise there is no question."""
    with pytest.raises(FedbanditError, match="nothing to attack"):
        attack(gram_mechanism(math.inf, 0.1, 4, 2), RECORD, OTHER, np.random.default_rng(0))
