"""Places of a federation that become free: an operator takes one away, or a client that was invited does not come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbandit.messages import Message
from fedbandit.network.coordinator import journal as kinds
from fedbandit.network.coordinator.journal import Entry
from fedbandit.network.coordinator.recorded import Event
from fedbandit.network.refusal import Refusal

if TYPE_CHECKING:
    from fedbandit.network.coordinator.federation import Federation


def free(federation: Federation, name: str, at: float, by: str) -> list[Message]:
    """Take a client's place from it, so that another can have it. What is to be sent."""
    federation.register.record(name)
    if federation.system.privacy.contribution is not None:
        raise Refusal(
            "identity",
            f"The place of {name!r} cannot be freed: this federation bounds what one client contributes in its "
            "life, and under a new name it would begin again.",
        )
    return _vacate(federation, name, at, Event("a place was freed", {"client": name, "by": by}))


def decline(federation: Federation, name: str, at: float) -> list[Message]:
    """A client that was invited does not take part: its place is free, unless it has ever joined. What is to be sent.

    One that has joined keeps its place: it may only have lost its file, and what it has contributed is known by it.
    """
    record = federation.register.record(name)
    if record.joined or record.past or record.quarantined:
        return []
    return _vacate(federation, name, at, Event("an invitation was declined", {"client": name}))


def _vacate(federation: Federation, name: str, at: float, event: Event) -> list[Message]:
    answers = federation.leave(name, at)
    federation.write([Entry(kinds.DEPARTURE, at, name)])
    federation.events.append(event)
    return answers
