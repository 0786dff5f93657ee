"""An attack on any mechanism that can be called: nothing is known about it but what comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedbandit.audit.likelihood import Audit, counting_bound
from fedbandit.errors import FedbanditError, require, whole_number
from fedbandit.types import Array


def attack(
    mechanism: Callable[[Any], ArrayLike],
    one: Any,
    other: Any,
    *,
    delta: float = 0.0,
    trials: int = 20_000,
    confidence: float = 0.99,
) -> Audit:
    """A lower bound on the ε of `mechanism`, from calling it `trials` times with `one` and with `other`.

    Whatever it returns must be numbers, always as many; `one` and `other` are neighbouring data. Scores are the output
    along the direction that tells the two worlds apart best (Fisher's discriminant), learnt on a third of the outputs,
    and the bound is Clopper–Pearson's on the others: it holds whatever the mechanism is. A `lower_bound` above the ε
    that it claims refutes the claim; one below proves nothing.

    >>> rng = np.random.default_rng(0)
    >>> found = attack(lambda y: y + rng.laplace(0.0, 0.5), 0.0, 1.0)  # ε = 2
    >>> 1.5 < found.lower_bound <= 2.0
    True
    """
    whole_number("trials", trials, 100)
    require(0 <= delta < 1, "delta", delta, "0 or between 0 and 1")
    null, alternative = (_outputs(mechanism, data, trials) for data in (one, other))
    if null.shape != alternative.shape:
        raise FedbanditError(
            f"The mechanism returned {null.shape[1]} numbers for one, {alternative.shape[1]} for the other: "
            "that alone tells them apart."
        )
    third = trials // 3
    along = _discriminant(null[:third], alternative[:third])
    scores = [(outputs[third:] @ along).round(9) for outputs in (null, alternative)]
    found = max(
        counting_bound(scores[0], scores[1], delta, confidence),
        _distinct(null[third:], alternative[third:], delta, confidence),
    )
    return Audit(found, delta, confidence, trials, *scores)


def _outputs(mechanism: Callable[[Any], ArrayLike], data: Any, trials: int) -> Array:
    rows = [np.asarray(mechanism(data), dtype=np.float64).ravel() for _ in range(trials)]
    if len({row.size for row in rows}) != 1:
        raise FedbanditError(
            "The mechanism returns now more numbers and now fewer; it has to return as many each time."
        )
    return np.stack(rows)


def _discriminant(null: Array, alternative: Array) -> Array:
    """S⁻¹(m₁ − m₀), S the covariance within the worlds, with a ridge where a number never varies."""
    apart = alternative.mean(axis=0) - null.mean(axis=0)
    within = np.atleast_2d(np.cov(null, rowvar=False)) + np.atleast_2d(np.cov(alternative, rowvar=False))
    ridge = 1e-9 * max(float(np.trace(within)), 1e-300) / len(within)
    return np.asarray(np.linalg.solve(within + ridge * np.eye(len(within)), apart))


def _distinct(null: Array, alternative: Array, delta: float, confidence: float) -> float:
    """By values that one world alone produces, as floating-point noise does: seen before or not is a score, too."""
    half = len(null) // 2
    bounds = []
    for seen, mine, theirs in ((null, null, alternative), (alternative, alternative, null)):
        for column in range(seen.shape[1]):
            known = np.unique(seen[:half, column])
            if known.size > half // 2:
                continue  # hardly a value comes twice: nothing to recognise
            hits = [np.isin(world[half:, column], known).astype(np.float64) for world in (theirs, mine)]
            bounds.append(counting_bound(hits[0], hits[1], delta, confidence))
    return max(bounds, default=0.0)
