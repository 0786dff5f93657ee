"""Attacks on the mechanism that a system uses, apart from the client that runs it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedbandit.audit.attack import Audit, Sampler, attack, released_distance
from fedbandit.audit.neighbours import Limits, Record, pairs_of
from fedbandit.audit.report import CONFIDENCE, TOLERANCE, Check
from fedbandit.privacy.blt import independent
from fedbandit.privacy.calibration import gaussian_epsilon
from fedbandit.privacy.guarantee import Guarantee
from fedbandit.privacy.mechanism import Mechanism, stack
from fedbandit.rewards import RewardRule, learnt, reward_plan
from fedbandit.types import Array

LARGEST_EXACT = 128
"""Releases of a stream that the exact check looks at."""


def reward_noise(rule: RewardRule, claim: Guarantee) -> tuple[Mechanism, Sampler]:
    """Noise on a single reward as a mechanism that releases once, and the code that draws it."""
    mechanism = Mechanism(
        factorisation=independent(1),
        noise="laplace",
        dim=1,
        scale=rule.scale,
        sensitivity=rule.high - rule.low,
        epsilon=claim.epsilon,
        delta=claim.delta,
        basis=claim.basis,
        description=claim.mechanism,
    )

    def sample(increments: Array, streams: int, rng: np.random.Generator) -> Array:
        plan = reward_plan(rule, int(rng.integers(2**32)))
        y = float(increments[0, 0])
        return np.array([learnt(plan, y, 0, step) for step in range(streams)]).reshape(1, streams, 1)

    return mechanism, sample


def increments_of(mechanism: Mechanism, records: Sequence[Record]) -> Array:
    """What these records add to the sums that a mechanism releases."""
    if mechanism.noise == "symmetric":
        X, y = np.array([record.x for record in records]), np.array([record.y for record in records])
        return stack(X.T @ X, X.T @ y, mechanism.reward_weight)
    return np.asarray(sum(record.x * record.y for record in records))


def neighbouring_increments(mechanism: Mechanism, limits: Limits, records: int) -> tuple[Array, Array]:
    """The worst pair, `records` times."""
    if mechanism.noise != "symmetric":  # one reward moves a vector x y; for Laplace noise a dense one is the worst
        moved = np.full(mechanism.dim, mechanism.sensitivity / math.sqrt(mechanism.dim))
        return (records * moved, 0 * moved) if mechanism.dim > 1 else (np.array([limits.high]), np.array([limits.low]))
    one, other = pairs_of(limits, mechanism)["sums"]
    return increments_of(mechanism, [one] * records), increments_of(mechanism, [other] * records)


def likelihood_attack(
    mechanism: Mechanism,
    pair: tuple[Array, Array],
    claim: Guarantee,
    rng: np.random.Generator,
    trials: int,
    sample: Sampler | None = None,
) -> tuple[Check, Audit]:
    """Streams from both worlds, scored by the likelihood ratio."""
    found = attack(mechanism, *pair, rng, sample=sample, trials=trials, confidence=CONFIDENCE)
    return Check(
        "mechanism, likelihood ratio",
        found.lower_bound <= claim.epsilon * TOLERANCE,
        found.lower_bound,
        f"{trials:,} streams of {mechanism.n_max} releases in each world",
    ), found


def exact_check(mechanism: Mechanism, pair: tuple[Array, Array], epsilon: float, who: str = "") -> Check | None:
    """The exact ε of what the release code does with random numbers; for Gaussian noise only.

    It is no chance result, so it counts as a measured bound only where it exceeds the claim: otherwise a tight
    mechanism would always be reported with the claim itself.
    """
    if mechanism.noise not in ("symmetric", "vector"):
        return None
    n = min(mechanism.n_max, LARGEST_EXACT)
    true = gaussian_epsilon(released_distance(mechanism, [pair[0] - pair[1]], n), mechanism.delta)
    passed = true <= epsilon * TOLERANCE
    releases = f"all {n}" if n == mechanism.n_max else f"the first {n} of {mechanism.n_max}"
    detail = f"{who}{releases} releases together have ε = {true:.4f}, computed"
    return Check("mechanism, exact", passed, 0.0 if passed else true, detail)
