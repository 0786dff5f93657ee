"""LinPHE: greedy on a perturbed history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit.model import Part
from fedbandit.policies.sampling import Sampling
from fedbandit.types import Array


@dataclass(frozen=True)
class LinPHE(Sampling):
    """Add fresh noise to every past reward, fit, and pull the best arm: θ̃ = V(λ)⁻¹ Σ x (y + α z), z ~ N(0, 1).

    Reference: Kveton et al., Perturbed-History Exploration in Stochastic Linear Bandits, 2019.

    Deviations:
        D1. Gaussian pseudo-rewards of mean zero instead of sums of Bernoulli ones: Σ x z is then N(0, V) and is drawn
            from the sufficient statistics alone, so the history need not be kept, nor shared.
        D2. Their scale a is σ, so that the perturbed fit scatters as the fit itself does, or what `alpha` says.
    """

    name: ClassVar[str] = "linphe"
    takes_stacks: ClassVar[bool] = True

    def root(self, part: Part) -> Array:
        """α V(λ)⁻¹ L with L Lᵀ = V (without ridge)."""
        return self.scaled(part, part.inverse @ semidefinite_cholesky(part.V))


def semidefinite_cholesky(A: Array) -> Array:
    """The lower triangular L with L Lᵀ = A for a positive *semi*-definite A, such as V of few observations.

    A pivot that is zero to rounding has nothing below it either, since A is semi-definite; its column is left zero.
    Matrices may be stacked.
    """
    d = A.shape[-1]
    L = np.zeros_like(A)
    least = 1e-12 * A.diagonal(axis1=-2, axis2=-1).max(axis=-1, initial=0.0)
    for j in range(d):
        column = A[..., j:, j] - (L[..., j:, :j] @ L[..., j, :j, None])[..., 0]
        pivot = np.where(column[..., 0] > least, column[..., 0], np.inf)
        L[..., j:, j] = column / np.sqrt(pivot)[..., None]
    return L
