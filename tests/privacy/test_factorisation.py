"""Dense, tree, BLT and independent noise against the matrices they stand for."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbandit.errors import FedbanditError
from fedbandit.privacy.blt import BufferedToeplitz, blt, endless, independent
from fedbandit.privacy.dense import dense
from fedbandit.privacy.factorisation import Factorisation, decoder, largest_error
from fedbandit.privacy.tree import Tree
from fedbandit.types import Array

SIZES = (1, 2, 3, 4, 7, 8, 16, 31, 100)
ALL = [make(n) for make in (Tree, blt, independent, dense) for n in SIZES] + [blt(64, buffers=2)]


def prefix_nodes(k: int) -> list[tuple[int, int]]:
    """The dyadic intervals (first, last] that make up (0, k], largest first."""
    nodes, first = [], 0
    for level in reversed(range(k.bit_length())):
        if k >> level & 1:
            nodes.append((first, first + 2**level))
            first += 2**level
    return nodes


def run(factorisation: Factorisation, z: Array) -> Array:
    """The noise of all releases, one at a time."""
    memory = factorisation.start(z.shape[1:])
    out = []
    for k, draw in enumerate(z, start=1):
        before = memory.copy()
        noise, after = factorisation.step(memory, k, draw)
        np.testing.assert_array_equal(memory, before)
        out.append(noise.copy())
        memory = after
    return np.stack(out)


@pytest.mark.parametrize("factorisation", ALL, ids=repr)
def test_streaming_equals_the_explicit_product(factorisation: Factorisation) -> None:
    """(B z)_k for matrices z_k, and A = B C with both lower triangular."""
    n = factorisation.n_max
    B, C = decoder(factorisation), factorisation.encoder()
    z = np.random.default_rng(0).standard_normal((n, 3, 3))
    np.testing.assert_allclose(run(factorisation, z), np.tensordot(B, z, axes=1), atol=1e-11)
    np.testing.assert_allclose(B @ C, np.tril(np.ones((n, n))), atol=1e-11)
    np.testing.assert_allclose(np.triu(B, 1), 0, atol=1e-12)
    np.testing.assert_array_equal(np.triu(C, 1), 0)


@pytest.mark.parametrize("factorisation", ALL, ids=repr)
def test_norms_are_those_of_the_matrices(factorisation: Factorisation) -> None:
    """Sensitivity by brute force over all columns and all numbers of releases so far; noise by rows."""
    B, C = decoder(factorisation), factorisation.encoder()
    rows = factorisation.row_norms()
    assert rows.dtype == np.float64
    np.testing.assert_allclose(rows, np.linalg.norm(B, axis=1), rtol=1e-10)
    for order in (1, 2):
        for k in range(1, factorisation.n_max + 1):
            brute = np.linalg.norm(C[:k], order, axis=0).max()
            assert factorisation.column_norm(order, k) == pytest.approx(brute, rel=1e-12)
        assert factorisation.column_norm(order) == pytest.approx(np.linalg.norm(C, order, axis=0).max(), rel=1e-12)


@given(st.integers(1, 150))
def test_a_tree_releases_sums_of_dyadic_nodes(n: int) -> None:
    """An oracle that knows intervals only: which nodes a running sum uses, and how many nodes an increment is in."""
    uses = [prefix_nodes(k) for k in range(1, n + 1)]
    nodes = {node for row in uses for node in row}
    B, C = decoder(Tree(n)), Tree(n).encoder()
    assert [sorted(last for _, last in row) for row in uses] == [(np.flatnonzero(row > 0.5) + 1).tolist() for row in B]
    assert {(int(np.argmax(row)), t) for t, row in enumerate(C, start=1)} == nodes
    depth = max(sum(first < i <= last for first, last in nodes) for i in range(1, n + 1))
    assert Tree(n).levels == depth


@given(st.lists(st.floats(0.01, 0.99), min_size=2, max_size=6).filter(lambda fractions: len(fractions) % 2 == 0))
def test_any_decays_have_their_exact_sensitivity(fractions: list[float]) -> None:
    """A poor choice costs accuracy, never privacy; and C is the power series of its generating function."""
    ladder = np.cumprod(fractions)
    f = BufferedToeplitz(24, tuple(ladder[0::2].tolist()), tuple(ladder[1::2].tolist()))
    C = f.encoder()
    assert f.column_norm(2) == pytest.approx(np.linalg.norm(C, axis=0).max(), rel=1e-12)
    top, bottom = np.poly(f.inverse_decays), np.poly(f.decays)
    series = np.zeros(24)
    for k in range(24):
        rest = bottom[1 : k + 1] @ series[k - len(bottom[1 : k + 1]) : k][::-1] if k else 0.0
        series[k] = (top[k] if k < top.size else 0.0) - rest
    np.testing.assert_allclose(f.coefficients(), series, atol=1e-9)
    assert largest_error(f) >= largest_error(blt(24)) * (1 - 1e-3)


def test_the_errors_are_the_ones_known() -> None:
    """Tree 4.5 / 7.5 / 10.5, BLT 1.9 / 2.6 / 3.3, and the BLT as good as the square root of A."""
    for n, tree, best in ((16, 4.5, 1.9), (128, 7.5, 2.6), (1024, 10.5, 3.3)):
        k = np.arange(1, n)
        square_root = np.cumprod(np.append(1.0, (2 * k - 1) / (2 * k)))
        assert round(largest_error(Tree(n)), 1) == tree
        assert round(largest_error(blt(n)), 1) == best
        assert largest_error(blt(n)) <= 1.003 * float(square_root @ square_root)
        assert largest_error(blt(n, buffers=2)) <= 1.02 * float(square_root @ square_root)
        assert largest_error(independent(n)) == pytest.approx(n**0.5)


def test_more_releases_than_needed_are_cheap() -> None:
    """Ten times the cap costs less than a third more noise, to a million releases."""
    errors = [largest_error(blt(10**power)) for power in range(2, 7)]
    assert all(larger / smaller < 4 / 3 for smaller, larger in pairwise(errors))
    assert blt(10**6).start((26, 26)).shape == (6, 26, 26)
    assert Tree(10**6).start((26, 26)).shape == (20, 26, 26)


def test_the_optimum_is_found_fast_and_again() -> None:
    """Under a second at 1024 releases, and the same numbers each time."""
    first = blt(1024)
    blt.cache_clear()
    started = time.perf_counter()
    again = blt(1024)
    assert time.perf_counter() - started < 1.0
    assert again == first


def test_bad_input() -> None:
    """One sentence each."""
    for make in (Tree, blt, independent):
        with pytest.raises(FedbanditError, match="n_max is 0, but must be a whole number ≥ 1"):
            make(0)
    with pytest.raises(FedbanditError, match="buffers is -1"):
        blt(16, buffers=-1)
    for decays, inverse_decays in (((0.5,), (0.6,)), ((1.0,), (0.5,)), ((0.5,), (-0.1,)), ((0.5, 0.4), (0.3, 0.2))):
        with pytest.raises(FedbanditError, match="strictly falling"):
            BufferedToeplitz(16, decays, inverse_decays)


@pytest.mark.parametrize("factorisation", ALL, ids=str)
def test_streaming_encoders_are_the_explicit_product(factorisation: Factorisation) -> None:
    """(C x)_k one increment at a time, without changing the memory it was given."""
    x = np.random.default_rng(0).standard_normal((factorisation.n_max, 2))
    memory, coded = factorisation.start((2,)), []
    for k, increment in enumerate(x, start=1):
        before = memory.copy()
        row, after = factorisation.encode(memory, k, increment)
        np.testing.assert_array_equal(memory, before)
        coded.append(row)
        memory = after
    np.testing.assert_allclose(coded, factorisation.encoder() @ x, atol=1e-9)


@pytest.mark.parametrize(
    ("n", "error"), [(2, 2 / 3**0.5), (4, 1.326), (6, 1.433), (16, 1.705), (64, 2.111), (128, 2.321)]
)
def test_dense_noise_is_the_best_and_says_so(n: int, error: float) -> None:
    """Its error is the γ₂ norm of A (2/√3 at n = 2), certified by its dual, and all releases are equally noisy."""
    best = dense(n)
    assert largest_error(best) == pytest.approx(error, rel=3e-4)
    assert best.certificate <= largest_error(best) <= best.certificate * 1.0001
    assert largest_error(best) < largest_error(blt(n)) / 1.07
    np.testing.assert_allclose(best.row_norms(), largest_error(best), rtol=1e-4)


@given(st.integers(2, 12), st.integers(0, 2**32 - 1))
def test_no_factorisation_beats_the_certificate(n: int, seed: int) -> None:
    """Random ones, and rotations of the best."""
    M = np.random.default_rng(seed).standard_normal((n, n)) + 2 * np.eye(n)
    B = np.tril(np.ones((n, n))) @ np.linalg.inv(M)
    error = np.linalg.norm(M, axis=0).max() * np.linalg.norm(B, axis=1).max()
    assert error >= dense(n).certificate * (1 - 1e-9)


def test_dense_noise_is_for_few_releases() -> None:
    """Beyond 512 it would take too long."""
    with pytest.raises(FedbanditError, match="from 1 to 512"):
        dense(513)


def test_an_endless_stream_has_a_finite_sensitivity() -> None:
    """Whatever the number of releases, the column is not longer; and five buffers are enough for a million."""
    stream = endless()
    norms = [stream.column_norm(2, n) for n in (1, 10, 1000, 10**6, 10**9)]
    assert norms == sorted(norms)
    assert norms[0] == 1.0
    assert norms[-1] <= stream.column_norm(2) < 1.01 * norms[-2] * 1.2
    np.testing.assert_allclose(stream.column_norm(2, 50), np.linalg.norm(stream.encoder(50)[:, 0]))
    z = np.random.default_rng(0).standard_normal((40, 2))
    np.testing.assert_allclose(run(stream, z), decoder(stream, 40) @ z, atol=1e-11)
    column = np.cumprod(np.append(1.0, 1 - 0.5 / np.arange(1, 10**6)))  # √A: the best Toeplitz matrix
    assert largest_error(blt(10**6)) <= 1.006 * float(column @ column)
