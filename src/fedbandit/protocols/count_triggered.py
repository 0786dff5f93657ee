"""Communication by counts alone: who speaks when depends on how often clients acted, never on what they saw."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedbandit.engine.fast.cohorts import Hub
from fedbandit.errors import whole_number
from fedbandit.protocols.coordinator import Coordinator, StarCoordinator
from fedbandit.protocols.factors import Factor, check_factor, count_releases, settle_factor, settled
from fedbandit.protocols.member_star import MemberStar
from fedbandit.protocols.members import MemberKeeper
from fedbandit.protocols.trigger import Joining, Kind, Reads, Says, Trigger
from fedbandit.sharing import Noise, Sharing
from fedbandit.types import Array
from fedbandit.world import World


@dataclass(frozen=True)
class CountTriggered:
    """A client uploads when its number of observations has grown by `factor_upload` since its last upload, and is
    sent a download when the coordinator has `factor_download` times as many observations as it shares.

        upload:    n_i ≥ factor_upload · n_i(at the last upload) and Δn_i ≥ batch        (∞: never)
        download:  n_g > factor_download · n_j

    Messages carry the same statistics as under `EventTriggered`; only the conditions differ. Because they read public
    counts and no data, this protocol can be made private without its timing giving anything away (where the counts
    themselves are public: neighbours that replace an interaction, not ones that add or remove it).
    """

    factor_upload: Factor = 2.0
    factor_download: Factor = 2.0
    warm_join: bool = False
    batch: int = 1

    says: ClassVar[Says] = "upload"
    period: ClassVar[int] = 1
    counting: ClassVar[bool] = True
    one_by_one: ClassVar[bool] = False
    fused: ClassVar[bool] = True
    reads: ClassVar[Reads] = "counts"

    def __post_init__(self) -> None:
        """Check the factors."""
        for name in ("factor_upload", "factor_download"):
            object.__setattr__(self, name, check_factor(name, getattr(self, name), {}))
        whole_number("batch", self.batch)

    @property
    def join(self) -> Joining:
        """With nothing, or with a download."""
        return "warm" if self.warm_join else "cold"

    def told(self, world: World) -> CountTriggered:
        """One factor for each client must be N."""
        return replace(
            self,
            factor_upload=settle_factor("factor_upload", self.factor_upload, {}, world),
            factor_download=settle_factor("factor_download", self.factor_download, {}, world),
        )

    def trigger(self) -> Trigger:
        """The condition on counts."""
        return Trigger.of(Kind.COUNT, settled(self.factor_upload), self.reads, self.batch)

    def log_gamma_download(self) -> Array:
        """Log of the download factor."""
        return np.log(settled(self.factor_download))

    def releases(self, world: World) -> int:
        """As often as the count of a client that acts in every round grows by the smallest factor."""
        rounds = max(world.horizon // world.per_round, 1)
        return count_releases(float(settled(self.factor_upload).min()), rounds, self.batch)

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
            counting=True,
        )

    def coordinator(self, hub: Hub, ridge: float, dim: int, noise: Noise | None = None) -> Coordinator | None:
        """The star of `EventTriggered`, comparing counts."""
        return StarCoordinator(hub, ridge, dim, warm=self.warm_join, counting=True, noise=noise)
