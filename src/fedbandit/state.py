"""Persisted states: what survives a crash and an upgrade, as bytes without pickle.

    magic "FBS1" · length of the head (u32) · head (JSON) · the arrays' bytes, one after the other · BLAKE2b (16 bytes)

A long state's head is filled up with blanks to a multiple of `BLOCK`: a store that writes only blocks that have changed
finds the arrays where they were.

The head names the *kind* of thing, the *number* of its format and the version of fedbandit that wrote it. Kinds are
`KINDS`; the numbers that can be read are the keys of `READERS`.

Rules for whoever changes what a machine stores:

1. A state holds statistics (V, b, n, versions, pending, ledger), never the memory layout of an engine.
2. Whatever changes its names, shapes or meaning gets a new number: add the reader of the new one, let the reader of
   each old one convert to it, and add a file of the new number to tests/fixtures/formats.
3. Nothing tells a user to begin with a new file where a privacy ledger may be lost by that.

>>> back = unpack("client", pack("client", State({"steps": 3}, {"b": np.arange(2.0)})))
>>> back.header, back.arrays["b"].tolist()
({'steps': 3}, [0.0, 1.0])
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fedbandit._version import __version__
from fedbandit.errors import FedbanditError, shown

MAGIC = b"FBS1"
_START = struct.Struct("<4sI")
_ENTRY = struct.Struct("<BI")  # format number, CRC-32 of it and the rest
_DIGEST = 16
BLOCK, LONG = 2**16, 2**20
"""Bytes of a block, and above how many a state is long."""
_TYPES = ("<f8", "<i8", "<u8", "|u1", "|b1")


class State(NamedTuple):
    """What a machine needs in order to go on after a crash: JSON values and arrays."""

    header: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


class StateError(FedbanditError):
    """A stored state that cannot be used: of another kind or format, damaged, or of a machine of another shape."""

    damaged = ""
    """How it is not as it was written."""


class Kind(NamedTuple):
    """A kind of persisted thing: what to call it, and what to do with one that cannot be read."""

    name: str
    advice: str


KINDS = {
    "client": Kind(
        "The client's state",
        "keep the file and {remedy}: a client with a new file has lost its privacy ledger and what was not sent yet, "
        "and may be refused for ever",
    ),
    "coordinator": Kind(
        "The coordinator's state",
        "keep the store and {remedy}: its members have spent privacy on what it holds, and will not send it again",
    ),
    "local-server": Kind(
        "The local server's state",
        "keep the file and {remedy}: a local server with a new file has lost what its users taught it, and its ledger",
    ),
    "relay": Kind(
        "The relay's state",
        "keep the file and {remedy}: a relay with a new file has lost what its clients have sent and it had not",
    ),
    "peer": Kind(
        "The peer's state",
        "keep the file and {remedy}: a peer with a new file has lost its privacy ledger, and its neighbours refuse it",
    ),
    "checkpoint": Kind("The checkpoint", "{remedy}, or remove the file and let the simulation start over"),
}


def _same(value: Any) -> Any:
    return value


class Reader(NamedTuple):
    """How what was written in one format becomes what is written today: a snapshot, and an entry of its journal."""

    snapshot: Callable[[State], State] = _same
    entry: Callable[[bytes], bytes] = _same


def _running_sums(state: State) -> State:
    """Exchanges, wherever they are in a state, kept every upload by itself before they had running sums."""
    arrays = dict(state.arrays)

    def converted(header: Any, prefix: str) -> Any:
        header = dict(header)
        if "not_downloaded" in header:
            d = header["dim"]
            header["settled"] = [0, 0]
            arrays[f"{prefix}settled.V"], arrays[f"{prefix}settled.b"] = np.zeros((d, d)), np.zeros(d)
        for name in ("machine", "learner"):
            if isinstance(header.get(name), dict):
                header[name] = converted(header[name], prefix)
        parts = header.get("parts", {})
        return header | {"parts": {k: converted(v, f"{prefix}{k}/") for k, v in parts.items()}} if parts else header

    return State(converted(state.header, ""), arrays)


def _client_1(state: State) -> State:
    """Format 1 had no running sums, no total of uploads, and knew no tokens."""
    header, arrays = _running_sums(state)
    d, sequence = header["machine"]["dim"], header["machine"]["sequence"]
    mine = {"uploaded.V": np.zeros((d, d)), "uploaded.b": np.zeros(d), "redeemed": np.zeros(0, dtype=np.int64)}
    uploaded = {"all": sequence == 0, "n": 0, "releases": 0}
    return State({**header, "uploaded": uploaded}, {**arrays, **mine})


def _unnamed(state: State) -> State:
    """States did not say which federation they belong to: the one that answers next is taken for it."""
    return State({"federation": "", **state.header}, state.arrays)


def _of_unsaid_terms(state: State) -> State:
    """Peers' states did not say under which terms they were made, nor whose they are: what is said next is taken."""
    return State({"agreement": {}, "member": -1, **state.header}, state.arrays)


