"""Randomness, always explicit, never a hidden global state.

Two kinds, because two kinds of code draw:

- `generator(seed, stream, part)` is a NumPy generator for arrays drawn in bulk: contexts, arrivals, reward noise. Each
  purpose has its own stream, so that systems compared on one seed see identical data, and each chunk of a stream its
  own part, so that any chunk can be drawn without the ones before it.
- `uniform` and `normal` are counter-based (Philox 4×32, ten rounds; Salmon et al., SC 2011): the number depends on
  (seed, client, own step, draw) alone, so N separate clients on a network repeat exactly what the simulator did.
"""

from __future__ import annotations

import math
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from fedbandit.engine.fast.jit import compiled_lean

_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_MULTIPLY_0, _MULTIPLY_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


class Stream(IntEnum):
    """What a stream of random numbers is for."""

    WORLD = 0  # parameters of the environment, arm pools
    ARRIVALS = 1
    CONTEXTS = 2
    REWARDS = 3
    DELAYS = 4
    POLICY = 5
    NOISE = 6  # privacy


def generator(seed: int, stream: Stream, *part: int) -> np.random.Generator:
    """The NumPy generator of one part of one stream; a part has one number or more, 0 if not given."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(int(stream), *(part or (0,))))))


def key_of(seed: int, stream: Stream) -> NDArray[np.uint64]:
    """The two 32-bit words that key a counter-based stream."""
    words = np.random.SeedSequence(seed, spawn_key=(int(stream),)).generate_state(2, np.uint32)
    return words.astype(np.uint64)


def policy_key(seed: int) -> NDArray[np.uint64]:
    """The key of the stream of policies."""
    return key_of(seed, Stream.POLICY)


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
    """A number of {0, …, count − 1}, all equally likely (to 2⁻³²)."""
    words = philox(key, client, step, 0)
    return int(np.int64((words[0] * np.uint64(count)) >> _SHIFT))


@compiled_lean
def normal(key: NDArray[np.uint64], client: int, step: int, out: NDArray[np.float64]) -> None:
    """Fill `out` with independent standard normals (Box–Muller, four from every Philox block)."""
    words = philox(key, client, step, 0)
    for i in range(out.shape[0]):
        if i % 4 == 0:
            words = philox(key, client, step, i // 4)
        pair = 2 * ((i % 4) // 2)
        radius = math.sqrt(-2.0 * math.log((float(words[pair]) + 0.5) / 4294967296.0))
        angle = 2.0 * math.pi * (float(words[pair + 1]) + 0.5) / 4294967296.0
        out[i] = radius * (math.cos(angle) if i % 2 == 0 else math.sin(angle))
