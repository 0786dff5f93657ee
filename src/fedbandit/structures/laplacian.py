"""GOBLin's graph: neighbours have similar parameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedbandit.structures.user_graph import UserGraph
from fedbandit.types import Array
from fedbandit.world import World


@dataclass(frozen=True, eq=False)
class Laplacian(UserGraph):
    """x̃ = G^{-1/2} e_u ⊗ x with G = I + L: a ridge that also punishes differences between neighbours (GOBLin).

    It is the ridge

        λ (Σ_i ‖θ_i‖² + Σ_{edges} a_ij ‖θ_i − θ_j‖²).

    L = D − A is the Laplacian of the graph; A has ones where two users are neighbours, or with `weighted` the mean of
    their two weights. What the graph says about a user and itself is ignored.

    Neighbours tell a user little about its own parameter beside what it observes itself: one of them, however much it
    knows, takes the variance from 2/3λ to 1/2λ. Under EventTriggered with central=False nothing is sent back that
    adds less than log γ_D to log det, which is d log 4/3 at most there; take γ_D near 1, or CountTriggered.

    Reference: Cesa-Bianchi et al. 2013 (GOBLin); Wang et al. 2020, §5.2.

    Deviations:
        D1. The paper prints G = I_d + L; I has the size of L, the number of users.
        D2. The paper's width has L(θ) = Σ‖θ_i‖ + Σ‖θ_i − θ_j‖, sums of norms; what the proof needs is the norm of all
            of them together (`norm`), which is smaller. By default widths are users' own, see `UserGraph`.

    >>> complete = np.ones((4, 4))
    >>> float((Laplacian(complete).mixing(World(4, 2, 10)) ** 2).sum(axis=1)[0].round(9))  # 2/(N + 1)
    0.4
    """

    weighted: bool = False

    def mixing(self, world: World) -> Array:
        """G^{-1/2}, symmetric."""
        W = self.weights(world)
        A = (W + W.T) / 2 if self.weighted else ((W + W.T) > 0).astype(np.float64)
        np.fill_diagonal(A, 0.0)
        values, vectors = np.linalg.eigh(np.diag(1 + A.sum(axis=1)) - A)
        return np.asarray((vectors / np.sqrt(values)) @ vectors.T)
