"""The kernels of `fedbandit.engine.fast.statistics` against plain NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbandit.engine.fast import algebra, inversion, memory
from fedbandit.engine.fast import row as fast_row
from fedbandit.engine.fast import statistics as stats
from fedbandit.engine.fast.jit import compiled
from fedbandit.engine.fast.packed import multiply_packed, pack, packed_length, unpacked
from fedbandit.engine.fast.row import (
    BASE_LOGDET,
    LOGDET,
    LONGEST,
    N_LISTED,
    N_OWN,
    N_PENDING,
    SHORTEST,
    SPECTRAL,
    UNREFRESHED,
    N,
)
from fedbandit.engine.fast.row_model import pending_sums, shared_sums
from fedbandit.engine.fast.statistics import FEW, REFRESH_EVERY
from fedbandit.types import Array

DIMS = (1, 2, 3, 4, 5, 8, 13, 25)
RIDGE = 0.1


def new_row(d: int, ridge: float = RIDGE) -> Array:
    """The model of no observations, in memory that is not at the start of its block."""
    row: Array = fast_row.empty_rows(2, d)[1]
    fast_row.start_row(row, d, ridge)
    return row


def observe(row: Array, x: Array, y: float, ridge: float = RIDGE) -> None:
    """One observation."""
    u = np.zeros(x.size)
    multiply_packed(fast_row.inverse_of(row, x.size), x, u)
    stats.observe(row, x, y, u, ridge, stats.scratch_matrix(x.size))


def invert(A: Array) -> tuple[Array, float]:
    """A⁻¹ and log det A."""
    d = len(A)
    P = np.zeros(packed_length(d))
    pack(A, P)
    logdet = inversion.sweep(P, np.zeros((8, d)), False)
    return unpacked(P, d), logdet


def gram(X: Array) -> Array:
    """Σ x xᵀ."""
    return np.asarray(X.T @ X)


def rank_deficient(rng: np.random.Generator, n: int, d: int) -> Array:
    """n contexts in a subspace of half the dimensions."""
    return np.asarray(rng.standard_normal((n, (d + 1) // 2)) @ rng.standard_normal(((d + 1) // 2, d)) / d)


def nearly_parallel(rng: np.random.Generator, n: int, d: int) -> Array:
    """n contexts of about unit norm that differ by a thousandth."""
    return np.asarray((1 + 1e-3 * rng.standard_normal((n, d))) / math.sqrt(d))


def check_row(row: Array, V: Array, b: Array, *, n: int, n_own: int, pending: Array, ridge: float = RIDGE) -> None:
    """Everything a row says about itself follows from V, b and the pending contexts."""
    d = b.size
    A = V + ridge * np.eye(d)
    inverse = np.linalg.inv(A)
    np.testing.assert_allclose(unpacked(fast_row.inverse_of(row, d), d), inverse, atol=1e-10 / ridge)
    np.testing.assert_allclose(fast_row.base_b_of(row, d) + fast_row.pending_b_of(row, d), b, atol=1e-10)
    np.testing.assert_allclose(fast_row.theta_of(row, d), inverse @ b, atol=1e-9)
    np.testing.assert_allclose(row[LOGDET], np.linalg.slogdet(A)[1] - d * math.log(ridge), atol=1e-9)
    base = V - gram(pending)
    np.testing.assert_allclose(unpacked(fast_row.base_of(row, d), d), base, atol=1e-10)
    of_base = np.linalg.slogdet(base + ridge * np.eye(d))[1] - d * math.log(ridge)
    np.testing.assert_allclose(row[BASE_LOGDET], of_base, atol=1e-9)
    assert row[SPECTRAL] >= np.linalg.eigvalsh(inverse)[-1] * (1 - 1e-12)
    assert (row[N], row[N_OWN], row[N_PENDING]) == (n, n_own, len(pending))
    assert row[N_LISTED] <= min(fast_row.list_length(d), len(pending))
    sums = pending_sums(row, d)
    np.testing.assert_allclose(sums.V, gram(pending), atol=1e-10)
    assert sums.n == len(pending)


# ------------------------------------------------------------------------------------------------------ small kernels


@pytest.mark.parametrize("d", DIMS)
def test_copy_and_add(d: int) -> None:
    """Vectors."""
    x, y = np.random.default_rng(d).standard_normal((2, d))
    target = y.copy()
    algebra.add(x, target)
    np.testing.assert_array_equal(target, x + y)
    algebra.copy(x, target)
    np.testing.assert_array_equal(target, x)


@pytest.mark.parametrize("d", [0, *DIMS])
def test_dot(d: int) -> None:
    """Every remainder of the unrolled loop."""
    x, y = np.random.default_rng(d).standard_normal((2, d))
    assert algebra.dot(x, y) == pytest.approx(float(x @ y), abs=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 6, 7, 8, 9])
@pytest.mark.parametrize("d", DIMS)
def test_dot_each(d: int, k: int) -> None:
    """Arms are rows of X in any order, some twice; nothing is written beyond the last."""
    rng = np.random.default_rng(d)
    X, theta = rng.standard_normal((6, d)), rng.standard_normal(d)
    arms = rng.integers(0, 6, size=k)
    out = np.full(k + 1, 7.0)
    algebra.dot_each(theta, X, arms, out)
    np.testing.assert_allclose(out[:k], X[arms] @ theta, atol=1e-12)
    assert out[k] == 7.0


@pytest.mark.parametrize("d", DIMS)
def test_add_outer(d: int) -> None:
    """A += scale · x xᵀ."""
    rng = np.random.default_rng(d)
    A, x = rng.standard_normal((d, d)), rng.standard_normal(d)
    expected = A - 0.3 * np.outer(x, x)
    algebra.add_outer(A, x, -0.3)
    np.testing.assert_allclose(A, expected, atol=1e-14)


@pytest.mark.parametrize("ridge", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("d", DIMS)
def test_invert(d: int, ridge: float) -> None:
    """Full rank, no rank and half rank, apart from the ridge."""
    rng = np.random.default_rng(d)
    for X in (rng.standard_normal((3 * d, d)), np.zeros((1, d)), rank_deficient(rng, 50, d)):
        A = gram(X) + ridge * np.eye(d)
        inverse, logdet = invert(A)
        expected = np.linalg.inv(A)
        np.testing.assert_allclose(inverse, expected, rtol=0, atol=1e-10 * np.abs(expected).max())
        np.testing.assert_allclose(inverse, inverse.T, rtol=0, atol=1e-10 * np.abs(expected).max())
        assert logdet == pytest.approx(np.linalg.slogdet(A)[1], abs=1e-9)


@pytest.mark.parametrize("scale", [1e-20, 1e-4, 1e4, 1e20, 1e60])
@pytest.mark.parametrize("d", [6, 11, 100, 203])
def test_invert_where_the_determinant_is_beyond_all_numbers(d: int, scale: float) -> None:
    """Its logarithm is not."""
    A = scale * (gram(np.random.default_rng(d).standard_normal((2 * d, d))) / d + np.eye(d))
    inverse, logdet = invert(A)
    np.testing.assert_allclose(inverse @ A, np.eye(d), atol=1e-10)
    assert logdet == pytest.approx(np.linalg.slogdet(A)[1], rel=1e-12)


@pytest.mark.parametrize("times", [1, 100, 10_000])
@pytest.mark.parametrize("d", [2, 3, 5, 10, 25])
def test_invert_of_nearly_parallel_contexts(d: int, times: int) -> None:
    """What a learner that has settled on an arm sees: the error is that of one condition number, not of two."""
    A = times * gram(nearly_parallel(np.random.default_rng(d), 100, d)) + RIDGE * np.eye(d)
    inverse, logdet = invert(A)
    expected = np.linalg.inv(A)
    allowed = 1e-15 * d * np.linalg.cond(A)
    assert np.abs(inverse - expected).max() < allowed * np.abs(expected).max()
    assert logdet == pytest.approx(np.linalg.slogdet(A)[1], abs=allowed + 1e-12)


@given(st.integers(1, 12), st.integers(0, 30), st.integers(0, 2**20), st.sampled_from([1e-4, 0.1, 10.0]))
def test_invert_of_anything(d: int, n: int, seed: int, ridge: float) -> None:
    """As near to NumPy's as the condition of A allows."""
    A = gram(np.random.default_rng(seed).standard_normal((n, d))) + ridge * np.eye(d)
    inverse, logdet = invert(A)
    expected = np.linalg.inv(A)
    allowed = 1e-15 * (d + 4) * np.linalg.cond(A)
    assert np.abs(inverse - expected).max() <= allowed * np.abs(expected).max()
    assert logdet == pytest.approx(np.linalg.slogdet(A)[1], abs=allowed + 1e-12)


