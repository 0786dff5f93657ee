"""The noise σ of rewards, estimated from data: what a linear model leaves of them.

    σ̂² = RSS/(n − df),    RSS = Σ (y − xᵀθ̂)²,    θ̂ a ridge regression with λ,    df = Σ_k s_k/(s_k + λ)

with s_k the eigenvalues of V = Σ x xᵀ; df is the regression's effective number of parameters (Hastie et al., The
Elements of Statistical Learning, §3.4.1). Several regressions, one for each client or action, add up RSS, n and df.
"""

from __future__ import annotations

import math

import numpy as np

from fedbandit.types import Array, Ints

RIDGE = 0.1
MOST = 200_000
"""Rows that are looked at: more change nothing that matters."""


def residual_noise(X: Array, y: Array, group: Ints) -> float:
    """σ̂ of rewards y (n,) with contexts X (n, d), one regression for each group of rows.

    Groups that have too few rows for a regression of their own are put together; 0.5 · (max − min) if all are too few.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((2000, 3))
    >>> y = X @ np.ones(3) + 0.5 * rng.standard_normal(2000)
    >>> round(residual_noise(X, y, np.zeros(2000, dtype=int)), 1)
    0.5
    """
    if len(y) > MOST:
        at = np.linspace(0, len(y) - 1, MOST).astype(np.int64)
        X, y, group = X[at], y[at], group[at]
    few = 2 * X.shape[1]
    counts = np.bincount(group)
    order = np.argsort(np.where(counts[group] >= few, group, -1), kind="stable")
    labels = np.where(counts[group] >= few, group, -1)[order]
    left, freedom = 0.0, 0.0
    for rows in np.split(order, np.flatnonzero(np.diff(labels)) + 1):
        rss, df = _fit(X[rows], y[rows])
        if len(rows) > df + 1:
            left, freedom = left + rss, freedom + len(rows) - df
    return math.sqrt(left / freedom) if freedom > 0 else 0.5 * float(np.ptp(y))


def _fit(X: Array, y: Array) -> tuple[float, float]:
    s, U = np.linalg.eigh(X.T @ X)
    theta = U @ ((U.T @ (X.T @ y)) / (s + RIDGE))
    residuals = y - X @ theta
    return float(residuals @ residuals), float((s / (s + RIDGE)).sum())
