"""What a system is told about the world it runs in, by `simulate` or by a network configuration."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import require


@dataclass(frozen=True)
class World:
    """The facts that defaults and thresholds may depend on.

    `horizon` is the number of interactions of all clients together; `bound` is L with ‖x‖ ≤ L; `noise` is the
    sub-Gaussian σ of rewards that the environment declares. `per_round` interactions are one round. Where the
    environment knows them: `graph` holds the weights between users, `server_of` the local server of each user, and the
    first `d_global` entries of a context concern all clients alike.

    It is the system that tells how a graph structure mixes users into one model (`mixing`), how many estimators a
    client has (`estimators`), and between which numbers the regulariser of V is: λ, or what noise makes of it
    (`spectrum`, FedUCB's ρ_min and ρ_max).
    `actions`: every arm is one of so many actions, numbered from 0, each with a θ of its own; `dim` is then the number
    of its features. 0: all arms share one θ.
    `measured_bound`: the bound was read off the data, and so tells about them.
    """

    n_clients: int
    dim: int
    horizon: int
    noise: float = 0.1
    bound: float = 1.0
    per_round: int = 1
    graph: NDArray[np.float64] | None = None
    server_of: tuple[int, ...] = ()
    d_global: int | None = None
    mixing: NDArray[np.float64] | None = None
    actions: int = 0
    measured_bound: bool = False
    estimators: int = 1
    spectrum: tuple[float, float] = (0.1, 0.1)

    @property
    def parameters(self) -> int:
        """How many parameters a model of whole contexts has: d, or A·d with actions."""
        return self.dim * max(self.actions, 1)

    def __post_init__(self) -> None:
        """Refuse a world in which nothing can happen."""
        require(self.n_clients >= 1, "n_clients", self.n_clients, "a whole number ≥ 1")
        require(self.dim >= 1, "dim", self.dim, "a whole number ≥ 1")
        require(self.horizon >= 1, "horizon", self.horizon, "a whole number ≥ 1")
        require(self.noise >= 0 and math.isfinite(self.noise), "noise", self.noise, "a finite number ≥ 0")
        require(self.bound > 0 and math.isfinite(self.bound), "bound", self.bound, "a finite number > 0")
        require(self.actions >= 0 and self.actions != 1, "actions", self.actions, "a whole number ≥ 2, or 0 for none")
        listed = len(self.server_of)
        require(listed in (0, self.n_clients), "the length of server_of", listed, f"{self.n_clients}, one a client")
        servers = set(self.server_of)
        require(min(servers, default=0) >= 0, "server_of", min(servers, default=0), "made of numbers ≥ 0")
        for server in range(max(servers, default=-1)):
            require(server in servers, f"the number of users of server {server}", 0, "at least 1")
