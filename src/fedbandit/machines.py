"""The client's machine, and the coordinator's for a whole system: messages in, messages out, no I/O, no clock.

A client is the simulator's model with a single row: the same compiled functions choose and learn, so that N clients on
a network and N rows in a simulation pull the same arms and send the same messages.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedbandit.errors import FedbanditError, require
from fedbandit.messages import Collect, Download, Join, Message, Receipt, Request, Upload
from fedbandit.mixing import mix
from fedbandit.policies import Uniform, choose, scratch
from fedbandit.policies.plan import exact_width
from fedbandit.protocols import Coordinator, MemberKeeper
from fedbandit.protocols.hub import empty_hub
from fedbandit.protocols.protocol import known_by
from fedbandit.protocols.trigger import pick, triggered
from fedbandit.rewards import learnt, refused, reward_plan
from fedbandit.statistics import (
    N_OWN,
    N_PENDING,
    VERSION,
    Array,
    Sums,
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
    zero_sums,
)
from fedbandit.streams import Stream, generator, policy_key
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

    def __init__(self, member: int, system: System, world: World, seed: int = 0, *, estimator: int = 0) -> None:
        require(0 <= member < world.n_clients, "member", member, f"a client number below {world.n_clients}")
        if not system.structure.separate:
            raise FedbanditError(
                f"{system.name} has one model for all clients, so there are no separate client machines."
            )
        told = system.told(world)
        self.member = member
        self._row = row = member * told.protocol.period + estimator  # its number in a simulation
        self.dim = world.dim
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
        self.stream = told.privacy.stream(member, partial(generator, seed, Stream.NOISE, row))
        self.row = empty_rows(1, world.dim)[0]
        start_row(self.row, world.dim, system.ridge)
        self.outbox: dict[int, Upload] = {}
        self._on_top: dict[int, Upload] = {}  # uploads that no download has contained yet
        self._sequence = 0
        self._told = zero_sums(world.dim)
        self._epoch = 0
        self._chosen: dict[int, Array] = {}
        self._choices = 0
        self._work = scratch(1, world.dim)

    def join(self) -> list[Message]:
        """The message to begin with."""
        return [] if self.protocol.says == "nothing" else [Join(self.member)]

    def select(self, arms: ArrayLike) -> Choice:
        """Choose one of the arms, given as a (K, d) array of contexts."""
        X = np.ascontiguousarray(arms, dtype=np.float64)
        require(
            X.ndim == 2 and len(X) > 0 and X.shape[1] == self.dim,
            "the shape of arms",
            X.shape,
            f"(K, {self.dim})",
        )
        if not np.isfinite(X).all():
            raise FedbanditError("An arm's context is not finite.")
        longest = math.sqrt(float(np.einsum("ij,ij->i", X, X).max()))
        require(longest <= self.bound * (1 + 1e-9), "the norm of a context", longest, f"at most {self.bound:g}")
        if len(X) > self._work.scores.size:
            self._work = scratch(len(X), self.dim)
        a = choose(
            self._explore if self._exploring else self.plan, self.row, self._row, X, np.arange(len(X)), self._work
        )
        self._choices += 1
        self._chosen[self._choices] = X[a].copy()
        return Choice(self._choices, int(a))

    def observe(self, choice: int, reward: float) -> list[Message]:
        """Learn the reward of a choice, and say what to send."""
        if choice not in self._chosen:
            raise FedbanditError(f"Choice {choice} is not waiting for a reward.")
        require(math.isfinite(reward), "reward", reward, "a finite number")
        y = learnt(self._rewards, float(reward), self._row, int(self.row[N_OWN]))
        if math.isnan(y):
            raise refused(self._rewards, reward)
        x = self._chosen.pop(choice)
        if self._fresh:
            multiply(inverse_of(self.row, self.dim), x, self._work.best_u)
            observe(self.row, x, y, self._work.best_u, self.ridge, self._work.M)
        else:
            hold(self.row, x, y)
        if not triggered(*self._trigger, self.row) or self.spent:
            return []
        return [self.upload()] if self.protocol.says == "upload" else [Request(self.member)]

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
                return [self.upload()]
            case Collect():
                pass
            case _:
                raise FedbanditError(f"A client does not take a {type(message).__name__}.")
        return []

    @property
    def spent(self) -> bool:
        """Whether the privacy budget forbids what is pending to leave; the client then goes on learning alone."""
        return self.stream is not None and not self.stream.may_release(int(self.row[N_PENDING]))

    def upload(self) -> Upload:
        """Number what is pending, noised if there is a mechanism, to be sent until it is acknowledged."""
        sums = pending_sums(self.row, self.dim)
        if self.spent and sums.n > 0:
            sums = zero_sums(self.dim)
        else:
            if self.stream is not None and sums.n > 0:
                sums = self.stream.release(sums)
            mark_sent(self.row, self.dim)
        self._sequence += 1
        upload = Upload(self.member, self._sequence, sums, known_by(self.row, self.protocol))
        self.outbox[self._sequence] = self._on_top[self._sequence] = upload
        return upload

    def hear(self, message: Download, told: Sums) -> None:
        """Take what peers have told, given what this one told itself: as a download, but nothing is acknowledged."""
        self.outbox.clear()
        self._on_top.clear()
        self._told = told
        self._adopt(message)

    def _own_sent(self) -> Sums:
        """What this client has uploaded, before it was noised."""
        return self._told if self.stream is None else self.stream.own

    def _acknowledged(self, sequence: int) -> None:
        self.outbox = {number: upload for number, upload in self.outbox.items() if number > sequence}

    def _adopt(self, message: Download) -> None:
        """What coordinator and client have in common: the download, and uploads that it does not contain."""
        if message.own:
            shared = [message.sums, *(upload.sums for upload in self._on_top.values())]
            slack = message.slack
        else:
            own = self._own_sent()
            alpha = exact_width(self.plan, own, self.ridge)
            mixed, slack = mix(own, message.sums, message.slack, self.ridge, alpha)
            shared = [mixed]
        given = shared_row(shared, slack, self.dim, self.ridge, self._work.M)
        adopt(self.row, given, self.dim, self.ridge, self._work.M)
        self.row[VERSION] = message.version


def explores(system: System, world: World) -> bool:
    """Whether clients begin by choosing at random, until the coordinator first collects."""
    assembly = system.assembly(world)
    return assembly is not None and assembly.exploring


def make_coordinator(system: System, world: World) -> Coordinator | MemberKeeper | None:
    """The coordinator's machine of a system; None if the system has no coordinator."""
    told = system.told(world)
    noise, assembly = told.privacy.pool_noise(together=told.protocol.says == "request"), told.assembly(world)
    if assembly is not None:
        return told.protocol.member_coordinator(assembly, world, system.ridge, noise)
    layout = told.structure.layout(world)
    hub = empty_hub(
        world.dim,
        layout.n_rows,
        layout.n_groups,
        layout.group_of,
        told.protocol.log_gamma_download(),
        system.ridge,
    )
    return told.protocol.coordinator(hub, system.ridge, world.dim, noise)
