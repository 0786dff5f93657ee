"""Recorded interactions from a file, for the command line."""

from __future__ import annotations

import os
import zipfile
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedbandit.environments.recorded import Recorded, recorded
from fedbandit.errors import FedbanditError, require


def recorded_file(
    path: str | os.PathLike[str],
    *,
    n_clients: int | None = None,
    bound: float | None = None,
    noise: float | None = None,
    rounds: Literal["one", "all"] = "one",
) -> Recorded:
    """Your own arrays, replayed from an .npz file with clients, arms, means and rewards.

    Shapes are those of `environments.recorded`. The file may also hold `delays` (T,), `graph` (N, N), `server_of` (N,),
    `partition` (N,), `actions` (T, K), and `counts` (T,) if rounds offer different numbers of arms: the first counts[t]
    of round t are arms, and the rest is padding. Where each action has a θ of its own and all share a round's features,
    these may be called `situations` (T, f) instead of arms.
    """
    arrays = _read(path)
    if "arms" not in arrays and "situations" in arrays:
        arrays["arms"] = arrays.pop("situations")
        shape = arrays["arms"].shape
        require(len(shape) == 2, f"the shape of situations in {os.fspath(path)!r}", shape, "(T, f), a row a round")
    missing = [name for name in ("clients", "arms", "means", "rewards") if name not in arrays]
    if missing:
        raise FedbanditError(
            f"{os.fspath(path)!r} has no array {missing[0]!r}; it must have clients, arms, means, rewards."
        )
    counts = arrays.get("counts")
    if counts is not None:
        _check_counts(counts, arrays["arms"], os.fspath(path))
    return recorded(
        arrays["clients"],
        arrays["arms"] if arrays["arms"].ndim == 2 and counts is None else _offered(arrays["arms"], counts),
        _offered(arrays["means"], counts),
        _offered(arrays["rewards"], counts),
        n_clients=n_clients,
        bound=bound,
        noise=noise,
        actions=None if "actions" not in arrays else _offered(arrays["actions"], counts),
        delays=arrays.get("delays"),
        rounds=rounds,
        graph=arrays.get("graph"),
        server_of=arrays.get("server_of"),
        partition=arrays.get("partition"),
    )


def _offered(table: NDArray[Any], counts: NDArray[Any] | None) -> list[NDArray[Any]]:
    """The entries of each round without the padding; `recorded` finds fault with what has a wrong shape."""
    rounds = list(np.atleast_1d(table))
    if counts is None:
        return rounds
    limits = counts.tolist() + [None] * (len(rounds) - counts.size)  # what is too much is seen by `recorded`
    return [np.atleast_1d(entries)[:count] for entries, count in zip(rounds, limits, strict=False)]


def _check_counts(counts: NDArray[Any], arms: NDArray[Any], name: str) -> None:
    rounds, most = arms.shape[:2] if arms.ndim > 1 else (arms.size, 1)
    if counts.shape != (rounds,) or counts.dtype.kind not in "iu":
        raise FedbanditError(f"counts in {name!r} must be one whole number for each of the {rounds} rounds in arms.")
    bad = np.flatnonzero((counts < 1) | (counts > most))
    if bad.size:
        raise FedbanditError(
            f"counts in {name!r} is {counts[bad[0]]} in round {bad[0]}, but must be from 1 to {most}, its arms."
        )


def _read(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    name = os.fspath(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    except FileNotFoundError:
        raise FedbanditError(f"There is no file {name!r}.") from None
    except (AttributeError, TypeError):  # a single array, from np.save
        raise FedbanditError(f"{name!r} holds one array instead of several; write it with numpy.savez.") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        raise FedbanditError(f"{name!r} is not an .npz file of plain arrays.") from None
