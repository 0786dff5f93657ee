"""Estimates of a policy's expected reward from another policy's log, with 95 % intervals.

For decision t let w_t = π(a_t)/p_t: the probability with which the evaluated policy would take the logged arm, over the
probability with which it was taken. A policy that takes one arm has w_t = 1/p_t where it agrees, and 0 elsewhere.

Every estimate is a mean of terms, one for each decision: their scatter gives its standard error, and the scatter of
two systems' differences that of a *paired* comparison on one log.

Intervals. Where rewards are rare (clicks), the terms are zero but for a few, and value ± 1.96 standard errors is far
too short: with no click at all it is 0 ± 0. Rewarded uses are then counted as what they are, rare events of unequal
weight: a weighted sum of Poisson counts, with the interval of Fay & Feuer 1997 (`rare_sum_interval`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import FedbanditError
from fedbandit.tails import gamma_quantile
from fedbandit.types import Array

NORMAL_95 = 1.959963984540054
RARE, SELDOM = 100, 0.2
"""Fewer rewarded uses than this, and fewer than this share of all uses: they are rare events."""

Interval = tuple[float, float]


@dataclass(frozen=True)
class Estimate:
    """A number with its standard error and a two-sided 95 % interval, by default value ± 1.96 standard errors.

    terms: one for each decision, whose mean the value is; empty if there are none.
    shares, rewards: terms contain n · shares · rewards; what is paired, and counted where rewards are rare.
    """

    name: str
    value: float
    standard_error: float
    interval: Interval = (math.nan, math.nan)
    terms: Array = field(default_factory=lambda: np.empty(0), repr=False, compare=False)
    shares: Array = field(default_factory=lambda: np.empty(0), repr=False, compare=False)
    rewards: Array = field(default_factory=lambda: np.empty(0), repr=False, compare=False)

    def __post_init__(self) -> None:
        """The normal interval, if no other is given."""
        if math.isnan(self.interval[0]):
            half = NORMAL_95 * self.standard_error
            object.__setattr__(self, "interval", (self.value - half, self.value + half))

    def covers(self, truth: float) -> bool:
        """Whether the interval contains a number."""
        return self.interval[0] <= truth <= self.interval[1]

    def as_json(self) -> dict[str, float | str]:
        """The estimate as a JSON-ready object."""
        return {
            "estimator": self.name,
            "value": self.value,
            "standard_error": self.standard_error,
            "low": self.interval[0],
            "high": self.interval[1],
        }


def mean(name: str, rewards: Array) -> Estimate:
    """The mean of rewards, with standard error s/√n. For rewards of 0 and 1 the interval is Wilson's (1927).

    >>> mean("reward", np.array([0.0, 2.0]))
    Estimate(name='reward', value=1.0, standard_error=1.0, interval=(-0.959963984540054, 2.959963984540054))
    >>> [round(end, 4) for end in mean("clicks", np.zeros(160)).interval]
    [0.0, 0.0234]
    """
    n = rewards.size
    if n < 2:
        raise FedbanditError(f"The {name} rests on {n} of the logged decisions; at least 2 are needed.")
    value, error = float(rewards.mean()), float(rewards.std(ddof=1)) / math.sqrt(n)
    interval = math.nan, math.nan
    if ((rewards == 0) | (rewards == 1)).all():
        z = NORMAL_95**2 / n
        middle, half = (value + z / 2) / (1 + z), math.sqrt(z * value * (1 - value) + z * z / 4) / (1 + z)
        interval = max(middle - half, 0.0), min(middle + half, 1.0)
    return Estimate(name, value, error, interval, rewards, np.full(n, 1 / n), rewards)


def inverse_propensity(weights: Array, rewards: Array) -> Estimate:
    """IPS: (1/n) Σ w r. Unbiased if propensities are right; its variance grows with 1/p (Horvitz & Thompson 1952)."""
    return _estimate("inverse propensity", weights * rewards, weights / weights.size, rewards)


def self_normalised(weights: Array, rewards: Array, name: str = "self-normalised") -> Estimate:
    """SNIPS: Σ w r / Σ w; slightly biased, seldom as noisy (Swaminathan & Joachims 2015). Delta-method error."""
    total = float(weights.sum())
    if total <= 0:
        raise FedbanditError(
            "The evaluated policy never takes the arm that was logged, so there is nothing to average."
        )
    value = float(weights @ rewards) / total
    terms = value + weights.size / total * weights * (rewards - value)
    error = float(np.sqrt(np.sum((weights * (rewards - value)) ** 2))) / total
    return _estimate(name, terms, weights / total, rewards, error)


def doubly_robust(weights: Array, rewards: Array, of_logged: Array, of_policy: Array) -> Estimate:
    """DR: (1/n) Σ r̂(π) + w (r − r̂(a)) with r̂ from other data (Dudík, Langford & Li 2011).

    Right if either propensities or r̂ are right. `of_logged` is r̂ of the logged arm, `of_policy` r̂ of the policy's.
    """
    return _estimate("doubly robust", of_policy + weights * (rewards - of_logged), weights / weights.size, rewards)


def difference(name: str, one: Estimate, other: Estimate) -> Estimate:
    """By how much one system's estimate exceeds another's on the same decisions: terms are paired.

    What both owe to the same decisions cancels, so the difference is often known much better than either value, and is
    0 ± 0 for systems that choose alike. Where rewards are rare, those that count more for one system and those that
    count more for the other are two sums of rare events in different decisions, hence independent: see `_estimate`.
    """
    if one.terms.size != other.terms.size or one.terms.size < 2:
        raise FedbanditError(f"{name}: a paired difference needs estimates on the same two decisions or more.")
    return _estimate(name, one.terms - other.terms, one.shares - other.shares, one.rewards)


def within(estimate: Estimate, decisions: NDArray[np.bool_]) -> Estimate:
    """The estimate on some of its decisions, with an interval of the same kind."""
    terms, shares, rewards = estimate.terms[decisions], estimate.shares[decisions], estimate.rewards[decisions]
    if estimate.name == "replay":
        return mean("replay", rewards[shares > 0])
    return _estimate(estimate.name, terms, shares * (estimate.terms.size / terms.size), rewards)


def rare_sum_interval(jumps: Array, largest: float) -> Interval:
    """A 95 % interval for the expected sum of rare events with these weights, none of which can exceed `largest`.

    Lower v/(2s) χ²(0.025; 2s²/v), upper (v + w²)/(2(s + w)) χ²(0.975; 2(s + w)²/(v + w²)) with s = Σ jumps,
    v = Σ jumps², w = `largest`; nothing seen gives (0, 3.69 w).

    Reference: Fay & Feuer 1997, Eq. (4). It covers at least as often as it says in all cases known to them.

    >>> [round(end, 3) for end in rare_sum_interval(np.ones(3), 1.0)]  # the exact Poisson interval of three events
    [0.619, 8.767]
    """
    s, v = float(jumps.sum()), float(jumps @ jumps)
    low = v / s * gamma_quantile(0.025, s * s / v) if s > 0 else 0.0
    s, v = s + largest, v + largest * largest
    return low, v / s * gamma_quantile(0.975, s * s / v)


def rewarded(weights: Array, rewards: Array) -> int:
    """How many decisions of use had a reward."""
    return int(np.count_nonzero((weights > 0) & (rewards != 0)))


def effective_sample_size(weights: Array) -> float:
    """(Σ w)² / Σ w²: how many equally weighted decisions would be as informative (Kish 1965).

    >>> effective_sample_size(np.array([1.0, 1.0, 0.0]))
    2.0
    """
    squares = float(weights @ weights)
    return float(weights.sum()) ** 2 / squares if squares else 0.0


def _estimate(name: str, terms: Array, shares: Array, rewards: Array, error: float | None = None) -> Estimate:
    """A mean of terms that contain Σ shares · rewards; if these are rare events, the interval counts them as such.

    Shares above 0 and those below (only differences have them) are sums of events of their own, s⁺ and s⁻, with
    intervals (l, u) each. The rest of the terms scatters as usual, with error e. All are put together by their squared
    distances (Zou & Donner 2008): low = value − √((s⁺ − l⁺)² + (u⁻ − s⁻)² + z² e²), and high likewise.
    """
    n = terms.size
    if n < 2:
        raise FedbanditError(f"The {name} estimate rests on {n} of the logged decisions; at least 2 are needed.")
    value, error = float(terms.mean()), float(terms.std(ddof=1)) / math.sqrt(n) if error is None else error
    if (rewards < 0).any() or not (_rare(shares, rewards) or _rare(-shares, rewards)):
        return Estimate(name, value, error, (math.nan, math.nan), terms, shares, rewards)
    (below, above), (less, more) = _distances(shares, rewards), _distances(-shares, rewards)
    rest = (terms - n * shares * rewards).std(ddof=1) * NORMAL_95 / math.sqrt(n)
    interval = value - math.hypot(below, more, rest), value + math.hypot(above, less, rest)
    return Estimate(name, value, error, interval, terms, shares, rewards)


def _rare(shares: Array, rewards: Array) -> bool:
    """Whether decisions with a share above 0 are seldom, and not often in all, rewarded."""
    uses = int(np.count_nonzero(shares > 0))
    return rewarded(shares, rewards) < min(RARE, SELDOM * uses)


def _distances(shares: Array, rewards: Array) -> Interval:
    """How far the ends of the rare sum's interval are from the sum, over shares above 0."""
    jumps, hits = np.maximum(shares, 0.0) * rewards, rewarded(shares, rewards)
    largest = max(float(shares.max()), 0.0) * max(float(rewards.max()), 1.0 if hits == 0 else 0.0)
    if largest == 0:
        return 0.0, 0.0
    low, high = rare_sum_interval(jumps[jumps > 0], largest)
    return float(jumps.sum()) - low, high - float(jumps.sum())
