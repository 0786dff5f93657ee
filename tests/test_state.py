"""Persisted states: what cannot be read is refused, with what to do about it and without losing the privacy ledger."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbandit import state as module
from fedbandit.errors import FedbanditError
from fedbandit.state import (
    KINDS,
    READERS,
    Reader,
    State,
    StateError,
    newest,
    pack,
    pack_entry,
    require_like,
    restoring,
    unpack,
    unpack_entry,
)

STATE = State({"steps": 3}, {"V": np.eye(2), "waiting": np.arange(3), "sent": np.array([True])})
STORED = pack("client", STATE)


@pytest.fixture
def of_the_future(monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, bytes]:
    """A snapshot and an entry that a later version wrote, in a format that is not known here."""
    with monkeypatch.context() as later:
        later.setitem(READERS, ("client", 99), Reader())
        later.setattr(module, "__version__", "9.9")
        return pack("client", STATE), pack_entry("client", b"entry")


def test_every_kind_comes_back() -> None:
    for kind in KINDS:
        back = unpack(kind, pack(kind, STATE))
        assert back.header == STATE.header
        for name, array in STATE.arrays.items():
            np.testing.assert_array_equal(back.arrays[name], array)
            assert back.arrays[name].dtype == array.dtype
            assert back.arrays[name].flags.writeable


def test_another_number_names_who_wrote_it_and_what_to_do(of_the_future: tuple[bytes, bytes]) -> None:
    snapshot, entry = of_the_future
    with pytest.raises(
        StateError, match=r"'c.db' is of format 99, written by fedbandit 9.9, and .* reads format 1 or 2"
    ) as e:
        unpack("client", snapshot, "'c.db'")
    assert "keep the file and install a version that reads it" in str(e.value)
    with pytest.raises(StateError, match="is of format 99, and"):
        unpack_entry("client", entry, "'c.db'")


def test_an_older_number_is_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader of an old number makes today's state of it."""

    def convert(state: State) -> State:
        return State({"arms_chosen": state.header["steps"]}, state.arrays)

    entry = pack_entry("client", b"old")
    monkeypatch.setitem(READERS, ("client", newest("client")), Reader(convert, lambda data: data + b" converted"))
    monkeypatch.setitem(READERS, ("client", 99), Reader())
    assert newest("client") == 99
    assert unpack("client", STORED).header == {"arms_chosen": 3}
    assert unpack_entry("client", entry) == b"old converted"
    assert unpack("client", pack("client", STATE)).header == STATE.header


def test_another_kind_is_refused() -> None:
    with pytest.raises(StateError, match=r"The peer's state is not in 'c.db', which has that of a client"):
        unpack("peer", STORED, "'c.db'")


@given(st.integers(0, len(STORED) - 1), st.integers(1, 255))
def test_a_flipped_byte_never_passes(at: int, flip: int) -> None:
    damaged = bytearray(STORED)
    damaged[at] ^= flip
    with pytest.raises(StateError, match="keep the file and"):
        unpack("client", bytes(damaged))


@given(st.integers(0, len(STORED) - 1))
def test_a_cut_state_never_passes(at: int) -> None:
    with pytest.raises(StateError, match="keep the file and"):
        unpack("client", STORED[:at])


@given(st.binary(max_size=30), st.integers(0, 100))
def test_a_damaged_entry_never_passes(data: bytes, at: int) -> None:
    entry = bytearray(pack_entry("coordinator", data))
    assert unpack_entry("coordinator", bytes(entry)) == data
    with pytest.raises(StateError, match="keep the store and"):
        unpack_entry("coordinator", bytes(entry[: at % len(entry)]))
    entry[at % len(entry)] ^= 1
    with pytest.raises(StateError, match="keep the store and"):
        unpack_entry("coordinator", bytes(entry))


