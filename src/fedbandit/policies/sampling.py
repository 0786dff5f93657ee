"""What policies have in common that choose the best arm of a sampled parameter."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

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

    takes_stacks: ClassVar[bool] = False
    """Whether `root` takes stacked parts too (`Model.stacks`), so that many actions with a θ each need one call."""

    @abstractmethod
    def root(self, part: Part) -> Array:
        """R, (d, d), of one part: `part.V`, `part.inverse`, `part.ridge` …; stacked where the part is."""

    def scaled(self, part: Part, root: Array) -> Array:
        """α times a root: what `root` returns where it is to have the width of `WidthRule`."""
        return np.asarray(root.T * self.sampling_width(part)).T

    def told(self, world: World) -> Self:
        """With the world's σ as the spread, unless another is given."""
        told = super().told(world)
        return told if told.alpha is not None else replace(told, alpha=told.noise)

    def choose(self, model: Model, contexts: Array, draw: Draw) -> int:
        """The best arm of θ̃; each θ takes d normals, one after another."""
        scores = model.means(contexts)
        for part, W in self._rooted(model, contexts):
            d = W.shape[1]
            drawn = draw.normal(d * len(part.groups)).reshape(-1, d)
            for rows, z in zip(part.groups, drawn, strict=True):
                scores[rows] += W[rows] @ z
        return best(scores)

    def propensities(self, model: Model, contexts: Array, draw: Draw) -> Array:
        """Shares of `SAMPLES` sampled parameters, all at once."""
        rng, scores = draw.sibling(0).generator(), np.repeat(model.means(contexts)[:, None], SAMPLES, axis=1)
        for part, W in self._rooted(model, contexts):
            for rows in part.groups:
                w = W[rows]
                if (
                    len(w) < w.shape[1]
                ):  # W z ~ N(0, W Wᵀ), and L z with the triangular L of W = L Q takes fewer numbers
                    w = np.asarray(np.linalg.qr(w.T, mode="r")).T
                scores[rows] += w @ rng.standard_normal((w.shape[1], SAMPLES))
        return shares(np.bincount(scores.argmax(axis=0), minlength=len(contexts)))

    def _rooted(self, model: Model, contexts: Array) -> Iterator[tuple[Part, Array]]:
        """The parts, and xᵀR of each context."""
        for part, X in model.stacks(contexts) if self.takes_stacks else model.parts(contexts):
            R = self.root(part)
            yield part, X @ R if R.ndim == 2 else (X[:, None] @ R)[:, 0]
