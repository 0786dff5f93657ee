"""Asynchronous event-triggered communication: each client and the coordinator decide for themselves."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedbandit.engine.fast.cohorts import Hub
from fedbandit.protocols.coordinator import Coordinator, StarCoordinator
from fedbandit.protocols.factors import Factor, Rules, check_factor, growth_releases, settle_factor, settled
from fedbandit.protocols.member_star import MemberStar
from fedbandit.protocols.members import MemberKeeper
from fedbandit.protocols.trigger import Joining, Kind, Reads, Says, Trigger
from fedbandit.sharing import Noise, Sharing
from fedbandit.types import Array
from fedbandit.world import World

GAMMA_RULES: Rules = {
    "exp(1/N)": lambda world: math.exp(1 / world.n_clients),
    "exp(1/sqrt(N))": lambda world: math.exp(world.n_clients**-0.5),
}
"""Thresholds by name (Async-LinUCB, App. E, Table 1): the centralised regret with O(N² d log T) messages, or
N^¼ of it with O(N^1.5 d log T)."""


@dataclass(frozen=True)
class EventTriggered:
    """A client uploads when its own data have grown its determinant by γ_U; a client is sent a download when the
    coordinator's determinant exceeds that of what the client has by γ_D.

        upload:    det V_i(λ) / det (V_i − ΔV_i)(λ) > γ_U           (Eq. 3)
        download:  det V_g(λ) / det (V_g − ΔV_−j)(λ) > γ_D          (Eq. 4)

    A threshold is a number ≥ 1 (1: always, `math.inf`: never), one for each client, or a rule by name: "exp(1/N)",
    "exp(1/sqrt(N))".

    Reference: Li & Wang, Async-LinUCB, 2022: Alg. 1, and Alg. 2 lines 5–7 for clients that join late.

    Deviations:
        D1. Determinants are of V + λI (those of V alone are zero at first).
        D2. A download carries all that the coordinator has instead of the difference; the client keeps its pending
            observations on top. Same result, same size.
        D3. `warm_join=True` sends a client what there is as soon as it joins (and counts it as a download); the
            paper's clients start empty and wait for the next check.
    """

    gamma_upload: Factor = 5.0
    gamma_download: Factor = 5.0
    warm_join: bool = False

    says: ClassVar[Says] = "upload"
    period: ClassVar[int] = 1
    counting: ClassVar[bool] = False
    one_by_one: ClassVar[bool] = False
    fused: ClassVar[bool] = True
    reads: ClassVar[Reads] = "raw"

    def __post_init__(self) -> None:
        """Check the thresholds."""
        for name in ("gamma_upload", "gamma_download"):
            object.__setattr__(self, name, check_factor(name, getattr(self, name), GAMMA_RULES))

    @property
    def join(self) -> Joining:
        """With nothing, or with a download."""
        return "warm" if self.warm_join else "cold"

    def told(self, world: World) -> EventTriggered:
        """Thresholds by name become numbers; one for each client must be N."""
        return replace(
            self,
            gamma_upload=settle_factor("gamma_upload", self.gamma_upload, GAMMA_RULES, world),
            gamma_download=settle_factor("gamma_download", self.gamma_download, GAMMA_RULES, world),
        )

    def trigger(self) -> Trigger:
        """Eq. (3), in logarithms."""
        return Trigger.of(Kind.LOGDET, np.log(settled(self.gamma_upload)), self.reads)

    def log_gamma_download(self) -> Array:
        """Log γ_D."""
        return np.log(settled(self.gamma_download))

    def releases(self, world: World) -> int:
        """At most as often as the determinant can grow by γ_U: d log(1 + TL²/(dλ)) / log γ_U, here for λ ≥ 10⁻³."""
        return growth_releases(world, float(np.log(settled(self.gamma_upload)).min()))

    def member_coordinator(self, sharing: Sharing, world: World, ridge: float, noise: Noise | None) -> MemberKeeper:
        """The same, member by member."""
        return MemberStar(
            sharing,
            world.n_clients,
            world.dim,
            ridge,
            noise,
            log_gamma=self.log_gamma_download(),
            warm=self.warm_join,
            counting=False,
        )

    def coordinator(self, hub: Hub, ridge: float, dim: int, noise: Noise | None = None) -> Coordinator | None:
        """Alg. 1 lines 4–10."""
        return StarCoordinator(hub, ridge, dim, warm=self.warm_join, counting=False, noise=noise)


def always() -> EventTriggered:
    """Everyone sends every observation and is always up to date: γ = 1 and warm joining."""
    return EventTriggered(gamma_upload=1.0, gamma_download=1.0, warm_join=True)