@pytest.mark.parametrize("d", DIMS)
def test_spectral_bound(d: int) -> None:
    """At least the largest eigenvalue, and at most MORE times that; of matrices of any size."""
    rng = np.random.default_rng(d)
    axis = np.zeros((1, d))
    axis[0, -1] = 3.0
    some = rng.standard_normal((3 * d, d))
    for X in (some, rank_deficient(rng, 20, d), axis, np.eye(d), 1e-30 * some, 1e30 * some, np.zeros((1, d))):
        A = gram(X)
        largest = np.linalg.eigvalsh(A)[-1]
        P = np.zeros(packed_length(d))
        pack(A, P)
        bound = inversion.spectral_bound(P, d, stats.scratch_matrix(d))
        assert largest * (1 - 1e-12) <= bound <= largest * inversion.MORE * (1 + 1e-8)


# --------------------------------------------------------------------------------------------------------------- rows


def test_size_of_a_row() -> None:
    """About 1½d² + O(d) numbers a client."""
    for d in DIMS:
        assert fast_row.empty_rows(1, d).size < 1.5 * d * d + 33 * d + 16 + 4 * fast_row.LINE


@pytest.mark.parametrize("d", DIMS)
def test_start_row(d: int) -> None:
    """No observations."""
    none = np.zeros((0, d))
    check_row(new_row(d, 2.0), gram(none), np.zeros(d), n=0, n_own=0, pending=none, ridge=2.0)


