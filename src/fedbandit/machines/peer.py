"""A peer's machine: γ estimators that take turns, and a node that gossips about them; and peers in one process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from numpy.typing import ArrayLike

from fedbandit.errors import FedbanditError, number
from fedbandit.machines.client import Choice, ClientMachine
from fedbandit.machines.exchange import Exchange
from fedbandit.machines.link import Tally
from fedbandit.messages import Ask, Message, Tell
from fedbandit.model import Model
from fedbandit.privacy import Guarantee
from fedbandit.privacy.noise import Source
from fedbandit.privacy.privacy import Releases
from fedbandit.protocols import Gossip, PeerNode
from fedbandit.protocols.peer_node import heard
from fedbandit.state import State, joined, parts_of, require_like
from fedbandit.system import System
from fedbandit.types import Array
from fedbandit.world import World


class PeerMachine:
    """One peer of a federation without a coordinator (FedUCB, Alg. 2): messages in, messages out, round by round.

    Estimator g = round mod γ acts and learns in a round, so that what is told of it has reached everybody within γ
    hops before it acts again. A round is: `select`, `observe`, `send`, what comes in `receive`, `end_round`.

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
        waiting: int = 10_000,
        estimators: Sequence[Exchange] | None = None,
    ) -> None:
        told = system.told(world)
        protocol = told.protocol
        if not isinstance(protocol, Gossip):
            raise FedbanditError(f"{system.name} has a coordinator; a peer needs a system with the protocol Gossip.")
        self.member = member
        self.n_peers = world.n_clients
        self.most_rounds = 2 * -(-world.horizon // world.per_round)  # a horizon is a plan
        self.batch = protocol.batch
        self.estimators: Sequence[Exchange] = estimators or [
            ClientMachine(member, told, world, seed, waiting, estimator=g, source=source)
            for g in range(protocol.period)
        ]
        near = protocol.neighbours[member] if neighbours is None else neighbours
        groups = told.structure.groups(world)
        companions = (j for j in protocol.companions(member) if groups.size == 1 or groups[j] == groups[member])
        self.node = PeerNode(member, near, protocol.ttl, world.dim, frozenset(companions))
        self.noise = told.privacy.pool_noise(together=False)
        self.ridge = float(system.ridge)
        self.keeps_own = told.privacy.keeps_own or told.privacy.perturbs != "statistics"
        self.rounds = 0
        self._news: set[int] = set()  # estimators of which something new was heard in this round

    @property
    def turn(self) -> int:
        """The estimator that is used in this round."""
        return self.rounds % len(self.estimators)

    def select(self, arms: ArrayLike) -> Choice:
        """Choose one of the arms with the estimator whose turn it is; its number is the peer's own."""
        choice = self._client(self.turn).select(arms)
        number = choice.number * len(self.estimators) + self.turn
        return choice._replace(number=number)

    def observe(self, choice: int, reward: float) -> None:
        """Learn the reward of a choice; what there is to say leaves with the next `send`."""
        self.take(choice, self.perceive(choice, reward))

    def perceive(self, choice: int, reward: float) -> float:
        """The reward to learn from. Ask once for each reward."""
        if self.waits_for(choice) is None:
            raise FedbanditError(f"Choice {choice:016x} is not waiting for a reward here.")
        return self._client(choice % len(self.estimators)).perceive(number(reward, "reward", "a finite number"))

    def take(self, choice: int, y: float) -> bool:
        """Learn a choice's reward as it was perceived; whether there is something to say."""
        mine, g = divmod(choice, len(self.estimators))
        if not self._client(g).take(mine, y):
            return False
        self._tell(g)
        self.node.ask(g)
        return True

    def waits_for(self, choice: int) -> Array | None:
        """The context of a choice whose reward has not come."""
        mine, g = divmod(choice, len(self.estimators))
        return self._client(g).waits_for(mine)

    def forget(self, choice: int) -> None:
        """The reward of this choice will never come."""
        mine, g = divmod(choice, len(self.estimators))
        self._client(g).forget(mine)

    def repeat(self, choice: int, x: Array, steps: int) -> None:
        """After a crash: a choice that is on record, and how many arms its estimator had chosen."""
        mine, g = divmod(choice, len(self.estimators))
        client = self._client(g)
        client.await_reward(mine, x)
        client.steps = steps

    def learn(self, choice: int, y: float) -> None:
        """After a crash: the reward of a choice, without saying anything."""
        x = self.waits_for(choice)
        self.forget(choice)
        if x is not None:
            self._client(choice % len(self.estimators)).learn(x, y)

    def steps_of(self, choice: int) -> int:
        """How many arms the estimator of a choice has chosen."""
        return self._client(choice % len(self.estimators)).steps

    def number_choices_from(self, number: int) -> None:
        """Every estimator numbers its next choices from this number on."""
        for g in range(len(self.estimators)):
            self._client(g).number_choices_from(number // len(self.estimators))

    def speak(self, g: int) -> None:
        """If the trigger of estimator g fires: ask, and tell; both leave with the next `send`."""
        if self.estimators[g].speak():
            self._tell(g)
            self.node.ask(g)

    def _client(self, g: int) -> ClientMachine:
        estimator = self.estimators[g]
        assert isinstance(estimator, ClientMachine), "whoever gave other estimators chooses and learns with them"
        return estimator

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
            case Ask(_, g) if self.estimators[g].model.n_pending >= self.batch and not self.estimators[g].withheld:
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
        return sum(estimator.model.n_own for estimator in self.estimators)

    @property
    def guarantee(self) -> Guarantee:
        """What privacy holds for what leaves this peer, and how its noise is drawn."""
        return self._client(0).guarantee

    def state(self) -> State:
        """All that a peer with the same arguments needs in order to go on."""
        parts = {"node": self.node.state(), **{f"e{g}": one.state() for g, one in enumerate(self.estimators)}}
        return joined({"rounds": self.rounds, "news": sorted(self._news)}, parts)

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        require_like(State(state.header, {}), State(self.state().header, {}))
        parts = parts_of(state)
        self.rounds, self._news = state.header["rounds"], set(state.header["news"])
        self.node.restore(parts["node"])
        for g, estimator in enumerate(self.estimators):
            estimator.restore(parts[f"e{g}"])
            estimator.remember_told(self.node.own(g))

    def _tell(self, g: int) -> None:
        self.node.tell(g, self.estimators[g].upload().sums)


class PeerLink:
    """All peers of a federation in one process: at the end of each round every message goes one hop.

    `uploads` counts statistics that went one hop, `control_messages` everything else.
    """

    downloads = 0

    def __init__(self, system: System, world: World, seed: int = 0, *, waiting: int = 10_000) -> None:
        told = system.told(world)
        self.peers = [PeerMachine(i, told, world, seed, waiting=waiting) for i in range(world.n_clients)]
        self.uploads = self.control_messages = 0
        self.sent_by: Counter[int] = Counter()
        self.received_by: Counter[int] = Counter()

    def select(self, i: int, arms: Array) -> Choice:
        """Peer i chooses one of the arms."""
        return self.peers[i].select(arms)

    def observe(self, i: int, choice: int, reward: float) -> None:
        """Peer i learns the reward of a choice."""
        self.peers[i].observe(choice, reward)

    def model_of(self, i: int) -> Model:
        """What the next arm of peer i is scored with: the estimator whose turn it is."""
        return self.peers[i].estimators[self.peers[i].turn].model

    def next_wake(self, done: int) -> int:
        """After each round."""
        return done + 1

    def end_round(self, done: int) -> None:  # noqa: ARG002 - all rounds are alike
        """Carry what was sent in this round."""
        carried = [(peer.member, *sent) for peer in self.peers for sent in peer.send()]
        for sender, receiver, message in carried:
            if isinstance(message, Tell):
                self.uploads += 1
                self.sent_by[sender] += 1
            else:
                self.control_messages += 1
            self.peers[receiver].receive(sender, message)
        for peer in self.peers:
            peer.end_round()

    def groups(self) -> None:
        """None are found."""

    def groups_at_end(self) -> None:
        """None are found."""

    def tally(self) -> Tally:
        """Where all observations are."""
        estimators = [one for peer in self.peers for one in peer.estimators]
        told = sum(peer.node.own(g).n for peer in self.peers for g in range(len(peer.estimators)))
        return Tally(sum(one.model.n_own for one in estimators), told, sum(one.model.n_pending for one in estimators))

    def streams(self) -> dict[int, Releases]:
        """What noises the releases of each estimator; estimator g of peer i has the number iγ + g."""
        estimators = [one for peer in self.peers for one in peer.estimators]
        return {k: one.stream for k, one in enumerate(estimators) if one.stream is not None}

    def exhausted(self) -> list[int]:
        """The estimators whose budget is spent."""
        estimators = [one for peer in self.peers for one in peer.estimators]
        return [k for k, one in enumerate(estimators) if one.exhausted]

    @property
    def clipped(self) -> int:
        """Rewards that were outside the range for which privacy is claimed."""
        estimators = (one for peer in self.peers for one in peer.estimators)
        return sum(one.clipped for one in estimators if isinstance(one, ClientMachine))

    def state(self) -> State:
        """All peers."""
        header = {"counts": [self.uploads, self.control_messages]}
        return joined(header, {f"peer.{peer.member}": peer.state() for peer in self.peers})

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        self.uploads, self.control_messages = state.header["counts"]
        parts = parts_of(state)
        for peer in self.peers:
            peer.restore(parts[f"peer.{peer.member}"])