def _control_messages(state: State) -> State:
    """Compiled rows, wherever they are in a state, counted no messages without statistics before they had any."""

    def converted(header: Any) -> Any:
        header = {name: converted(value) if isinstance(value, dict) else value for name, value in header.items()}
        return header | {"control": 0} if "deferred" in header else header

    return State(converted(state.header), state.arrays)


READERS: dict[tuple[str, int], Reader] = {
    ("client", 1): Reader(lambda state: _unnamed(_client_1(state))),
    ("client", 2): Reader(_unnamed),
    ("client", 3): Reader(),
    **{("coordinator", k): Reader() for k in (1, 2, 3)},  # converted by network/coordinator/register.py
    ("coordinator", 4): Reader(),
    ("local-server", 1): Reader(_unnamed),
    ("local-server", 2): Reader(),
    ("relay", 1): Reader(),
    ("peer", 1): Reader(lambda state: _of_unsaid_terms(_running_sums(state))),
    **{("peer", k): Reader(_of_unsaid_terms) for k in (2, 3)},  # 3: with entries since the snapshot
    ("peer", 4): Reader(),
    ("checkpoint", 1): Reader(lambda state: _control_messages(_running_sums(state))),
    ("checkpoint", 2): Reader(_control_messages),
    ("checkpoint", 3): Reader(),
}
"""Readers by kind and number. The largest number of a kind is the one that is written."""


def newest(kind: str) -> int:
    """The format number in which a kind is written.

    >>> newest("client")
    3
    """
    return max(number for name, number in READERS if name == kind)


def stamp(kind: str) -> dict[str, Any]:
    """What the head of a persisted thing says about itself."""
    return {"kind": kind, "format": newest(kind), "written_by": __version__}


def pack(kind: str, state: State) -> bytes:
    """The state as bytes."""
    arrays = {name: np.asarray(array, order="C") for name, array in state.arrays.items()}
    types = {name: (array.dtype.newbyteorder("<").str, array.shape) for name, array in arrays.items()}
    for name, (dtype, _) in types.items():
        assert dtype in _TYPES, f"{name} is {dtype}, which is not stored"
    head = json.dumps({**stamp(kind), "header": state.header, "arrays": types}).encode()
    if sum(array.nbytes for array in arrays.values()) > LONG:
        head += b" " * (-(_START.size + len(head)) % BLOCK)
    contents = (array.reshape(-1).view(np.uint8).data for array in arrays.values())
    parts: list[bytes | memoryview] = [_START.pack(MAGIC, len(head)), head, *contents]
    digest = hashlib.blake2b(digest_size=_DIGEST)
    for part in parts:
        digest.update(part)
    return b"".join((*parts, digest.digest()))


def unpack(kind: str, data: bytes, where: str = "memory") -> State:
    """The state that `pack` made bytes of, in today's format; the arrays are copies that may be written to.

    `where` says in a refusal which file it is.
    """
    body, digest = data[:-_DIGEST], data[-_DIGEST:]
    if not body.startswith(MAGIC):
        why = f"begins with {data[: len(MAGIC)]!r}, expected {MAGIC!r}"
        raise _refusal(kind, where, why, "install the version that wrote it")
    if hashlib.blake2b(body, digest_size=_DIGEST).digest() != digest:
        raise damaged(kind, where, "its checksum differs")
    _, length = _START.unpack_from(body)
    try:
        head = json.loads(body[_START.size : _START.size + length])
        arrays: dict[str, NDArray[Any]] = {}
        offset = _START.size + length
        for name, (dtype, shape) in head["arrays"].items():
            count = int(np.prod(shape))
            arrays[name] = np.frombuffer(body, dtype=dtype, count=count, offset=offset).reshape(shape).copy()
            offset += arrays[name].nbytes
        return read(kind, head, State(head["header"], arrays), where)
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, StateError):
            raise
        raise damaged(kind, where, str(error)) from None


