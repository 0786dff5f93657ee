"""Federated learning on a graph: what a coordinator sends a user so that its ordinary d-dimensional row scores exactly.

Users upload their own statistics (V_u, s_u); the coordinator has all it needs of the large model (`user_graph`):

    D = blockdiag(V_1, …, V_N),   P = (λI + (K ⊗ I) D)⁻¹ (K ⊗ I) with K = M Mᵀ,   θ̃ = P vec(s).

User u is sent *effective* statistics V = P_uu⁻¹ − λI and b = P_uu⁻¹ θ̃_u, whose ridge regression is just xᵀθ̃_u and
xᵀP_uu x. Its own later observations on top are exact too: they are rank-one changes of P that in block (u, u) read
P_uu⁻¹ += x xᵀ. What V does not show travels as slack: what makes its log-determinant that of the width, and what is
added to it. So the download check of the event-triggered protocol compares what a user knows about its own parameter,
or with width="model" the determinants of the whole model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedbandit.sharing import Members, Noise, NoiseInSums, Share, Sharing
from fedbandit.structures.graph_model import kernel_of
from fedbandit.sums import Slack, Sums
from fedbandit.types import Array

REBUILD = 256
"""Updates after which P is computed afresh: bounds rounding."""


class GraphShare(Sharing):
    """P, kept up to date with what members have released. It never regroups."""

    disjoint = True

    def __init__(self, M: Array, dim: int, ridge: float, biases: Array, *, whole: bool) -> None:
        self.dim = dim
        self.ridge = ridge
        self.biases = biases
        self.whole = whole
        self.kernel = M @ M.T
        self.n_users = len(M)
        self._start()

    def _start(self) -> None:
        d, N = self.dim, self.n_users
        self.P: Array = np.asarray(np.kron(self.kernel, np.eye(d)) / self.ridge, dtype=np.float64)
        self.logdet = 0.0
        self._seen = np.zeros((N, d, d))
        self._updates = 0

    def groups(self) -> list[list[int]]:
        """All together."""
        return [list(range(self.n_users))]

    def affected(self, member: int) -> Sequence[int]:  # noqa: ARG002 - log det A changes for all
        """Everybody."""
        return range(self.n_users)

    def restore(self, state: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Compute everything afresh when next asked."""
        self._start()

    def prior(self, member: int) -> Share:
        """What a member knows that has heard nothing: the graph is public."""
        d = self.dim
        scale = float(self.kernel[member, member])
        V = (1 / scale - 1) * self.ridge * np.eye(d)
        return Share(Sums(V, np.zeros(d), 0), Slack(d * math.log(scale), float(self.biases[member])))

    def share(self, member: int, members: Members, noise: Noise | None, ridge: float) -> Share:
        """Effective statistics of a member, which has released something or not."""
        self._follow(members)
        d, own = self.dim, self._block(member)
        precision = np.linalg.inv(self.P[own, own])
        precision = (precision + precision.T) / 2
        theta = self.P[own] @ members.b.reshape(-1)
        V = precision - ridge * np.eye(d)
        offset = d * math.log(self.kernel[member, member])
        if self.whole:
            offset = self.logdet - float(np.linalg.slogdet(precision / ridge)[1])
        bias = float(self.biases[member])
        if isinstance(noise, NoiseInSums):
            bias += noise.radius(precision, self.P[own], members.n)
        return Share(Sums(V, precision @ theta, int(members.n.sum())), Slack(offset, bias))

    def _block(self, member: int) -> slice:
        return slice(member * self.dim, (member + 1) * self.dim)

    def _follow(self, members: Members) -> None:
        """Bring P up to date with every V_u that has changed since the last time."""
        for j in np.flatnonzero((self._seen != members.V).any(axis=(1, 2))):
            values, vectors = np.linalg.eigh(members.V[j] - self._seen[j])
            kept = values > 1e-12 * values[-1]
            F = vectors[:, kept] * np.sqrt(values[kept])  # ΔV = F Fᵀ: sums of x xᵀ are never noised
            own = self._block(int(j))
            left = self.P[:, own] @ F
            middle = np.eye(F.shape[1]) + F.T @ left[own]
            self.P -= left @ np.linalg.solve(middle, left.T)
            self.logdet += float(np.linalg.slogdet(middle)[1])
            self._seen[j] = members.V[j]
            self._updates += 1
        if self._updates >= REBUILD:
            self.P, self.logdet = kernel_of(self.kernel, self._seen, self.ridge)
            self._updates = 0
