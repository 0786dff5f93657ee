"""One decorator for every compiled function: Numba, cached on disk, strict floating point.

Numba's own cache looks only at the file a function stands in, so a kernel would keep calling yesterday's version of
a helper from another file. Here all files with compiled functions are one stamp: change any and all compile anew.

Compiling takes about a minute, once for a version. It is announced on standard error, its seconds are counted apart
(`fast.compiling_seconds`), and where no folder can be written to the cache is a temporary one.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numba
from numba.core import event
from numba.core.caching import InTreeCacheLocator, UserProvidedCacheLocator, UserWideCacheLocator

from fedbandit.engine.fast.warmth import compiling, source_stamp

P = ParamSpec("P")
R = TypeVar("R")


class _WholePackage:
    """A cache folder for each stamp: the index of another version may name types that this one does not have.

    A function in a user's own file is stamped with that file too.
    """

    def __init__(self, function: object, file: str) -> None:
        super().__init__(function, file)  # type: ignore[call-arg]
        self._stamp = hashlib.sha256(source_stamp().encode() + Path(file).read_bytes()).hexdigest()

    def get_cache_path(self) -> str:
        return os.path.join(super().get_cache_path(), f"fedbandit-{source_stamp()[:16]}")  # type: ignore[misc]

    def get_source_stamp(self) -> str:
        return self._stamp


class UserProvided(_WholePackage, UserProvidedCacheLocator):  # type: ignore[misc]
    """The folder named by NUMBA_CACHE_DIR."""


class InTree(_WholePackage, InTreeCacheLocator):  # type: ignore[misc]
    """`__pycache__` beside the source."""


class UserWide(_WholePackage, UserWideCacheLocator):  # type: ignore[misc]
    """The user's cache folder, for a read-only installation."""


@cache
def _temporary_folder() -> str:
    folder = tempfile.mkdtemp(prefix="fedbandit-kernels-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


class Temporary(_WholePackage, UserWideCacheLocator):  # type: ignore[misc]
    """A folder of this process, where nothing else can be written to: a read-only installation without a home."""

    def __init__(self, function: Any, file: str) -> None:
        self._py_file = file
        self._lineno = function.__code__.co_firstlineno
        self._cache_path = os.path.join(_temporary_folder(), self.get_suitable_cache_subpath(file))
        self._stamp = hashlib.sha256(source_stamp().encode() + Path(file).read_bytes()).hexdigest()

    @classmethod
    def from_function(cls, function: Any, file: str) -> Temporary:
        locator = cls(function, file)
        locator.ensure_cache_path()
        return locator


_LOCATORS = ",".join(f"{__name__}.{locator.__name__}" for locator in (UserProvided, InTree, UserWide, Temporary))


class _Listener(event.Listener):  # type: ignore[misc]
    """Kernels that were not in the cache."""

    def on_start(self, event: Any) -> None:
        compiling.begin(event.data["dispatcher"].py_func)

    def on_end(self, event: Any) -> None:  # noqa: ARG002 - whichever it was
        compiling.end()


event.register("numba:compile", _Listener())


def _compile(function: Callable[P, R], **options: bool | str) -> Callable[P, R]:
    before = numba.config.CACHE_LOCATOR_CLASSES
    numba.config.CACHE_LOCATOR_CLASSES = _LOCATORS
    try:
        kernel: Callable[P, R] = numba.njit(cache=True, error_model="numpy", **options)(function)
    finally:
        numba.config.CACHE_LOCATOR_CLASSES = before
    return kernel


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` on first use; with NUMBA_DISABLE_JIT=1 it stays plain Python.

    No `fastmath`: a score must not depend on how the compiler likes to add.
    """
    return _compile(function)


def compiled_lean(function: Callable[P, R]) -> Callable[P, R]:
    """The same for functions that allocate nothing: they count no references.

    Numba counts references to every array and every view of one, with atomic instructions; in a function as small as
    a rank-one update that is a third of the time.
    """
    return _compile(function, _nrt=False)


def compiled_apart(function: Callable[P, R]) -> Callable[P, R]:
    """`compiled_lean` for what is long and, where speed counts, called seldom: it is inlined only if LLVM likes to.

    Numba inlines whatever an inlined function calls, however long, unless it is told not to. The loop of an engine
    would have 87,000 instructions, take twice as long to compile, and those that every interaction needs would be far
    apart.
    """
    return _compile(function, _nrt=False, forceinline=False)


def compiled_free(function: Callable[P, R]) -> Callable[P, R]:
    """`compiled_lean` for what Python calls and what takes long: other threads go on meanwhile."""
    return _compile(function, _nrt=False, nogil=True)


def compiled_inline(function: Callable[P, R]) -> Callable[P, R]:
    """The same for the innermost loops, which vanish into their callers."""
    return _compile(function, _nrt=False, forceinline=True)


def compiled_view(function: Callable[P, R]) -> Callable[P, R]:
    """The same for one-line functions that return a view; their line is put in place of the call."""
    return _compile(function, inline="always")
