"""From a service's features to contexts: x = c·(features, constant) with ‖x‖ ≤ L."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from fedbandit.actions import as_rows
from fedbandit.errors import FedbanditError, require, shown, unknown
from fedbandit.machines.client import ClientMachine
from fedbandit.network.invitation import Schema
from fedbandit.types import Array

OutOfRange = Literal["refuse", "clip", "scale"]


class Scaling:
    """How features become contexts.

    `intercept` adds a constant; `longest` is the norm of the longest feature vector there can be: it is scaled to the
    declared norm L. What is longer all the same is out of range:

    - `"refuse"`: an error that says so;
    - `"clip"`: each entry of such a vector is cut to ±longest/√d: one wild feature does not drown the others;
    - `"scale"`: such a vector is shortened, its direction stays.

    Where it is not refused, NaN counts as 0 and an infinite feature as a very large one.

    >>> Scaling(2, 1.0, out_of_range="scale").transform([[3.0, 4.0], [0.5, 0.0]]).round(3).tolist()
    [[0.6, 0.8], [0.5, 0.0]]
    """

    def __init__(
        self,
        dim: int,
        bound: float,
        *,
        intercept: bool = False,
        longest: float | None = None,
        out_of_range: OutOfRange = "refuse",
    ) -> None:
        self.given = dim - intercept
        require(self.given >= 1, "the number of features", self.given, "at least 1 beside the intercept")
        require(longest is None or longest > 0, "longest", longest, "a number > 0")
        if out_of_range not in get_args(OutOfRange):
            raise unknown("way out_of_range", str(out_of_range), get_args(OutOfRange))
        self.intercept = intercept
        self.longest = bound if longest is None else float(longest)
        if longest is None and intercept:
            self.longest = bound / 2**0.5
        self.scale = bound / (self.longest * (2**0.5 if intercept else 1.0))
        self.out_of_range = out_of_range
        self.changed = 0
        """Feature vectors so far that were out of range, and were changed."""

    def transform(self, features: ArrayLike) -> Array:
        """The contexts of (K, d) features."""
        F = self._numbers(features)
        if self.out_of_range != "refuse":
            F = self._within(F)
        if self.intercept:
            F = np.column_stack([F, np.full(len(F), self.longest)])
        return F if self.scale == 1.0 else F * self.scale

    def _numbers(self, features: ArrayLike) -> Array:
        wanted = f"(K, {self.given})"
        if hasattr(features, "toarray"):  # SciPy's sparse matrices
            kind = type(features).__name__
            raise FedbanditError(f"arms is a sparse {kind}, but must be a {wanted} array: use .toarray().")
        try:
            given = np.asarray(features)
        except (TypeError, ValueError, OverflowError):
            given = np.asarray(None)
        if given.dtype.kind not in "biuf":
            raise FedbanditError(f"arms is {shown(features)}, but must be a {wanted} array of numbers.")
        F: Array = given.astype(np.float64)
        require(F.ndim == 2 and len(F) > 0 and F.shape[1] == self.given, "the shape of arms", F.shape, wanted)
        return F

    def _within(self, F: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            norms = np.sqrt((F * F).sum(axis=1))
        far = ~(norms <= self.longest * (1 + 1e-9))
        if not far.any():
            return F
        self.changed += int(far.sum())
        F = F.copy()
        wild = np.nan_to_num(F[far], nan=0.0, posinf=1e100, neginf=-1e100).clip(-1e100, 1e100)
        if self.out_of_range == "clip":
            most = self.longest / self.given**0.5
            F[far] = wild.clip(-most, most)
        else:
            lengths = np.sqrt((wild * wild).sum(axis=1, keepdims=True))
            F[far] = wild * np.minimum(1.0, self.longest / np.maximum(lengths, 1e-300))
        return F


def as_agreed(schema: Schema | None, intercept: bool, longest: float | None) -> tuple[bool, float | None]:
    """Intercept and longest vector as the federation's schema has them, if it has one; others are refused."""
    if schema is None:
        return intercept, longest
    for name, given, agreed in (("intercept", intercept, schema.intercept), ("longest", longest, schema.longest)):
        if given and given != agreed:
            raise FedbanditError(f"{name} is {given}, but the federation's schema of features has {agreed}.")
    return schema.intercept, schema.longest


def rows_of(
    scaling: Scaling, arms: ArrayLike, actions: ArrayLike | None, known: int, names: Sequence[str] = ()
) -> Array:
    """Arms as a machine takes them: contexts, or rows (action, features) where `known` actions have a θ each."""
    if known:
        situation = isinstance(arms, list | tuple | np.ndarray) and len(arms) > 0 and np.ndim(arms[0]) == 0
        rows: Any = [arms] if situation else arms
        return as_rows(scaling.transform(rows), actions, known, names)
    if actions is not None:
        raise FedbanditError("actions was given, but all arms of this federation share one θ.")
    return scaling.transform(arms)


def checked_log(machine: ClientMachine, contexts: Array, rewards: Array, most: float) -> tuple[Array, Array]:
    """Contexts (n, d) and rewards (n,) of past logs, if all are within what was agreed on."""
    dim = machine.context_dim
    X, y = np.ascontiguousarray(contexts, dtype=np.float64), np.asarray(rewards, dtype=np.float64)
    shape = f"({X.shape[0] if X.ndim else 0}, {dim})"
    require(X.ndim == 2 and X.shape[1] == dim, "the shape of contexts", X.shape, shape)
    require(y.shape == (len(X),), "the shape of rewards", y.shape, f"({len(X)},)")
    if len(X):
        X = machine.checked(X)
    largest = float(np.abs(y).max(initial=0.0))
    require(largest <= most, "the largest |reward|", largest, f"at most {most:g}")
    return X, y
