"""What a system, an engine and the machines need to know of a privacy part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, Protocol, runtime_checkable

from fedbandit.assembly import Noise
from fedbandit.privacy.guarantee import Guarantee
from fedbandit.privacy.noise import Source
from fedbandit.rewards import RewardRule
from fedbandit.statistics import Sums
from fedbandit.streams import Stream, generator
from fedbandit.world import World

Site = Literal["nowhere", "client", "node", "coordinator"]
"""Who draws the noise."""

Perturbs = Literal["nothing", "rewards", "reward sums", "statistics"]
"""What is noised: each reward when it is observed, the sums of rewards that are released, or all statistics."""


class Releases(Protocol):
    """What noises one client's statistics, each increment exactly once."""

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

    def told(self, world: World, releases: int) -> Privacy:
        """The part with every parameter settled, if a client releases at most `releases` times in this world."""
        ...

    def guarantee(self) -> Guarantee:
        """The claim."""
        ...

    def stream(self, member: int, source: Callable[[int], Source]) -> Releases | None:
        """What noises one client's releases, with the random numbers source(k) for release k; None if nothing does."""
        ...

    def pool_noise(self) -> Noise | None:
        """What the coordinator knows about the noise in sums of clients' releases."""
        ...


def client_stream(privacy: Privacy, member: int, seed: int) -> Releases | None:
    """What a client itself noises its uploads with; None if it sends them as they are."""
    return None if privacy.site == "coordinator" else _stream(privacy, seed, member)


def coordinator_streams(privacy: Privacy, seed: int) -> Callable[[int], Releases | None] | None:
    """What a trusted coordinator noises a client's uploads with before it uses them; None if it does not."""
    return partial(_stream, privacy, seed) if privacy.site == "coordinator" else None


def _stream(privacy: Privacy, seed: int, member: int) -> Releases | None:
    return privacy.stream(member, partial(generator, seed, Stream.NOISE, member))
