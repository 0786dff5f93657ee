"""What the documents tell a newcomer to type works: their Python runs, their command lines are understood."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from fedbandit.cli.main import COMMANDS, build_parser
from fedbandit.errors import FedbanditError

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    ROOT / "README.md",
    *(page for folder in ("docs", "examples", "deploy") for page in sorted(ROOT.glob(f"{folder}/**/*.md"))),
]
NEEDS = re.compile(r"<!-- .* needed to run this -->")


def names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


def programs(text: str) -> list[str]:
    """Blocks of Python that are no doctests (pytest runs those) and do not say that they need something."""
    found = re.findall(r"```python\n(.*?)```\n?(.*?)(?:\n|\Z)", text, flags=re.DOTALL)
    return [block for block, after in found if ">>>" not in block and not NEEDS.match(after)]


WITH_PROGRAMS = [path for path in DOCUMENTS if programs(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("path", WITH_PROGRAMS, ids=names(WITH_PROGRAMS))
def test_python_runs(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    text = "\n".join(programs(path.read_text(encoding="utf-8")))
    exec(compile(text, str(path), "exec", dont_inherit=True), {"__name__": path.stem})


def command_lines(text: str) -> list[str]:
    """Lines of blocks, and texts in backticks, that call fedbandit; `…` and what follows stands for anything."""
    blocks = re.findall(r"^```(?:sh|bash|console)?\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"`(fedbandit [^`]*)`", text)
    return [line.removeprefix("$ ") for line in lines if re.match(r"(\$ )?fedbandit ", line)]


WITH_COMMANDS = [path for path in DOCUMENTS if command_lines(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("path", WITH_COMMANDS, ids=names(WITH_COMMANDS))
def test_command_lines_are_understood(path: Path) -> None:
    for line in command_lines(path.read_text(encoding="utf-8")):
        words = shlex.split(line.partition("…")[0], comments=True)[1:]
        if not words or words[0].startswith("-"):
            continue
        assert words[0] in COMMANDS, line
        if "…" not in line and words[1:]:
            try:
                _, rest = build_parser([words[0]]).parse_known_args(words)
            except (FedbanditError, SystemExit) as error:
                pytest.fail(f"{line}: {error}")
            assert not rest, f"{line}: {rest}"
