"""A relay: a coordinator to the clients below, one member to the coordinator above. No I/O, no clock.

Theory of operation
-------------------
Below, a relay is the coordinator of the federation that it takes part in, with one more member, number N: *the others*,
which are all who are not below. What they have released is what comes down from above without what went up from here,
so that a share of a client below is a sum over everybody, and nobody's data are in it twice.

Above, it is one member. Its upload is what its clients have released since its last one, added up; it is made when the
member's own trigger fires on what the relay has, or at once. While one is under way no other is made: what comes in the
meantime goes with the next.

Calls (synchronous protocols). A request of a client goes up. A call from above is a call to all below; when that is
answered, the upload goes up; when the download comes, all below are sent their shares.

| `Relaying` gets       | it does                                                    | it sends                    |
|-----------------------|------------------------------------------------------------|-----------------------------|
| a client's Upload     | adds it to what is below, and to what is to be forwarded   | as the coordinator does     |
| `take_others`         | puts others in the place of the others, if they are newer  | Downloads to who is stale   |
| `call`                | calls all who are below                                    | Collects                    |
| `forward`             | has forwarded all there is                                 | –                           |

Noise. Where clients noise what leaves them, a relay only adds: what they are promised is as it was. Whoever shares has
to know how much noise there is: an upload of a relay says the variance of all it has forwarded (`sums.Relayed`), and
that of the others follows from the bounds that a download carries, which are in proportion to its standard deviation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import FedbanditError
from fedbandit.messages import Message, Request, Upload
from fedbandit.privacy import PrivateStatistics
from fedbandit.protocols import CountTriggered, EventTriggered, Synchronous
from fedbandit.protocols.coordinator import Coordinator, Messages
from fedbandit.protocols.synchronous import SynchronousCoordinator
from fedbandit.protocols.triggered import Star
from fedbandit.sharing import Groups
from fedbandit.state import State
from fedbandit.sums import Sums, add
from fedbandit.system import System
from fedbandit.world import World


def passes(system: System) -> bool:
    """Whether a relay adds nothing up, but passes on what clients say in secure sums over all of them."""
    return system.privacy.pooled and system.privacy.site == "client"


def require_relayable(system: System) -> None:
    """Refuse a system in which more than sums over many clients is needed, or more than a relay may know."""
    structure, privacy, protocol = type(system.structure).__name__, system.privacy, system.protocol
    if not system.structure.separate or system.structure.by_member:
        raise FedbanditError(f"{structure} needs each member's statistics, but a relay forwards sums over its clients.")
    if system.world is not None and int(np.max(system.structure.groups(system.world))) > 0:
        raise FedbanditError(f"{structure} makes several groups, but a relay forwards one sum over all its clients.")
    if not isinstance(protocol, EventTriggered | CountTriggered | Synchronous):
        raise FedbanditError(
            f"{type(protocol).__name__} is refused: a relay takes part in event-triggered, count-triggered and "
            "synchronous protocols."
        )
    if system.forgets:
        raise FedbanditError(f"{system.name} forgets, and a relay does not; leave discount and window out.")
    if passes(system):
        raise FedbanditError(
            "trust='sums' is refused: clients of a relay that adds would be a sum by themselves, with too few in it; a "
            "relay that keeps nothing passes their steps on (fedbandit relay without --store)."
        )
    if privacy.pooled:
        who = "one coordinator is trusted with statistics that a relay would see too"
        raise FedbanditError(f"trust={system.guarantee.trust!r} is refused: {who}; use trust='nobody', or no relay.")
    if isinstance(privacy, PrivateStatistics) and privacy.calibration == "published":
        raise FedbanditError(
            "calibration='published' is refused: its bounds count the clients in a sum, which a relay is one of; use "
            "calibration='proven'."
        )


class Relaying(Coordinator):
    """What a relay's coordinator is beside its protocol's: the others are member `places`, and sums go up."""

    def begin_relaying(self, places: int) -> None:
        """With nothing below and no others."""
        self.places = places
        self.below, self.pending, self.others = self.zero(), self.zero(), self.zero()
        self.releases = 0
        """Releases that are in `pending`."""
        self.variance = 0.0
        """Of an entry of the others' V."""
        self.seen = self.forwarded = 0
        """The version of the download that the others stem from; the number of the last upload."""
        self.called = self.answered_to = 0
        """The last call from above, and the last one that all below have answered."""
        self.asked = False
        """Whether a client has asked for a synchronisation."""

    def zero(self) -> Sums:
        """The statistics of no observations, all blocks of them."""
        return Sums(np.zeros_like(self.members.V[0]), np.zeros_like(self.members.b[0]), 0)

    def refresh(self) -> Messages:
        """The others have changed: what to send to those below."""
        raise NotImplementedError

    def add(self, upload: Upload) -> bool:
        """Also to what is to be forwarded."""
        if not super().add(upload):
            return False
        self.below, self.pending = add(self.below, upload.sums), add(self.pending, upload.sums)
        self.releases += upload.sums.n > 0 if upload.relayed is None else upload.relayed.releases
        return True

    def forward(self, sequence: int) -> None:
        """All that was pending is in the upload of this number."""
        self.forwarded, self.pending, self.releases = sequence, self.zero(), 0

    def gathered(self) -> Sums:
        """All that was ever uploaded here."""
        return self.below

    def noise_below(self) -> float:
        """The variance of an entry of what is below."""
        return 0.0 if self.noise is None else sum(self.members.noise_in(i, self.noise) for i in range(self.places))

    def take_others(self, version: int, others: Sums, variance: float) -> Messages:
        """What all who are not below have released, with noise of this variance; what to send."""
        if version <= self.seen:
            return []
        self.seen, self.others, self.variance = version, others, variance
        self._place_others()
        return self.refresh()

    def call(self, epoch: int) -> Messages:
        """The coordinator above wants what there is: so all below are asked. A call that is open answers both."""
        if epoch <= self.called:
            return []
        self.called = epoch
        return [] if self.calls else self.collect(range(self.places))

    def _place_others(self) -> None:
        members, N = self.members, self.places
        slot, own = int(self.slot_of[N]), isinstance(self.sharing, Groups)
        members.V[slot] = self.others.V + self.below.V if own else self.others.V
        members.b[slot] = self.others.b + self.below.b if own else self.others.b
        members.n[N], members.releases[N], members.told[N] = self.others.n, self.others.n > 0, self.variance
        members.forget_shares()

    # How it is kept

    def kept(self) -> dict[str, NDArray[Any]]:
        """Rows of those below, and the sums; the row of the others follows from them."""
        rows = {name: a[: self.places] if len(a) > self.places else a for name, a in super().kept().items()}
        sums = {"below": self.below, "pending": self.pending, "others": self.others}
        return rows | {f"{name}.{part}": getattr(s, part) for name, s in sums.items() for part in ("V", "b")}

    def state(self) -> State:
        """Also what was forwarded, and what came from above."""
        header, arrays = super().state()
        arrays.pop(f"relayed.{self.places}", None)
        counts = {"below": self.below.n, "pending": self.pending.n, "others": self.others.n, "releases": self.releases}
        numbers = [self.seen, self.forwarded, self.called, self.answered_to]
        return State({**header, "relay": {**counts, "variance": self.variance, "numbers": numbers}}, arrays)

    def take_back(self, state: State) -> None:
        """Go on from a state that fits."""
        super().take_back(state)
        kept = state.header["relay"]
        self.seen, self.forwarded, self.called, self.answered_to = kept["numbers"]
        self.releases, self.variance = kept["releases"], float(kept["variance"])
        self.below, self.pending, self.others = (
            getattr(self, name)._replace(n=kept[name]) for name in ("below", "pending", "others")
        )
        self._place_others()


