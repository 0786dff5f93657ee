"""Whether kernels are compiled, what compiling costs, and saying so. Only where a cache is found is Numba imported."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from functools import cache
from pathlib import Path

from fedbandit.engine.fast.switches import WITHOUT

HERE = Path(__file__).parent

PATIENCE = 20.0
"""Seconds after which whoever reads a log, not a terminal, is told again that something happens."""


@cache
def source_stamp() -> str:
    """A digest of every source file that has compiled functions, the same wherever this version is installed.

    And of what is switched off, with which kernels are others.
    """
    digest = hashlib.sha256(",".join(sorted(WITHOUT)).encode())
    for path in sorted(HERE.rglob("*.py")):
        text = path.read_bytes()
        if b"@compiled" in text:
            digest.update(text)
    return digest.hexdigest()


def is_warm(loop: str) -> bool:
    """Whether a loop, such as `loop.run`, is in a cache that this process would read, compiled for this machine."""
    folder = f"fedbandit-{source_stamp()[:16]}"
    given = os.environ.get("NUMBA_CACHE_DIR")
    places = [(Path(given), f"*/{folder}")] if given else [(HERE / "__pycache__", folder)]
    if not given:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        places.append((Path(home) / "numba", f"*/{folder}"))
    python = "py{}{}".format(*sys.version_info)
    indexes = (path for place, below in places for path in place.glob(f"{below}/{loop}-*.{python}*.nbi"))
    return any(is_for_this_machine(_contents(index)) for index in indexes)


def _contents(index: Path) -> bytes:
    """Nothing where another process has just removed it, or may read what this one may not: Numba compiles then."""
    try:
        return index.read_bytes()
    except OSError:
        return b""


def is_for_this_machine(index: bytes) -> bool:
    """Whether the index of a cache lists code of this version of Numba for this processor, as an image's may not.

    Its bytes are searched: to unpickle them all modules that kernels take types from would have to be imported.
    """
    from numba import __version__  # here: it takes a second, and who has no cache does not need it
    from numba.core.registry import cpu_target

    target = cpu_target.target_context.codegen().magic_tuple()  # as Numba itself compares: triple, processor, features
    return all(_pickled(text) in index for text in (__version__, *target))


def _pickled(text: str) -> bytes:
    """A text as a pickle has it, after its opcode: the length, and UTF-8."""
    data = text.encode()
    return len(data).to_bytes(1 if len(data) < 256 else 4, "little") + data


class Compiling:
    """What is compiled in this process, and how long that took."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.kernels = 0
        self._depth = 0
        self._since = 0.0
        self._said = 0.0

    def begin(self, function: object) -> None:
        """A kernel is compiled; others may be compiled meanwhile, which it calls."""
        if not getattr(function, "__module__", "").startswith("fedbandit."):
            self._depth += 1
            return
        if self._depth == 0:
            self._since = time.perf_counter()
        self._depth += 1
        self.kernels += 1
        self._say()

    def end(self) -> None:
        """It is compiled."""
        self._depth -= 1
        if self._depth == 0 and self._since:
            self.seconds += time.perf_counter() - self._since

    def _say(self) -> None:
        """That it begins, and how far it is: always where somebody looks, else now and then."""
        if os.environ.get("FEDBANDIT_QUIET") or sys.stderr is None:
            return
        now = time.perf_counter()
        if self.kernels == 1:
            what = "compiling a loop of the fast engine, once for this version: about a minute of an idle core"
            print(f"fedbandit: {what} (fedbandit warm-up does it beforehand).", file=sys.stderr, flush=True)
        elif sys.stderr.isatty():
            print(f"\rfedbandit: compiling, {self.kernels} kernels so far ", end="", file=sys.stderr, flush=True)
            return
        elif now - self._said >= PATIENCE:
            print(f"fedbandit: still compiling, {self.kernels} kernels so far.", file=sys.stderr, flush=True)
        else:
            return
        self._said = now


compiling = Compiling()
