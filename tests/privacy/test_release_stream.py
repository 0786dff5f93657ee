"""A client's stream: every increment is noised once, the cap holds, and a crash changes nothing."""

from __future__ import annotations

import io
import math
from functools import partial

import numpy as np
import pytest

from fedbandit.errors import FedbanditError
from fedbandit.privacy.mechanism import epsilon_of, gram_mechanism, release, stack, start, unstack
from fedbandit.privacy.release_stream import ReleaseStream
from fedbandit.streams import Purpose, generator
from fedbandit.sums import Sums

DIM, CAP = 3, 5
MECHANISM = gram_mechanism(1.0, 1e-5, CAP, DIM, reward_weight=0.7)
SOURCE = partial(generator, 0, Purpose.NOISE, 2)


def some_sums(seed: int, n: int = 4) -> Sums:
    """Statistics of n interactions."""
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((n, DIM)), rng.standard_normal(n)
    return Sums(X.T @ X, X.T @ y, n)


def test_increments_add_up_to_what_the_mechanism_releases() -> None:
    """Differences of noisy running sums; and the exact ones are kept for the client itself."""
    stream, state = ReleaseStream(MECHANISM, SOURCE), start(MECHANISM)
    V, b, own = np.zeros((DIM, DIM)), np.zeros(DIM), np.zeros((DIM, DIM))
    for k in range(CAP):
        sums = some_sums(k)
        sent = stream.release(sums)
        V, b, own = V + sent.V, b + sent.b, own + sums.V
        noisy, state = release(MECHANISM, state, stack(sums.V, sums.b, 0.7), SOURCE(k))
        for mine, theirs in zip((V, b), unstack(noisy, 0.7), strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-9)
        np.testing.assert_allclose(stream.own.V, own, atol=1e-12)
        assert sent.n == sums.n
        assert stream.spent_epsilon == pytest.approx(epsilon_of(MECHANISM, releases=k + 1))
    assert (stream.spent, stream.contributed, stream.own.n) == (CAP, 4 * CAP, 4 * CAP)
    assert stream.spent_epsilon == pytest.approx(1.0, rel=1e-6)


def test_a_spent_stream_is_followed_by_another_for_new_records() -> None:
    """Its noise is that of a first release, drawn anew; the ε of one interaction does not change."""
    stream, fresh = ReleaseStream(MECHANISM, SOURCE), ReleaseStream(MECHANISM, lambda k: SOURCE(k + CAP))
    for k in range(CAP):
        stream.release(some_sums(k))
    for k in range(CAP, 2 * CAP + 1):
        one, other = stream.release(some_sums(k)), fresh.release(some_sums(k))
        np.testing.assert_array_equal(one.b, other.b)
        np.testing.assert_array_equal(one.V, other.V)
    assert stream.spent == 2 * CAP + 1
    assert stream.own.n == 4 * stream.spent
    np.testing.assert_allclose(stream.own.V, sum(some_sums(k).V for k in range(stream.spent)))
    assert stream.spent_epsilon == pytest.approx(1.0, rel=1e-6)


def test_portions_that_are_too_large_take_the_place_of_later_ones() -> None:
    """Noise is drawn for those that are skipped, and a contribution ends where no place is large enough."""
    portions = (2, 2, 4, 8)
    stream = ReleaseStream(MECHANISM, SOURCE, contribution=16, portions=portions)
    stream.release(some_sums(0))  # of 4 interactions: the third place
    assert stream.spent == 3
    assert stream.may_release(8)
    assert not stream.may_release(9)
    stream.release(some_sums(1))
    assert stream.spent == 4
    assert not stream.may_release(1)


def test_a_stream_of_an_older_version_goes_on() -> None:
    """Its memory is a BLT's; new streams are dense."""
    former = gram_mechanism(1.0, 1e-5, CAP, DIM, reward_weight=0.7, kind="blt")
    old = ReleaseStream(former, SOURCE)
    old.release(some_sums(0))
    stream = ReleaseStream(MECHANISM, SOURCE, former=lambda: former)
    stream.restore(old.state())
    for k in range(1, CAP):
        np.testing.assert_array_equal(stream.release(some_sums(k)).b, old.release(some_sums(k)).b)
    stream.release(some_sums(9))
    assert stream.mechanism is MECHANISM


def test_nothing_leaves_beyond_the_contribution() -> None:
    """And a refusal changes nothing."""
    assert ReleaseStream(MECHANISM, SOURCE).spent_epsilon == 0.0
    stream = ReleaseStream(MECHANISM, SOURCE, contribution=10**6)
    for k in range(CAP):
        stream.release(some_sums(k))
    assert not stream.may_release(1)
    before = stream.own.V.copy()
    with pytest.raises(FedbanditError, match="budget is spent after 5 releases of 20 interactions"):
        stream.release(some_sums(9))
    np.testing.assert_array_equal(stream.own.V, before)
    limited = ReleaseStream(MECHANISM, SOURCE, contribution=6)
    limited.release(some_sums(0))
    assert limited.may_release(2)
    assert not limited.may_release(3)
    with pytest.raises(FedbanditError, match="budget is spent after 1 releases of 4 interactions"):
        limited.release(some_sums(1))


@pytest.mark.parametrize("crash", range(CAP))
def test_a_stream_goes_on_after_a_crash(crash: int) -> None:
    """Through an .npz file, after any release: the same bytes leave, and no noise is drawn twice."""
    whole = ReleaseStream(MECHANISM, SOURCE)
    sent = [whole.release(some_sums(k)) for k in range(2 * CAP)]
    stream = ReleaseStream(MECHANISM, SOURCE)
    for k in range(2 * CAP):
        if k in (crash, 2 * crash + 1):
            file = io.BytesIO()
            np.savez(file, **stream.state())
            file.seek(0)
            stream = ReleaseStream(MECHANISM, SOURCE)
            with np.load(file) as saved:
                stream.restore(saved)
        again = stream.release(some_sums(k))
        assert again.V.tobytes() == sent[k].V.tobytes()
        assert again.b.tobytes() == sent[k].b.tobytes()
    assert (stream.spent, stream.contributed) == (whole.spent, whole.contributed)


def test_without_noise_statistics_leave_as_they_are() -> None:
    """To the bit, and as often as one likes."""
    stream = ReleaseStream(gram_mechanism(math.inf, 1e-5, 1, DIM), SOURCE)
    for k in range(3):
        assert stream.release(some_sums(k)) is not None
        sums = some_sums(10 + k)
        assert stream.release(sums) is sums
    assert stream.own.n == 24
