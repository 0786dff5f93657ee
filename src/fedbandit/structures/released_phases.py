"""FCLUB's clusters, found from what users have released and from nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import whole_number
from fedbandit.model import TIE
from fedbandit.schedule import own_rounds
from fedbandit.sharing import FoundGroups, Members, Noise
from fedbandit.structures.clustering import check_alpha, components, radius, servers_of
from fedbandit.structures.phased_clusters import next_phase
from fedbandit.structures.structure import Structure
from fedbandit.types import Array, Ints
from fedbandit.world import World

BLIND = 0.5
"""π of two together above which they are not compared: their parameters are at most 2S apart, and S is 1."""


@dataclass(frozen=True)
class ReleasedPhases(Structure):
    """`PhasedClusters` for users whose statistics are noised before they leave: every user is a member of its own.

    When a phase begins, everybody releases what is new, and with V_i, b_i, n_i all that user i has released so far

    1. edges between users of one server, of which all are there at first, are deleted for good if

           ‖θ̂_i − θ̂_j‖ > α₁ (F(n_i) + F(n_j)) + π_i + π_j                                                  (Eq. 3)

       and the connected components are the local clusters;
    2. local clusters j, k of different servers, with the sums of their users, are joined if

           ‖θ̂_j − θ̂_k‖ < α₂ (F(n_j) + F(n_k)) + π_j + π_k                                                  (Eq. 4)

       and the connected components are the global clusters, whose users share by the system's protocol.

    Here θ̂ = U⁻¹ b with U = V + P + λI, P lifting eigenvalues of the noisy V to the floor τ√d, and

        π = ‖U⁻¹P‖ S + τ √(tr U⁻²)

    is what privacy noise, of standard deviation τ in a coordinate of b − Vθ, adds to the distance: the bias of the
    lift, and the root mean square of U⁻¹(b − Vθ). Without noise P = 0 and π = 0, and this is FCLUB.

    alpha_split, alpha_merge: α₁ and α₂.
    first: phases before everybody has acted this often, on average, are passed over: early releases say little.
    n_servers: blocks of consecutive users; None for the servers of the environment, or a server for each client
        where it has none.

    *Guarantee.* Clusters are post-processing of releases, one stream a user for ever: to form them anew releases
    nothing again. FCLUB clusters users by raw data, which uploads then tell, and builds new trees over old records.

    Reference: Liu et al., FCLUB, 2022: Alg. 1 and 2, for one stream a user instead of one a local cluster.

    Deviations:
        D1. A local server does not pool its users' data in the clear: each is protected from the others too.
        D2. π in both tests; FCLUB compares noisy estimates as if they were exact.
        D3. Two with π_i + π_j > ½ are apart for the time being, and at first everybody is: noise so large says nothing
            about who is alike. FCLUB has all together until they are told apart, which with much noise they never are.
        D4. Those of `PhasedClusters`.
    """

    alpha_split: float = 2.5
    alpha_merge: float = 1.5
    first: int = 1
    n_servers: int | None = None

    by_member: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check every parameter."""
        object.__setattr__(self, "alpha_split", check_alpha("alpha_split", self.alpha_split))
        object.__setattr__(self, "alpha_merge", check_alpha("alpha_merge", self.alpha_merge))
        object.__setattr__(self, "first", whole_number("first", self.first))

    def sharing(self, world: World, ridge: float) -> Phases:
        """Everybody alone."""
        return Phases(self, world, ridge)