@pytest.mark.parametrize("d", DIMS)
def test_views_do_not_overlap(d: int) -> None:
    """The parts of a row fill it, but for what makes matrices begin with a line of the cache, and do not overlap."""
    row: Array = fast_row.empty_rows(1, d)[0]
    parts = (
        fast_row.theta_of,
        fast_row.base_b_of,
        fast_row.pending_b_of,
        fast_row.listed_of,
        fast_row.inverse_of,
        fast_row.folded_of,
        fast_row.base_of,
    )
    for part in parts:
        part(row, d)[:] += 1.0
    for start in (fast_row.inverse_at, fast_row.base_at, fast_row.folded_at):
        assert start(d) % fast_row.LINE == 0
    assert (row[: fast_row.HEAD] == 0).all()
    assert (row[fast_row.HEAD :] <= 1).all()
    assert (row[fast_row.HEAD :] == 0).sum() < 4 * fast_row.LINE
    assert row.size % fast_row.LINE == 0


@pytest.mark.parametrize("deficient", [False, True])
@pytest.mark.parametrize("d", DIMS)
def test_observe(d: int, deficient: bool) -> None:
    """After each of many observations, across foldings of the list and a refresh."""
    rng = np.random.default_rng(d)
    n = REFRESH_EVERY + 20
    X = rank_deficient(rng, n, d) if deficient else rng.standard_normal((n, d)) / math.sqrt(d)
    Y = rng.standard_normal(n)
    row = new_row(d)
    for k in range(n):
        observe(row, X[k], Y[k])
        if k < 3 * LONGEST + 2 or k > n - 30:
            seen = X[: k + 1]
            check_row(row, gram(seen), seen.T @ Y[: k + 1], n=k + 1, n_own=k + 1, pending=seen)
    assert row[UNREFRESHED] == n - REFRESH_EVERY
    np.testing.assert_allclose(fast_row.pending_b_of(row, d), X.T @ Y, atol=1e-10)


