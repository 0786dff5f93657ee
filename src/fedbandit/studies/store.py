"""A folder of results: runs that are done, found by what they depend on.

The address of a run is a digest of all that it depends on: system, environment (arrays of data included), horizon,
seed, what is measured, the source code that computes it, and NumPy and Numba. A finished run is never repeated, one
that was changed in any way is; a file that cannot be read counts as not there.
"""

from __future__ import annotations

import hashlib
import json
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from inspect import getsourcefile
from pathlib import Path

import numpy as np

from fedbandit._version import __version__
from fedbandit.engine.checkpoint import fingerprint
from fedbandit.environments import Environment
from fedbandit.errors import FedbanditError
from fedbandit.files import make_folder, read_arrays, write_arrays, write_json
from fedbandit.studies.specs import Spec
from fedbandit.studies.trials import Curve, Label, Run, Trial
from fedbandit.system import System

MARK = "fedbandit.json"
_COMPUTES = ("studies/specs.py", "studies/trials.py")
_INSTALLED = {
    *(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    *(Path(folder).resolve() for folder in sys.path if Path(folder).name in ("site-packages", "dist-packages")),
    Path(__file__).resolve().parents[1],
}
"""What is installed: its versions count, not its files."""
_COMPUTES_NOT = ("audit", "cli", "network", "papers", "studies", "testing", "checks.py")


def versions_of(*libraries: str) -> dict[str, str]:
    """The versions of those that are installed."""
    found = {}
    for library in libraries:
        with suppress(PackageNotFoundError):
            found[library] = version(library)
    return found


@lru_cache(maxsize=1)
def code_version() -> str:
    """A digest of the source code on which results depend, and of the libraries below it."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256(repr(versions_of("numpy", "numba")).encode())
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if name in _COMPUTES or name.partition("/")[0] not in _COMPUTES_NOT:
            digest.update(f"\n{name}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def address_of(trial: Trial, system: System, env: Environment) -> str:
    """The name under which a trial's run is kept."""
    digest = hashlib.sha256(code_version().encode())
    digest.update(fingerprint(system, env, trial.horizon, trial.seed).encode())
    digest.update(f"{system.name} {trial.point.extra}".encode())
    for path in sorted({*_users_files(trial, system, env)}):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:40]


def _users_files(trial: Trial, system: System, env: Environment) -> Iterator[Path]:
    """Files outside this package that define the system, one of its parts or the environment, and all that they import.

    Whatever has been imported by then and is not installed counts, as it is not known who uses it.
    """
    own = {*_defining_files(trial, system, env)}
    yield from own
    if own:
        yield from (path for path in _imported_files() if not any(path.is_relative_to(root) for root in _INSTALLED))


def _imported_files() -> set[Path]:
    named = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return {Path(name).resolve() for name in named if isinstance(name, str) and name.endswith(".py")}


def _defining_files(trial: Trial, system: System, env: Environment) -> Iterator[Path]:
    makers: tuple[object, object] = trial.point.system, trial.point.env
    for maker in makers:
        if isinstance(maker, Spec) and maker.file is not None:
            yield maker.file.resolve()
    for part in (system.policy, system.protocol, system.structure, system.privacy, env):
        if not type(part).__module__.startswith("fedbandit."):
            yield Path(str(getsourcefile(type(part))))


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
        make_folder(out / "runs")
        return cls(out / "runs")

    def path(self, address: str) -> Path:
        """Where a run is kept."""
        return self.folder / address[:2] / f"{address}.npz"

    def checkpoint(self, address: str) -> Path:
        """Where an unfinished run saves its state."""
        path = self.path(address).with_suffix(".checkpoint")
        make_folder(path.parent)
        return path

    def get(self, address: str, label: Label) -> Run | None:
        """The run at this address, if it was done, under a label."""
        path = self.path(address)
        if not path.exists():
            return None
        try:
            header, arrays = read_arrays(path)
            curve = Curve(*(arrays.pop(f"curve.{field}") for field in Curve._fields))
            traces = {name.removeprefix("trace."): array for name, array in arrays.items()}
            return Run(label, header["report"], curve, header["n_clients"], header["extra"], traces)
        except (FedbanditError, KeyError):
            return None

    def put(self, address: str, run: Run) -> None:
        """Keep a run, whole or not at all."""
        path = self.path(address)
        make_folder(path.parent)
        arrays = {f"curve.{field}": array for field, array in run.curve._asdict().items()}
        arrays |= {f"trace.{field}": np.asarray(array) for field, array in run.traces.items()}
        write_arrays(path, {"report": run.report, "n_clients": run.n_clients, "extra": run.extra}, arrays)
        self.checkpoint(address).unlink(missing_ok=True)
