"""A client's own exact statistics and the others' noisy ones, put together so that its confidence sets are small.

The client weighs what the others released by w ∈ [0, 1]:

    V = G + w Ĝ' + λI,     b = b_own + w b̂',        Ĝ': its negative eigenvalues are lifted to 0 by P, ‖P‖ = ρ.

With noise ‖N‖ ≤ Λ and ‖h − Nθ‖ ≤ ν in the others' sum (`privacy.pool_noise`),

    |xᵀ(θ̂ − θ)| ≤ f α ‖x‖_{V⁻¹} + w (ν + ρS) ‖V⁻¹x‖₂,      f² = 1 + w λ_max(V^-½ (ΛI − P) V^-½)₊,

since Σ w_s² x xᵀ ⪯ Σ w_s x xᵀ = V − λI − w(N + P) for weights w_s ≤ 1. So w = 0 is learning alone and w = 1 trusts the
others as oneself; in between, the best w is the one with the smallest bound, here for a direction drawn at random. It
depends on released numbers and on the client's own data, and never leaves the client.

Where a width is fixed by hand it stands for all such bounds, and none has to be small: then weights are those of the
estimate with the smallest variance. With Ĝ' = Q diag(v) Qᵀ and the covariance σ²Ĝ' + (ν²/d)I of b̂' − Ĝ'θ, that is least
squares with the weight m = v₊/(v₊ + μ), μ = ν²/(dσ²), in each direction:

    V = G + Q diag(m v₊) Qᵀ + λI,      b = b_own + Q diag(m) Qᵀ b̂'.
"""

from __future__ import annotations

import math

import numpy as np

from fedbandit.model import Width
from fedbandit.sums import EXACT, Slack, Sums
from fedbandit.types import Array

WEIGHTS = (1.0, 0.5, 0.25, 0.125, 0.0625, 1 / 32, 1 / 64, 0.0)
FORESIGHT = 3.0
"""Weights are compared for the time when the client has this many times its data: they hold until the next download,
and what it will know by itself by then is worth waiting for."""


def mix(own: Sums, others: Sums, slack: Slack, ridge: float, width: Width) -> tuple[Sums, Slack]:
    """What a client learns from, and what is to be known about it.

    >>> own, others = Sums(np.eye(2), np.ones(2), 2), Sums(np.eye(2), np.ones(2), 2)
    >>> mix(own, others, EXACT, 1.0, Width(0.5))[0].n
    4
    """
    if slack.spectrum == 0:
        return Sums(own.V + others.V, own.b + others.b, own.n + others.n), slack
    values, vectors = np.linalg.eigh(others.V)
    lift = max(0.0, -float(values[0]))
    usable = (vectors * np.maximum(values, 0.0)) @ vectors.T
    usable = (usable + usable.T) / 2
    if width.fixed and width.sigma > 0:
        return _by_precision(own, others, values, vectors, slack.noise**2 / (own.b.size * width.sigma**2)), EXACT
    excess = (vectors * (slack.spectrum - np.maximum(-values, 0.0))) @ vectors.T  # ΛI − P
    best, chosen, known = math.inf, 0.0, EXACT
    for weight in WEIGHTS:
        inflation = math.sqrt(1 + weight * _largest_ratio(excess, own.V + weight * usable, ridge))
        noise = weight * (slack.noise + lift)
        spectrum = np.linalg.eigvalsh(FORESIGHT * own.V + weight * usable) + ridge
        bound = inflation * width.alpha * _root_mean(1 / spectrum) + noise * _root_mean(1 / spectrum**2)
        if bound < best:
            best, chosen = bound, weight
            known = Slack(offset=2 * own.b.size * math.log(inflation), inflation=inflation - 1, noise=noise)
    sums = Sums(own.V + chosen * usable, own.b + chosen * others.b, own.n + others.n)
    return sums, known


def _by_precision(own: Sums, others: Sums, values: Array, vectors: Array, mu: float) -> Sums:
    """Others' statistics with the weight v₊/(v₊ + μ) in each direction."""
    kept = np.maximum(values, 0.0)
    weight = kept / (kept + mu)
    V = own.V + (vectors * (weight * kept)) @ vectors.T
    b = own.b + vectors @ (weight * (vectors.T @ others.b))
    return Sums((V + V.T) / 2, b, own.n + others.n)


def _largest_ratio(A: Array, V: Array, ridge: float) -> float:
    """λ_max(V(λ)^-½ A V(λ)^-½), if positive."""
    values, vectors = np.linalg.eigh(V)
    half = vectors / np.sqrt(np.maximum(values, 0.0) + ridge)
    return max(0.0, float(np.linalg.eigvalsh(half.T @ A @ half)[-1]))


def _root_mean(values: Array) -> float:
    return math.sqrt(float(values.mean()))
