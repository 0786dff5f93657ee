"""Who speaks, when? A protocol is a trigger at the clients and a machine at the coordinator.

A protocol is a frozen dataclass of parameters that can be told the world: a subclass of `MessageProtocol`, with the
machine that answers, a subclass of `Coordinator`, in the same file (`Synchronous` is the example to copy). Both are
the product: what answers on a network is what answers in a simulation.
"""

from fedbandit.parts import found_in
from fedbandit.protocols.coordinator import Coordinator
from fedbandit.protocols.factors import Factor
from fedbandit.protocols.gossip import Gossip
from fedbandit.protocols.never import Never
from fedbandit.protocols.peer_node import PeerNode
from fedbandit.protocols.protocol import MessageProtocol
from fedbandit.protocols.queue import QueueCoordinator, ServerQueue
from fedbandit.protocols.scheduled import Scheduled, ScheduledCoordinator
from fedbandit.protocols.synchronous import Synchronous, SynchronousCoordinator
from fedbandit.protocols.trigger import CountGrowth, Growth, Silence, TimedGrowth, Trigger, timed_growth
from fedbandit.protocols.triggered import CountTriggered, EventTriggered, Star, always

__all__ = [
    "PROTOCOLS",
    "Coordinator",
    "CountGrowth",
    "CountTriggered",
    "EventTriggered",
    "Factor",
    "Gossip",
    "Growth",
    "MessageProtocol",
    "Never",
    "PeerNode",
    "QueueCoordinator",
    "Scheduled",
    "ScheduledCoordinator",
    "ServerQueue",
    "Silence",
    "Star",
    "Synchronous",
    "SynchronousCoordinator",
    "TimedGrowth",
    "Trigger",
    "always",
    "timed_growth",
]

PROTOCOLS = found_in(globals(), MessageProtocol)
"""Protocols by name."""
