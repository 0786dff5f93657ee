"""A folder of results: runs that are done, found by what they are runs of.

The name of a file is a digest of all that a run depends on: system, environment (arrays of data included), horizon,
seed, what is measured, the source code that computes it, and NumPy and Numba. A run that was done is never done again,
one that was changed in any way is; a file that cannot be read counts as not there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import numpy as np

from fedbandit._version import __version__
from fedbandit.engine.checkpoint import fingerprint
from fedbandit.environments import Environment
from fedbandit.errors import FedbanditError
from fedbandit.files import read_arrays, write_arrays
from fedbandit.studies.runner import Curve, Run, Trial
from fedbandit.studies.specs import Spec
from fedbandit.studies.tables import make_folder, write_json
from fedbandit.system import System

MARK = "fedbandit.json"
_COMPUTES = ("studies/extras.py", "studies/runner.py", "studies/keywords.py", "studies/specs.py")
_COMPUTES_NOT = ("audit", "cli", "network", "papers", "studies", "testing")
_ABOUT_TEXT = ("checks",)


@lru_cache(maxsize=1)
def code_version() -> str:
    """A digest of the source code on which results depend, and of the libraries below it."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256(f"numpy {version('numpy')} numba {version('numba')}".encode())
    for path in _sources(root):
        digest.update(f"\n{path.relative_to(root).as_posix()}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _sources(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        inside = name.partition("/")[0]
        about_text = inside in _COMPUTES_NOT or (name == inside and name.startswith(_ABOUT_TEXT))
        if name in _COMPUTES or not about_text:
            yield path


def address(trial: Trial, system: System, env: Environment) -> str:
    """The name under which a trial's run is kept."""
    digest = hashlib.sha256(code_version().encode())
    digest.update(fingerprint(system, env, trial.horizon, trial.seed).encode())
    digest.update(f"{system.name} {trial.extra}".encode())
    for spec in (trial.system, trial.env):
        if isinstance(spec, Spec) and ".py:" in spec.name:
            digest.update(Path(spec.name.partition(".py:")[0] + ".py").read_bytes())
    return digest.hexdigest()[:40]


@dataclass(frozen=True)
class Store:
    """Runs in a folder."""

    folder: Path

    @classmethod
    def open(cls, out: Path) -> Store:
        """The store of a folder of results, which is made if it is not there; one of another version is refused."""
        make_folder(out)
        mark = out / MARK
        if mark.exists():
            try:
                written = json.loads(mark.read_text(encoding="utf-8"))["version"]
            except (OSError, ValueError, KeyError, TypeError):
                raise FedbanditError(
                    f"{str(mark)!r} cannot be read; give another folder, or remove this one."
                ) from None
            if written != __version__:
                raise FedbanditError(
                    f"The folder {str(out)!r} holds results of fedbandit {written}, and this is {__version__}: "
                    "give another folder, or remove that one."
                )
        else:
            write_json(mark, {"version": __version__})
        make_folder(out / "cells")
        return cls(out / "cells")

    def path(self, name: str) -> Path:
        """Where a run is kept."""
        return self.folder / name[:2] / f"{name}.npz"

    def checkpoint(self, name: str) -> Path:
        """Where a run that is under way saves its state."""
        path = self.path(name).with_suffix(".checkpoint")
        make_folder(path.parent)
        return path

    def get(self, name: str, label: str) -> Run | None:
        """The run of this name, if it was done."""
        path = self.path(name)
        if not path.exists():
            return None
        try:
            header, arrays = read_arrays(path)
            curve = Curve(*(arrays.pop(f"curve.{field}") for field in Curve._fields))
            traces = {name.removeprefix("trace."): array for name, array in arrays.items()}
            return Run(label, header["report"], curve, header["extra"], traces)
        except (FedbanditError, KeyError):
            return None

    def put(self, name: str, run: Run) -> None:
        """Keep a run, whole or not at all."""
        path = self.path(name)
        make_folder(path.parent)
        arrays = {f"curve.{field}": array for field, array in run.curve._asdict().items()}
        arrays |= {f"trace.{field}": np.asarray(array) for field, array in run.traces.items()}
        write_arrays(path, {"report": run.report, "extra": run.extra}, arrays)
        self.checkpoint(name).unlink(missing_ok=True)
