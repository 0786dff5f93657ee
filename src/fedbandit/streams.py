"""Randomness, always explicit, never a hidden global state.

Two kinds, because two kinds of code draw:

- `generator(seed, purpose, part)` is a NumPy generator for arrays drawn in bulk: contexts, arrivals, reward noise. Each
  purpose has its own stream, so that systems compared on one seed see identical data, and each chunk of a stream its
  own part, so that any chunk can be drawn without the ones before it.
- `Draw(key, client, step)` is counter-based (Philox 4×32, ten rounds; Salmon et al., SC 2011): its numbers depend on
  (seed, client, own step) alone, so N separate clients on a network repeat exactly what the simulator did.
"""

from __future__ import annotations

import math
from enum import IntEnum
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit.types import Array

_ONE = 4294967296.0  # 2³²
_MANY = 128  # normals from which on arrays are faster than one block after another


class Purpose(IntEnum):
    """What a stream of random numbers is for."""

    WORLD = 0  # parameters of the environment, arm pools
    ARRIVALS = 1
    CONTEXTS = 2
    REWARDS = 3
    DELAYS = 4
    POLICY = 5
    NOISE = 6  # privacy
    ABSENCES = 7  # of clients that are called


def generator(seed: int, purpose: Purpose, *part: int) -> np.random.Generator:
    """The NumPy generator of one part of one purpose's stream; a part has one number or more, 0 if not given."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(int(purpose), *(part or (0,))))))


@lru_cache(maxsize=1024)
def key_of(seed: int, purpose: Purpose) -> NDArray[np.uint64]:
    """The two 32-bit words that key a counter-based stream."""
    words = np.random.SeedSequence(seed, spawn_key=(int(purpose),)).generate_state(2, np.uint32).astype(np.uint64)
    words.flags.writeable = False  # many clients have this one
    return words


def policy_key(seed: int) -> NDArray[np.uint64]:
    """The key of the stream of policies."""
    return key_of(seed, Purpose.POLICY)


def philox(key: NDArray[np.uint64], client: int, step: int, draw: Any) -> tuple[Any, Any, Any, Any]:
    """The four 32-bit words at counter (draw, step, step >> 32, client); `draw` is one number, or an array of them."""
    step = int(step)  # NumPy's integers overflow below
    c0, c1, c2, c3 = draw, step & 0xFFFFFFFF, step >> 32, int(client) & 0xFFFFFFFF
    for k0, k1 in _round_keys(*key.tolist()):
        p0 = 0xD2511F53 * c0
        p1 = 0xCD9E8D57 * c2
        c0, c2 = (p1 >> 32) ^ c1 ^ k0, (p0 >> 32) ^ c3 ^ k1
        c1, c3 = p1 & 0xFFFFFFFF, p0 & 0xFFFFFFFF
    return c0, c1, c2, c3


@lru_cache(maxsize=1024)
def _round_keys(k0: int, k1: int) -> tuple[tuple[int, int], ...]:
    """The key of each of the ten rounds, counted up by Weyl's constants."""
    return tuple(((k0 + i * 0x9E3779B9) % 2**32, (k1 + i * 0xBB67AE85) % 2**32) for i in range(10))


class Draw:
    """The random numbers of one decision: those of a client at its own step, in the order in which they are asked for.

    Philox gives blocks of four words, numbered 0, 1, 2, … A call that needs words takes the next block: `index` and
    `uniform` use one word each, `normal` a pair of words for two numbers (Box–Muller). What is left of a block serves
    the next call of the same kind. So the numbers are independent, however calls are mixed, and `normal(a)` followed
    by `normal(b)` gives `normal(a + b)`, cut in two.

    >>> draw = Draw(policy_key(seed=0), client=3, step=0)
    >>> draw.index(10), round(draw.uniform(), 4), draw.normal(2).round(4).tolist()
    (3, 0.5877, [-1.3596, 0.298])
    """

    __slots__ = ("_client", "_key", "_next", "_normals", "_step", "_words")

    def __init__(self, key: NDArray[np.uint64], client: int, step: int, first: int = 0) -> None:
        self._key = key
        self._client = client
        self._step = step
        self._next = first
        self._words: list[int] = []  # left of the last block of index and uniform, last first
        self._normals: list[float] = []  # left of the last block of normals, in order

    def index(self, count: int) -> int:
        """A number of {0, …, count − 1}, all equally likely (to 2⁻³²)."""
        return (self._word() * int(count)) >> 32

    def uniform(self) -> float:
        """A number in the open interval (0, 1)."""
        return (self._word() + 0.5) / _ONE

    def normal(self, n: int) -> Array:
        """N independent standard normals."""
        if n >= _MANY:
            return self._many_normals(n)
        drawn = self._normals
        while len(drawn) < n:
            words = self._block()
            for first, second in ((words[0], words[1]), (words[2], words[3])):
                radius = math.sqrt(-2.0 * math.log((first + 0.5) / _ONE))
                angle = 2.0 * math.pi * (second + 0.5) / _ONE
                drawn += (radius * math.cos(angle), radius * math.sin(angle))
        self._normals = drawn[n:]
        return np.array(drawn[:n])

    def _many_normals(self, n: int) -> Array:
        """The same numbers from arrays of blocks, to rounding."""
        count = -(-(n - len(self._normals)) // 4)
        blocks = np.arange(self._next, self._next + count, dtype=np.uint64)
        self._next += count
        words = (np.array(philox(self._key, self._client, self._step, blocks)).T.reshape(-1, 2) + 0.5) / _ONE
        radius, angle = np.sqrt(-2.0 * np.log(words[:, 0])), 2.0 * np.pi * words[:, 1]
        drawn = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]).ravel()
        drawn = np.concatenate([self._normals, drawn])
        self._normals = drawn[n:].tolist()
        return drawn[:n]

    def sibling(self, k: int) -> Draw:
        """Other numbers for the same decision, k = 0, 1, …: what the policy might have drawn instead."""
        return Draw(self._key, self._client, self._step, first=(k + 1) << 20)

    def generator(self) -> np.random.Generator:
        """A NumPy generator keyed by the next block, for many numbers at once."""
        return np.random.Generator(np.random.PCG64(self._block()))

    def _word(self) -> int:
        if not self._words:
            self._words = list(reversed(self._block()))
        return self._words.pop()

    def _block(self) -> tuple[int, int, int, int]:
        self._next += 1
        return philox(self._key, self._client, self._step, self._next - 1)