class RelayStar(Relaying, Star):
    """Clients upload on their own triggers; each that is stale is sent its share."""

    def __init__(self, plain: Star, world: World, places: int) -> None:
        super().__init__(
            *(plain.sharing, world, plain.dim, plain.ridge, plain.noise),
            log_gamma=plain.log_gamma,
            warm=plain.warm,
            counting=plain.counting,
        )
        self.begin_relaying(places)

    def refresh(self) -> Messages:
        """To who is stale."""
        self._fresh.clear()
        return self._refresh(np.flatnonzero(self.joined))


class RelaySynchronous(Relaying, SynchronousCoordinator):
    """A request goes up, a call comes down, an upload goes up, downloads come down."""

    def __init__(self, plain: SynchronousCoordinator, world: World, places: int) -> None:
        super().__init__(plain.sharing, world, plain.dim, plain.ridge, plain.noise, warm=plain.warm)
        self.begin_relaying(places)

    def receive(self, message: Message) -> Messages:
        """A Request is for the coordinator above."""
        if not isinstance(message, Request):
            return super().receive(message)
        self.check_member(message.member)
        self.asked = self.asked or not self.calls
        return []

    def collected(self, members: list[int]) -> Messages:  # noqa: ARG002 - all of them
        """All below have answered: now it is the relay's turn."""
        self.answered_to, self.asked = self.called, False
        return []

    def refresh(self) -> Messages:
        """To all who have joined."""
        return SynchronousCoordinator.collected(self, [i for i in range(self.places) if self.warm or self.joined[i]])


def relay_coordinator(system: System, world: World) -> RelayStar | RelaySynchronous:
    """The coordinator's machine of a relay, for clients of a system that was told this world."""
    require_relayable(system)
    wide = replace(world, n_clients=world.n_clients + 1)
    plain = system.coordinator(wide)
    if isinstance(plain, Star):
        return RelayStar(plain, wide, world.n_clients)
    assert isinstance(plain, SynchronousCoordinator)
    return RelaySynchronous(plain, wide, world.n_clients)
