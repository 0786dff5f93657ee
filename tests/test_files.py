"""Files are written whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedbandit import files
from fedbandit.errors import FedbanditError


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = files.write_json(tmp_path / "a.json", {"old": 1})
    with pytest.raises(ValueError, match="fields not in fieldnames"):
        files.write_table(tmp_path / "a.csv", [{"a": 1}, {"b": 2}])
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.write_json(path, {"new": np.inf})
    assert json.loads(path.read_text()) == {"old": 1}
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FedbanditError, match="cannot be written"):
        files.write_json(tmp_path / "nowhere" / "a.json", {})
    with pytest.raises(FedbanditError, match="cannot be written"):
        files.write_arrays(tmp_path / "nowhere" / "a.npz", {}, {})
