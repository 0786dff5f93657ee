"""Random streams: known answers, moments, frequencies, independence of purpose and part."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbandit.streams import Draw, Purpose, generator, philox, policy_key

ONES = 0xFFFFFFFF


def words_at(key: tuple[int, int], client: int, step: int, draw: int) -> list[int]:
    """The four words of the package."""
    return list(philox(np.array(key, dtype=np.uint64), client, step, draw))


def textbook_philox(counter: list[int], key: tuple[int, int]) -> list[int]:
    """Philox 4×32-10 as in Salmon et al. 2011, in Python's own integers."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c0, 2**32)
        high1, low1 = divmod(0xCD9E8D57 * c2, 2**32)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return [c0, c1, c2, c3]


# ----------------------------------------------------------------------------------------------------- counter-based


@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ONES, ONES, ONES, ONES), (ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_known_answers(
    counter: tuple[int, int, int, int], key: tuple[int, int], answer: tuple[int, ...]
) -> None:
    """The three vectors published with the Random123 library."""
    draw, step_low, step_high, client = counter
    assert textbook_philox(list(counter), key) == list(answer)
    assert words_at(key, client, step_low | step_high << 32, draw) == list(answer)


@given(
    st.tuples(st.integers(0, ONES), st.integers(0, ONES)),
    st.integers(0, ONES),
    st.integers(0, 2**62),
    st.integers(0, 2**20),
)
def test_philox_is_the_textbook_one(key: tuple[int, int], client: int, step: int, draw: int) -> None:
    """At any counter (draw, step, step >> 32, client)."""
    counter = [draw, step % 2**32, step >> 32, client]
    assert words_at(key, client, step, draw) == textbook_philox(counter, key)


def test_policy_key_is_two_words_of_the_seed() -> None:
    """Different seeds, different keys; all fit in 32 bits."""
    keys = [policy_key(seed) for seed in range(50)]
    assert all(key.dtype == np.uint64 and key.shape == (2,) and (key <= ONES).all() for key in keys)
    assert len({tuple(key.tolist()) for key in keys}) == 50
    np.testing.assert_array_equal(policy_key(7), policy_key(7))


def test_normal_is_box_muller_of_the_words() -> None:
    """Four normals from every block of words, draw after draw."""
    key = (123, 456)
    out = Draw(np.array(key, dtype=np.uint64), 5, 9).normal(7)
    expected = []
    for draw in range(2):
        words = textbook_philox([draw, 9, 0, 5], key)
        for first, second in ((words[0], words[1]), (words[2], words[3])):
            radius = math.sqrt(-2 * math.log((first + 0.5) / 2**32))
            angle = 2 * math.pi * (second + 0.5) / 2**32
            expected += [radius * math.cos(angle), radius * math.sin(angle)]
    np.testing.assert_allclose(out, expected[:7], rtol=1e-12)


@pytest.mark.parametrize("d", [1, 3, 4, 10])
def test_normal_does_not_depend_on_how_many_are_drawn(d: int) -> None:
    """The first numbers of a step are the same for every dimension."""
    long, short = (Draw(policy_key(1), 2, 3).normal(n) for n in (12, d))
    np.testing.assert_array_equal(short, long[:d])


def test_normal_moments() -> None:
    """Mean, variance, skewness, kurtosis, tail, and no correlation within a step or from step to step."""
    n, d, key = 30_000, 6, policy_key(0)
    z = np.stack([Draw(key, 11, step).normal(d) for step in range(n)])
    assert np.isfinite(z).all()
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=5 / math.sqrt(n))
    np.testing.assert_allclose(np.cov(z.T), np.eye(d), atol=5 * math.sqrt(2 / n))
    np.testing.assert_allclose((z**3).mean(axis=0), 0, atol=5 * math.sqrt(15 / n))
    np.testing.assert_allclose((z**4).mean(axis=0), 3, atol=5 * math.sqrt(96 / n))
    np.testing.assert_allclose((np.abs(z) > 1.959964).mean(axis=0), 0.05, atol=5 * math.sqrt(0.0475 / n))
    np.testing.assert_allclose((z[1:] * z[:-1]).mean(axis=0), 0, atol=5 / math.sqrt(n))


@pytest.mark.parametrize("count", [1, 2, 3, 10, 25])
def test_uniform_index_frequencies(count: int) -> None:
    """Every index as often as any other: χ² within five standard deviations."""
    n, key = 30_000, policy_key(3)
    indices = np.array([Draw(key, 4, step).index(count) for step in range(n)])
    assert indices.min() >= 0
    assert indices.max() == count - 1
    seen = np.bincount(indices, minlength=count)
    chi2 = ((seen - n / count) ** 2 / (n / count)).sum()
    assert chi2 <= (count - 1) + 5 * math.sqrt(2 * count)


