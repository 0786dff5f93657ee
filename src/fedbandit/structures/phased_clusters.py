"""FCLUB: each server clusters its own users, a coordinator merges clusters of different servers, in phases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedbandit.engine.fast.jit import compiled_lean
from fedbandit.structures.clustering import Law, Rule, alike, check_alpha, components, servers_of
from fedbandit.structures.structure import Structure
from fedbandit.types import Array, Ints
from fedbandit.world import World


@dataclass(frozen=True)
class PhasedClusters(Structure):
    """Phase s begins after 2^s − 2 rounds and has 2^s. At its beginning

    1. each server deletes the edges of its graph of users (at first complete) for which

           ‖θ̂_i − θ̂_j‖ > α₁ (F(n_i) + F(n_j)),   θ̂_i = (V_i + λI)⁻¹ b_i,   F(n) = √((1 + ln(1 + n))/(1 + n))   (Eq. 3)

       and the connected components are its local clusters;
    2. each local cluster uploads its V, b and n, and the coordinator joins local clusters of different servers with

           ‖θ̂_j − θ̂_k‖ < α₂ (F(n_j) + F(n_k))                                                                   (Eq. 4)

       The connected components are the global clusters;
    3. if these are not those of the last phase, everything is renewed: each global cluster has the sum of its local
       clusters' statistics, and each of these downloads it.

    Within a phase the local clusters of a global cluster share by the system's protocol (Alg. 3–4 are
    `EventTriggered` with γ_U = U, γ_D = D). Raw statistics of users stay on their server.

    alpha_split, alpha_merge: α₁ and α₂.
    fresh: whether a local cluster scores arms with its own pending observations too. False is Alg. 1 line 12, which
        uses what was last shared only.
    within: whether local clusters of one server may join too, as in the authors' code.
    n_servers: blocks of consecutive users; None for the servers of the environment, or a server for each client
        where it has none.

    Reference: Liu et al., Federated Online Clustering of Bandits (FCLUB), 2022: Alg. 1 and 2, without noise.

    Deviations:
        D1. `fresh=True` by default: the data are the cluster's own (and the authors' code uses them).
        D2. Nothing is sent at the beginning of phase 1, where nothing has been observed, or after the last round.
        D3. Triggers fire strictly above their threshold (Eqs. 5 and 6 have ≥), as everywhere in fedbandit.
        D4. Every pair of local clusters of different servers is tested (the authors' code never tries the last
            one); two of one server can still meet through one of another server.
        D5. α₁ = 2.5 and α₂ = 1.5 by default. The authors' code has 1.5 and 2: at that α₁ chance tears true clusters
            apart, and at that α₂ different servers learn together for longer before they part. A larger α₂ finds
            clusters that are spread over servers more surely.
        D6. In rounds in which all clients act, phases are counted in those rounds.
    """

    alpha_split: float = 2.5
    alpha_merge: float = 1.5
    fresh: bool = True
    within: bool = False
    n_servers: int | None = None

    separate: ClassVar[bool] = False
    federated: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the factors."""
        object.__setattr__(self, "alpha_split", check_alpha("alpha_split", self.alpha_split))
        object.__setattr__(self, "alpha_merge", check_alpha("alpha_merge", self.alpha_merge))

    def law(self) -> Law:
        """Alg. 2."""
        return Law(int(Rule.PHASES), self.alpha_split, self.alpha_merge, 0.0, self.fresh, self.within)

    def servers(self, world: World) -> Ints:
        """The local server of each user."""
        return servers_of(world, self.n_servers, world.n_clients)


def next_phase(done: int) -> int:
    """The number of rounds after which the first phase begins that has not begun after `done` rounds.

    >>> [next_phase(done) for done in (0, 1, 2, 5, 6)]
    [2, 2, 6, 6, 14]
    """
    return 2 ** ((done + 2).bit_length()) - 2


def merge_clusters(
    V: Array, b: Array, n: Array, server: Ints, ridge: float, alpha: float, *, within: bool = False
) -> Ints:
    """The global cluster of each local one, from what the local clusters uploaded (step 2).

    V (C, d, d), b (C, d) and n (C,) are sums without ridge; `server` (C,) says where each local cluster is.
    With `within`, local clusters of one server may join as well.

    >>> eye = np.stack([100 * np.eye(2)] * 3)
    >>> b = np.array([[100.0, 0.0], [0.0, 100.0], [99.0, 0.0]])
    >>> merge_clusters(eye, b, np.full(3, 200.0), np.array([0, 0, 1]), ridge=1.0, alpha=1.0).tolist()
    [0, 1, 0]
    """
    theta = np.linalg.solve(V + ridge * np.eye(b.shape[1]), b[:, :, None])[:, :, 0].astype(np.float64)
    edges = np.zeros((n.size, n.size), dtype=np.bool_)
    join_alike(theta, n, server, alpha, within, edges)
    return components(edges)


@compiled_lean
def join_alike(theta: Array, n: Array, server: Ints, alpha: float, within: bool, edges: NDArray[np.bool_]) -> None:
    """Eq. (4) for every pair of local clusters, of different servers or any."""
    for j in range(n.shape[0]):
        for k in range(j):
            if (within or server[j] != server[k]) and alike(theta[j], n[j], theta[k], n[k], alpha):
                edges[j, k] = True
                edges[k, j] = True
