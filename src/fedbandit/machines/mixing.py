"""A client's own exact statistics and the others' noisy ones, put together by worth, or by a proven bound.

**By worth** (the default). Two steps, for Ĝ' = G' + N and b̂' = G'θ + h, with s the standard deviation of an entry of N.
First Ĝ' is moved towards what the client expects it to be, T = n' (G + t I)/(n + d) with t = tr G/n: as many
observations as the others have, of the kind that it has itself (d of them in no direction); without own data tr Ĝ' I/d.
As James & Stein do, as far as chance explains (`CHANCE`),

    G̃ = T + c (Ĝ' − T),   c = (1 − 2s² (p + 2√(2p))/‖Ĝ' − T‖²_F)₊,   p = d(d + 1)/2 (one less where tr is fitted),

so that the noise's own eigenvalues, ± 2s√d, are not taken for observations. The error h − (G̃ − G')θ in b̂' − G̃θ then has
the mean square τ² = s²/κ² + c s²S² in each coordinate, about, if T is as far off as c suggests; so that with
G̃ = Q diag(v) Qᵀ the estimate with the smallest variance weighs the others' statistics by m = v₊/(v₊ + μ), μ = τ²/σ², in
each direction:

    V = G + Q diag(m v₊) Qᵀ + λI,      b = b_own + Q diag(m) Qᵀ b̂'.

The width that goes with it is α² = σ² ((1 − φ)² log det V/det λI + 2 log 1/δ), + (1 − φ)√λ, where φ is the part of its
knowledge that the client will owe to others by the time that it has `FORESIGHT` times its data. Alone (φ = 0) that is
the usual width, for all directions and times together; with others (φ → 1), who find out what one client has
overlooked, that of one direction at one time is enough. As noise grows, c, m and φ go to 0: that *is* learning alone.
*Proven*: from d = 6 on G̃ has a smaller mean squared error than Ĝ', for every G' and every T that does not depend on N
(James & Stein 1961, Baranchik 1970: any factor below 2(p − 2); a fitted trace is orthogonal to the rest); m minimises
the variance where V of the others is known; the limits φ = 0 (Abbasi-Yadkori et al. 2011, Thm 2) and φ = 1 (a fixed
direction, Gaussian rewards). Not proven: a regret bound in between; the first where T does depend on N, through own
data chosen by earlier releases, whose noise is correlated; and in fewer dimensions, where so much doubt is caution:
with the largest factor that is proven, two or three agents with d ≤ 3 had up to a fifth more regret than alone.
Measured: docs/privacy.md.

**By bound** (`PrivateStatistics(mixing="bound")`). The client weighs what the others released by one w ∈ [0, 1]:

    V = G + w Ĝ' + λI,     b = b_own + w b̂',        Ĝ': its negative eigenvalues are lifted to 0 by P, ‖P‖ = ρ.

With noise ‖N‖ ≤ Λ and ‖h − Nθ‖ ≤ ν in the others' sum (`privacy.pool_noise`),

    |xᵀ(θ̂ − θ)| ≤ f α ‖x‖_{V⁻¹} + w (ν + ρS) ‖V⁻¹x‖₂,      f² = 1 + w λ_max(V^-½ (ΛI − P) V^-½)₊,

since Σ w_s² x xᵀ ⪯ Σ w_s x xᵀ = V − λI − w(N + P) for weights w_s ≤ 1. So w = 0 is learning alone and w = 1 trusts the
others as oneself; in between, the best w is the one with the smallest bound, here for a direction drawn at random.
*Proven*: the bound holds for all arms and releases with probability 1 − δ − `failure`, and so does LinUCB's regret.

Where a width is fixed by hand it stands for all such bounds, and weights are those by worth; under "bound" without its
first step, and with τ = ν/√d.
Weights depend on released numbers and on the client's own data, and never leave the client: privacy does not depend on
them.
"""

from __future__ import annotations

import math

import numpy as np

from fedbandit.model import Width
from fedbandit.sums import EXACT, Slack, Sums
from fedbandit.types import Array

WEIGHTS = (1.0, 0.5, 0.25, 0.125, 0.0625, 1 / 32, 1 / 64, 0.0)
FORESIGHT = 30.0
"""How far a client looks ahead by worth, in multiples of its data: whoever will know much from others later may leave
it to them now to find out what was overlooked. In FedUCB's world (ε = 1, M = d = 10, T = 2,000) 10 has
442, 30 has 429."""
CHANCE = 2.0
"""How many standard deviations above its mean the noise's ‖N‖²_F may be by chance before what was released is believed
rather than expected."""
NEXT = 3.0
"""By bound, weights are compared for the time when the client has this many times its data: they hold until the next
download, and what it will know by itself by then is worth waiting for."""


