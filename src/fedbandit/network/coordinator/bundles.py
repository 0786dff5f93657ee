"""Steps of secure sums that a relay sends for many clients at once: each is let in, and refused, for itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fedbandit.errors import FedbanditError
from fedbandit.network.refusal import Refusal, as_json
from fedbandit.network.sums import Outcome, SentStep, unpack_steps

if TYPE_CHECKING:
    from fedbandit.network.coordinator.host import Host, HostedFederation
    from fedbandit.network.credentials import Identity


STEPS_OF_ONE = 32
"""So many steps of a bundle count as one message of its sender: each counts for the client that it is of, too."""
AT_ONCE = 16
"""After so many steps others have their turn."""


async def exchange_many(host: Host, hosted: HostedFederation, sender: str, data: bytes) -> list[Outcome]:
    """What became of each step, in their order."""
    if not hosted.federation.machine.secure_sums:
        raise Refusal("malformed", f"The federation {hosted.federation.name!r} has no secure sums.")
    try:
        sent = unpack_steps(data)
    except FedbanditError as error:
        raise Refusal("malformed", str(error)) from None
    hosted.limit(sender, len(sent) / STEPS_OF_ONE)
    outcomes = []
    for number, step in enumerate(sent, start=1):
        outcomes.append(await _exchange(host, hosted, step))
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
    return outcomes


async def _exchange(host: Host, hosted: HostedFederation, sent: SentStep) -> Outcome:
    try:
        identity = _identify(host, hosted, sent)
        return Outcome(200, await hosted.take_step(identity, sent.body, sent.session))
    except Refusal as refusal:
        if refusal.kind == "elsewhere":  # of all of them: the relay follows
            raise
        return Outcome(refusal.status, [], as_json(refusal))


def _identify(host: Host, hosted: HostedFederation, sent: SentStep) -> Identity:
    """Who sends a step, as for a request of its own."""
    try:
        identity = host.credentials.identify(sent.authorization or None, sent.name or None)
        identity.require("client", hosted.federation.name)
    except Refusal:
        host.unauthenticated += 1
        raise
    if len(sent.body) > hosted.sums.most_bytes:
        raise Refusal("size", f"The body has more than {hosted.sums.most_bytes} bytes.")
    return identity
