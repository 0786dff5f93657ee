"""A policy as kernels see it: a code and a few numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.engine.fast.jit import compiled_inline
from fedbandit.engine.fast.known import CODES
from fedbandit.engine.fast.row import BIAS, INFLATION, LOGDET, NOISE, SPECTRAL
from fedbandit.policies import Policy, WidthRule
from fedbandit.types import Array
from fedbandit.world import World


class PolicyPlan(NamedTuple):
    """A policy as the kernels see it: plain numbers, so that one compiled loop serves them all."""

    code: int
    alpha: float  # a fixed width, or NaN for the formula
    sigma: float  # assumed noise σ
    confidence_term: float  # 2 log 1/δ
    bias: float  # √λ
    bound: float  # ‖x‖ ≤ bound for every context
    ridge: float
    key: NDArray[np.uint64]  # of the counter-based random stream


def plan_of(policy: Policy, world: World, ridge: float, key: NDArray[np.uint64]) -> PolicyPlan:
    """The plan of a policy that has a kernel, told the world."""
    told = policy.told(world)
    rule = told if isinstance(told, WidthRule) else WidthRule(alpha=0.0, noise=world.noise)
    assert rule.noise is not None
    return PolicyPlan(
        code=int(CODES[type(policy)]),
        alpha=math.nan if rule.alpha is None else float(rule.alpha),
        sigma=float(rule.noise),
        confidence_term=2 * math.log(1 / rule.confidence),
        bias=math.sqrt(ridge),
        bound=float(world.bound),
        ridge=float(ridge),
        key=key,
    )


@compiled_inline
def width(plan: PolicyPlan, row: Array) -> float:
    """α, the factor of ‖x‖_{V(λ)⁻¹}: σ √(log det V(λ)/det λI + 2 log 1/δ) + √λ, more where statistics are not exact."""
    if not math.isnan(plan.alpha):
        return plan.alpha
    deviation = plan.sigma * math.sqrt(max(row[LOGDET], 0.0) + plan.confidence_term)
    return (1.0 + row[INFLATION]) * deviation + plan.bias + row[BIAS]


@compiled_inline
def noise_width(plan: PolicyPlan, row: Array) -> float:
    """The factor of ‖V(λ)⁻¹x‖₂: a bound of the noise in b − Vθ. A fixed α stands for everything."""
    return row[NOISE] if math.isnan(plan.alpha) else 0.0


@compiled_inline
def sampling_width(plan: PolicyPlan, row: Array) -> float:
    """One factor for policies that sample a parameter: ‖V(λ)⁻¹x‖₂ ≤ λ_max(V(λ)⁻¹)^½ ‖x‖_{V(λ)⁻¹}."""
    return width(plan, row) + noise_width(plan, row) * math.sqrt(row[SPECTRAL])