@pytest.mark.parametrize("d", DIMS)
def test_absorb(d: int) -> None:
    """A coordinator's row takes observations one by one; none of them is pending."""
    rng = np.random.default_rng(d)
    X, Y = rng.standard_normal((30, d)), rng.standard_normal(30)
    row = new_row(d)
    for k in range(30):
        stats.absorb(row, X[k], Y[k], np.zeros(d))
        row[BASE_LOGDET] = row[LOGDET]  # which a coordinator's row does not keep
        seen = X[: k + 1]
        check_row(row, gram(seen), seen.T @ Y[: k + 1], n=k + 1, n_own=0, pending=X[:0])
    assert row[UNREFRESHED] == 30


def test_observing_nothing_changes_only_counts() -> None:
    """A zero context."""
    row = new_row(3)
    observe(row, np.array([0.5, 0.1, 0.0]), 1.0)
    before = row.copy()
    observe(row, np.zeros(3), 5.0)
    for part in (fast_row.theta_of, fast_row.pending_b_of, fast_row.inverse_of, fast_row.base_of):
        np.testing.assert_array_equal(part(row, 3), part(before, 3))
    assert row[LOGDET] == before[LOGDET]
    assert (row[N], row[N_PENDING]) == (2, 2)


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 16, 17, 23, 24, 25, 43, 48, 49, 123])
def test_pending_is_kept_twice_over(n: int) -> None:
    """What was folded before an upload does not come back after it."""
    d, rng = 5, np.random.default_rng(n)
    row = new_row(d)
    for _ in range(2):
        X = rng.standard_normal((n, d))
        for x in X:
            stats.keep_pending(row, d, x)
        assert row[N_PENDING] == n
        V = np.ones((d, d))
        stats.add_pending_unpacked(row, d, V)
        np.testing.assert_allclose(V, 1 + gram(X), atol=1e-12)
        P = np.zeros(packed_length(d))
        stats.add_pending(row, d, P)
        np.testing.assert_allclose(unpacked(P, d), gram(X), atol=1e-12)
        k = int(row[N_LISTED])
        np.testing.assert_array_equal(fast_row.listed_of(row, d)[:k], X[n - k :])
        row[N_PENDING] = row[N_LISTED] = 0


@pytest.mark.parametrize("n", [0, 1, SHORTEST, SHORTEST + 1, LONGEST, LONGEST + 1, 40])
@pytest.mark.parametrize("d", [1, 4, 7])
def test_mark_sent(d: int, n: int) -> None:
    """What was pending is shared; the model is the same."""
    rng = np.random.default_rng(n)
    X, Y = rng.standard_normal((n, d)), rng.standard_normal(n)
    row = new_row(d)
    for x, y in zip(X, Y, strict=True):
        observe(row, x, y)
    stats.mark_sent(row, d)
    none = np.zeros((0, d))
    check_row(row, gram(X), X.T @ Y, n=n, n_own=n, pending=none)
    np.testing.assert_array_equal(fast_row.pending_b_of(row, d), np.zeros(d))
    shared = shared_sums(row, d)
    np.testing.assert_allclose(shared.V, gram(X), atol=1e-12)
    np.testing.assert_allclose(shared.b, X.T @ Y, atol=1e-12)
    assert shared.n == n

    more, reward = rng.standard_normal(d), 2.0
    observe(row, more, reward)
    check_row(row, gram(X) + np.outer(more, more), X.T @ Y + 2 * more, n=n + 1, n_own=n + 1, pending=more[None])


