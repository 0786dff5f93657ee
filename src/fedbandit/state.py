"""The durable state of a machine: a JSON header and arrays, as one piece of bytes without pickle.

    magic "FBS" · format version · length of the header (u32) · header · the arrays' bytes, one after the other

>>> state = State({"steps": 3}, {"row": np.arange(2.0)})
>>> back = unpack(pack(state))
>>> back.header, back.arrays["row"].tolist()
({'steps': 3}, [0.0, 1.0])
"""

from __future__ import annotations

import json
import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import FedbanditError

FORMAT = 4
"""The first three had other rows."""

_START = struct.Struct("<3sBI")
_KINDS = {"<f8", "<i8", "<u8", "|u1"}


class State(NamedTuple):
    """What a machine needs in order to go on after a crash."""

    header: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def stored(state: State, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """An array of a state, if it is there and has this shape."""
    if name not in state.arrays:
        raise FedbanditError(f"The stored state has no {name}.")
    if state.arrays[name].shape != shape:
        raise FedbanditError(f"The stored {name} is of shape {state.arrays[name].shape}, expected {shape}.")
    return state.arrays[name]


def pack(state: State) -> bytes:
    """The state as bytes."""
    arrays = {name: np.asarray(array, order="C") for name, array in state.arrays.items()}
    shapes = {name: [array.dtype.newbyteorder("<").str, array.shape] for name, array in arrays.items()}
    header = json.dumps({"header": state.header, "arrays": shapes}).encode()
    return b"".join((_START.pack(b"FBS", FORMAT, len(header)), header, *(array.tobytes() for array in arrays.values())))


def unpack(data: bytes) -> State:
    """The state that `pack` made bytes of; the arrays are copies that may be written to."""
    if len(data) < _START.size:
        raise FedbanditError(f"A stored state has {len(data)} bytes, which is too few.")
    magic, version, length = _START.unpack_from(data)
    if magic != b"FBS" or version != FORMAT:
        raise FedbanditError(
            f"A stored state starts with {magic!r} format {version}, expected b'FBS' format {FORMAT}; "
            "another version of fedbandit wrote it, so begin with a new file."
        )
    try:
        described = json.loads(data[_START.size : _START.size + length])
        arrays: dict[str, NDArray[Any]] = {}
        offset = _START.size + length
        for name, (kind, shape) in described["arrays"].items():
            if kind not in _KINDS:
                raise FedbanditError(f"A stored state has an array of type {kind!r}.")
            count = int(np.prod(shape))
            arrays[name] = np.frombuffer(data, dtype=kind, count=count, offset=offset).reshape(shape).copy()
            offset += arrays[name].nbytes
        return State(described["header"], arrays)
    except (ValueError, KeyError, TypeError) as error:
        raise FedbanditError(f"A stored state cannot be read: {error}.") from None


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
        parts[name].arrays[rest] = array
    return parts
