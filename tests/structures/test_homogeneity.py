"""Tests of homogeneity and cliques, against raw data and brute force."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedbandit as fb
from fedbandit.sharing import Members
from fedbandit.structures import HomogeneityCliques
from fedbandit.structures.cliques import cliques
from fedbandit.structures.evidence_clusters import likeliest
from fedbandit.structures.homogeneity import Weighted, pairwise, weighted
from tests.oracles import naive_hetofed
from tests.oracles.naive import Array
from tests.oracles.naive_hetofed import Client


def released(seed: int, counts: list[int], dim: int, *, shared: bool = True) -> tuple[list[Client], Members]:
    """Clients with so many observations each, all released, and the same as statistics."""
    rng = np.random.default_rng(seed)
    clients = []
    for n in counts:
        X = rng.standard_normal((n, dim))
        theta = np.ones(dim) if shared else rng.standard_normal(dim)
        clients.append(Client(list(X), list(X @ theta + 0.1 * rng.standard_normal(n)), sent=n))
    V, b = (np.array(part) for part in zip(*(c.own(dim) for c in clients), strict=True))
    return clients, Members(V, b, np.array(counts), np.array(counts))


@given(st.integers(0, 10_000), st.lists(st.integers(0, 9), min_size=2, max_size=4), st.booleans())
def test_the_statistic_is_that_of_raw_data_whatever_their_rank(seed: int, counts: list[int], shared: bool) -> None:
    clients, members = released(seed, counts, 4, shared=shared)
    pairs = pairwise(*weighted(members, 0.1, None))
    for i in range(len(counts)):
        for j in range(i):
            s, df = naive_hetofed.statistic(clients[i], clients[j], 0.1, 4)
            assert pairs.df[i, j] == pairs.df[j, i] == df
            assert pairs.s[i, j] == pytest.approx(s, rel=1e-6, abs=1e-5)


def test_a_rounding_error_does_not_pass_for_a_degree_of_freedom() -> None:
    """Of clients with fewer observations than dimensions, in general position."""
    counts = np.random.default_rng(1).integers(0, 30, 150)
    _, members = released(1, counts.tolist(), 25)
    rank = np.minimum(counts, 25)
    expected = rank[:, None] + rank - np.minimum(counts[:, None] + counts, 25)
    np.fill_diagonal(expected, 0)
    np.testing.assert_array_equal(pairwise(*weighted(members, 0.1, None)).df, expected)


@given(
    st.integers(0, 10_000),
    st.lists(st.integers(0, 6), min_size=1, max_size=6),
    st.sampled_from([-3.0, 0.0, 6.0]),
    st.sampled_from([3, 15]),
)
def test_the_likeliest_partition_is_that_of_raw_data(seed: int, counts: list[int], odds: float, dim: int) -> None:
    clients, members = released(seed, counts, dim, shared=seed % 2 == 0)
    data = weighted(members, 0.1, None)
    expected = naive_hetofed.likeliest(clients, 0.1, dim, odds)
    assert likeliest(Weighted(data.A, data.c), odds) == expected


@given(st.integers(1, 9), st.floats(0, 1), st.integers(0, 10_000))
def test_cliques_are_all_maximal_ones(n: int, density: float, seed: int) -> None:
    edges = np.triu(np.random.default_rng(seed).random((n, n)) < density, 1)
    listed = {(int(i), int(j)) for i, j in np.argwhere(edges)}
    edges = edges | edges.T
    every = naive_hetofed.maximal_cliques(listed, n)
    assert cliques(edges) == every
    cover = cliques(edges, most=0)
    assert set().union(*cover) == set(range(n))
    assert all(clique in every for clique in cover)
    assert len(cover) <= n


def test_cliques_of_two_thousand_clients_do_not_blow_up() -> None:
    rng = np.random.default_rng(0)
    label = rng.integers(0, 20, size=2000)
    assert len(cliques(label[:, None] == label)) == 20
    almost = np.ones((2000, 2000), dtype=bool)
    almost[np.arange(0, 2000, 2), np.arange(1, 2000, 2)] = False  # 2^1000 maximal cliques
    almost &= almost.T
    cover = cliques(almost)
    assert len(cover) == 2
    assert all(len(clique) == 1000 for clique in cover)


def test_the_test_knows_the_noise() -> None:
    """Noise that is accounted for does not tear like clients apart; unaccounted for, it would."""
    rng = np.random.default_rng(0)
    n, dim, count, std = 6, 4, 400, 5.0

    class Known:
        weighed = with_own = False

        def repair(self, V: Array, releases: Any, ridge: float) -> Any:
            raise NotImplementedError

        def variance(self, member: int, releases: int) -> float:
            raise NotImplementedError

        def slack_of(self, variance: float) -> Any:
            raise NotImplementedError

        def deviations(self, released: Any) -> Array:
            return np.where(released > 0, std * math.sqrt(6), 0.0)

    _, members = released(0, [count] * n, dim)
    noise = std * rng.standard_normal((n, dim, dim))
    noisy = Members(members.V + (noise + noise.transpose(0, 2, 1)) / math.sqrt(2),
                    members.b + 2 * std * rng.standard_normal((n, dim)), members.n, members.n)  # fmt: skip
    structure = HomogeneityCliques().sharing(fb.World(n, dim, 1000), 0.1)
    assert structure.edges(weighted(noisy, 0.1, Known())).all()
    assert not structure.edges(weighted(noisy, 0.1, None)).all()
