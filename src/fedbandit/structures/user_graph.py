"""A known graph of users: what its two models have in common.

Both learn one linear model of dN parameters ϑ with E y = x̃ᵀϑ, where x̃ = m_u ⊗ x for user u and m_u is row u of a
*mixing* matrix M (N × N): M = W for CoLin, M = G^{-1/2} for GOBLin. With A = λI + Σ x̃x̃ᵀ and b = Σ x̃y,

    P = (M ⊗ I) A⁻¹ (Mᵀ ⊗ I),     x̃ᵀA⁻¹x̃ = xᵀ P_uu x,     x̃ᵀϑ̂ = xᵀ θ̃_u with θ̃ = (M ⊗ I) A⁻¹ b = P vec(s),

where s_u = Σ x y over user u's own interactions. So the block (u, u) of P, a d × d matrix, scores user u's arms, and P
is learnt like any inverse: it starts as M Mᵀ ⊗ I/λ, and an interaction of user u with v = P (e_u ⊗ x) takes

    P −= v vᵀ/(1 + xᵀv_u),      θ̃ += v (y − xᵀθ̃_u)/(1 + xᵀv_u),      log det A += log(1 + xᵀv_u).

Nothing of size dN is ever done for an arm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from fedbandit.errors import FedbanditError, number, require
from fedbandit.sharing import Sharing
from fedbandit.structures.graph_model import GraphModel, GraphWidth
from fedbandit.structures.graph_share import GraphShare
from fedbandit.structures.serving import NoiseOnGraph, Serving
from fedbandit.structures.structure import Structure
from fedbandit.types import Array, Ints
from fedbandit.world import World

WIDTHS = ("user", "model", "printed")


@runtime_checkable
class OnGraph(Protocol):
    """A structure whose users are mixed by a matrix."""

    def mixing(self, world: World) -> Array:
        """M, (N, N)."""
        ...

    def biases(self, world: World, ridge: float) -> Array:
        """What each user's width has beyond √λ."""
        ...

    @property
    def whole(self) -> bool:
        """Whether widths are those of the whole model."""
        ...


@dataclass(frozen=True, eq=False)
class UserGraph(Structure):
    """Parameters that the two graph structures share.

    graph: weights between users (N, N); the world's if omitted.
    central: whether one place learns from every interaction at once, as in the papers. If not, every user has a row of
        its own, and users and a coordinator exchange statistics as the protocol says (`graph_share`).
    width: "user", "model" or "printed", see below.
    norm: S of the width, by default 1 for users and √N for the model.
    isolated: whether a user may be without neighbours; refused unless allowed, since it is a mistake more often
        than not.
    fresh: whether a user's row learns from its own interactions at once, not only from what was released.

    *Widths.* α‖x‖_{P_uu} with α = σ √(logdet + 2 log 1/δ) + √λ S. The papers take the whole model's: logdet of A/λI, dN
    dimensions, and S ≥ ‖ϑ‖ ("model"); in print (Wang et al. 2020, Lemmas 2 and 4) logdet is replaced by its bound
    dN log(1 + Σ_t ‖m_{u_t}‖²/(λdN)) ("printed", in one place only). That holds for all users at once, but is so wide
    that in every experiment here users do better alone.
    By default ("user") it is that of user u's own d parameters f_u = Σ_j m_uj θ_j, of which the
    graph gives the prior P_uu(0) = K_uu I/λ with K = M Mᵀ: logdet of P_uu(0) P_uu⁻¹, and S ≥ ‖f_u‖/√K_uu. For M = I it
    is LinUCB's own. That it holds for data chosen adaptively by *others*, and that S = 1, is not proven; it is what
    works.
    """

    graph: ArrayLike | None = field(default=None, repr=False)
    central: bool = True
    width: GraphWidth = "user"
    norm: float | None = None
    isolated: bool = False
    fresh: bool = True

    def __post_init__(self) -> None:
        """Check what can be checked without a world."""
        require(self.width in WIDTHS, "width", self.width, "'user', 'model' or 'printed'")
        if self.width == "printed" and not self.central:
            raise FedbanditError(
                "width='printed' is that of one model of all users; use 'model' where users are apart."
            )
        everything = "True with central=True, where one place learns from every interaction"
        require(self.fresh or not self.central, "fresh", self.fresh, everything)
        if self.norm is not None:
            require(number(self.norm, "norm", "a number > 0") > 0, "norm", self.norm, "a number > 0")
        if self.graph is not None:
            object.__setattr__(self, "graph", checked_weights(self.graph, None, isolated=self.isolated))

    @property
    def separate(self) -> bool:
        """Whether users have models of their own."""
        return not self.central

    @property
    def by_member(self) -> bool:
        """What a user is sent depends on everybody's statistics."""
        return not self.central

    def weights(self, world: World) -> Array:
        """The graph that was given, or the world's."""
        graph = world.graph if self.graph is None else self.graph
        if graph is None:
            raise FedbanditError(
                f"{type(self).__name__} needs a graph of users: give one (graph=…), or run on an environment that "
                "knows one, such as collaborative, or recorded with graph=…."
            )
        return checked_weights(graph, world.n_clients, isolated=self.isolated)

    @property
    def whole(self) -> bool:
        """Whether widths are those of the whole model."""
        return self.width != "user"

    def mixing(self, world: World) -> Array:
        """M, (N, N)."""
        raise NotImplementedError

    def biases(self, world: World, ridge: float) -> Array:
        """√λ (S − 1), the same for all."""
        usual = math.sqrt(world.n_clients) if self.whole else 1.0
        return np.full(world.n_clients, math.sqrt(ridge) * ((usual if self.norm is None else self.norm) - 1))

    def sharing(self, world: World, ridge: float) -> Sharing:
        """What a coordinator sends to a user, if users have rows of their own."""
        return GraphShare(self.mixing(world), world.dim, ridge, self.biases(world, ridge), whole=self.whole)

    def serve(self, world: World, users: Ints, ridge: float, noise: NoiseOnGraph | None = None) -> Serving:  # noqa: ARG002
        """One model of all users (`graph_model`)."""
        biases = self.biases(world, ridge)
        return GraphModel(self.mixing(world), world.dim, ridge, biases, width=self.width, noise=noise)


def checked_weights(graph: ArrayLike, n_clients: int | None, *, isolated: bool) -> Array:
    """The graph as an array, if it can be one."""
    try:
        W = np.array(graph, dtype=np.float64)
    except (TypeError, ValueError):
        raise FedbanditError("The graph holds something that is not a number.") from None
    require(W.ndim == 2 and W.shape[0] == W.shape[1], "the shape of the graph", W.shape, "(N, N), a row a user")
    if n_clients is not None:
        require(W.shape[0] == n_clients, "the number of users in the graph", W.shape[0], f"{n_clients}, one a client")
    require(bool(np.isfinite(W).all()), "the graph", "not finite", "finite weights ≥ 0")
    require(bool((W >= 0).all()), "the smallest weight of the graph", float(W.min()), "≥ 0")
    if not isolated and W.shape[0] > 1:
        others = W + W.T
        np.fill_diagonal(others, 0.0)
        alone = np.flatnonzero(others.sum(axis=1) == 0)
        if alone.size:
            raise FedbanditError(
                f"User {alone[0]} has no neighbour in the graph; connect it, or say isolated=True if that is meant."
            )
    return W