def test_a_flipped_number_of_an_entry_never_passes() -> None:
    """Before, the checksum was of the rest only, and another format that is read was as good."""
    for kind in ("client", "coordinator", "local-server", "relay", "peer"):
        entry = pack_entry(kind, b"entry")
        for number in set(range(256)) - {entry[0]}:
            with pytest.raises(StateError):
                unpack_entry(kind, bytes([number]) + entry[1:])
        first = struct.pack("<BI", entry[0], zlib.crc32(b"entry")) + b"entry"
        assert unpack_entry(kind, first) == b"entry", "as entries were written before"


def test_nobody_is_told_to_begin_anew_where_a_ledger_may_be_lost(of_the_future: tuple[bytes, bytes]) -> None:
    refusals = []
    for data in (STORED[:9], b"", b"FBS\x04" + STORED[4:], of_the_future[0]):
        with pytest.raises(FedbanditError) as refusal:
            unpack("client", data, "'c.db'")
        refusals.append(str(refusal.value))
    for error in (StateError("The stored V is wrong."), KeyError("V"), ValueError("no broadcast")):
        with pytest.raises(StateError, match="does not fit: ") as refusal, restoring("client", "'c.db'"):
            raise error
        refusals.append(str(refusal.value))
    with pytest.raises(FedbanditError, match="as it is"), restoring("client", "'c.db'"):
        raise FedbanditError("as it is")
    for sentence in refusals:
        assert "keep the file and" in sentence
        assert "lost its privacy ledger" in sentence
        assert sentence.count(". ") == 0, "one sentence"
        assert sentence.endswith(".")
    assert "ledger" not in KINDS["checkpoint"].advice, "a simulation may start over"


FRESH = State(
    {"steps": 0, "growth": 0.0, "exploring": True, "last": None},
    {"V": np.zeros((2, 2)), "waiting": np.zeros(0, dtype=np.int64), "contexts": np.zeros((0, 2))},
)
VARYING = {"waiting": (np.int64, ("k",)), "contexts": (np.float64, ("k", 2)), "upload.*": (np.uint8, (40,))}
HEADER = {"steps": 5, "growth": 2, "exploring": False, "last": 7}
ARRAYS: dict[str, Any] = {
    "V": np.eye(2),
    "waiting": np.arange(3),
    "contexts": np.ones((3, 2)),
    "upload.4": np.zeros(40, np.uint8),
}


def test_what_fits_is_accepted() -> None:
    require_like(State(dict(HEADER), dict(ARRAYS)), FRESH, VARYING)
    require_like(FRESH, FRESH, VARYING)


@pytest.mark.parametrize(
    ("header", "arrays", "sentence"),
    [
        ({}, {"V": np.eye(3)}, r"V is float64 of shape \(3, 3\), but must be float64 of shape \(2, 2\)"),
        ({}, {"V": np.ones((2, 2), dtype=np.int64)}, "V is int64 of shape"),
        ({}, {"V": None}, "has no 'V'"),
        ({}, {"row": np.zeros(3)}, "'row', which is not expected"),
        (
            {},
            {"contexts": np.ones((2, 2))},
            r"contexts is float64 of shape \(2, 2\), but must be float64 of shape \(3, 2\)",
        ),
        ({}, {"waiting": np.zeros((3, 1), dtype=np.int64)}, "waiting is int64 of shape"),
        ({}, {"upload.5": np.zeros(41, np.uint8)}, r"upload.5 is uint8 of shape \(41,\)"),
        ({"steps": "x"}, {}, "The stored steps is 'x', but must be like 0"),
        ({"steps": True}, {}, "The stored steps is True"),
        ({"exploring": 1}, {}, "The stored exploring is 1"),
        ({"growth": None}, {}, "The stored growth is None"),
    ],
)
def test_what_does_not_fit_is_one_sentence(header: dict[str, object], arrays: dict[str, Any], sentence: str) -> None:
    changed = {name: array for name, array in {**ARRAYS, **arrays}.items() if array is not None}
    with pytest.raises(StateError, match=sentence):
        require_like(State({**HEADER, **header}, changed), FRESH, VARYING)
