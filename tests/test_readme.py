"""What the documents tell a newcomer to type works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def python_blocks(name: str) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), flags=re.DOTALL))


def test_the_readme_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(python_blocks("README.md"), "README.md", "exec"), names)
    assert "result" in names
