"""The mechanism that a client runs: exact streams, a cap that holds, a state that keeps, claims that are tight."""

from __future__ import annotations

import io
import math
import timeit
from itertools import pairwise

import numpy as np
import pytest

from fedbandit.audit.likelihood import run_stream
from fedbandit.errors import FedbanditError
from fedbandit.privacy.calibration import gaussian_multiplier
from fedbandit.privacy.factorisation import decoder
from fedbandit.privacy.mechanism import (
    FactorisationKind,
    Mechanism,
    StreamState,
    distance,
    epsilon_of,
    gram_mechanism,
    noise_std,
    release,
    reward_mechanism,
    stack,
    start,
    unstack,
)
from fedbandit.privacy.noise import DRAW
from fedbandit.privacy.published import feducb_privatiser, l2_laplace_tree
from fedbandit.types import Array

STREAMS: tuple[FactorisationKind, ...] = ("blt", "tree", "independent")
N_MAX, DIM = 13, 3
MECHANISMS = [
    *(gram_mechanism(1.0, 1e-5, N_MAX, DIM, kind=kind) for kind in STREAMS),
    *(reward_mechanism(1.0, 1e-5, N_MAX, DIM, kind=kind) for kind in STREAMS),
    *(reward_mechanism(1.0, 0.0, N_MAX, DIM, kind=kind) for kind in STREAMS[1:]),
    feducb_privatiser(1.0, 1e-5, N_MAX, DIM),
    l2_laplace_tree(1.0, N_MAX, DIM),
]
each_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.description)


def some_increments(mechanism: Mechanism, seed: int = 0) -> Array:
    """Symmetric matrices or vectors."""
    x = np.random.default_rng(seed).standard_normal((mechanism.n_max, *mechanism.shape))
    return np.asarray(x + x.swapaxes(1, 2)) if mechanism.noise == "symmetric" else x


def run(
    mechanism: Mechanism, increments: Array, seed: int, state: StreamState | None = None
) -> tuple[Array, StreamState]:
    """All releases of one stream, and its last state."""
    rng = np.random.default_rng(seed)
    state = state or start(mechanism)
    releases = []
    for increment in increments:
        noisy, state = release(mechanism, state, increment, rng)
        releases.append(noisy)
    return np.stack(releases), state


@each_mechanism
def test_releases_are_the_explicit_product(mechanism: Mechanism) -> None:
    """A x + B z with the z that the same generator draws."""
    x = some_increments(mechanism)
    rng = np.random.default_rng(1)
    z = np.stack([mechanism.scale * DRAW[mechanism.noise](rng, mechanism.shape) for _ in x])
    releases, state = run(mechanism, x, seed=1)
    expected = np.cumsum(x, axis=0) + np.tensordot(decoder(mechanism.factorisation), z, axes=1)
    np.testing.assert_allclose(releases, expected, atol=1e-9)
    if mechanism.noise == "symmetric":
        np.testing.assert_array_equal(releases, releases.swapaxes(1, 2))
    assert state.spent == mechanism.n_max


@pytest.mark.parametrize("kind", STREAMS)
def test_no_noise_is_no_privacy(kind: FactorisationKind) -> None:
    """ε = ∞ returns the exact sums, to the bit, and says so."""
    silent = [
        gram_mechanism(math.inf, 1e-5, N_MAX, DIM, kind=kind),
        reward_mechanism(math.inf, 0.1, N_MAX, DIM, kind=kind),
    ]
    if kind == "tree":
        silent += [
            reward_mechanism(math.inf, 0.0, N_MAX, DIM, kind=kind),
            feducb_privatiser(math.inf, 0.1, N_MAX, DIM),
            l2_laplace_tree(math.inf, N_MAX, DIM),
        ]
    for mechanism in silent:
        x = some_increments(mechanism)
        np.testing.assert_array_equal(run(mechanism, x, seed=0)[0], np.cumsum(x, axis=0))
        assert mechanism.basis == "none"
        assert epsilon_of(mechanism) == math.inf


