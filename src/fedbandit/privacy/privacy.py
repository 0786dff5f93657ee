"""What a system, an engine and the machines need to know of a privacy part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from fedbandit.privacy.guarantee import Guarantee
from fedbandit.privacy.mechanism import Mechanism
from fedbandit.privacy.noise import Source
from fedbandit.privacy.published_total import PublishedTotal
from fedbandit.privacy.sum_stream import OpenedTotal
from fedbandit.rewards import AS_THEY_ARE, RewardRule
from fedbandit.sharing import Noise, Share
from fedbandit.sums import Sums
from fedbandit.world import World

Site = Literal["nowhere", "client", "node", "coordinator"]
"""Who draws the noise."""

Perturbs = Literal["nothing", "rewards", "reward sums", "statistics"]
"""What is noised: each reward when it is observed, the sums of rewards that are released, or all statistics."""


Total = OpenedTotal | PublishedTotal
"""Of sums that were opened, or of what a trusted coordinator was told."""


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
    """What may leave, and at what cost. Subclass it as a frozen dataclass, and write at least `guarantee`.

    The defaults are those of a part that noises each reward when it is observed (`reward_rule`).
    """

    @property
    def site(self) -> Site:
        """Who draws the noise."""
        return "client"

    @property
    def perturbs(self) -> Perturbs:
        """What is noised."""
        return "rewards"

    @property
    def reward_rule(self) -> RewardRule:
        """The range that rewards must have for the claim to hold, and the noise on each of them."""
        return AS_THEY_ARE

    @property
    def keeps_own(self) -> bool:
        """Whether a client learns from its own data as they are, and from what others release."""
        return False

    @property
    def waits(self) -> bool:
        """Whether clients choose by what was released alone, their own data included."""
        return False

    @property
    def pooled(self) -> bool:
        """Whether one noisy total of everybody's statistics is all that is released (`total`)."""
        return False

    @property
    def padded(self) -> bool:
        """Whether the counts that are sent are those of a clock, whatever was observed."""
        return False

    @property
    def by_client(self) -> bool:
        """Whether each client has a budget, and so a mechanism, of its own."""
        return False

    @property
    def contribution(self) -> int | None:
        """How many interactions a client may contribute in all, where that is what is protected."""
        return None

    def told(self, world: World, releases: int) -> Privacy:  # noqa: ARG002 - most have nothing open
        """The part with every parameter settled, if a client releases at most `releases` times in this world."""
        return self

    def planned(self, portions: Sequence[int]) -> Privacy:  # noqa: ARG002 - most do not depend on them
        """The part for releases that have at most so many interactions each; none are known if there are none."""
        return self

    def guarantee(self) -> Guarantee:
        """The claim."""
        ...

    def guarantee_of(self, member: int) -> Guarantee:  # noqa: ARG002 - the same for all
        """The claim to one client, where budgets differ."""
        return self.guarantee()

    def spectrum(self, world: World) -> tuple[float, float] | None:  # noqa: ARG002 - by the ridge alone
        """ρ_min and ρ_max, between which noise and shift regularise V, if thresholds are to go by that (FedUCB)."""
        return None

    @property
    def lifts(self) -> bool:
        """Whether triggers look at a determinant of their own (`lift`)."""
        return False

    def lift(self) -> float:
        """What triggers add to the diagonal of V before they look at its determinant (FedUCB, Alg. 1 line 12)."""
        return 0.0

    def prior(self, ridge: float) -> Share | None:  # noqa: ARG002 - nothing
        """What everybody has before anything was released, beside λI; of a part that was told the world."""
        return None

    def stream(self, member: int, source: Callable[[int], Source]) -> Releases | None:  # noqa: ARG002 - none is noised
        """What noises one client's releases, with the random numbers source(k) for release k; None if nothing does."""
        return None

    def total(self, source: Callable[[int], Source]) -> Total | None:  # noqa: ARG002 - everybody is noised alone
        """What the coordinator makes the noisy total of everybody's statistics with, where there is one."""
        return None

    def pool_noise(self, *, together: bool) -> Noise | None:  # noqa: ARG002 - there is none
        """What the coordinator knows about the noise in sums of clients' releases, which may all come `together`."""
        return None