def mix(own: Sums, others: Sums, slack: Slack, ridge: float, width: Width) -> tuple[Sums, Slack]:
    """What a client learns from, and what is to be known about it.

    >>> own, others = Sums(np.eye(2), np.ones(2), 2), Sums(np.eye(2), np.ones(2), 2)
    >>> mix(own, others, EXACT, 1.0, Width(0.5))[0].n
    4
    """
    if slack.spectrum == 0:
        return Sums(own.V + others.V, own.b + others.b, own.n + others.n), slack
    if width.sigma > 0 and (width.fixed or slack.bias > 0):
        G, mu = _expected(own, others, slack, width.sigma)
        values, vectors = np.linalg.eigh(G)
        sums = _by_precision(own, others, values, vectors, mu)
        return sums, EXACT if width.fixed else _width_by_worth(own, sums, values, vectors, mu, ridge)
    values, vectors = np.linalg.eigh(others.V)
    lift = max(0.0, -float(values[0]))
    usable = (vectors * np.maximum(values, 0.0)) @ vectors.T
    usable = (usable + usable.T) / 2
    excess = (vectors * (slack.spectrum - np.maximum(-values, 0.0))) @ vectors.T  # ΛI − P
    best, chosen, known = math.inf, 0.0, EXACT
    for weight in WEIGHTS:
        inflation = math.sqrt(1 + weight * _largest_ratio(excess, own.V + weight * usable, ridge))
        noise = weight * (slack.noise + lift)
        spectrum = np.linalg.eigvalsh(NEXT * own.V + weight * usable) + ridge
        bound = inflation * width.alpha * _root_mean(1 / spectrum) + noise * _root_mean(1 / spectrum**2)
        if bound < best:
            best, chosen = bound, weight
            known = Slack(offset=2 * own.b.size * math.log(inflation), inflation=inflation - 1, noise=noise)
    sums = Sums(own.V + chosen * usable, own.b + chosen * others.b, own.n + others.n)
    return sums, known


def _expected(own: Sums, others: Sums, slack: Slack, sigma: float) -> tuple[Array, float]:
    """The others' matrix as the client expects it to be without its noise, and μ of what is left of that."""
    d = own.b.size
    variance = 2 * slack.inflation**2  # of each of p coordinates, in which ‖·‖_F is Euclidean
    if own.n > 0:
        target = others.n / (own.n + d) * (own.V + np.trace(own.V) / own.n * np.eye(d))
    else:
        target = np.trace(others.V) / d * np.eye(d)
    gap = others.V - target
    size = float((gap * gap).sum())
    p = d * (d + 1) / 2 - (own.n == 0)  # where the trace is fitted it does not count
    chance = (p + CHANCE * math.sqrt(2 * p)) * variance
    kept = 1.0 if size == 0 else max(0.0, 1 - chance / size)
    deviation = slack.bias if slack.bias > 0 else slack.noise / math.sqrt(d)
    return target + kept * gap, (deviation**2 - (1 - kept) * slack.offset**2) / sigma**2


def _by_precision(own: Sums, others: Sums, values: Array, vectors: Array, mu: float) -> Sums:
    """Others' statistics with the weight v₊/(v₊ + μ) in each direction."""
    kept = np.maximum(values, 0.0)
    weight = kept / (kept + mu)
    V = own.V + (vectors * (weight * kept)) @ vectors.T
    b = own.b + vectors @ (weight * (vectors.T @ others.b))
    return Sums((V + V.T) / 2, b, own.n + others.n)


def _width_by_worth(own: Sums, sums: Sums, values: Array, vectors: Array, mu: float, ridge: float) -> Slack:
    """What to take off the usual width: 1 − (1 − φ)² of its log-determinant, and φ of √λ."""
    identity = np.eye(own.b.size)
    later = FORESIGHT * np.maximum(values, 0.0)
    from_others = (vectors * (later * later / (later + mu))) @ vectors.T
    alone = FORESIGHT * own.V + ridge * identity
    phi = 1 - float(np.trace(np.linalg.solve(alone + from_others, alone))) / own.b.size
    phi = min(max(phi, 0.0), 1.0)
    _, logdet = np.linalg.slogdet(sums.V / ridge + identity)
    return Slack(offset=-(1 - (1 - phi) ** 2) * float(logdet), bias=-phi * math.sqrt(ridge))


def _largest_ratio(A: Array, V: Array, ridge: float) -> float:
    """λ_max(V(λ)^-½ A V(λ)^-½), if positive."""
    values, vectors = np.linalg.eigh(V)
    half = vectors / np.sqrt(np.maximum(values, 0.0) + ridge)
    return max(0.0, float(np.linalg.eigvalsh(half.T @ A @ half)[-1]))


def _root_mean(values: Array) -> float:
    return math.sqrt(float(values.mean()))