@each_mechanism
def test_the_cap_holds_and_the_state_survives(mechanism: Mechanism) -> None:
    """Release n_max + 1 is refused with a sentence; nothing is drawn and nothing changes."""
    x = some_increments(mechanism)
    _, state = run(mechanism, x, seed=0)
    before = [np.copy(part) for part in state]
    rng = np.random.default_rng(5)
    with pytest.raises(FedbanditError, match=f"All {N_MAX} releases of this stream are spent"):
        release(mechanism, state, x[0], rng)
    for old, new in zip(before, state, strict=True):
        np.testing.assert_array_equal(old, new)
    assert rng.random() == np.random.default_rng(5).random()


@each_mechanism
def test_a_saved_stream_goes_on_as_if_nothing_had_happened(mechanism: Mechanism) -> None:
    """Through an .npz file after any release."""
    x = some_increments(mechanism)
    whole, _ = run(mechanism, x, seed=3)
    rng = np.random.default_rng(3)
    state = start(mechanism)
    for k, increment in enumerate(x):
        file = io.BytesIO()
        np.savez(file, **state._asdict())
        file.seek(0)
        with np.load(file) as saved:
            state = StreamState(int(saved["spent"]), *(saved[key] for key in StreamState._fields[1:]))
        noisy, state = release(mechanism, state, increment, rng)
        np.testing.assert_array_equal(noisy, whole[k])


@each_mechanism
def test_a_retry_sends_the_same_numbers(mechanism: Mechanism) -> None:
    """What was released stays in the state, and cannot be overwritten by whoever was given it."""
    noisy, state = release(mechanism, start(mechanism), some_increments(mechanism)[0], np.random.default_rng(0))
    with pytest.raises(ValueError, match="read-only"):
        noisy += 1
    np.testing.assert_array_equal(state.noisy, noisy)


@each_mechanism
def test_noise_has_the_stated_size(mechanism: Mechanism) -> None:
    """`noise_std` at the first, a middle and the last release, over many streams side by side."""
    streams = 20_000
    releases = run_stream(mechanism, np.zeros((N_MAX, *mechanism.shape)), streams, np.random.default_rng(2))
    entry = releases[:, :, 0, 1] if mechanism.noise == "symmetric" else releases[:, :, 1]
    for k in (0, 6, N_MAX - 1):
        assert entry[k].std() == pytest.approx(noise_std(mechanism)[k], rel=0.05)


@pytest.mark.parametrize("mechanism", MECHANISMS[:8], ids=lambda mechanism: mechanism.description)
def test_the_claim_is_tight(mechanism: Mechanism) -> None:
    """The noise gives the ε that was asked for, no less and no more; earlier releases have spent less."""
    spent = [epsilon_of(mechanism, releases=k) for k in range(1, N_MAX + 1)]
    assert mechanism.basis == "proven"
    assert spent[-1] == pytest.approx(mechanism.epsilon, rel=1e-6)
    assert epsilon_of(mechanism) == spent[-1]
    assert all(earlier <= later for earlier, later in pairwise(spent))
    assert distance(mechanism, records=7) == pytest.approx(7 * distance(mechanism))
    assert epsilon_of(mechanism, records=2) >= 2 * epsilon_of(mechanism) * (1 - 1e-9)


