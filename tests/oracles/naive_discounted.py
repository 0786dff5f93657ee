"""Least squares from all observations at once: weighted, from the text of Russac, Vernade & Cappé 2019 (D-LinUCB), and
of a sliding window, from that of Cheung, Simchi-Levi & Zhu 2019 (SW-UCB).
"""

from __future__ import annotations

import numpy as np


def weighted(
    rounds: list[int], X: list[np.ndarray], y: list[float], now: int, gamma: float
) -> tuple[np.ndarray, np.ndarray]:
    """Σ γ^(t − s) A_s A_sᵀ and Σ γ^(t − s) A_s X_s, without ridge (their Eq. 4 and 5, λ aside)."""
    weights = gamma ** (now - np.array(rounds, dtype=float))
    A = np.array(X)
    return (A * weights[:, None]).T @ A, A.T @ (weights * np.array(y))


def sums_since(first: int, rounds: list[int], X: list[np.ndarray], y: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Σ_{s ≥ first} X_s X_sᵀ and Σ_{s ≥ first} X_s Y_s (their Eq. 5, λ aside)."""
    recent = [(x, value) for s, x, value in zip(rounds, X, y, strict=True) if s >= first]
    A, r = np.array([x for x, _ in recent]), np.array([value for _, value in recent])
    return A.T @ A, A.T @ r