@pytest.mark.parametrize("given_n", [0, 3, 300])
@pytest.mark.parametrize("pending_n", [0, 1, 3, 5, 6, SHORTEST, FEW, FEW + 1, LONGEST, LONGEST + 1, 3 * LONGEST])
@pytest.mark.parametrize("d", [1, 4, 7, 25])
def test_adopt(d: int, pending_n: int, given_n: int) -> None:
    """The base is replaced and pending is put back on top, whether it is listed or folded."""
    rng = np.random.default_rng(pending_n + 100 * given_n)
    row = new_row(d)
    sent = rng.standard_normal((5, d))
    for x in sent:
        observe(row, x, 1.0)
    stats.mark_sent(row, d)
    X, Y = rng.standard_normal((pending_n, d)), rng.standard_normal(pending_n)
    for x, y in zip(X, Y, strict=True):
        observe(row, x, y)

    given = new_row(d)
    G, H = rng.standard_normal((given_n, d)), rng.standard_normal(given_n)
    stats.add_to_base(given, d, gram(G))
    fast_row.base_b_of(given, d)[:] = G.T @ H
    given[N] = given_n
    stats.refresh(given, d, RIDGE, stats.scratch_matrix(d))
    before = given.copy()

    stats.adopt(row, given, d, RIDGE, stats.scratch_matrix(d))
    V, b = gram(G) + gram(X), G.T @ H + X.T @ Y
    check_row(row, V, b, n=given_n + pending_n, n_own=5 + pending_n, pending=X)
    np.testing.assert_array_equal(given, before)

    more = rng.standard_normal((2 * LONGEST, d))  # the list goes on where it was
    for x in more:
        observe(row, x, 0.0)
    check_row(
        row,
        V + gram(more),
        b,
        n=given_n + pending_n + len(more),
        n_own=5 + pending_n + len(more),
        pending=np.vstack([X, more]),
    )
    shared = shared_sums(row, d)
    np.testing.assert_allclose(shared.V, gram(G), atol=1e-10)
    np.testing.assert_allclose(shared.b, G.T @ H, atol=1e-10)
    assert shared.n == given_n


@given(st.lists(st.sampled_from(["observe", "send", "adopt"]), max_size=60), st.integers(1, 6), st.integers(0, 2**20))
def test_any_history(history: list[str], d: int, seed: int) -> None:
    """Observations, uploads and downloads in any order."""
    rng = np.random.default_rng(seed)
    row, given = new_row(d), new_row(d)
    base, base_b, base_n, n_own = np.zeros((d, d)), np.zeros(d), 0, 0
    X, Y = np.zeros((0, d)), np.zeros(0)
    for event in history:
        if event == "observe":
            for _ in range(int(rng.integers(1, 6))):
                x, y = rng.standard_normal(d) / math.sqrt(d), float(rng.standard_normal())
                observe(row, x, y)
                X, Y, n_own = np.vstack([X, x]), np.append(Y, y), n_own + 1
        elif event == "send":
            stats.mark_sent(row, d)
            base, base_b, base_n = base + gram(X), base_b + X.T @ Y, base_n + len(X)
            X, Y = np.zeros((0, d)), np.zeros(0)
        else:
            G = rng.standard_normal((int(rng.integers(0, 9)), d)) / math.sqrt(d)
            base, base_b, base_n = base + gram(G), base_b + G.sum(axis=0), base_n + len(G)
            pack(base, fast_row.base_of(given, d))
            fast_row.base_b_of(given, d)[:] = base_b
            given[N] = base_n
            stats.refresh(given, d, RIDGE, stats.scratch_matrix(d))
            stats.adopt(row, given, d, RIDGE, stats.scratch_matrix(d))
        check_row(row, base + gram(X), base_b + X.T @ Y, n=base_n + len(X), n_own=n_own, pending=X)


