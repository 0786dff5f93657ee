"""When a client speaks: the condition that it checks after each of its own observations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Protocol

import numpy as np

from fedbandit.errors import FedbanditError
from fedbandit.model import TIE, Growing, RidgeModel
from fedbandit.types import Array

Says = Literal["nothing", "upload", "request", "gossip"]
"""What a client sends when its trigger fires."""

Joining = Literal["cold", "warm", "member"]
"""How a client that first acts joins: with nothing, with a download, or as a member from the start."""

Reads = Literal["nothing", "counts", "released", "raw"]
"""What a trigger looks at. A trigger that reads raw data tells an observer about it by its timing."""


NOTHING_COUNTED = -1e300
"""The log of a count of 0, but finite: it has to travel."""


def log_count(n: int) -> float:
    """How much a model of n observations has, where counts are compared."""
    return math.log(n) if n > 0 else NOTHING_COUNTED


class Watched(NamedTuple):
    """These numbers."""

    n_own: int
    n_pending: int
    logdet: float
    shared_logdet: float


def lifted(model: RidgeModel, lift: float) -> Watched:
    """log det (V + lift·I)(λ) in place of log det V(λ), compared with the same log det S (FedUCB, Alg. 1 line 12)."""
    d, ridge = model.dim, model.ridge
    logdet = float(np.linalg.slogdet(model.V + (ridge + lift) * np.eye(d))[1]) - d * math.log(ridge)
    logdet += model.slack.offset
    return Watched(model.n_own, model.n_pending, logdet, model.shared_logdet)


class Trigger(Protocol):
    """A condition with one threshold for all clients or one for each, and what it reads."""

    @property
    def thresholds(self) -> Array:
        """(1,) or (N,)."""
        ...

    @property
    def reads(self) -> Reads:
        """What the condition looks at."""
        ...

    def fires(self, model: Growing, threshold: float) -> bool:
        """Whether a client with this model and this threshold speaks now."""
        ...


def as_thresholds(thresholds: float | Array) -> Array:
    """One for all or one for each, as an array of its own."""
    return np.atleast_1d(np.asarray(thresholds, dtype=np.float64)).copy()


def timed_growth(model: Growing) -> float:
    """Δn · log(det V(λ)/det (V − ΔV)(λ))."""
    return model.n_pending * (model.logdet - model.shared_logdet)


@dataclass(frozen=True, eq=False)
class Silence:
    """Never."""

    thresholds: ClassVar[Array] = np.array([math.inf])
    reads: ClassVar[Reads] = "nothing"

    def fires(self, model: Growing, threshold: float) -> bool:  # noqa: ARG002 - whatever they are
        """No."""
        return False


@dataclass(frozen=True, eq=False)
class Growth:
    """log det V(λ) − log det (V − ΔV)(λ) > threshold (Async-LinUCB, Eq. 3)."""

    thresholds: Array
    reads: ClassVar[Reads] = "raw"

    def fires(self, model: Growing, threshold: float) -> bool:
        """Whether it has grown by more."""
        return model.logdet - model.shared_logdet > threshold + TIE


@dataclass(frozen=True, eq=False)
class BatchedGrowth(Growth):
    """The same, and `batch` pending observations or more: an upload of a single one *is* that x and y."""

    batch: int = 1

    def fires(self, model: Growing, threshold: float) -> bool:
        """Whether it has grown by more, with so many."""
        return model.n_pending >= self.batch and super().fires(model, threshold)


@dataclass(frozen=True, eq=False)
class TimedGrowth:
    """Δn · (log det V(λ) − log det (V − ΔV)(λ)) > threshold (Async-LinUCB, Alg. 4 line 10)."""

    thresholds: Array
    reads: ClassVar[Reads] = "raw"

    def fires(self, model: Growing, threshold: float) -> bool:
        """Whether it has grown by more."""
        return timed_growth(model) > threshold + TIE


@dataclass(frozen=True, eq=False)
class CountGrowth:
    """Own observations ≥ threshold × those sent so far, and `batch` pending ones or more; an infinite one is never."""

    thresholds: Array
    batch: int = 1
    reads: ClassVar[Reads] = "counts"

    def fires(self, model: Growing, threshold: float) -> bool:
        """Whether there are so many."""
        if model.n_pending < self.batch or math.isinf(threshold):
            return False
        return model.n_own >= threshold * (model.n_own - model.n_pending) - TIE


def timed_or_counted(threshold: float | str | None, growth: float | None, batch: int) -> Trigger:
    """The trigger of protocols that have a D, unless `growth` is given; `threshold` has been settled for a world."""
    if growth is not None:
        return CountGrowth(as_thresholds(growth), batch)
    if isinstance(threshold, str) or threshold is None:
        raise FedbanditError(f"threshold {threshold!r} has no value before the protocol is told the world.")
    return TimedGrowth(as_thresholds(threshold))
