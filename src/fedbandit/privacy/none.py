"""No privacy mechanism."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from fedbandit.privacy.guarantee import Guarantee
from fedbandit.privacy.noise import Source
from fedbandit.privacy.privacy import Perturbs, Site
from fedbandit.rewards import AS_THEY_ARE, RewardRule
from fedbandit.world import World


@dataclass(frozen=True)
class NoPrivacy:
    """Statistics are sent as they are. Raw data still never leave a client, but that alone guarantees nothing."""

    site: ClassVar[Site] = "nowhere"
    keeps_own: ClassVar[bool] = False
    perturbs: ClassVar[Perturbs] = "nothing"
    reward_rule: ClassVar[RewardRule] = AS_THEY_ARE

    def told(self, world: World, releases: int) -> NoPrivacy:  # noqa: ARG002 - nothing is open
        """Itself."""
        return self

    def guarantee(self) -> Guarantee:
        """None."""
        return Guarantee()

    def stream(self, member: int, source: Callable[[int], Source]) -> None:
        """Statistics leave as they are."""

    def pool_noise(self, *, together: bool) -> None:
        """There is none."""