def read(kind: str, head: Mapping[str, Any], state: State, where: str) -> State:
    """A state whose head is this, in today's format; one of another kind or of an unknown number is refused."""
    if "kind" not in head:
        raise _refusal(kind, where, "does not say what it is", "install the version that wrote it")
    if head["kind"] != kind:
        raise StateError(f"{KINDS[kind].name} is not in {where}, which has that of a {head['kind']}.")
    reader = _reader(kind, head.get("format"), head.get("written_by"), where)
    strange = [name for name, array in state.arrays.items() if array.dtype.kind not in "fiub"]
    if strange:
        raise damaged(kind, where, f"{strange[0]} is {state.arrays[strange[0]].dtype}, which is not stored")
    return reader.snapshot(state)


def pack_entry(kind: str, data: bytes) -> bytes:
    """An entry of a journal, with its format number and checksum."""
    number = newest(kind)
    return _ENTRY.pack(number, zlib.crc32(data, number)) + data


def unpack_entry(kind: str, entry: bytes, where: str = "memory") -> bytes:
    """What `pack_entry` was given, in today's format.

    >>> unpack_entry("client", pack_entry("client", b"chosen"))
    b'chosen'
    """
    data = entry[_ENTRY.size :]
    number, checksum = _ENTRY.unpack_from(entry) if len(entry) >= _ENTRY.size else (0, -1)
    if checksum not in (zlib.crc32(data, number), zlib.crc32(data)):  # the second: the number was not in it at first
        raise damaged(kind, where, "the checksum of a journal entry differs")
    return _reader(kind, number, None, where).entry(data)


