"""The counter-based numbers of `fedbandit.streams`, compiled: word for word the same."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedbandit.engine.fast.jit import compiled_lean
from fedbandit.types import Array

_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_MULTIPLY_0, _MULTIPLY_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


@compiled_lean
def philox(key: NDArray[np.uint64], client: int, step: int, draw: int) -> tuple[np.uint64, ...]:
    """The four 32-bit words at counter (draw, step, step >> 32, client)."""
    c0 = np.uint64(draw) & _LOW
    c1 = np.uint64(step) & _LOW
    c2 = np.uint64(step) >> _SHIFT
    c3 = np.uint64(client) & _LOW
    k0 = key[0]
    k1 = key[1]
    for _ in range(10):
        p0 = _MULTIPLY_0 * c0
        p1 = _MULTIPLY_1 * c2
        c0 = (p1 >> _SHIFT) ^ c1 ^ k0
        c2 = (p0 >> _SHIFT) ^ c3 ^ k1
        c1 = p1 & _LOW
        c3 = p0 & _LOW
        k0 = (k0 + _WEYL_0) & _LOW
        k1 = (k1 + _WEYL_1) & _LOW
    return c0, c1, c2, c3


@compiled_lean
def uniform_index(key: NDArray[np.uint64], client: int, step: int, count: int) -> int:
    """`Draw(key, client, step).index(count)`."""
    words = philox(key, client, step, 0)
    return int(np.int64((words[0] * np.uint64(count)) >> _SHIFT))


@compiled_lean
def normal(key: NDArray[np.uint64], client: int, step: int, out: Array) -> None:
    """Fill `out` with `Draw(key, client, step).normal(len(out))`."""
    words = philox(key, client, step, 0)
    for i in range(out.shape[0]):
        if i % 4 == 0:
            words = philox(key, client, step, i // 4)
        pair = 2 * ((i % 4) // 2)
        radius = math.sqrt(-2.0 * math.log((float(words[pair]) + 0.5) / 4294967296.0))
        angle = 2.0 * math.pi * (float(words[pair + 1]) + 0.5) / 4294967296.0
        out[i] = radius * (math.cos(angle) if i % 2 == 0 else math.sin(angle))
