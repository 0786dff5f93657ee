"""Whose Requests are heard at once.

A Request makes everybody upload, or a trusted coordinator publish. In a private federation that spends what all of them
have, elsewhere what their connections carry. A client asks when its own observations have grown, and then uploads them:
that bears its Request out, in a private federation if they have grown as the trigger says
(`MessageProtocol.had_reason`) and somebody else has asked since, elsewhere if there are any. Whoever has asked is heard
again at once if its last Request was borne out; otherwise after a minute (not private: a second), the next time after
two, then four, … So one client that asks without reason, or in place of all others, spends two calls in the first
minute and ten in the first day; where nothing is private, four in seven seconds and seventeen in the first day.

What counts is what a client has observed in its present state. One that has lost its state is compared with the count
that it had, and so heard after a minute at the latest if it had not pressed before; from then on with its new counts.
"""

from __future__ import annotations

from fedbandit.network.coordinator.register import MemberRecord
from fedbandit.protocols.coordinator import Coordinator
from fedbandit.protocols.protocol import MessageProtocol

PAUSE = 60.0
"""Seconds before one is heard again that presses for the first time, in a private federation."""

HERE = 60.0
"""Whoever was heard so many seconds before a sum was given up was in its first steps, and is still there."""

ONCE = 1.0
"""The same where nothing is private; and seconds between two Requests of one client that count while no sum is made,
because the last could not be opened."""


def is_heard(
    record: MemberRecord, protocol: MessageProtocol, machine: Coordinator, at: float, *, private: bool
) -> bool:
    """Whether a Request of this member may lead to a call now. A clock that was set back makes nobody wait."""
    pause = (PAUSE if private else ONCE) * 2.0**record.pressed
    return is_free(record, protocol, machine, private=private) or not 0 <= at - record.asked_at < pause


def is_free(record: MemberRecord, protocol: MessageProtocol, machine: Coordinator, *, private: bool) -> bool:
    """Whether it is heard at once: if its last Request was borne out, or has led to a sum that was never opened."""
    if machine.secure_sums and machine.pool is not None and machine.pool.total.epoch < record.asked_in:
        return True
    if record.asked < 0:
        return True
    if not private:
        return record.observed != record.asked
    return machine.epoch > record.asked_in and protocol.had_reason(record.asked, record.observed)


def note_call(record: MemberRecord, epoch: int, at: float, *, pressed: bool) -> None:
    """Its Request has led to the call of this epoch, perhaps only because it had waited."""
    record.pressed = record.pressed + 1 if pressed else 0
    record.asked, record.asked_in, record.asked_at = record.observed, epoch, at
