"""A peer of a network without a coordinator: γ estimators that learn, and a node that speaks. No I/O, no clock."""

from __future__ import annotations

from numpy.typing import ArrayLike

from fedbandit.engine.fast.statistics import N_PENDING
from fedbandit.errors import FedbanditError
from fedbandit.machines.client import Choice, ClientMachine
from fedbandit.messages import Ask, Message, Tell
from fedbandit.privacy.guarantee import Guarantee
from fedbandit.privacy.noise import Source
from fedbandit.protocols import Gossip, PeerNode
from fedbandit.protocols.peer_node import heard
from fedbandit.state import State
from fedbandit.system import System
from fedbandit.world import World


class PeerMachine:
    """One agent of decentralised FedUCB; it acts once a round.

    | in a round                      | it does                                                          |
    |---------------------------------|------------------------------------------------------------------|
    | `select`, `observe`             | chooses and learns with the estimator whose turn it is           |
    | `send`, at the end              | gives what goes to which neighbour                               |
    | `receive`, for what came in     | keeps and queues what is new; answers when asked                 |
    | `end_round`, after that         | brings estimators up to date of which it has heard something new |

    `neighbours` are those of the system's topology unless they are given; noise comes from `source` as for a client.

    >>> import fedbandit as fb
    >>> world = fb.World(n_clients=3, dim=2, horizon=300, per_round=3)
    >>> peer = PeerMachine(0, fb.feducb(topology="line", ttl=2), world)
    >>> choice = peer.select([[1.0, 0.0], [0.0, 1.0]])
    >>> peer.observe(choice.number, reward=1.0)
    >>> peer.send()
    []
    """

    def __init__(
        self,
        member: int,
        system: System,
        world: World,
        seed: int = 0,
        *,
        neighbours: tuple[int, ...] | None = None,
        source: Source | None = None,
    ) -> None:
        told = system.told(world)
        protocol = told.protocol
        if not isinstance(protocol, Gossip):
            raise FedbanditError(f"{system.name} has a coordinator; a peer needs a system with the protocol Gossip.")
        self.member = member
        self.n_peers = world.n_clients
        self.most_rounds = 2 * -(-world.horizon // world.per_round)  # a horizon is a plan
        self.batch = protocol.batch
        self.estimators = [
            ClientMachine(member, system, world, seed, estimator=g, source=source) for g in range(protocol.period)
        ]
        near = protocol.neighbours[member] if neighbours is None else neighbours
        self.node = PeerNode(member, near, protocol.ttl, world.dim)
        self.noise = told.privacy.pool_noise(together=False)
        self.ridge = float(system.ridge)
        self.keeps_own = told.privacy.keeps_own or told.privacy.perturbs != "statistics"
        self.rounds = 0
        self._news: set[int] = set()

    @property
    def turn(self) -> int:
        """The estimator that is used in this round."""
        return self.rounds % len(self.estimators)

    def select(self, arms: ArrayLike) -> Choice:
        """Choose one of the arms with the estimator whose turn it is; its number is the peer's own."""
        choice = self.estimators[self.turn].select(arms)
        number = choice.number * len(self.estimators) + self.turn
        return Choice(number, choice.arm)

    def observe(self, choice: int, reward: float) -> None:
        """Learn the reward of a choice; what there is to say leaves with the next `send`."""
        number, g = divmod(choice, len(self.estimators))
        if self.estimators[g].observe(number, reward):
            self._tell(g)
            self.node.ask(g)

    def send(self) -> list[tuple[int, Message]]:
        """What goes to which neighbour at the end of this round."""
        return self.node.send()

    def receive(self, sender: int, message: Message) -> None:
        """Take a message from a neighbour."""
        if not self.node.receive(sender, message):
            return
        match message:
            case Tell(_, g):
                self._news.add(g)
            case Ask(_, g) if self.estimators[g].row[N_PENDING] >= self.batch and not self.estimators[g].spent:
                self._tell(g)

    def end_round(self) -> None:
        """The round is over and its messages are in."""
        self.rounds += 1
        for g in sorted(self._news):
            download = heard(self.node, g, self.noise, self.ridge, self.rounds, keeps_own=self.keeps_own)
            self.estimators[g].hear(download, self.node.own(g))
        self._news.clear()

    @property
    def observed(self) -> int:
        """Rewards learnt from so far."""
        return sum(estimator.observed for estimator in self.estimators)

    @property
    def guarantee(self) -> Guarantee:
        """What privacy holds for what leaves this peer, and how its noise is drawn."""
        return self.estimators[0].guarantee

    def state(self) -> State:
        """All that a peer with the same arguments needs in order to go on."""
        parts = {"node": self.node.state(), **{f"e{g}": one.state() for g, one in enumerate(self.estimators)}}
        header = {"rounds": self.rounds, "news": sorted(self._news)}
        arrays = {f"{part}.{key}": value for part, state in parts.items() for key, value in state.arrays.items()}
        return State({**header, "parts": {part: state.header for part, state in parts.items()}}, arrays)

    def restore(self, state: State) -> None:
        """Go on from there."""

        def part(name: str) -> State:
            mine = f"{name}."
            kept = {key.removeprefix(mine): value for key, value in state.arrays.items() if key.startswith(mine)}
            return State(state.header["parts"][name], kept)

        self.rounds, self._news = state.header["rounds"], set(state.header["news"])
        self.node.restore(part("node"))
        for g, estimator in enumerate(self.estimators):
            estimator.restore(part(f"e{g}"))
            estimator.remember_told(self.node.own(g))

    def _tell(self, g: int) -> None:
        self.node.tell(g, self.estimators[g].upload().sums)
