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


async def exchange_many(host: Host, hosted: HostedFederation, data: bytes) -> list[Outcome]:
    """What became of each step, in their order."""
    try:
        sent = unpack_steps(data)
    except FedbanditError as error:
        raise Refusal("malformed", str(error)) from None
    outcomes = []
    for step in sent:
        outcomes.append(await _exchange(host, hosted, step))
        await asyncio.sleep(0)  # refusals wait for nothing, and there may be many
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
