"""What a system, an engine and the machines need to know of a privacy part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, runtime_checkable

from fedbandit.privacy.guarantee import Guarantee
from fedbandit.privacy.mechanism import Mechanism
from fedbandit.privacy.noise import Source
from fedbandit.rewards import RewardRule
from fedbandit.sharing import Noise
from fedbandit.sums import Sums
from fedbandit.world import World

Site = Literal["nowhere", "client", "node", "coordinator"]
"""Who draws the noise."""

Perturbs = Literal["nothing", "rewards", "reward sums", "statistics"]
"""What is noised: each reward when it is observed, the sums of rewards that are released, or all statistics."""


class Releases(Protocol):
    """What noises one client's statistics, each increment exactly once."""

    mechanism: Mechanism
    source: Callable[[int], Source]

    @property
    def spent(self) -> int:
        """Releases so far."""
        ...

    def may_release(self, n: int) -> bool:
        """Whether statistics of n more interactions may leave."""
        ...

    def release(self, sums: Sums) -> Sums:
        """What may leave in place of `sums`."""
        ...

    def state(self) -> dict[str, Any]:
        """What must survive a crash."""
        ...

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from there."""
        ...


@runtime_checkable
class Privacy(Protocol):
    """Parameters of a mechanism, who runs it, and what it guarantees."""

    @property
    def site(self) -> Site:
        """Who draws the noise."""
        ...

    @property
    def perturbs(self) -> Perturbs:
        """What is noised."""
        ...

    @property
    def reward_rule(self) -> RewardRule:
        """The range that rewards must have for the claim to hold, and the noise on each of them."""
        ...

    @property
    def keeps_own(self) -> bool:
        """Whether a client learns from its own data as they are, and from what others release."""
        ...

    def told(self, world: World, releases: int) -> Privacy:
        """The part with every parameter settled, if a client releases at most `releases` times in this world."""
        ...

    def guarantee(self) -> Guarantee:
        """The claim."""
        ...

    def stream(self, member: int, source: Callable[[int], Source]) -> Releases | None:
        """What noises one client's releases, with the random numbers source(k) for release k; None if nothing does."""
        ...

    def pool_noise(self, *, together: bool) -> Noise | None:
        """What the coordinator knows about the noise in sums of clients' releases, which may all come `together`."""
        ...
