"""How much code a simulation walks through: named functions that one `simulate(async_linucb())` calls.

Importing is not counted, nor what was called before and is remembered (`functools.cache`), nor compiled kernels, which
Python does not call.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Literal

import fedbandit as fb
from benchmarks.timing import table

ROOT = Path(fb.__file__).parent
PARTS = ("policies", "protocols", "structures", "privacy")
KINDS = {
    "the algorithm": "client, exchange, model, policy, link, coordinator, sharing, sums",
    "compiled engine": "rows, hub, memory",
    "settling and checking": "preset, `System.told`, pairs that are refused, numbers that are checked, the guarantee",
    "facts of parts": "a line each: `Structure.separate`, `Privacy.waits`, `MessageProtocol.period`, …",
    "drawing the environment": "",
    "time loop and result": "",
}


def called(engine: Literal["plain", "fast"]) -> set[CodeType]:
    """The functions of a second simulation; all that the first one imports, compiles or remembers is there."""
    env = fb.environments.homogeneous(n_clients=20, dim=5, n_arms=5)
    fb.simulate(fb.async_linucb(), env, 300, 0, engine=engine)
    seen: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(ROOT)) and not code.co_name.startswith("<"):
            seen.add(code)

    sys.setprofile(note)
    try:
        fb.simulate(fb.async_linucb(), env, 300, 0, engine=engine)
    finally:
        sys.setprofile(None)
    return seen


@cache
def one_line_functions(file: str) -> set[int]:
    """The first lines of functions that only return something, their docstrings aside."""
    nodes = [node for node in ast.walk(ast.parse(Path(file).read_text("utf-8"))) if isinstance(node, ast.FunctionDef)]
    short = [node for node in nodes if isinstance(node.body[-1], ast.Return) and len(node.body) <= 2]
    return {min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) for node in short}


def kind_of(code: CodeType) -> str:
    """Which of KINDS a function is, by where it stands."""
    where = Path(code.co_filename).relative_to(ROOT)
    first, second = where.parts[0], where.parts[-2:]
    if where.parts[:2] == ("engine", "fast"):
        return "compiled engine"
    if first == "environments" or second == ("engine", "draws.py"):
        return "drawing the environment"
    if first in ("engine", "progress.py"):
        return "time loop and result"
    settling = ("presets", "system.py", "pairs.py", "parts.py", "errors.py", "world.py", "keywords.py", "bounds.py")
    if first in settling or second == ("privacy", "guarantee.py"):
        return "settling and checking"
    if first in PARTS and code.co_firstlineno in one_line_functions(code.co_filename):
        return "facts of parts"
    return "the algorithm"


def main() -> None:
    """Print the table of docs/architecture.md."""
    counts = [Counter(map(kind_of, called("plain"))), Counter(map(kind_of, called("fast")))]
    lines = [[kind, *(str(count[kind] or "–") for count in counts), said] for kind, said in KINDS.items()]
    lines.append(["all", *(str(count.total()) for count in counts), ""])
    print(table(["of these", "plain", "fast", ""], lines))
