"""Statistics that cannot be are refused before they touch anything."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedbandit.messages import Upload
from fedbandit.transports.refusal import Refusal
from fedbandit.world import World


@dataclass(frozen=True)
class Limits:
    """What n observations with ‖x‖ ≤ L and |y| ≤ B can add up to, give or take `slack` for declared noise.

    V = Σ x xᵀ, b = Σ x y:

        tr V ≤ n L²,      [[V, b], [bᵀ, n B²]] ⪰ 0

    The second is V ⪰ 0 and, by Cauchy–Schwarz in every direction, |⟨a, b⟩|² ≤ n B² aᵀVa. Noise moves eigenvalues by
    at most its norm: `slack` is a bound of it (∞: anything goes but what is not finite).
    """

    dim: int
    bound: float
    reward_bound: float
    slack: float = 0.0

    @classmethod
    def of(cls, world: World, reward_bound: float, slack: float = 0.0) -> Limits:
        """The limits of a world."""
        return cls(world.dim, world.bound, reward_bound, slack)

    def check(self, upload: Upload) -> None:
        """Refuse an upload that no observations can have led to."""
        V, b, n = upload.sums
        if b.size != self.dim:
            raise Refusal("statistics", f"The statistics are of dimension {b.size}, expected {self.dim}.")
        if not (np.isfinite(V).all() and np.isfinite(b).all() and np.isfinite(upload.known)):
            raise Refusal("statistics", "The statistics are not finite.")
        if n >= 2**53:
            raise Refusal("statistics", f"The statistics are of {n} observations, which nobody can have made.")
        if self.slack == np.inf:
            return
        most = n * self.bound**2
        rounding = 1e-9 * max(1.0, most)
        trace = float(np.trace(V))
        if trace > most + self.dim * self.slack + rounding:
            raise Refusal("statistics", f"The trace is {trace:.6g}, but {n} contexts allow at most {most:.6g}.")
        M = np.empty((self.dim + 1, self.dim + 1))
        M[:-1, :-1] = V
        M[-1, :-1] = M[:-1, -1] = b
        M[-1, -1] = n * self.reward_bound**2
        scale = max(1.0, most, n * self.reward_bound**2)
        M[np.diag_indices(self.dim + 1)] += 2 * self.slack + 1e-9 * scale
        try:
            np.linalg.cholesky(M)  # succeeds if and only if M is positive definite, at a tenth of an eigenvalue's cost
        except np.linalg.LinAlgError:
            if np.linalg.eigvalsh(V)[0] < -self.slack - rounding:
                raise Refusal("statistics", "The matrix is not positive semi-definite.") from None
            raise Refusal("statistics", f"The rewards cannot have been within ±{self.reward_bound:g}.") from None
