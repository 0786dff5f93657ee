"""Estimates of a policy's expected reward from another policy's log, with standard errors.

For decision t let w_t = π(a_t)/p_t: the probability with which the evaluated policy would take the logged arm, over the
probability with which it was taken. A policy that takes one arm has w_t = 1/p_t where it agrees, and 0 elsewhere.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedbandit.errors import FedbanditError
from fedbandit.types import Array

NORMAL_95 = 1.959963984540054


class Estimate(NamedTuple):
    """A number with its standard error; the interval of two-sided 95 % coverage is value ± 1.96 standard errors."""

    name: str
    value: float
    standard_error: float

    @property
    def interval(self) -> tuple[float, float]:
        """Lower and upper end of the 95 % interval."""
        half = NORMAL_95 * self.standard_error
        return self.value - half, self.value + half

    def covers(self, truth: float) -> bool:
        """Whether the interval contains a number."""
        low, high = self.interval
        return low <= truth <= high

    def as_json(self) -> dict[str, float | str]:
        """The estimate as a JSON-ready object."""
        low, high = self.interval
        return {
            "estimator": self.name,
            "value": self.value,
            "standard_error": self.standard_error,
            "low": low,
            "high": high,
        }


def mean(name: str, values: Array) -> Estimate:
    """The mean, with standard error s/√n.

    >>> mean("reward", np.array([0.0, 1.0]))
    Estimate(name='reward', value=0.5, standard_error=0.5)
    """
    if values.size < 2:
        raise FedbanditError(f"The {name} rests on {values.size} of the logged decisions; at least 2 are needed.")
    return Estimate(name, float(values.mean()), float(values.std(ddof=1)) / math.sqrt(values.size))


def inverse_propensity(weights: Array, rewards: Array) -> Estimate:
    """IPS: (1/n) Σ w r. Unbiased if propensities are right; its variance grows with 1/p (Horvitz & Thompson 1952)."""
    return mean("inverse propensity", weights * rewards)


def self_normalised(weights: Array, rewards: Array) -> Estimate:
    """SNIPS: Σ w r / Σ w; slightly biased, seldom as noisy (Swaminathan & Joachims 2015). Delta-method error."""
    total = float(weights.sum())
    if total <= 0:
        raise FedbanditError(
            "The evaluated policy never takes the arm that was logged, so there is nothing to average."
        )
    value = float(weights @ rewards) / total
    return Estimate("self-normalised", value, float(np.sqrt(np.sum((weights * (rewards - value)) ** 2))) / total)


def doubly_robust(weights: Array, rewards: Array, of_logged: Array, of_policy: Array) -> Estimate:
    """DR: (1/n) Σ r̂(π) + w (r − r̂(a)) with r̂ from other data (Dudík, Langford & Li 2011).

    Right if either propensities or r̂ are right. `of_logged` is r̂ of the logged arm, `of_policy` r̂ of the policy's.
    """
    return mean("doubly robust", of_policy + weights * (rewards - of_logged))


def effective_sample_size(weights: Array) -> float:
    """(Σ w)² / Σ w²: how many equally weighted decisions would be as informative (Kish 1965).

    >>> effective_sample_size(np.array([1.0, 1.0, 0.0]))
    2.0
    """
    squares = float(weights @ weights)
    return float(weights.sum()) ** 2 / squares if squares else 0.0
