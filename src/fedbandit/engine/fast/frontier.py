"""Memory that is handed out before it is written to, by a second thread.

The system hands out memory when it is first written to, and clears it: the first simulation of a process waits for a
few hundred megabytes. On a virtual machine that has to be given them itself, that takes longer than the simulation.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

_POPULATE_WRITE = 23  # of madvise, since Linux 5.14; it changes nothing that is there
_STEP = 1 << 21  # bytes, a large page
MOST_AHEAD = 1 << 26
"""Bytes that are asked for ahead of what is used; and never more than that itself, so that at most half is in vain."""


class Frontier:
    """How much of an array, whose rows are used one after the other, has been asked for.

    With NUMBA_NUM_THREADS=1, as in the workers of a comparison, which occupy all processors already, nothing is.
    """

    def __init__(self) -> None:
        self._array: weakref.ref[NDArray[Any]] | None = None
        self._asked = 0  # bytes of it

    def reach(self, array: NDArray[Any], used: int) -> None:
        """The first `used` rows are in use: have more of the array handed out if it is time."""
        needed = used * array.strides[0]
        ahead = min(needed, MOST_AHEAD)
        if ahead < 2 * _STEP or numba.config.NUMBA_NUM_THREADS == 1 or _madvise() is None:
            return
        if self._array is None or self._array() is not array:  # it has grown, and moved
            self._array, self._asked = weakref.ref(array), 0
        if self._asked < min(needed + ahead // 2, array.nbytes):
            start, self._asked = max(self._asked, needed), min(needed + ahead, array.nbytes)
            with contextlib.suppress(RuntimeError):  # no thread can be started: the system hands it out when it is used
                _helper().submit(_hand_out, self._array, start, self._asked)


def _hand_out(owner: weakref.ref[NDArray[Any]], start: int, stop: int) -> None:
    """Bytes start, …, stop − 1 of an array, as long as somebody has it."""
    madvise = _madvise()
    for at in range(start, stop, _STEP):
        array = owner()
        if array is None or madvise is None:
            return
        first = array.ctypes.data + at
        first -= first % mmap.PAGESIZE
        madvise(first, min(array.ctypes.data + stop - first, _STEP), _POPULATE_WRITE)
        del array


@cache
def _madvise() -> Callable[[int, int, int], int] | None:
    """The system's madvise, without Python's lock; None where it cannot hand out memory."""
    if sys.platform != "linux":
        return None
    function = ctypes.CDLL(None).madvise
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    page = np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE), dtype=np.uint8)
    return function if function(page.ctypes.data, page.size, _POPULATE_WRITE) == 0 else None


@cache
def _helper() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="fedbandit-memory")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helper.cache_clear)  # threads do not survive a fork
