"""Forgetting: after t rounds an observation of round τ counts γ^(t − τ), so that a model follows a world that changes.

    V_t = Σ γ^(t − τ) x xᵀ,    b_t = Σ γ^(t − τ) x y,    θ̂ = (V_t + λI)⁻¹ b_t          0 < γ ≤ 1 a round

**Additive.** Sums say in units of which round they are: in units of round s they are γ^(s − r) times what they are in
units of round r. So a client dates its uploads, a coordinator takes them to its latest round and adds them up, a client
takes a download to its own round. It is the same sum, whoever has it, and nobody needs to know more than the round.

**Where it lives.** γ is no matter of a policy, which is told V and θ̂, nor of a protocol: it says what a system's
statistics are, as its ridge λ does. So it stands beside λ (`System.discount`; `discount=` or `window=` of presets).

**Widths.** As without: σ √(log det V(λ)/det λI + 2 log 1/δ) + √λ, with the discounted V.

Reference: Russac, Vernade & Cappé, Weighted Linear Bandits for Non-Stationary Environments, 2019: D-LinUCB (Alg. 1) and
γ = 1 − (B_T/(dT))^(2/3) for a variation B_T of θ in T observations; Cheung, Simchi-Levi & Zhu, Learning to Optimize
under Non-Stationarity, 2019 (a sliding window).

Deviations:
    D1. D-LinUCB has a second matrix Ṽ = Σ γ^(2(t − τ)) x xᵀ and the bonus β √(xᵀ V(λ)⁻¹ Ṽ(λ) V(λ)⁻¹ x). As Ṽ ⪯ V, ours
        is at least that, at most √2 times in the long run, and half as much crosses the network.
    D2. Its β has a bound of log det Ṽ(λ)/det λI; ours has log det V(λ)/det λI itself, which is not less than that.
    D3. `window=w` is γ = 1 − 1/w: weights that add up to w rounds, but fade. Cheung et al. drop what is older than w,
        for which every single observation would have to be kept, and sent.
    D4. The number of observations (`n`) is not discounted: it counts what was observed.
"""

from __future__ import annotations

from fedbandit.errors import FedbanditError, number, require, shown
from fedbandit.sums import BlockSums, Sums

RULE = "changes:"


def check_discount(discount: object) -> float | str:
    """A discount a round, or the rule "changes:B": γ for B changes of θ by 2 at most."""
    if isinstance(discount, str):
        try:
            changes = float(discount.removeprefix(RULE)) if discount.startswith(RULE) else -1.0
        except ValueError:
            changes = -1.0
        if not changes >= 0:
            raise FedbanditError(f"discount is {shown(discount)}, but must be a number or a rule such as 'changes:3'.")
        return discount
    value = number(discount, "discount", "a number > 0 and ≤ 1, or a rule such as 'changes:3'")
    require(0 < value <= 1, "discount", discount, "a number > 0 and ≤ 1, or a rule such as 'changes:3'")
    return value


def settled_discount(discount: float | str, parameters: int, observations: float, rounds: int) -> float:
    """γ a round of a model with so many parameters that learns from so many observations in so many rounds.

    The formula is one for each observation; a model that has several a round forgets as much faster.

    >>> round(settled_discount("changes:3", parameters=10, observations=10_000, rounds=10_000), 5)
    0.99847
    """
    if not isinstance(discount, str):
        return discount
    variation = 2.0 * float(discount.removeprefix(RULE))
    each = 1.0 - min((variation / (parameters * max(observations, 1.0))) ** (2 / 3), 0.5)
    return float(each ** (observations / max(rounds, 1)))


def discount_of(window: int) -> float:
    """The discount whose weights add up to so many rounds."""
    return 1.0 - 1.0 / window


def scaled(sums: Sums, factor: float) -> Sums:
    """All observations count so many times what they did."""
    if factor == 1.0:
        return sums
    if isinstance(sums, BlockSums):
        return BlockSums(factor * sums.V, factor * sums.b, sums.n, sums.actions)
    return Sums(factor * sums.V, factor * sums.b, sums.n)
