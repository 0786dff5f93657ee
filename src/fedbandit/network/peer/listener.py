"""Who may connect to a peer: neighbours always, and so many strangers that descriptors are left.

A connection is a stranger's until it has said which neighbour it is. Where there are too many of these the one that has
said nothing for longest is ended, so that whoever holds connections open keeps no neighbour out: a neighbour says at
once who it is.
"""

from __future__ import annotations

import contextlib
import socket

from fedbandit.network.coordinator.listener import SPARE_DESCRIPTORS, Guard, GuardedSocket

MOST, STRANGERS = 256, 64
"""Connections in all beside those of neighbours, some of which are on their way out, and strangers among them."""


def _able() -> int:
    """How many connections a peer may have; the limit of open files is its application's, and is left as it is."""
    try:
        import resource  # which Windows has not
    except ImportError:
        return 2 * MOST
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2 * MOST if soft == resource.RLIM_INFINITY else max((soft - SPARE_DESCRIPTORS) // 2, 16)


class PeerGuard(Guard):
    """Which connections are open; a request is under way on those of neighbours."""

    def __init__(self, neighbours: int) -> None:
        able = _able()
        most = min(MOST + neighbours, able)
        super().__init__(most, most_per_address=most, able=able)
        self.strangers = min(STRANGERS, max(most // 2, 1))
        self._ending: set[GuardedSocket] = set()

    def admits(self, address: str) -> bool:
        """Whether there is room; the oldest stranger makes some."""
        quiet = [one for one in self.open if one.peer not in self.busy and one not in self._ending]
        if len(quiet) >= self.strangers:
            self.ended += 1
            self._ending.add(quiet[0])
            with contextlib.suppress(OSError):
                quiet[0].shutdown(socket.SHUT_RDWR)
        return super().admits(address)

    def leave(self, connection: GuardedSocket) -> None:
        """A connection was closed."""
        self._ending.discard(connection)
        super().leave(connection)
