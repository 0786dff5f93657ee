"""Large arrays of zeros that cost nothing until they are written to."""

from __future__ import annotations

import mmap

import numpy as np

from fedbandit.algebra import Array

_HUGE_PAGE = 1 << 21


def lazy_zeros(shape: tuple[int, int]) -> Array:
    """An array of zeros whose memory the system hands out when it is first written to, in large pages where it can.

    A model row is written to when its client first acts: with ordinary pages, a million clients mean half a million
    page faults, each as long as an interaction.
    """
    size = 8 * shape[0] * shape[1]
    if size < 2 * _HUGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros(shape)
    memory = mmap.mmap(-1, size + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    start = np.frombuffer(memory, dtype=np.uint8).ctypes.data
    return np.ndarray(shape, dtype=np.float64, buffer=memory, offset=-start % _HUGE_PAGE)


def enlarged(array: Array, capacity: int) -> Array:
    """A copy of `array` with room for `capacity` rows, the new ones zero."""
    new = lazy_zeros((capacity, array.shape[1]))
    new[: len(array)] = array
    return new
