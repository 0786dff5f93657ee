"""Who may connect to a peer: neighbours always, and so many strangers that descriptors are left.

A connection is a stranger's until it has said which neighbour it is. Where there are too many of these the one that has
said nothing for longest is ended, so that whoever holds connections open keeps no neighbour out: a neighbour says at
once who it is.
"""

from __future__ import annotations

from fedbandit.network.coordinator.listener import SPARE_DESCRIPTORS, Guard

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
    """Which connections are open; those of neighbours are of somebody known."""

    def __init__(self, neighbours: int) -> None:
        able = _able()
        most = min(MOST + neighbours, able)
        super().__init__(most, most_per_address=most, able=able)
        self.strangers = min(STRANGERS, max(most // 2, 1))

    def admits(self, address: str) -> bool:
        """Whether there is room; the oldest stranger makes some."""
        strange = {one: since for of_address in self.strange.values() for one, since in of_address.items()}
        if len(strange) >= self.strangers:
            oldest = min(strange, key=lambda one: strange[one])
            self.end(oldest)
            self.gave_way = True
        return super().admits(address)

    def meet(self, peer: tuple[str, int]) -> None:
        """Who is connected from there has said which neighbour it is."""
        if (connection := self.by_peer.get(peer)) is not None:
            self.somebody_asks(connection)
