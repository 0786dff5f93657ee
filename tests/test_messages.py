"""The vocabulary: what is encoded comes back, and nothing else gets in."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbandit.encoded_messages import is_a
from fedbandit.errors import FedbanditError
from fedbandit.messages import (
    RELAYED,
    RELAYED_SIZE,
    Collect,
    Download,
    Join,
    Message,
    Receipt,
    Request,
    Restate,
    Threshold,
    Upload,
    decode,
    encode,
    encoded_size,
)
from fedbandit.sums import FactoredSums, Relayed, Sums, factored

numbers = st.integers(0, 2**64 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def sums(draw: st.DrawFn) -> Sums:
    d = draw(st.integers(1, 6))
    square = np.array(draw(st.lists(floats, min_size=d * d, max_size=d * d))).reshape(d, d)
    V = np.tril(square) + np.tril(square, -1).T
    return Sums(V, np.array(draw(st.lists(floats, min_size=d, max_size=d))), draw(numbers))


messages = st.one_of(
    st.builds(Join, numbers),
    st.builds(Upload, numbers, numbers, sums(), floats),
    st.builds(Receipt, numbers, numbers),
    st.builds(Download, numbers, numbers, numbers, sums()),
    st.builds(Request, numbers, floats),
    st.builds(Collect, numbers, numbers),
    st.builds(Threshold, numbers, floats),
)


@given(messages)
def test_round_trip(message: Message) -> None:
    data = encode(message)
    back = decode(data)
    assert type(back) is type(message)
    if isinstance(message, Upload | Download) and isinstance(back, Upload | Download):
        assert len(data) == encoded_size(type(message), message.sums.b.size)
        assert back.member == message.member
        assert back.sums.n == message.sums.n
        assert np.array_equal(back.sums.V, message.sums.V)
        assert np.array_equal(back.sums.b, message.sums.b)
        assert encode(back) == data
    else:
        assert back == message


@given(st.binary(max_size=200))
def test_noise_is_refused_with_a_sentence(data: bytes) -> None:
    with pytest.raises(FedbanditError):
        decode(data)


@given(messages, st.integers(0, 10**6))
def test_a_truncated_message_is_refused(message: Message, cut: int) -> None:
    data = encode(message)
    with pytest.raises(FedbanditError):
        decode(data[: cut % len(data)])


def test_other_versions_and_numbers_that_are_none_are_refused() -> None:
    data = bytearray(encode(Upload(1, 1, Sums(np.eye(2), np.ones(2), 3), 0.5)))
    newer = bytes(data[:2]) + bytes([99]) + bytes(data[3:])
    with pytest.raises(FedbanditError, match="format 99"):
        decode(newer)
    with pytest.raises(FedbanditError, match="not finite"):
        decode(encode(Upload(1, 1, Sums(np.full((2, 2), np.nan), np.ones(2), 3), 0.5)))


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 5))
def test_few_observations_are_a_factor_that_says_the_same(seed: int, d: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.5)
    full = Sums(X.T @ X, X.T @ rng.uniform(-1, 1, n), n)
    few = factored(full)
    if not isinstance(few, FactoredSums):
        return
    assert 2 * n < d
    np.testing.assert_allclose(few.V, full.V, atol=1e-11)
    np.testing.assert_allclose(few.b, full.b, atol=1e-11)
    assert few.c.size <= n
    again = factored(Sums(few.V, few.b, n))
    if isinstance(again, FactoredSums):  # where pivots are small, rounding V anew may be too much for a second factor
        np.testing.assert_allclose(again.L, few.L, atol=1e-5), "L follows from V"
    upload = Upload(1, 2, few, 0.5)
    data = encode(upload)
    back = decode(data)
    assert isinstance(back, Upload)
    assert encode(back) == data
    assert is_a(Upload, data)
    assert len(data) < encoded_size(Upload, d)


def test_most_few_observations_are_factors() -> None:
    rng = np.random.default_rng(0)
    made = 0
    for _ in range(100):
        X = rng.standard_normal((5, 25)) / 5
        made += isinstance(factored(Sums(X.T @ X, X.T @ rng.uniform(-1, 1, 5), 5)), FactoredSums)
    assert made > 95


def _relayed() -> list[Upload | Restate]:
    sums = Sums(np.diag([1.5, -0.25]), np.array([0.5, 2.0]), 3)
    return [Upload(4, 7, sums, 0.5, relayed=Relayed(2.5, 3)), Restate(4, 7, 2, sums, 0.5, relayed=Relayed(2.5, 3))]


@pytest.mark.parametrize("message", _relayed(), ids=lambda message: type(message).__name__)
def test_what_a_relay_says_about_noise_travels(message: Upload | Restate) -> None:
    kind = type(message)
    data = encode(message)
    assert data[3] == RELAYED[kind]
    assert len(data) == encoded_size(kind, 2) + RELAYED_SIZE
    back = decode(data)
    assert isinstance(back, kind)
    assert (encode(back), back.relayed) == (data, (2.5, 3))
    for wrong in (Relayed(-1.0, 1), Relayed(math.inf, 1), Relayed(math.nan, 1), Relayed(1.0, 4)):
        with pytest.raises(FedbanditError, match="noise of variance"):
            decode(encode(replace(message, relayed=wrong)))
    for length in range(len(data)):
        with pytest.raises(FedbanditError):
            decode(data[:length])
