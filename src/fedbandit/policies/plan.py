"""What every policy has in common: the plan its compiled chooser reads, and the confidence width."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedbandit.engine.fast.jit import compiled_inline
from fedbandit.engine.fast.statistics import BIAS, INFLATION, LOGDET, NOISE, SPECTRAL
from fedbandit.errors import number, require
from fedbandit.machines.mixing import Width
from fedbandit.sums import Sums
from fedbandit.types import Array
from fedbandit.world import World


class Code(IntEnum):
    """Which compiled chooser a policy uses."""

    UNIFORM = 0
    GREEDY = 1
    UCB = 2
    THOMPSON = 3
    PERTURBED = 4
    SQUARED = 5


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


@runtime_checkable
class Policy(Protocol):
    """Anything that can say which chooser to use, and with what numbers."""

    def plan(self, world: World, ridge: float, key: NDArray[np.uint64]) -> PolicyPlan:
        """The numbers for this world."""
        ...


@dataclass(frozen=True)
class WidthRule:
    """The width α of the confidence ellipsoid, shared by the policies that use one.

    α = σ √(log det V(λ)/det λI + 2 log 1/δ) + √λ, or the fixed `alpha` if one is given.

    `noise` is σ; when omitted it is what the world declares. `confidence` is δ.

    Reference: Async-LinUCB (Li & Wang 2022), Eq. (5).
    """

    alpha: float | None = None
    noise: float | None = None
    confidence: float = 0.1

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        for name in ("alpha", "noise"):
            if getattr(self, name) is not None:
                number(getattr(self, name), name, "a finite number ≥ 0, or None", at_least=0.0)
        between = "a probability strictly between 0 and 1"
        require(0 < number(self.confidence, "confidence", between) < 1, "confidence", self.confidence, between)

    def plan_with(self, code: Code, world: World, ridge: float, key: NDArray[np.uint64]) -> PolicyPlan:
        """The plan of a policy with this width."""
        return PolicyPlan(
            code=int(code),
            alpha=math.nan if self.alpha is None else float(self.alpha),
            sigma=float(world.noise if self.noise is None else self.noise),
            confidence_term=2 * math.log(1 / self.confidence),
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


def exact_width(plan: PolicyPlan, sums: Sums, ridge: float) -> Width:
    """The width of a model with exactly these statistics."""
    if not math.isnan(plan.alpha):
        return Width(plan.alpha, plan.sigma, fixed=True)
    _, logdet = np.linalg.slogdet(sums.V / ridge + np.eye(sums.b.size))
    alpha = plan.sigma * math.sqrt(max(float(logdet), 0.0) + plan.confidence_term) + plan.bias
    return Width(alpha, plan.sigma)
