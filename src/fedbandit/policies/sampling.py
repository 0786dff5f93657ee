"""What policies have in common that choose the best arm of a sampled parameter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from fedbandit.model import Model, Part
from fedbandit.policies.policy import SAMPLES, Policy, WidthRule, best, shares
from fedbandit.types import Array
from fedbandit.world import World

if TYPE_CHECKING:
    from fedbandit.streams import Draw


@dataclass(frozen=True)
class Sampling(WidthRule, Policy):
    """Draw θ̃ = θ̂ + R z with z ~ N(0, I) once a step and pull the arm with the largest xᵀθ̃. Subclasses say what R is.

    By default α = σ: what is sampled is then the posterior of a Gaussian model.
    """

    def root(self, part: Part) -> Array:
        """R of a part with one θ."""
        raise NotImplementedError

    def deviations(self, part: Part, X: Array) -> Array:
        """√(xᵀR Rᵀx), the standard deviation of xᵀθ̃, of each context."""
        raise NotImplementedError

    def told(self, world: World) -> Self:
        """With the world's σ as the spread, unless another is given."""
        told = super().told(world)
        return told if told.alpha is not None else replace(told, alpha=told.noise)

    def choose(self, model: Model, contexts: Array, draw: Draw) -> int:
        """The best arm of θ̃."""
        return best(self._scores(model, contexts, draw.normal))

    def propensities(self, model: Model, contexts: Array, draw: Draw) -> Array:
        """Shares of `SAMPLES` sampled parameters, all at once."""
        rng = draw.sibling(0).generator()
        scores = self._scores(model, contexts, lambda m: rng.standard_normal((m, SAMPLES)))
        return shares(np.bincount(scores.argmax(axis=0), minlength=len(contexts)))

    def _scores(self, model: Model, contexts: Array, normal: Callable[[int], Array]) -> Array:
        """xᵀθ̃ of each context, given `normal(m)`: m rows of standard normals.

        Where each context has a θ of its own these are independent, so that one number each is enough.
        """
        total: Array | float = 0.0
        for part, X in model.parts(contexts):
            if part.stacked:
                scattered = self.deviations(part, X) * normal(len(X)).T
            else:
                scattered = (X @ (self.root(part) @ normal(part.theta.size))).T
            total = total + part.means(X) + scattered
        return np.asarray(total).T
