"""Saving a simulation half way and going on later, with the same result as if it had never stopped."""

from __future__ import annotations

import hashlib
import os
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbandit.environments.block import Environment
from fedbandit.errors import FedbanditError
from fedbandit.files import DamagedFile, read_arrays, write_arrays
from fedbandit.state import State, damaged, read, require_arrays_like, restoring, stamp
from fedbandit.system import System, plain_value

if TYPE_CHECKING:
    from fedbandit.engine.simulation import Simulation

KIND = "checkpoint"
SINCE = "0.1.0"
"""The first version that wrote checkpoints, for ever: it was part of their identity."""


def fingerprint(system: System, env: Environment, horizon: int, seed: int) -> str:
    """A digest of all that a simulation is made of, the contents of arrays included.

    The version of the software is not among it: whether a later one can go on says the format's number.
    """
    digest = hashlib.sha256(f"{SINCE} {horizon} {seed}".encode())

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
            digest.update(repr(plain_value(thing)).encode())  # a function's repr is where it is in memory

    add(system)
    add(env)
    return digest.hexdigest()


def write_checkpoint(path: str | os.PathLike[str], simulation: Simulation, identity: str) -> None:
    """Save the state of a simulation, whole or not at all."""
    state = simulation.learner.state()
    mine = {"identity": identity, "engine": simulation.engine, "done": simulation.done}
    header = {**stamp(KIND), **mine, "learner": state.header}
    write_arrays(path, header, {**state.arrays, **_curves(simulation)})


def read_checkpoint(path: str | os.PathLike[str], simulation: Simulation, identity: str) -> None:
    """Put a freshly made simulation into the saved state."""
    where = repr(os.fspath(path))
    try:
        head, found = read_arrays(path)
    except DamagedFile:
        raise damaged(KIND, where, "it was cut off or changed") from None
    header, arrays = read(KIND, head, State(head, found), where)
    if header.get("identity") != identity:
        raise FedbanditError(
            f"The checkpoint {where} belongs to another simulation (system, environment, horizon or seed differ); "
            "remove it or name another file."
        )
    with restoring(KIND, where):
        if header["engine"] != simulation.engine:
            if simulation.asked != "auto":
                raise FedbanditError(
                    f"The checkpoint {where} is of the {header['engine']} engine; go on with that one."
                )
            simulation.use_engine(header["engine"])  # "auto" may have chosen otherwise since: the cache is warm now
        curves = {name: arrays.pop(name) for name in list(arrays) if name.startswith("totals.")}
        require_arrays_like(curves, _curves(simulation))
        simulation.learner.restore(State(header["learner"], arrays))
        simulation.totals = simulation.totals._replace(**{k.removeprefix("totals."): v for k, v in curves.items()})
        simulation.done = header["done"]


def _curves(simulation: Simulation) -> dict[str, Any]:
    return {f"totals.{name}": array for name, array in simulation.totals._asdict().items()}