def stored(state: State, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """An array of a state, if it is there, holds numbers, and has this shape."""
    if name not in state.arrays:
        raise StateError(f"The stored state has no {name!r}.")
    array = state.arrays[name]
    if array.shape != shape or array.dtype not in (np.float64, np.int64, np.uint8, np.bool_):
        raise StateError(f"The stored {name} is {array.dtype} of shape {array.shape}, but must be of shape {shape}.")
    return array


def joined(header: dict[str, Any], parts: dict[str, State]) -> State:
    """One state of many; `parts_of` takes it apart again.

    >>> parts_of(joined({}, {"a": State({"n": 1}, {})}))["a"].header
    {'n': 1}
    """
    arrays = {f"{name}/{key}": array for name, state in parts.items() for key, array in state.arrays.items()}
    return State({**header, "parts": {name: state.header for name, state in parts.items()}}, arrays)


def parts_of(state: State) -> dict[str, State]:
    """The states that `joined` made one of."""
    parts = {name: State(header, {}) for name, header in state.header["parts"].items()}
    for key, array in state.arrays.items():
        name, _, rest = key.partition("/")
        if name not in parts:
            raise StateError(f"The stored state has {key!r}, which is not expected.")
        parts[name].arrays[rest] = array
    return parts


Varying: TypeAlias = Mapping[str, tuple[DTypeLike, tuple[int | str, ...]] | None]


def require_like(kept: State, fresh: State, varying: Varying | None = None) -> None:
    """Refuse a stored state that a machine cannot go on from.

    `fresh` is the state of the machine as it was made: `kept` must have the names of its header, with values of the
    same types, and its arrays, of the same types and shapes. `varying` are arrays whose shape depends on what has
    happened, by name or by the beginning of their name and a star: their type and shape, where a letter is any length,
    the same wherever it stands; None leaves an array to whoever takes it.

    >>> fresh = State({"steps": 0}, {"b": np.zeros(3), "waiting": np.zeros(0, dtype=np.int64)})
    >>> varying = {"waiting": (np.int64, ("k",))}
    >>> require_like(State({"steps": 9}, {"b": np.ones(3), "waiting": np.arange(5)}), fresh, varying)
    >>> require_like(State({"steps": 9}, {"b": np.ones(2), "waiting": np.arange(5)}), fresh, varying)
    Traceback (most recent call last):
    fedbandit.state.StateError: The stored b is float64 of shape (2,), but must be float64 of shape (3,).
    """
    _require_alike(kept.header, fresh.header)
    rules = varying or {}
    lengths: dict[str, int] = {}
    required = {name for name in rules if not name.endswith("*")}
    for name in {**fresh.arrays, **dict.fromkeys(required), **kept.arrays}:
        pattern = name if name in rules else next((p for p in rules if _matches(name, p)), None)
        if pattern is None and name not in fresh.arrays:
            raise StateError(f"The stored state has {name!r}, which is not expected.")
        if name not in kept.arrays:
            raise StateError(f"The stored state has no {name!r}.")
        rule = (fresh.arrays[name].dtype, fresh.arrays[name].shape) if pattern is None else rules[pattern]
        if rule is None:
            continue
        array, (dtype, shape) = kept.arrays[name], rule
        for length, side in zip(array.shape, shape, strict=False):
            if isinstance(side, str):
                lengths.setdefault(side, length)
        wanted = tuple(lengths.get(side, side) if isinstance(side, str) else side for side in shape)
        if array.dtype != np.dtype(dtype) or array.shape != wanted:
            raise StateError(
                f"The stored {name} is {array.dtype} of shape {array.shape}, "
                f"but must be {np.dtype(dtype)} of shape {wanted}."
            )


def require_arrays_like(kept: Mapping[str, Any], fresh: Mapping[str, Any]) -> None:
    """`require_like` for arrays and numbers alone."""
    one, other = (State({}, {name: np.asarray(value) for name, value in values.items()}) for values in (kept, fresh))
    require_like(one, other)


def named(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The arrays whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


@contextmanager
def restoring(kind: str, where: str) -> Iterator[None]:
    """Around a `restore`: what does not fit is refused with the file it is in and what to do."""
    try:
        yield
    except (StateError, KeyError, IndexError, TypeError, ValueError) as error:
        if isinstance(error, FedbanditError) and not isinstance(error, StateError):
            raise  # it speaks for itself
        said = str(error) if isinstance(error, StateError) else f"{type(error).__name__} {error}"
        why = f"does not fit: {said}".removesuffix(".")
        raise _refusal(kind, where, why, "install the version that wrote it") from None


def _require_alike(kept: Mapping[str, Any], fresh: Mapping[str, Any]) -> None:
    """Refuse a header that lacks a name of the fresh one, or has a value of another type, at any depth."""
    for name, value in fresh.items():
        found = kept.get(name)
        if name not in kept or not _alike(found, value):
            raise StateError(f"The stored {name} is {shown(found)}, but must be like {shown(value)}.")
        if isinstance(value, dict):
            _require_alike(kept[name], value)


def _alike(found: Any, value: Any) -> bool:
    """Whether two JSON values are of one type; whole numbers pass for numbers, and None may become anything."""
    if value is None or isinstance(value, bool) or isinstance(found, bool):
        return value is None or type(found) is type(value)
    return isinstance(found, (int, float) if isinstance(value, float) else type(value))


def _matches(name: str, pattern: str) -> bool:
    return pattern.endswith("*") and name.startswith(pattern[:-1])


def _reader(kind: str, number: object, written_by: object, where: str) -> Reader:
    if (kind, number) in READERS:
        return READERS[kind, number]  # type: ignore[index]
    known = " or ".join(str(n) for name, n in sorted(READERS) if name == kind)
    writer = "" if written_by is None else f", written by fedbandit {written_by}"
    why = f"is of format {number}{writer}, and fedbandit {__version__} reads format {known}"
    raise _refusal(kind, where, why, "install a version that reads it")


def damaged(kind: str, where: str, why: str) -> StateError:
    """The refusal of bytes that are not as they were written."""
    error = _refusal(kind, where, f"is damaged: {why}", "restore its newest backup")
    error.damaged = why
    return error


def _refusal(kind: str, where: str, why: str, remedy: str) -> StateError:
    name, advice = KINDS[kind]
    return StateError(f"{name} in {where} {why}; {advice.format(remedy=remedy)}.")
