"""Every test here has a cache of its own and knows no data but those it names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

FIXTURE = Path(__file__).parent / "fixture"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("FEDBANDIT_CACHE", str(cache))
    monkeypatch.delenv("FEDBANDIT_DATA", raising=False)
    return cache


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A copy of the fixture that a test may spoil."""
    folder = tmp_path / "data"
    shutil.copytree(FIXTURE, folder)
    return folder
