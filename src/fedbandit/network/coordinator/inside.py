"""What messages have inside, and how long they are at most."""

from __future__ import annotations

import numpy as np

from fedbandit.messages import RELAYED_SIZE, Download, Join, Message, Restate, Upload, encoded_size
from fedbandit.network.invitation import Agreement
from fedbandit.server_messages import FromServer, ToServer


def most_bytes(agreement: Agreement, dim: int) -> int:
    """Of the longest message: an upload, or a report of so many local clusters as a local server has users."""
    system, servers = agreement.build(), agreement.servers
    blocks = system.forgetting(agreement.world).slots or agreement.world.actions or None
    size = encoded_size(Upload, dim, blocks, dated=system.forgets) + RELAYED_SIZE
    return size if servers is None else encoded_size(Join, 0) + int(np.bincount(servers).max()) * (size + 4)


def uploads_in(message: Message) -> list[Upload | Restate]:
    """The statistics that a message carries."""
    if isinstance(message, FromServer):
        return [inner for inner in message.messages if isinstance(inner, Upload)]
    return [message] if isinstance(message, Upload | Restate) else []


def downloads_in(message: Message) -> list[tuple[int, Download]]:
    """The downloads that a message is, or has in it, with the node that they go to."""
    inside = message.messages if isinstance(message, ToServer) else [message]
    return [(message.member, inner) for inner in inside if isinstance(inner, Download)]