@pytest.mark.parametrize("pending_n", [0, 3, 20])
def test_recompute_and_refresh(pending_n: int) -> None:
    """Inverse, estimate and log-determinant come from base, pending and b alone."""
    d, rng = 6, np.random.default_rng(pending_n)
    row = new_row(d)
    for x in rng.standard_normal((9, d)):
        observe(row, x, 1.0)
    stats.mark_sent(row, d)
    for x in rng.standard_normal((pending_n, d)):
        observe(row, x, -1.0)
    loose = row[SPECTRAL]
    for tighten in (False, True):
        spoilt = row.copy()
        fast_row.inverse_of(spoilt, d)[:] = math.nan
        fast_row.theta_of(spoilt, d)[:] = math.nan
        spoilt[LOGDET] = math.nan
        if tighten:
            stats.refresh(spoilt, d, RIDGE, stats.scratch_matrix(d))
        else:
            stats.recompute(spoilt, d, RIDGE, stats.scratch_matrix(d))
        np.testing.assert_allclose(fast_row.inverse_of(spoilt, d), fast_row.inverse_of(row, d), atol=1e-10)
        np.testing.assert_allclose(fast_row.theta_of(spoilt, d), fast_row.theta_of(row, d), atol=1e-10)
        assert spoilt[LOGDET] == pytest.approx(row[LOGDET], abs=1e-10)
        assert spoilt[UNREFRESHED] == 0
        largest = np.linalg.eigvalsh(unpacked(fast_row.inverse_of(row, d), d))[-1]
        if tighten:
            assert largest * (1 - 1e-12) <= spoilt[SPECTRAL] <= largest * inversion.MORE * (1 + 1e-8)
        else:
            assert spoilt[SPECTRAL] == loose


def test_spectral_bound_stays_valid_while_a_row_learns() -> None:
    """A bound from the last refresh holds for every later inverse."""
    d, rng = 7, np.random.default_rng(1)
    row = new_row(d)
    for k in range(2 * REFRESH_EVERY + 50):
        observe(row, rng.standard_normal(d) * rng.random(), 0.0)
        if k % 10 == 0:
            assert row[SPECTRAL] >= np.linalg.eigvalsh(unpacked(fast_row.inverse_of(row, d), d))[-1] * (1 - 1e-12)
    assert row[SPECTRAL] < 1 / RIDGE


def test_grown_keeps_what_there_is() -> None:
    """More room along the first axis, zero beyond."""
    array = np.arange(6).reshape(3, 2)
    larger = memory.grown(array, 5)
    np.testing.assert_array_equal(larger[:3], array)
    assert (larger[3:] == 0).all()
    assert larger.dtype == array.dtype


@compiled
def observe_often(row: Array, X: Array, Y: Array, times: int, send_every: int, u: Array, scratch: Array) -> None:
    """Observe the contexts of X over and over again, and upload now and then."""
    d = X.shape[1]
    for k in range(times):
        i = k % X.shape[0]
        multiply_packed(fast_row.inverse_of(row, d), X[i], u)
        stats.observe(row, X[i], Y[i], u, RIDGE, scratch)
        if send_every > 0 and k % send_every == send_every - 1:
            stats.mark_sent(row, d)


@pytest.mark.parametrize("send_every", [0, 1000])
@pytest.mark.parametrize("kind", ["isotropic", "subspace", "nearly parallel"])
def test_a_million_observations(kind: str, send_every: int) -> None:
    """V(λ)⁻¹ stays within 1e-8, relatively, of the inverse of V(λ); the log-determinant likewise."""
    d, n, rng = 10, 1_000_000, np.random.default_rng(0)
    X = {
        "isotropic": rng.standard_normal((1000, d)) / math.sqrt(d),
        "subspace": rank_deficient(rng, 1000, d),
        "nearly parallel": nearly_parallel(rng, 1000, d),
    }[kind]
    Y = rng.standard_normal(1000)
    row = new_row(d)
    u, scratch = np.zeros(d), stats.scratch_matrix(d)
    observe_often(row, X, Y, n - 100, send_every, u, scratch)
    observe_often(row, X[900:], Y[900:], 100, 0, u, scratch)  # so that something is pending in the end
    assert row[N] == n
    shared, pending = shared_sums(row, d), pending_sums(row, d)
    V = shared.V + pending.V
    np.testing.assert_allclose(V, 1000 * gram(X), rtol=1e-9)  # as far as adding up a million numbers is exact
    expected = np.linalg.inv(V + RIDGE * np.eye(d))
    assert np.abs(unpacked(fast_row.inverse_of(row, d), d) - expected).max() < 1e-8 * np.abs(expected).max()
    assert row[LOGDET] == pytest.approx(np.linalg.slogdet(V + RIDGE * np.eye(d))[1] - d * math.log(RIDGE), abs=1e-8)
    assert row[SPECTRAL] >= np.linalg.eigvalsh(expected)[-1] * (1 - 1e-8)
