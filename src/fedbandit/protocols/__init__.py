"""Who speaks, when? A protocol is a trigger at the clients and a machine at the coordinator.

A protocol is a frozen dataclass of parameters that can be told the world. `EventTriggered` and `CountTriggered` are
fused: their whole exchange is compiled into the engine's loop when no other part has to look at it. Any other
protocol (`Synchronous` is the example to copy) is plain Python: the engine stops at the trigger and hands the
client's message to the coordinator machine, the same machine that answers on a network.
"""

from fedbandit.protocols.coordinator import Broadcast, Coordinator, StarCoordinator
from fedbandit.protocols.count_triggered import CountTriggered
from fedbandit.protocols.event_triggered import EventTriggered, always
from fedbandit.protocols.factors import Factor
from fedbandit.protocols.gossip import Gossip
from fedbandit.protocols.member_star import MemberStar
from fedbandit.protocols.member_sync import MemberSync
from fedbandit.protocols.members import MemberKeeper
from fedbandit.protocols.never import Never
from fedbandit.protocols.peer_node import PeerNode
from fedbandit.protocols.protocol import MessageProtocol
from fedbandit.protocols.queue import ServerQueue
from fedbandit.protocols.scheduled import Scheduled
from fedbandit.protocols.synchronous import Synchronous, SynchronousCoordinator
from fedbandit.protocols.trigger import Kind, Trigger, timed_growth

__all__ = [
    "Broadcast",
    "Coordinator",
    "CountTriggered",
    "EventTriggered",
    "Factor",
    "Gossip",
    "Kind",
    "MemberKeeper",
    "MemberStar",
    "MemberSync",
    "MessageProtocol",
    "Never",
    "PeerNode",
    "Scheduled",
    "ServerQueue",
    "StarCoordinator",
    "Synchronous",
    "SynchronousCoordinator",
    "Trigger",
    "always",
    "timed_growth",
]
