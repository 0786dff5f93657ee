"""One model of all users on a graph, whose data are in one place: CoLin and GOBLin as published.

See `user_graph` for P. An interaction changes all (dN)² entries of P, but the next one reads only the rows of its own
user. So changes are kept as vectors, P = stored − Σ c cᵀ, and many of them at a time are folded into the stored matrix
by one product of matrices: an interaction costs O(d²N + m dN) for v = P (e_u ⊗ x) with m changes, and its share of the
product.

Noise in the sums s_u (privacy) changes estimates only: θ̃ = P (vec(s) + h) + g.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from fedbandit.model import LinearModel, Model
from fedbandit.state import State, joined, parts_of, stored
from fedbandit.structures.serving import NoiseOnGraph, Serving
from fedbandit.sums import Slack
from fedbandit.types import Array

GraphWidth = Literal["user", "model", "printed"]
"""Of which model the width is: the acting user's, all users', or all users' as the paper bounds it."""

CHANGES = 64
"""Changes that are kept before they are folded into P."""

FOLDED_ROWS = 256
"""Rows of P that are folded at once: bounds the memory of the product."""


class GraphModel(Serving):
    """P, θ̃ without noise, and log det A/det λI.

    `biases` are what each user's width has beyond √λ; `width` says of which model it is (`UserGraph`).
    """

    def __init__(
        self, M: Array, dim: int, ridge: float, biases: Array, *, width: GraphWidth, noise: NoiseOnGraph | None = None
    ) -> None:
        N = len(M)
        self.dim, self.ridge, self.biases, self.width, self.noise = dim, ridge, biases, width, noise
        self.kernel = M @ M.T
        self.P: Array = np.asarray(np.kron(self.kernel, np.eye(dim)) / ridge, dtype=np.float64)  # without the changes
        self.theta = np.zeros(N * dim)
        self.logdet = 0.0
        self.V, self.s, self.n = np.zeros((N, dim, dim)), np.zeros((N, dim)), np.zeros(N, dtype=np.int64)
        self._changes = np.zeros((CHANGES, N * dim))
        self._kept = 0

    def model(self, user: int) -> Model:
        """Block (u, u) of P, and θ̃_u."""
        return UserView(self, user)

    def observe(self, user: int, x: Array, y: float) -> None:
        """With v = P (e_u ⊗ x) and q = xᵀv_u: P −= v vᵀ/(1+q), θ̃ += v (y − xᵀθ̃_u)/(1+q), logdet += log(1+q)."""
        own = self.block(user)
        changes = self._changes[: self._kept]
        v = x @ self.P[own] - (changes[:, own] @ x) @ changes
        growth = 1.0 + float(x @ v[own])
        self.theta += ((y - float(x @ self.theta[own])) / growth) * v
        self._changes[self._kept] = v / math.sqrt(growth)
        self._kept += 1
        self.logdet += math.log(growth)
        self.V[user] += np.multiply.outer(x, x)
        self.s[user] += y * x
        self.n[user] += 1
        if self._kept == CHANGES:
            self._fold()
        if self.noise is not None:
            self.noise.observed(user, self.V)

    def block(self, user: int) -> slice:
        """Where a user's entries are."""
        return slice(user * self.dim, (user + 1) * self.dim)

    def rows(self, user: int) -> Array:
        """(P_u1, …, P_uN)."""
        own, changes = self.block(user), self._changes[: self._kept]
        return self.P[own] - changes[:, own].T @ changes

    def own_block(self, user: int) -> Array:
        """P_uu."""
        own = self.block(user)
        changes = self._changes[: self._kept, own]
        return self.P[own, own] - changes.T @ changes

    def parameters(self) -> Array:
        """What arms are scored with: θ̃_u of all users (N, d), noise included."""
        theta = self.theta.copy()
        if self.noise is not None:
            self._fold()
            theta += self.P @ self.noise.shift
            theta += 0.0 if self.noise.lift is None else self.noise.lift
        return theta.reshape(-1, self.dim)

    def _fold(self) -> None:
        """P −= Σ c cᵀ."""
        changes = self._changes[: self._kept]
        for first in range(0, len(self.P), FOLDED_ROWS):
            some = slice(first, first + FOLDED_ROWS)
            self.P[some] -= changes[:, some].T @ changes
        self._kept = 0

    def state(self) -> State:
        """V_u, s_u and n_u of all users: everything else follows from them."""
        own = State({}, {"V": self.V.copy(), "s": self.s.copy(), "n": self.n.copy()})
        return joined({}, {"users": own} if self.noise is None else {"users": own, "noise": self.noise.state()})

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        parts = parts_of(state)
        users = parts["users"]
        self.V, self.s, self.n = (stored(users, name, getattr(self, name).shape).copy() for name in ("V", "s", "n"))
        self.P, self.logdet = kernel_of(self.kernel, self.V, self.ridge)
        self.theta, self._kept = self.P @ self.s.reshape(-1), 0
        if self.noise is not None:
            self.noise.restore(parts["noise"])


def kernel_of(K: Array, V: Array, ridge: float) -> tuple[Array, float]:
    """P = (λI + (K ⊗ I) D)⁻¹ (K ⊗ I) with D = blockdiag(V_1, …, V_N), and log det A/det λI, in (dN)³."""
    N, d, _ = V.shape
    prior = np.kron(K, np.eye(d)) / ridge
    system = (prior.reshape(N * d, N, d).transpose(1, 0, 2) @ V).transpose(1, 0, 2).reshape(N * d, N * d)
    system.flat[:: N * d + 1] += 1.0
    P: Array = np.linalg.solve(system, prior)
    return (P + P.T) / 2, float(np.linalg.slogdet(system)[1])


class UserView(LinearModel):
    """What user u's arms are scored with, as an ordinary ridge regression of its own d parameters."""

    partial_noise = 0.0

    def __init__(self, model: GraphModel, user: int) -> None:
        self._model, self._user = model, user
        self.ridge, self.n = model.ridge, int(model.n.sum())
        own, bias = model.block(user), float(model.biases[user])
        if model.noise is None:
            self.inverse = model.own_block(user)
            self.theta = model.theta[own]
        else:
            rows = model.rows(user)
            self.inverse = rows[:, own].copy()
            self.theta = model.theta[own] + rows @ model.noise.shift
            if model.noise.lift is not None:
                self.theta += model.noise.lift[own]
            bias += model.noise.radius(user, self.inverse, rows)
        self.slack = Slack(bias=bias)

    @property
    def logdet(self) -> float:
        """Of the whole model, its bound by the trace, or log det P_uu(0) P_uu⁻¹."""
        if self._model.width == "model":
            return self._model.logdet
        if self._model.width == "printed":
            size = self._model.theta.size
            return size * math.log1p(float(self._model.n @ self._model.kernel.diagonal()) / (self.ridge * size))
        prior = float(self._model.kernel[self._user, self._user]) / self.ridge  # P_uu(0) = K_uu I/λ
        return self._model.dim * math.log(prior) - float(np.linalg.slogdet(self.inverse)[1])

    @property
    def V(self) -> Array:
        """The effective statistics P_uu⁻¹ − λI."""
        return np.asarray(np.linalg.inv(self.inverse)) - self.ridge * np.eye(self._model.dim)
