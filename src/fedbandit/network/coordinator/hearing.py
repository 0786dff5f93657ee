"""Whose Requests are heard at once, in a private federation.

A Request makes everybody release something, or a trusted coordinator publish, and so spends what all of them have. A
client asks when its own observations have grown, and then uploads them: that bears its Request out
(`MessageProtocol.had_reason`). Whoever has asked is heard again at once if its last Request was borne out, and somebody
else has asked since; otherwise after a minute, the next time after two, then four, … So one client that asks without
reason, or in place of all others, spends two calls in the first minute and ten in the first day.
"""

from __future__ import annotations

from fedbandit.network.coordinator.register import MemberRecord
from fedbandit.protocols.coordinator import Coordinator
from fedbandit.protocols.protocol import MessageProtocol

PAUSE = 60.0
"""Seconds before one is heard again that presses for the first time."""

HERE = 60.0
"""Whoever was heard so many seconds before a sum was given up was in its first steps, and is still there."""

ONCE = 1.0
"""Seconds between two Requests of one client that count while no sum is made, because the last could not be opened."""


def is_heard(record: MemberRecord, protocol: MessageProtocol, machine: Coordinator, at: float) -> bool:
    """Whether a Request of this member may lead to a call now."""
    return is_free(record, protocol, machine) or at >= record.asked_at + PAUSE * 2.0**record.pressed


def is_free(record: MemberRecord, protocol: MessageProtocol, machine: Coordinator) -> bool:
    """Whether it is heard at once: if its last Request was borne out, or has led to a sum that was never opened."""
    if machine.secure_sums and machine.pool is not None and machine.pool.total.epoch < record.asked_in:
        return True
    borne_out = protocol.had_reason(record.asked, record.observations)
    return record.asked < 0 or (machine.epoch > record.asked_in and borne_out)


def note_call(record: MemberRecord, epoch: int, at: float, *, pressed: bool) -> None:
    """Its Request has led to the call of this epoch, perhaps only because it had waited."""
    record.pressed = record.pressed + 1 if pressed else 0
    record.asked, record.asked_in, record.asked_at = record.observations, epoch, at
