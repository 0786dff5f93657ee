"""How often a member may release, and how much noise a relay may say is in what it has forwarded.

How uncertain everybody is about noisy sums follows from how many releases are in them: whoever could release as often
as it likes, or say that it has, would take from all others what they learn from one another.

A client whose trigger is a count speaks `own` times at most in the life of one state (`MessageProtocol.releases`, of a
client that acts in every interaction of the horizon), and once more for each call; where its whole contribution is
protected, it releases no more than its mechanism does, calls or not. What a Restate adds to what was known here counts
for itself: these were answers to calls that the store has lost. Every client may have asked for one with each of its
own `own` releases.

What a relay forwards are its clients' releases. Each changes the variance of the noise in what they amount to by that
of one release at most, so that the variance grows by no more than that for each release which an upload is said to
have; and there are no more releases than observations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fedbandit.messages import Restate, Upload
from fedbandit.network.coordinator.limits import client_mechanisms
from fedbandit.network.coordinator.register import MemberRecord
from fedbandit.network.refusal import Refusal
from fedbandit.privacy.mechanism import noise_std
from fedbandit.system import System
from fedbandit.world import World


@dataclass(frozen=True)
class ReleaseLimits:
    """What follows from a system for the releases of its members; by default nothing, where no noise adds up.

    own: releases in the life of one state, by the client's own trigger.
    whole: releases in the life of one state, calls included, where a client's contribution is what is protected.
    variance: of an entry of V in one release, at most.
    padded: whether a release may be of no observation.
    """

    own: float = math.inf
    whole: float = math.inf
    variance: float = 0.0
    padded: bool = False
    clients: int = 1

    @classmethod
    def of(cls, system: System, world: World) -> ReleaseLimits:
        """The limits of a system that was told the world; rounds are the world's where a clock calls by itself."""
        privacy, protocol, padded = system.privacy, system.protocol, system.privacy.padded
        mechanisms = [one for one in client_mechanisms(system, world) if one.scale > 0]
        variance = max((float(noise_std(one).max()) ** 2 for one in mechanisms), default=0.0)
        if not mechanisms or privacy.pooled or privacy.perturbs != "statistics":
            return cls(variance=variance, padded=padded, clients=world.n_clients)
        own = protocol.releases(world if protocol.by_clock else replace(world, per_round=1))
        whole = math.inf if privacy.contribution is None else max(one.n_max for one in mechanisms)
        return cls(own, whole, variance, padded, world.n_clients)

    def check_upload(self, record: MemberRecord, releases: int, calls: int, models: int = 1) -> None:
        """Refuse more releases than the state of a client can have made after so many calls, or that of a server of so
        many models.
        """
        most, made = models * min(self.own + calls, self.whole), record.releases - record.released_before
        if made + releases > most:
            raise Refusal(
                "statistics",
                f"Client {record.name!r} has released {made} times and cannot release {releases} times more, because "
                f"{most:g} are all that the state of a client can have released by now.",
            )

    def check_restated(self, name: str, message: Restate, calls: int) -> None:
        """Refuse a Restate of more releases than it can have been."""
        most = min(self.clients * self.own + calls, self.whole) if message.relayed is None else math.inf
        most = most if self.padded else min(most, message.sums.n)
        if message.releases > most:
            raise Refusal(
                "statistics",
                f"Client {name!r} states {message.releases} releases of {message.sums.n} observations, but they can "
                f"be {most:g} at most.",
            )

    def check_relayed(self, name: str, message: Upload | Restate, told: float) -> None:
        """Refuse noise that so many releases of a relay's clients cannot have, after what it `told` last."""
        relayed, n = message.relayed, message.sums.n
        if relayed is None:
            return
        # A Restate says how many uploads it sums up, and not how many releases of clients were in them.
        before, releases = (told, relayed.releases) if isinstance(message, Upload) else (0.0, n)
        most = before + releases * self.variance
        if relayed.releases > n or not 0.0 <= relayed.variance <= most * (1 + 1e-9):
            raise Refusal(
                "statistics",
                f"Relay {name!r} says that there is noise of variance {relayed.variance:g} in what it has forwarded, "
                f"with {relayed.releases} releases of {n} observations more, but {most:g} is all that there can be.",
            )
