"""Places of a federation that become free: an operator takes one away, or a client that was invited does not come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbandit.messages import Message
from fedbandit.network.coordinator import journal as kinds
from fedbandit.network.coordinator.journal import Entry
from fedbandit.network.coordinator.recorded import Event
from fedbandit.network.coordinator.register import MemberRecord
from fedbandit.network.refusal import Refusal

if TYPE_CHECKING:
    from fedbandit.network.coordinator.operated import OperatedFederation as Federation

DECLINED = "an invitation was declined"


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


def decline(federation: Federation, name: str, at: float) -> tuple[bool, list[Message]]:
    """A client that was invited does not take part: whether its place is free, and what is to be sent.

    One that has ever come keeps its place: it may only have lost its file, and what it has contributed is known by it.
    """
    record = federation.register.record(name)
    if record.quarantined or has_come(federation, record):
        return False, []
    return True, _vacate(federation, name, at, Event(DECLINED, {"client": name}))


def has_come(federation: Federation, record: MemberRecord) -> bool:
    """Whether a member has ever joined, or anything of it is here. Journals of earlier versions may have uploads of
    one that is not known to have joined, as its incarnation was 0.
    """
    session = record.joined or record.past or record.epoch or record.nonce
    counted = record.uploads or record.observations or record.releases or any(federation.credited(record.member))
    return bool(session or counted or federation.machine.applied.get(record.member, 0))


def _vacate(federation: Federation, name: str, at: float, event: Event) -> list[Message]:
    member = federation.register.record(name).member
    answers = federation.leave(name, at)
    federation.write([Entry(kinds.DEPARTURE, at, name)])
    federation.events.append(event)
    federation.gone.append((member, name))
    return answers
