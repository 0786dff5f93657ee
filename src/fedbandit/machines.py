"""The client's machine, and the coordinator's for a whole system: messages in, messages out, no I/O, no clock.

A client is the simulator's model with a single row: the same compiled functions choose and learn, so that N clients on
a network and N rows in a simulation pull the same arms and send the same messages.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedbandit.assembly import prior_share
from fedbandit.errors import FedbanditError, require
from fedbandit.messages import Collect, Download, Join, Message, Receipt, Request, Upload
from fedbandit.policies import Uniform, choose, scratch
from fedbandit.privacy.privacy import client_stream, coordinator_streams
from fedbandit.protocols import Coordinator, MemberKeeper
from fedbandit.protocols.hub import empty_hub, measure
from fedbandit.protocols.trigger import pick, triggered
from fedbandit.rewards import learnt, refused, reward_plan
from fedbandit.statistics import (
    N_OWN,
    N_PENDING,
    VERSION,
    Array,
    adopt,
    empty_rows,
    hold,
    inverse_of,
    mark_sent,
    multiply,
    observe,
    pending_sums,
    shared_row,
    start_row,
    take_over,
    zero_sums,
)
from fedbandit.streams import policy_key
from fedbandit.system import System
from fedbandit.world import World


class Choice(NamedTuple):
    """An arm that was chosen; its reward may come late, out of order or never."""

    number: int
    arm: int


class ClientMachine:
    """One client of a federation: it chooses, learns, and says what to send.

    | it gets                     | it does                                                     | it sends            |
    |-----------------------------|-------------------------------------------------------------|---------------------|
    | `observe(choice, reward)`   | learns; if its trigger fires: numbers what is pending       | Upload, or Request  |
    | Collect                     | numbers what is pending, if it has not in this epoch        | Upload              |
    | Receipt                     | need not send uploads up to that number again               | –                   |
    | Download, newer than its own| adopts it, with its own unacknowledged uploads on top       | –                   |

    Uploads stay in `outbox`, unchanged, until the coordinator acknowledges them; send them again as often as you like.
    Until a *download* contains them they are also kept to be put on top of downloads, which receipts may overtake.

    >>> import fedbandit as fb
    >>> client = ClientMachine(0, fb.async_linucb(), fb.World(n_clients=3, dim=2, horizon=100), seed=0)
    >>> choice = client.select([[1.0, 0.0], [0.0, 1.0]])
    >>> [type(message).__name__ for message in client.observe(choice.number, reward=1.0)]
    ['Upload']
    """

    def __init__(self, member: int, system: System, world: World, seed: int = 0) -> None:
        require(0 <= member < world.n_clients, "member", member, f"a client number below {world.n_clients}")
        if not system.structure.separate:
            raise FedbanditError(
                f"{system.name} has one model for all clients, so there are no separate client machines."
            )
        if system.structure.model == "split" and type(self) is ClientMachine:
            raise FedbanditError(
                f"{system.name} has a model in two parts: make its clients by split_machine.make_client."
            )
        told = system.told(world)
        self.member = member
        self.dim = told.shared_dim(world)
        self.bound = world.bound
        self.ridge = system.ridge
        self.protocol = told.protocol
        self.plan = told.policy.plan(told.as_seen(world), system.ridge, policy_key(seed))
        self._explore = Uniform().plan(world, system.ridge, policy_key(seed))
        self._exploring = explores(told, world)
        self._fresh = told.structure.layout(world).fresh
        trigger = told.protocol.trigger()
        self._trigger = int(trigger.kind), pick(trigger.thresholds, member), trigger.batch
        self._rewards = reward_plan(told.privacy.reward_rule, seed)
        self.stream = client_stream(told.privacy, member, seed)
        self.row = empty_rows(1, self.dim)[0]
        start_row(self.row, self.dim, system.ridge)
        self._work = scratch(1, self.dim)
        prior = prior_share(told.assembly(world), member)
        if prior is not None:
            given = shared_row([prior.sums], prior.slack, self.dim, system.ridge, self._work.M)
            adopt(self.row, given, self.dim, system.ridge, self._work.M)
        self.outbox: dict[int, Upload] = {}
        self._on_top: dict[int, Upload] = {}  # uploads that no download has contained yet
        self._sequence = 0
        self._epoch = 0
        self._chosen: dict[int, Array] = {}
        self._choices = 0

    def join(self) -> list[Message]:
        """The message to begin with."""
        return [] if self.protocol.says == "nothing" else [Join(self.member)]

    def select(self, arms: ArrayLike) -> Choice:
        """Choose one of the arms, given as a (K, d) array of contexts."""
        X = self.checked(arms, self.dim)
        if len(X) > self._work.scores.size:
            self._work = scratch(len(X), self.dim)
        a = choose(
            self._explore if self._exploring else self.plan, self.row, self.member, X, np.arange(len(X)), self._work
        )
        return self.chosen(X[a], int(a))

    def checked(self, arms: ArrayLike, dim: int) -> Array:
        """Contexts of arms, if that is what they are."""
        X = np.ascontiguousarray(arms, dtype=np.float64)
        require(X.ndim == 2 and len(X) > 0 and X.shape[1] == dim, "the shape of arms", X.shape, f"(K, {dim})")
        if not np.isfinite(X).all():
            raise FedbanditError("An arm's context is not finite.")
        longest = math.sqrt(float(np.einsum("ij,ij->i", X, X).max()))
        require(longest <= self.bound * (1 + 1e-9), "the norm of a context", longest, f"at most {self.bound:g}")
        return X

    def chosen(self, x: Array, a: int) -> Choice:
        """Remember the context of the arm chosen until its reward comes."""
        self._choices += 1
        self._chosen[self._choices] = x.copy()
        return Choice(self._choices, a)

    def waiting(self, choice: int, reward: float) -> Array:
        """The context of a choice that waits for its reward, if the reward is a number."""
        if choice not in self._chosen:
            raise FedbanditError(f"Choice {choice} is not waiting for a reward.")
        require(math.isfinite(reward), "reward", reward, "a finite number")
        return self._chosen[choice]

    def observe(self, choice: int, reward: float) -> list[Message]:
        """Learn the reward of a choice, and say what to send."""
        x = self.waiting(choice, reward)
        y = learnt(self._rewards, float(reward), self.member, int(self.row[N_OWN]))
        if math.isnan(y):
            raise refused(self._rewards, reward)
        del self._chosen[choice]
        if self._fresh:
            multiply(inverse_of(self.row, self.dim), x, self._work.best_u)
            observe(self.row, x, y, self._work.best_u, self.ridge, self._work.M)
        else:
            hold(self.row, x, y)
        if not triggered(*self._trigger, self.row) or self.spent:
            return []
        return [Request(self.member)] if self.protocol.says == "request" else [self._upload()]

    def receive(self, message: Message) -> list[Message]:
        """Take a message from the coordinator, and say what to send."""
        require(message.member == self.member, "the addressee", message.member, f"client {self.member}")
        if isinstance(message, Download):
            require(message.sums.b.size == self.dim, "the dimension", message.sums.b.size, f"{self.dim}")
        match message:
            case Receipt(_, sequence):
                self._acknowledged(sequence)
            case Download():
                self._acknowledged(message.acknowledged)
                if message.version > self.row[VERSION]:
                    self._on_top = {n: upload for n, upload in self._on_top.items() if n > message.acknowledged}
                    self._adopt(message)
            case Collect(_, epoch) if epoch > self._epoch:
                self._epoch = epoch
                self._exploring = False
                return [self._upload()]
            case Collect():
                pass
            case _:
                raise FedbanditError(f"A client does not take a {type(message).__name__}.")
        return []

    @property
    def spent(self) -> bool:
        """Whether the privacy budget forbids what is pending to leave; the client then goes on learning alone."""
        return self.stream is not None and not self.stream.may_release(int(self.row[N_PENDING]))

    def _upload(self) -> Upload:
        sums = pending_sums(self.row, self.dim)
        if self.spent and sums.n > 0:
            sums = zero_sums(self.dim)
        else:
            if self.stream is not None and sums.n > 0:
                sums = self.stream.release(sums)
            mark_sent(self.row, self.dim)
        self._sequence += 1
        upload = Upload(self.member, self._sequence, sums, measure(self.row, self.protocol.counting))
        self.outbox[self._sequence] = self._on_top[self._sequence] = upload
        return upload

    def _acknowledged(self, sequence: int) -> None:
        self.outbox = {number: upload for number, upload in self.outbox.items() if number > sequence}

    def _adopt(self, message: Download) -> None:
        """What coordinator and client have in common: the download, and uploads that it does not contain."""
        shared = [message.sums, *(upload.sums for upload in self._on_top.values())]
        given = shared_row(shared, message.slack, self.dim, self.ridge, self._work.M)
        if self._fresh:
            adopt(self.row, given, self.dim, self.ridge, self._work.M)
        else:
            take_over(self.row, given, self.dim)
        self.row[VERSION] = message.version


def explores(system: System, world: World) -> bool:
    """Whether clients begin by choosing at random, until the coordinator first collects."""
    assembly = system.assembly(world)
    return assembly is not None and assembly.exploring


def make_coordinator(system: System, world: World, seed: int = 0) -> Coordinator | MemberKeeper | None:
    """The coordinator's machine of a system; None if the system has no coordinator. It draws noise if it is trusted."""
    told = system.told(world)
    noise, assembly = told.privacy.pool_noise(), told.assembly(world)
    if assembly is not None:
        keeper = told.protocol.member_coordinator(assembly, world, system.ridge, noise)
        if keeper is not None:
            keeper.privatise = coordinator_streams(told.privacy, seed)
        return keeper
    layout, dim = told.structure.layout(world), told.shared_dim(world)
    hub = empty_hub(
        dim,
        layout.n_rows,
        layout.n_groups,
        layout.group_of,
        told.protocol.log_gamma_download(),
        system.ridge,
    )
    return told.protocol.coordinator(hub, system.ridge, dim, noise)