def test_streams_of_clients_steps_and_seeds_differ() -> None:
    """Change any of the three and all numbers change."""
    drawn = []
    for seed, client, step in itertools.product((0, 1), (0, 1, 2**31), (0, 1, 2**33)):
        drawn += Draw(policy_key(seed), client, step).normal(4).tolist()
    assert len(set(drawn)) == len(drawn)


@given(st.lists(st.integers(0, 9), max_size=6))
def test_normals_asked_for_piecemeal_are_the_same(pieces: list[int]) -> None:
    """`normal(a)` and `normal(b)` are `normal(a + b)`, cut in two."""
    draw = Draw(policy_key(5), 1, 7)
    got = np.concatenate([draw.normal(n) for n in pieces] or [np.empty(0)])
    np.testing.assert_array_equal(got, Draw(policy_key(5), 1, 7).normal(sum(pieces)))


@given(st.lists(st.sampled_from(["index", "uniform", "normal"]), max_size=20))
def test_no_word_is_used_twice(calls: list[str]) -> None:
    """However calls are mixed: each kind of number continues in blocks of its own."""
    key = (7, 8)
    draw = Draw(np.array(key, dtype=np.uint64), 2, 3)
    used: list[int] = []
    uniform: list[int] = []
    pairs: list[tuple[int, int]] = []
    block = 0
    for call in calls:
        if call == "normal":
            if len(pairs) == 0:
                words = textbook_philox([block, 3, 0, 2], key)
                block, pairs = block + 1, [(words[0], words[1]), (words[2], words[3])]
            first, second = pairs.pop(0)
            used += [first, second]
            assert math.isclose((draw.normal(2) ** 2).sum(), -2 * math.log((first + 0.5) / 2**32), rel_tol=1e-9)
            continue
        if len(uniform) == 0:
            block, uniform = block + 1, textbook_philox([block, 3, 0, 2], key)
        word = uniform.pop(0)
        used.append(word)
        if call == "index":
            assert draw.index(1000) == word * 1000 >> 32
        else:
            assert draw.uniform() == (word + 0.5) / 2**32
    assert len(set(used)) == len(used)


def test_uniform_is_inside_the_open_interval_and_uniform() -> None:
    """Mean and variance of U(0, 1); the extreme words stay inside."""
    draw = Draw(policy_key(2), 0, 0)
    u = np.array([draw.uniform() for _ in range(30_000)])
    assert abs(u.mean() - 0.5) < 5 * math.sqrt(1 / 12 / len(u))
    assert abs(u.var() - 1 / 12) < 5 * math.sqrt(1 / 180 / len(u))
    assert 0 < 0.5 / 2**32 < (ONES + 0.5) / 2**32 < 1


def test_numpy_integers_do_not_overflow() -> None:
    """A client and a step out of an array."""
    key = policy_key(1)
    assert Draw(key, np.int64(3), np.int64(2**40)).index(10**6) == Draw(key, 3, 2**40).index(10**6)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------- NumPy


def test_generators_differ_by_seed_purpose_and_part() -> None:
    """And are the same when asked again."""
    firsts: dict[float, tuple[int, Purpose, int]] = {}
    for seed, stream, part in itertools.product((0, 1, 2**40), Purpose, (0, 1, 2, 1000)):
        number = float(generator(seed, stream, part).random())
        assert number == generator(seed, stream, part).random()
        assert number not in firsts, f"{firsts[number]} and {(seed, stream, part)}"
        firsts[number] = (seed, stream, part)


def test_part_zero_is_the_default() -> None:
    """`generator(seed, stream)`."""
    assert generator(5, Purpose.WORLD).random() == generator(5, Purpose.WORLD, 0).random()


def test_neighbouring_generators_are_uncorrelated() -> None:
    """Parts of one stream, and one part of several streams."""
    n = 10_000
    sequences = [generator(0, Purpose.REWARDS, part).standard_normal(n) for part in range(5)]
    sequences += [generator(0, stream, 0).standard_normal(n) for stream in Purpose]
    sequences.pop(5 + int(Purpose.REWARDS))  # is part 0 again
    correlation = np.corrcoef(sequences) - np.eye(len(sequences))
    assert np.abs(correlation).max() < 5 / math.sqrt(n)
