"""One decorator for every compiled function: Numba, cached on disk, strict floating point.

Numba's own cache looks only at the file a function stands in, so a kernel would keep calling yesterday's version of
a helper from another file. Here all files with compiled functions are one stamp: change any and all compile anew.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import ParamSpec, TypeVar

import numba
from numba.core.caching import InTreeCacheLocator, UserProvidedCacheLocator, UserWideCacheLocator

P = ParamSpec("P")
R = TypeVar("R")


@cache
def source_stamp() -> str:
    """A digest of every source file that has compiled functions, the same wherever this version is installed."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        text = path.read_bytes()
        if b"@compiled" in text:
            digest.update(text)
    return digest.hexdigest()


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


_LOCATORS = ",".join(f"{__name__}.{locator.__name__}" for locator in (UserProvided, InTree, UserWide))


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
