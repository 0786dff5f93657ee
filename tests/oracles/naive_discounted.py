"""Weighted least squares from the text of Russac, Vernade & Cappé 2019 (D-LinUCB), from all observations at once."""

from __future__ import annotations

import numpy as np


def weighted(
    rounds: list[int], X: list[np.ndarray], y: list[float], now: int, gamma: float
) -> tuple[np.ndarray, np.ndarray]:
    """Σ γ^(t − s) A_s A_sᵀ and Σ γ^(t − s) A_s X_s, without ridge (their Eq. 4 and 5, λ aside)."""
    weights = gamma ** (now - np.array(rounds, dtype=float))
    A = np.array(X)
    return (A * weights[:, None]).T @ A, A.T @ (weights * np.array(y))
