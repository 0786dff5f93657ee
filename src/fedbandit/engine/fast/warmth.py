"""Whether kernels are compiled, what compiling costs, and saying so. Nothing here imports the compiler."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent

PATIENCE = 20.0
"""Seconds after which whoever reads a log, not a terminal, is told again that something happens."""


@cache
def source_stamp() -> str:
    """A digest of every source file that has compiled functions, the same wherever this version is installed."""
    digest = hashlib.sha256()
    for path in sorted(HERE.rglob("*.py")):
        text = path.read_bytes()
        if b"@compiled" in text:
            digest.update(text)
    return digest.hexdigest()


def is_warm(loop: str) -> bool:
    """Whether a loop, such as `loop.run`, is in a cache that this process would read."""
    folder = f"fedbandit-{source_stamp()[:16]}"
    given = os.environ.get("NUMBA_CACHE_DIR")
    places = [(Path(given), f"*/{folder}")] if given else [(HERE / "__pycache__", folder)]
    if not given:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        places.append((Path(home) / "numba", f"*/{folder}"))
    return any(next(place.glob(f"{below}/{loop}-*.nbi"), None) is not None for place, below in places)


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
