"""Large arrays that cost nothing until they are written to, and little when they are written to again."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit.engine.fast.switches import has
from fedbandit.types import Array, Ints

_HUGE_PAGE = 1 << 21
_HUGE_PAGES, _RECYCLED = has("huge-pages"), has("recycled-mappings")

MOST_KEPT = 1 << 31
"""Bytes of finished simulations that are kept for the next; the system may take them back at any time."""

_kept: list[mmap.mmap] = []


def lazy_zeros(shape: tuple[int, int]) -> Array:
    """An array of zeros whose memory the system hands out when it is first written to, in large pages where it can.

    A model row is written to when its client first acts: with ordinary pages, a million clients mean half a million
    page faults, each as long as an interaction.
    """
    size = 8 * math.prod(shape)
    return np.zeros(shape) if _is_small(size) else _array_in(_reserve(size), shape)


def room_for(shape: tuple[int, int]) -> Array:
    """The same for rows that are written to before they are read: whatever an earlier simulation left may be in it.

    To clear the pages of a hundred thousand rows takes the system a fifth of the time of a simulation.
    """
    size = 8 * math.prod(shape)
    if not _RECYCLED or _is_small(size) or not hasattr(mmap, "MADV_FREE"):
        return lazy_zeros(shape)
    memory = _take_kept(size) or _reserve(size)
    array = _array_in(memory, shape)
    weakref.finalize(array, _keep, memory).atexit = False
    return array


def minus_ones(n: int) -> Ints:
    """Minus one, n times, in large pages too: of a million clients, each is looked up in another page."""
    numbers: Ints = room_for((1, n))[0].view(np.int64)
    numbers[:] = -1
    return numbers


def enlarged(array: Array, capacity: int) -> Array:
    """A copy of `array` with room for `capacity` rows; whatever may be in the new ones."""
    new = room_for((capacity, array.shape[1]))
    new[: len(array)] = array
    return new


def grown(array: NDArray[Any], capacity: int) -> NDArray[Any]:
    """A copy of `array` with room for `capacity` entries along the first axis, the new ones zero."""
    new = np.zeros((capacity, *array.shape[1:]), dtype=array.dtype)
    new[: array.shape[0]] = array
    return new


def _is_small(size: int) -> bool:
    return size < 2 * _HUGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE")


def _reserve(size: int) -> mmap.mmap:
    try:
        memory = mmap.mmap(-1, size + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError:
        raise MemoryError(f"the system has no {size / 1e9:,.0f} GB for one array") from None
    memory.madvise(mmap.MADV_HUGEPAGE if _HUGE_PAGES else mmap.MADV_NOHUGEPAGE)
    return memory


def _array_in(memory: mmap.mmap, shape: tuple[int, int]) -> Array:
    start = np.frombuffer(memory, dtype=np.uint8).ctypes.data
    return np.ndarray(shape, dtype=np.float64, buffer=memory, offset=-start % _HUGE_PAGE)


def _take_kept(size: int) -> mmap.mmap | None:
    """Memory that is large enough, and not much too large; the smallest such first.

    Several threads may ask: whoever removes it from the list has it. (A finalizer may run within any line here, in the
    same thread, so that there can be no lock.)
    """
    fitting = [memory for memory in list(_kept) if size + _HUGE_PAGE <= len(memory) <= 2 * size + _HUGE_PAGE]
    for memory in sorted(fitting, key=len):
        with contextlib.suppress(ValueError):
            _kept.remove(memory)
            return memory
    return None


def _keep(memory: mmap.mmap) -> None:
    """Put a finished mapping on the free list; MADV_FREE lets the system reclaim its pages."""
    if len(memory) > MOST_KEPT:
        return
    with contextlib.suppress(OSError):  # where the system will not, the memory is not kept
        memory.madvise(mmap.MADV_FREE)
        _kept.append(memory)
    kept = list(_kept)
    while sum(map(len, kept)) > MOST_KEPT:
        with contextlib.suppress(ValueError):
            _kept.remove(kept[0])
        del kept[0]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_kept.clear)  # what is shared with the parent would be copied page by page