def test_the_scale_is_the_one_of_the_proof() -> None:
    """m (L² + κ²B²) ‖C‖ for matrices, m L · range ‖C‖ for vectors, levels · L · range/ε for pure ε."""
    m = gaussian_multiplier(0.5, 1e-6)
    gram = gram_mechanism(0.5, 1e-6, 100, 4, context_bound=2.0, reward_bound=3.0, reward_weight=0.5, kind="tree")
    assert gram.scale == pytest.approx(m * (4 + 2.25) * math.sqrt(7))
    vector = reward_mechanism(0.5, 1e-6, 100, 4, context_bound=2.0, reward_range=3.0, kind="tree")
    assert vector.scale == pytest.approx(m * 6 * math.sqrt(7))
    pure = reward_mechanism(0.5, 0.0, 100, 4, context_bound=2.0, reward_range=3.0, kind="tree")
    assert pure.scale == pytest.approx(7 * 6 / 0.5)
    single = gram_mechanism(0.5, 1e-6, 1, 4, reward_weight=1.0)
    assert noise_std(single).tolist() == [pytest.approx(2 * m)]


def test_stack_and_unstack() -> None:
    """The sums of [x; κy][x; κy]ᵀ and what is taken from them."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 3)), rng.standard_normal(20)
    V, b = X.T @ X, X.T @ y
    A = np.column_stack((X, 0.5 * y))
    M = stack(V, b, 0.5)
    np.testing.assert_allclose(M[:-1], (A.T @ A)[:-1], atol=1e-12)
    np.testing.assert_array_equal(M, M.T)
    again = unstack(M, 0.5)
    np.testing.assert_array_equal(again[0], V)
    np.testing.assert_allclose(again[1], b, rtol=1e-15)


def test_a_blt_release_takes_less_than_a_millisecond() -> None:
    """At d = 25."""
    mechanism = gram_mechanism(1.0, 1e-5, 1024, 25)
    rng = np.random.default_rng(0)
    _, state = release(mechanism, start(mechanism), np.eye(26), rng)
    seconds = min(timeit.repeat(lambda: release(mechanism, state, np.eye(26), rng), number=20, repeat=10)) / 20
    assert seconds < 1e-3


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({"epsilon": 0.0}, "epsilon is 0.0, but must be a number > 0"),
        ({"epsilon": -1.0}, "epsilon is -1.0, but must be a number > 0"),
        ({"epsilon": math.nan}, "epsilon is nan, but must be a number > 0"),
        ({"delta": 1.0}, "delta is 1.0, but must be between 0 and 1"),
        ({"delta": -0.1}, "delta is -0.1, but must be"),
        ({"n_max": 0}, "n_max is 0, but must be a whole number ≥ 1"),
        ({"n_max": 2.5}, "n_max is 2.5, but must be a whole number ≥ 1"),
        ({"dim": 0}, "dim is 0, but must be a whole number ≥ 1"),
        ({"context_bound": math.inf}, "context_bound is inf, but must be a finite number > 0"),
        ({"kind": "bolt"}, "no mechanism for continual release 'bolt'; did you mean 'blt'?"),
    ],
)
def test_bad_parameters(keywords: dict[str, object], sentence: str) -> None:
    """One sentence that names the value."""
    for make in (gram_mechanism, reward_mechanism):
        arguments: dict[str, object] = {"epsilon": 1.0, "delta": 1e-5, "n_max": 4, "dim": 2}
        with pytest.raises(FedbanditError) as error:
            make(**{**arguments, **keywords})  # type: ignore[arg-type]
        assert sentence in str(error.value)


def test_bad_requests() -> None:
    """Pure ε by a BLT, δ = 0 for matrices, increments of another shape or not finite."""
    with pytest.raises(FedbanditError, match="use kind='tree'"):
        reward_mechanism(1.0, 0.0, 4, 2, kind="blt")
    with pytest.raises(FedbanditError, match=r"delta is 0\.0"):
        gram_mechanism(1.0, 0.0, 4, 2)
    mechanism = gram_mechanism(1.0, 1e-5, 4, 2)
    for increment in (np.zeros((2, 2)), np.full((3, 3), np.nan), np.full((3, 3), np.inf)):
        with pytest.raises(FedbanditError, match="this stream takes finite numbers of shape"):
            release(mechanism, start(mechanism), increment, np.random.default_rng(0))