class Phases(FoundGroups):
    """The clusters at a time, at the coordinator."""

    def __init__(self, structure: ReleasedPhases, world: World, ridge: float) -> None:
        super().__init__(world.n_clients)
        self.structure = structure
        self.ridge = ridge
        self.server_of = servers_of(world, structure.n_servers, world.n_clients)
        self.edges = self.server_of[:, None] == self.server_of
        self._earliest = own_rounds(structure.first, world)

    def next_wake(self, done: int) -> int:
        """The beginning of the next phase."""
        return next_phase(max(done, self._earliest - 1))

    def find(self, members: Members, done: int, noise: Noise | None) -> list[list[int]]:  # noqa: ARG002
        """Delete edges, and join what is left of the servers' graphs."""
        tau = np.zeros(members.n.size) if noise is None else noise.deviations(members.releases)
        users = estimates(members.V, members.b, members.n, tau, self.ridge)
        self.edges &= ~(users.distances() > users.limits(self.structure.alpha_split) + TIE)
        local = components(self.edges & users.seen())
        V, b, n = (summed_by(local, part) for part in (members.V, members.b, members.n))
        clusters = estimates(V, b, n, np.sqrt(np.bincount(local, tau**2)), self.ridge)
        server = self.server_of[np.unique(local, return_index=True)[1]]
        alike = clusters.distances() < clusters.limits(self.structure.alpha_merge) - TIE
        label = components(alike & clusters.seen() & (server[:, None] != server))[local]
        return [np.flatnonzero(label == g).tolist() for g in range(int(label.max()) + 1)]

    def forget(self, member: int) -> None:
        """Its edges are as at the beginning."""
        self.edges[member] = self.edges[:, member] = self.server_of == self.server_of[member]

    def state(self) -> dict[str, Any]:
        """Also the pairs of users that have no edge any more."""
        gone = np.argwhere(np.triu(~self.edges & (self.server_of[:, None] == self.server_of)))
        return {**super().state(), "gone": gone.tolist()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        super().restore(state)
        for i, j in state["gone"]:
            self.edges[i, j] = self.edges[j, i] = False


def summed_by(label: Ints, values: NDArray[Any]) -> Array:
    """The sums of values with the same label."""
    total = np.zeros((int(label.max()) + 1, *values.shape[1:]))
    np.add.at(total, label, values)
    return total


@dataclass(frozen=True)
class PhaseEstimates:
    """θ̂ (C, d), F(n) (C,) and π (C,) of users or clusters."""

    theta: Array
    spread: Array
    privacy: Array

    def distances(self) -> Array:
        """‖θ̂_i − θ̂_j‖ of all pairs."""
        return np.asarray(np.linalg.norm(self.theta[:, None] - self.theta, axis=2))

    def seen(self) -> NDArray[np.bool_]:
        """Which pairs have little enough noise to be compared."""
        return np.asarray(self.privacy[:, None] + self.privacy <= BLIND)

    def limits(self, alpha: float) -> Array:
        """α (F(n_i) + F(n_j)) + π_i + π_j of all pairs."""
        alone = alpha * self.spread + self.privacy
        return np.asarray(alone[:, None] + alone)


def estimates(V: Array, b: Array, n: NDArray[Any], tau: Array, ridge: float) -> PhaseEstimates:
    """Of noisy sums V, b of n observations, with privacy noise of standard deviation τ in each coordinate of b − Vθ.

    >>> found = estimates(np.stack([np.eye(2)] * 2), np.ones((2, 2)), np.array([3, 3]), np.array([0.0, 9.0]), 1.0)
    >>> found.theta[0].tolist(), float(found.privacy[0]), bool(found.privacy[1] > 1)
    ([0.5, 0.5], 0.0, True)
    """
    d = b.shape[1]
    values, vectors = np.linalg.eigh((V + V.transpose(0, 2, 1)) / 2)
    lifts = np.maximum(tau[:, None] * d**0.5 - values, 0.0) * (tau[:, None] > 0)
    inverse = 1 / (values + lifts + ridge)
    theta = np.einsum("cij,cj,ckj,ck->ci", vectors, inverse, vectors, b, optimize=True)
    privacy = (lifts * inverse).max(axis=1) + tau * np.sqrt((inverse**2).sum(axis=1))
    spread = np.array([radius(float(count)) for count in n])
    return PhaseEstimates(theta, spread, privacy)
