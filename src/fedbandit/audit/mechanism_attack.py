"""Attacks on the mechanism that a system uses, apart from the client that runs it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedbandit.audit.likelihood import (
    Audit,
    Sampler,
    attack,
    handed_epsilon,
    independent_numbers,
    irregular,
    released_epsilon,
    scale_interval,
)
from fedbandit.audit.neighbours import Record, RecordLimits, pairs_of
from fedbandit.audit.report import CONFIDENCE, SURE, TOLERANCE, Check, skip
from fedbandit.errors import FedbanditError
from fedbandit.privacy.blt import independent
from fedbandit.privacy.guarantee import Guarantee
from fedbandit.privacy.mechanism import Mechanism, stack
from fedbandit.privacy.noise import Source, label_of, perturb
from fedbandit.rewards import RewardRule, learnt, reward_plan
from fedbandit.types import Array

MOST_IMPULSES = 900
"""Random numbers of a stream that are followed one by one."""
MOST_RELEASES = 4096
"""Releases of a stream whose hand-over to the noise is looked at."""
MOST_NUMBERS = 30_000_000
"""Numbers that are drawn for likelihood ratios in each world: at large dimensions there are fewer streams."""
SAMPLES = 40_000
"""Numbers drawn from a source: they show its scale to 3 %."""
LEAST_DRAWS = 300
"""Draws of all numbers at large dimensions: they show whether one number is a copy of another."""
BITS = 2_000
"""Numbers whose last bits are looked at."""


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


def neighbouring_increments(mechanism: Mechanism, limits: RecordLimits, records: int) -> tuple[Array, Array]:
    """The worst pair, `records` times."""
    if mechanism.noise != "symmetric":  # one reward moves a vector x y; for Laplace noise a dense one is the worst
        if mechanism.dim == 1:
            return np.array([limits.high]), np.array([limits.low])
        dense = np.full(mechanism.dim, 1 / math.sqrt(mechanism.dim))
        if mechanism.dim != limits.dim:  # sums of all users on a graph: how far a reward moves them is the graph's
            return records * mechanism.sensitivity * dense, 0 * dense
        return records * limits.bound * limits.high * dense, records * limits.bound * limits.low * dense
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
    n = min(mechanism.n_max, MOST_RELEASES)
    trials = max(min(trials, MOST_NUMBERS // (n * math.prod(mechanism.shape))), 1000)
    found = attack(mechanism, *pair, rng, sample=sample, releases=n, trials=trials, confidence=CONFIDENCE)
    return Check(
        "mechanism, likelihood ratio",
        found.lower_bound <= claim.epsilon * TOLERANCE,
        found.lower_bound,
        f"{trials:,} streams of {n} releases in each world",
    ), found


def exact_check(
    mechanism: Mechanism,
    limits: RecordLimits,
    records: int,
    epsilon: float,
    delta: float,
    name: str = "mechanism, exact",
) -> Check:
    """The exact ε of what the release code does with random numbers, for every kind of noise.

    Two ways: all numbers that a stream draws are followed to what is released, in two dimensions; and what is handed to
    the noise is compared, at the mechanism's own dimension and number of releases. It is no chance result, so it counts
    as a measured bound only where it exceeds the claim: otherwise a tight mechanism would always be reported with the
    claim itself.
    """
    mechanism = replace(mechanism, delta=delta)
    if mechanism.noise in ("symmetric", "vector") and delta == 0:
        return Check(name, False, math.inf, "Gaussian noise under a claim with δ = 0")
    if mechanism.dim != limits.dim:
        limits = limits._replace(dim=mechanism.dim, bound=mechanism.sensitivity / (limits.high - limits.low))
    small = replace(mechanism, dim=min(mechanism.dim, 2))
    followed = min(mechanism.n_max, MOST_IMPULSES // math.prod(small.shape))
    one, other = neighbouring_increments(small, limits._replace(dim=small.dim), records)
    true = released_epsilon(small, one - other, followed)
    n = min(mechanism.n_max, MOST_RELEASES)
    one, other = neighbouring_increments(mechanism, limits, records)
    true = max(true, handed_epsilon(mechanism, one - other, n))
    passed = true <= epsilon * TOLERANCE
    releases = f"all {n}" if n == mechanism.n_max else f"the first {n}"
    detail = f"{releases} releases together have ε = {true:.4f}, computed"
    return Check(name, passed, 0.0 if passed else true, detail, computed=true)


def source_check(mechanism: Mechanism, source: Source, noisy_label: str) -> Check:
    """Whether a source adds noise of the scale that it is asked for, at the mechanism's dimension, and says so.

    Of the right distribution, too, each number of a draw by itself, with last bits that do not depend on the data.
    """
    name = f"{noisy_label} noise, scale"
    shape = mechanism.shape
    copies = max(SAMPLES // math.prod(shape), LEAST_DRAWS)
    if mechanism.noise == "gamma" and label_of(source) == "secure" and noisy_label == "secure":
        return skip(name, "gamma noise is not float-safe, and not called secure")
    z = np.stack([perturb(source, mechanism.noise, np.zeros(shape), mechanism.scale) for _ in range(copies)])
    low, high = scale_interval(mechanism, z / mechanism.scale, SURE)
    if high < 1:
        return Check(name, False, 0.0, f"only {low:.3f}–{high:.3f} of the scale that was asked for")
    wrong = "" if mechanism.noise == "gamma" else irregular(mechanism.noise, independent_numbers(mechanism, z))
    wrong = wrong or _last_bits(mechanism, source)
    if wrong:
        return Check(name, False, math.inf, wrong)
    return Check(name, True, 0.0, f"{z.size:,} numbers of the scale that was asked for")


def _last_bits(mechanism: Mechanism, source: Source) -> str:
    """What the last bits of noised numbers tell of the data: there must be one grid for all; "" if there is."""
    scale, d = mechanism.scale, mechanism.shape[-1]
    off = np.triu_indices(d, 1) if mechanism.noise == "symmetric" else (slice(None),)  # the diagonal has another scale
    grids = []
    for value in (0.0, scale / 3):
        values = np.full(mechanism.shape, value)
        draws = [perturb(source, mechanism.noise, values, scale)[off] for _ in range(max(BITS // values.size, 1))]
        mantissa, exponent = np.frexp(np.concatenate(draws))
        whole = (mantissa * 2.0**53).astype(np.int64)
        last = exponent + np.log2(np.where(whole == 0, 1, whole & -whole))
        grids.append(float(last[whole != 0].min()))
    return "" if grids[0] == grids[1] else "the last bits of what is noised depend on the data"


def secure_source() -> Source | str:
    """The source of clients on a network, or why there is none here."""
    from fedbandit.privacy.secure import SecureSource

    try:
        return SecureSource()
    except FedbanditError as error:
        return str(error)
