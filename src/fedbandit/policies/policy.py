"""What a policy is, and the confidence width that most have in common."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, Self, runtime_checkable

import numpy as np

from fedbandit.errors import FedbanditError, number, require, shown
from fedbandit.model import TIE, Model, Part, Width
from fedbandit.parts import name_of
from fedbandit.sums import Sums
from fedbandit.types import Array, Ints
from fedbandit.world import World

if TYPE_CHECKING:
    from fedbandit.streams import Draw


Randomness = Literal["none", "known", "unknown"]
"""Whether `choose` gives one arm for sure, or draws it, with probabilities that have a formula or have none."""

REPEATS, SAMPLES = 200, 1000
"""How often a choice is repeated, or a parameter sampled, in order to estimate the probabilities of arms."""


@runtime_checkable
class Policy(Protocol):
    """Which arm to pull, given a model. Subclass it as a frozen dataclass, and write `choose`."""

    name: ClassVar[str]
    """What it is called on the command line."""
    randomness: ClassVar[Randomness] = "unknown"
    """How propensities are known: they are 0 and 1, exact, or estimated."""
    only_explores: ClassVar[bool] = False
    """Whether it does not look at rewards: nobody expects it to earn more than random arms."""

    def choose(self, model: Model, contexts: Array, draw: Draw) -> int:
        """The index of the arm to pull: a row of `contexts` (K, d). All randomness comes from `draw`."""
        ...

    def propensities(self, model: Model, contexts: Array, draw: Draw) -> Array:
        """The probability of each arm, (K,), if `choose` were asked with this model: what evaluating a log needs.

        Exact where nothing is random. Otherwise estimated: `choose` is asked `REPEATS` times with other random
        numbers. A policy with a formula overrides this, and says so (`randomness`).
        """
        K = len(contexts)
        if self.randomness == "none":
            chosen = np.zeros(K)
            chosen[choice_of(self, model, contexts, draw)] = 1.0
            return chosen
        repeated = [choice_of(self, model, contexts, draw.sibling(k)) for k in range(REPEATS)]
        return shares(np.bincount(repeated, minlength=K))

    def told(self, world: World) -> Policy:  # noqa: ARG002 - most have nothing open
        """The policy with every parameter that was left open settled for this world."""
        return self

    def width_alone(self, sums: Sums, ridge: float, noise: float) -> Width:  # noqa: ARG002 - none by default
        """The width of a model with exactly these statistics: by it a client weighs what others released."""
        return Width(0.0, noise, fixed=True)


def choice_of(policy: Policy, model: Model, contexts: Array, draw: Draw) -> int:
    """What a policy chooses, if that is one of the arms."""
    a = policy.choose(model, contexts, draw)
    if type(a) is int and 0 <= a < len(contexts):
        return a
    try:
        arm = operator.index(a)  # NumPy's whole numbers too
    except TypeError:
        arm = -1
    if not 0 <= arm < len(contexts):
        raise FedbanditError(
            f"The policy {name_of(type(policy))} chose arm {shown(a)} of {len(contexts)}; `choose` must return a whole "
            f"number from 0 to {len(contexts) - 1}."
        )
    return arm


def best(scores: Array) -> int:
    """The lowest index whose score is within TIE of the largest: one rule for every policy.

    >>> best(np.array([0.1, 0.5, 0.5 + 1e-12]))
    1
    """
    return int((scores >= scores.max() - TIE).argmax())


def shares(counts: Ints) -> Array:
    """Estimated probabilities of arms that were chosen so often; no arm gets zero, as one that was logged was possible.

    (n_a + 1/K)/(n + 1): one further choice is divided among all arms.

    >>> shares(np.array([3, 0])).tolist()
    [0.875, 0.125]
    """
    return np.asarray((counts + 1 / counts.size) / (counts.sum() + 1))


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

    def told(self, world: World) -> Self:
        """With the world's σ, unless another is given, and δ/A where each of A actions has a width of its own."""
        noise = world.noise if self.noise is None else self.noise
        return replace(self, noise=noise, confidence=self.confidence / max(world.actions, 1))

    def width(self, part: Part) -> float | Array:
        """α, the factor of ‖x‖_{V(λ)⁻¹}; more than the formula where statistics are not exact (`Slack`).

        An array, one for each context, where each has a θ of its own.
        """
        if self.alpha is not None:
            return self.alpha
        deviation = self._deviation(part.logdet, part.partial_noise)
        return (1.0 + part.slack.inflation) * deviation + math.sqrt(part.ridge) + part.slack.bias

    def noise_width(self, part: Part) -> float:
        """The factor of ‖V(λ)⁻¹x‖₂: a bound of the noise in b − Vθ. A fixed α stands for everything."""
        return part.slack.noise if self.alpha is None else 0.0

    def sampling_width(self, part: Part) -> float | Array:
        """One factor for policies that sample a parameter: ‖V(λ)⁻¹x‖₂ ≤ λ_max(V(λ)⁻¹)^½ ‖x‖_{V(λ)⁻¹}."""
        noise = self.noise_width(part)
        if noise == 0.0:
            return self.width(part)
        return self.width(part) + noise * math.sqrt(float(np.linalg.eigvalsh(part.inverse)[-1]))

    def width_alone(self, sums: Sums, ridge: float, noise: float) -> Width:
        """The formula for exactly these statistics, or the fixed α."""
        sigma = noise if self.noise is None else self.noise
        if self.alpha is not None:
            return Width(self.alpha, sigma, fixed=True)
        _, logdet = np.linalg.slogdet(sums.V / ridge + np.eye(sums.b.size))
        return Width(float(self._deviation(float(logdet), 0.0)) + math.sqrt(ridge), sigma)

    def _deviation(self, logdet: float | Array, partial_noise: float) -> float | Array:
        assert self.noise is not None, "a policy is told the world before it chooses"
        surprise = 2 * math.log(1 / self.confidence)
        if isinstance(logdet, np.ndarray):
            return (self.noise + partial_noise) * np.sqrt(np.maximum(logdet, 0.0) + surprise)
        return (self.noise + partial_noise) * math.sqrt(max(logdet, 0.0) + surprise)
