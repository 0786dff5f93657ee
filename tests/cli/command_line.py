"""What tests of the command line share: commands that must succeed or fail, and files to give them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbandit.cli.main import main

MY_FILE = '''
from neighbour import STRENGTH
from fedbandit import System, async_linucb


def my_system(strength: float = STRENGTH, keen: bool = False, label: str = "") -> System:
    """Mine."""
    return async_linucb(gamma_upload=strength, gamma_download=1.5 if keen else 5.0)


def not_a_system() -> int:
    return 3
'''


def write_my_file(folder: Path) -> Path:
    """A user's file with a system, and a neighbour that it imports."""
    (folder / "neighbour.py").write_text("STRENGTH = 2.0\n")
    path = folder / "my.py"
    path.write_text(MY_FILE)
    return path


def recorded_arrays() -> dict[str, Any]:
    """Arrays for `recorded`: 30 rounds, 3 clients, 4 arms in two dimensions."""
    rng = np.random.default_rng(0)
    means = rng.random((30, 4))
    return {
        "clients": np.arange(30) % 3,
        "arms": rng.random((30, 4, 2)) / 2,
        "means": means,
        "rewards": means + 0.1 * rng.standard_normal((30, 4)),
    }


def report(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """Run a command with --json and return the object it prints."""
    assert main([*words, "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.count("\n") == 1
    answer: dict[str, Any] = json.loads(captured.out)
    return answer


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run a command that must fail and return its sentence."""
    assert main(list(words)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("fedbandit: ")
    assert captured.err.count("\n") == 1
    return captured.err.removeprefix("fedbandit: ").rstrip()
