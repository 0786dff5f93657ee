"""LinUCB with disjoint linear models, from the text of Li, Chu, Langford & Schapire 2010, Algorithm 1.

One regression on vectors of length A·f that are zero but for the block of their action, with a fixed α: the dense form
of what the paper keeps block by block (A_a ← I_d; its ridge is λ = 1, here any).
"""

from __future__ import annotations

import numpy as np


class DisjointLinUCB:
    """All data in one place."""

    def __init__(self, actions: int, features: int, alpha: float, ridge: float = 1.0) -> None:
        self.f, self.alpha = features, alpha
        self.A = ridge * np.eye(actions * features)
        self.b = np.zeros(actions * features)

    def long(self, action: int, x: np.ndarray) -> np.ndarray:
        z = np.zeros_like(self.b)
        z[action * self.f : (action + 1) * self.f] = x
        return z

    def choose(self, arms: list[tuple[int, np.ndarray]]) -> int:
        """Lines 3–11: p = θ̂ᵀx + α √(xᵀA⁻¹x); the first of those within 1e-9 of the largest."""
        inverse = np.linalg.inv(self.A)
        theta = inverse @ self.b
        z = [self.long(a, x) for a, x in arms]
        p = np.array([theta @ one + self.alpha * np.sqrt(one @ inverse @ one) for one in z])
        return int(np.flatnonzero(p >= p.max() - 1e-9)[0])

    def learn(self, action: int, x: np.ndarray, y: float) -> None:
        """Lines 12–13."""
        z = self.long(action, x)
        self.A += np.outer(z, z)
        self.b += y * z
