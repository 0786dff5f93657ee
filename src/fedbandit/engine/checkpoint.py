"""Saving a simulation half way and going on later, with the same result as if it had never stopped."""

from __future__ import annotations

import hashlib
import os
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbandit._version import __version__
from fedbandit.environments.block import Environment
from fedbandit.errors import FedbanditError
from fedbandit.files import read_arrays, write_arrays
from fedbandit.state import State
from fedbandit.system import System

if TYPE_CHECKING:
    from fedbandit.engine.simulation import Simulation


def fingerprint(system: System, env: Environment, horizon: int, seed: int) -> str:
    """A digest of all that a simulation depends on, the contents of arrays and the version of the software included."""
    digest = hashlib.sha256(f"{__version__} {horizon} {seed}".encode())

    def add(thing: Any) -> None:
        if isinstance(thing, np.ndarray):
            digest.update(f"{thing.dtype} {thing.shape}".encode())
            digest.update(np.ascontiguousarray(thing).tobytes())
        elif is_dataclass(thing) and not isinstance(thing, type):
            digest.update(type(thing).__name__.encode())
            for field in fields(thing):
                digest.update(field.name.encode())
                add(getattr(thing, field.name))
        else:
            digest.update(repr(thing).encode())

    add(system)
    add(env)
    return digest.hexdigest()


FORMAT = 7
"""Of what is in the file; the first and the fifth had other light rows, all others before this one other rows."""


def write_checkpoint(path: str | os.PathLike[str], simulation: Simulation, identity: str) -> None:
    """Save the state of a simulation, whole or not at all."""
    state = simulation.learner.state()
    totals = {f"totals.{k}": v for k, v in simulation.totals._asdict().items()}
    header = {"format": FORMAT, "identity": identity, "done": simulation.done, "learner": state.header}
    write_arrays(path, header, state.arrays | totals)


def read_checkpoint(path: str | os.PathLike[str], simulation: Simulation, identity: str) -> None:
    """Put a freshly made simulation into the saved state."""
    header, arrays = read_arrays(path)
    if header.get("format") != FORMAT:
        raise FedbanditError(
            f"The checkpoint {os.fspath(path)!r} is of format {header.get('format')}, and this fedbandit reads "
            f"{FORMAT}; remove it or name another file."
        )
    if header.get("identity") != identity:
        raise FedbanditError(
            f"The checkpoint {os.fspath(path)!r} belongs to another simulation (system, environment, horizon, seed or "
            "version differ); remove it or name another file."
        )
    try:
        totals = type(simulation.totals)(*(arrays.pop(f"totals.{k}") for k in simulation.totals._fields))
        if any(read.shape != empty.shape for read, empty in zip(totals, simulation.totals, strict=True)):
            raise FedbanditError(f"The checkpoint {os.fspath(path)!r} is not whole: its curves are too short.")
        simulation.totals = totals
        simulation.done = header["done"]
        simulation.learner.restore(State(header["learner"], arrays))
    except KeyError as error:
        raise FedbanditError(f"The checkpoint {os.fspath(path)!r} is not whole: it has no {error}.") from None
