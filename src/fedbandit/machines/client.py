"""The client's machine, and the coordinator's for a whole system: messages in, messages out, no I/O, no clock.

A client is the simulator's model with a single row: the same compiled functions choose and learn, so that N clients on
a network and N rows in a simulation pull the same arms and send the same messages.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedbandit.engine.fast.choose import choose, scratch
from fedbandit.engine.fast.cohorts import empty_hub
from fedbandit.engine.fast.packed import multiply_packed
from fedbandit.engine.fast.plan import exact_width, plan_of
from fedbandit.engine.fast.row_sums import pending_sums, shared_row
from fedbandit.engine.fast.statistics import (
    N_OWN,
    N_PENDING,
    STEPS,
    VERSION,
    adopt,
    empty_rows,
    hold,
    inverse_of,
    mark_sent,
    observe,
    start_row,
    take_over,
    theta_of,
)
from fedbandit.errors import FedbanditError, number, require, shown, whole_number
from fedbandit.machines.mixing import mix
from fedbandit.messages import Collect, Download, Join, Message, Receipt, Request, Threshold, Upload, decode, encode
from fedbandit.privacy.noise import Source, label_of, perturb
from fedbandit.privacy.release_stream import ReleaseStream
from fedbandit.protocols import Coordinator, MemberKeeper, timed_growth
from fedbandit.protocols.protocol import known_by
from fedbandit.protocols.trigger import pick, triggered
from fedbandit.rewards import learnt, refused, reward_plan
from fedbandit.sharing import prior_share
from fedbandit.state import State
from fedbandit.streams import Stream, generator, policy_key
from fedbandit.sums import Sums, zero_sums
from fedbandit.system import System
from fedbandit.types import Array
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
    Of choices whose reward has not come the latest `waiting` are kept.

    Noise for privacy comes from the simulation's streams, which follow from the seed, unless `source` is given: on a
    network it must be `privacy.secure.SecureSource()`.

    >>> import fedbandit as fb
    >>> client = ClientMachine(0, fb.async_linucb(), fb.World(n_clients=3, dim=2, horizon=100), seed=0)
    >>> choice = client.select([[1.0, 0.0], [0.0, 1.0]])
    >>> [type(message).__name__ for message in client.observe(choice.number, reward=1.0)]
    ['Upload']
    """

    def __init__(
        self,
        member: int,
        system: System,
        world: World,
        seed: int = 0,
        waiting: int = 10_000,
        *,
        estimator: int = 0,
        source: Source | None = None,
    ) -> None:
        require(0 <= member < world.n_clients, "member", member, f"a client number below {world.n_clients}")
        if not system.structure.separate:
            raise FedbanditError(f"In {system.name} clients share models, so there are no separate client machines.")
        if system.structure.model == "split" and type(self) is ClientMachine:
            raise FedbanditError(
                f"{system.name} has a model in two parts: make its clients by split_machine.make_client."
            )
        told = system.told(world)
        self.member = member
        self._row = row = member * told.protocol.period + estimator  # its number in a simulation
        self.dim = told.shared_dim(world)
        self.context_dim = world.dim
        self.bound = world.bound
        self.ridge = system.ridge
        self.protocol = told.protocol
        self._counting = told.counts_only
        self.plan = plan_of(told.policy, told.as_seen(world), system.ridge, policy_key(seed))
        self._explore = plan_of(system.explorer, world, system.ridge, policy_key(seed))
        assembly = told.assembly(world)
        self._waits = told.protocol.one_by_one  # who has asked waits to be called
        self._exploring = assembly is not None and assembly.exploring
        self._fresh = told.structure.layout(world).fresh
        trigger = told.protocol.trigger()
        self._kind, self._batch = int(trigger.kind), trigger.batch
        self._threshold = self._terms = pick(trigger.thresholds, member)
        simulated = partial(generator, seed, Stream.NOISE, row)
        rule, trusted = told.privacy.reward_rule, told.privacy.site == "coordinator"
        self._source, self._reward_scale = source, rule.scale
        self._rewards = reward_plan(rule if source is None else rule._replace(scale=0.0), seed)
        drawn = simulated if source is None else lambda _: source
        self.stream = None if trusted else told.privacy.stream(member, drawn)
        claim = told.guarantee
        self.guarantee = claim if source is None else replace(claim, noise=label_of(source))
        self.row = empty_rows(1, self.dim)[0]
        start_row(self.row, self.dim, system.ridge)
        self._work = scratch(1, self.dim)
        prior = prior_share(assembly, member)
        if prior is not None:
            given = shared_row([prior.sums], prior.slack, self.dim, system.ridge, self._work.M)
            adopt(self.row, given, self.dim, system.ridge, self._work.M)
        self.outbox: dict[int, Upload] = {}
        self._on_top: dict[int, Upload] = {}  # uploads that no download has contained yet
        self._sequence = 0
        self._told = zero_sums(world.dim)
        self._epoch = 0
        self._chosen: dict[int, Array] = {}
        self._choices = 0
        self._waiting = whole_number("waiting", waiting)

    def join(self) -> list[Message]:
        """The message to begin with, and with which to ask for what may have been missed."""
        return [] if self.protocol.says == "nothing" else [Join(self.member, int(self.row[VERSION]))]

    def select(self, arms: ArrayLike) -> Choice:
        """Choose one of the arms, given as a (K, d) array of contexts."""
        X = self.checked(arms, self.dim)
        if len(X) > self._work.scores.size:
            self._work = scratch(len(X), self.dim)
        a = choose(
            self._explore if self._exploring else self.plan, self.row, self._row, X, np.arange(len(X)), self._work
        )
        return self.chosen(X[a], int(a))

    def checked(self, arms: ArrayLike, dim: int) -> Array:
        """Contexts of arms, if that is what they are."""
        try:
            X = np.ascontiguousarray(arms, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise FedbanditError(f"arms is {shown(arms)}, but must be a (K, {dim}) array of numbers.") from None
        require(X.ndim == 2 and len(X) > 0 and X.shape[1] == dim, "the shape of arms", X.shape, f"(K, {dim})")
        if not np.isfinite(X).all():
            raise FedbanditError("An arm's context is not finite.")
        longest = math.sqrt(float(np.einsum("ij,ij->i", X, X).max()))
        require(longest <= self.bound * (1 + 1e-9), "the norm of a context", longest, f"at most {self.bound:g}")
        return X

    def chosen(self, x: Array, a: int) -> Choice:
        """Remember the context of the arm chosen until its reward comes."""
        self._choices += 1
        self.await_reward(self._choices, x.copy())
        return Choice(self._choices, a)

    def await_reward(self, choice: int, x: Array) -> None:
        """Expect the reward of a choice with context x, forgetting the oldest if there are too many."""
        self._choices = max(self._choices, choice)
        self._chosen[choice] = x
        while len(self._chosen) > self._waiting:
            self.forget(next(iter(self._chosen)))

    def number_choices_from(self, number: int) -> None:
        """The next choice gets the number after this one, if that is a new number."""
        self._choices = max(self._choices, number)

    def waits_for(self, choice: int) -> Array | None:
        """The context of a choice whose reward has not come."""
        return self._chosen.get(choice)

    def forget(self, choice: int) -> None:
        """The reward of this choice will never come."""
        self._chosen.pop(choice, None)

    def observe(self, choice: int, reward: float) -> list[Message]:
        """Learn the reward of a choice, and say what to send."""
        if choice not in self._chosen:
            raise FedbanditError(f"Choice {choice} is not waiting for a reward.")
        return self.take(choice, self.perceive(number(reward, "reward", "a finite number")))

    def take(self, choice: int, y: float) -> list[Message]:
        """Learn a choice's reward as it was perceived, and say what to send."""
        self.learn(self._chosen.pop(choice), y)
        return self.speak()

    def perceive(self, reward: float) -> float:
        """The reward to learn from: in range, and noised where that is the mechanism. Ask once for each reward."""
        return self.perceived(reward, int(self.row[N_OWN]))

    def perceived(self, reward: float, step: int) -> float:
        """The reward of observation number `step`, in range and noised."""
        y = learnt(self._rewards, float(reward), self._row, step)
        if math.isnan(y):
            raise refused(self._rewards, reward)
        if self._source is not None and self._reward_scale > 0:
            y = float(perturb(self._source, "laplace", np.array(y), self._reward_scale))
        return y

    def learn(self, x: Array, y: float) -> None:
        """Learn from one observation without saying anything: past logs, or what is on record from before a crash."""
        if self._fresh:
            multiply_packed(inverse_of(self.row, self.dim), x, self._work.best_u)
            observe(self.row, x, y, self._work.best_u, self.ridge, self._work.M)
        else:
            hold(self.row, x, y)

    def speak(self) -> list[Message]:
        """What to send now, if the trigger says so and the privacy budget allows it."""
        if self._exploring or not triggered(self._kind, self._threshold, self._batch, self.row) or self.spent:
            return []
        if self.protocol.says == "upload":
            return [self.upload()]
        if not self._waits:
            return [Request(self.member)]
        growth = float(timed_growth(self.row))
        self._threshold = 2 * growth
        return [Request(self.member, growth)]

    def receive(self, message: Message) -> list[Message]:
        """Take a message from the coordinator, and say what to send."""
        require(message.member == self.member, "the addressee", message.member, f"client {self.member}")
        if isinstance(message, Download):
            require(message.sums.b.size == self.dim, "the dimension", message.sums.b.size, f"{self.dim}")
        match message:
            case Receipt(_, sequence):
                self._acknowledged(sequence)
            case Threshold(_, threshold):
                self._threshold = self._terms = threshold
            case Download():
                self._threshold = self._terms
                self._acknowledged(message.acknowledged)
                if message.version > self.row[VERSION]:
                    self._on_top = {n: upload for n, upload in self._on_top.items() if n > message.acknowledged}
                    self._adopt(message)
            case Collect(_, epoch) if epoch > self._epoch:
                self._epoch = epoch
                self._exploring = False
                self._threshold = self._terms
                return [self.upload()]
            case Collect():
                pass
            case _:
                raise FedbanditError(f"A client does not take a {type(message).__name__}.")
        return []

    @property
    def clipped(self) -> int:
        """Rewards so far that were outside the range for which privacy is claimed."""
        return int(self._rewards.clipped[0])

    @property
    def spent(self) -> bool:
        """Whether the privacy budget forbids what is pending to leave; the client then goes on learning alone."""
        return self.stream is not None and not self.stream.may_release(int(self.row[N_PENDING]))

    @property
    def observed(self) -> int:
        """Rewards learnt from so far."""
        return int(self.row[N_OWN])

    @property
    def pending(self) -> int:
        """Those of them that are in no upload yet."""
        return int(self.row[N_PENDING])

    @property
    def acting(self) -> Array:
        """The row by which arms are chosen now, which counts the steps."""
        return self.row

    @property
    def steps(self) -> int:
        """Arms chosen so far."""
        return int(self.acting[STEPS])

    @steps.setter
    def steps(self, steps: int) -> None:
        self.acting[STEPS] = steps

    @property
    def version(self) -> int:
        """Of the last download adopted."""
        return int(self.row[VERSION])

    @property
    def theta(self) -> Array:
        """The estimate θ̂; of a model in two parts, the shared part's."""
        return theta_of(self.row, self.dim)

    @property
    def sequence(self) -> int:
        """The number of the last upload."""
        return self._sequence

    def state(self) -> State:
        """All that a machine with the same arguments needs in order to go on; uploads as the bytes that are sent."""
        header = {
            "member": self.member,
            "dim": self.dim,
            "choices": self._choices,
            "sequence": self._sequence,
            "epoch": self._epoch,
            "unacknowledged": list(self.outbox),
            "exploring": self._exploring,
            "terms": self._terms,
        }
        arrays: dict[str, NDArray[Any]] = {
            "row": self.row.copy(),
            "waiting": np.array(list(self._chosen), dtype=np.int64),
            "contexts": np.array(list(self._chosen.values()), dtype=np.float64).reshape(-1, self.context_dim),
        }
        for sequence, upload in self._on_top.items():
            arrays[f"upload.{sequence}"] = np.frombuffer(encode(upload), dtype=np.uint8)
        if self.stream is not None:
            arrays |= {f"stream.{key}": np.asarray(value) for key, value in self.stream.state().items()}
        return State(header, arrays)

    def restore(self, state: State) -> None:
        """Go on from there."""
        header, arrays = state
        for name, value in (("member", self.member), ("dim", self.dim)):
            require(header[name] == value, f"the stored {name}", header[name], f"{value}")
        self.row = arrays["row"]
        self._choices, self._sequence, self._epoch = header["choices"], header["sequence"], header["epoch"]
        self._chosen = dict(zip(arrays["waiting"].tolist(), arrays["contexts"], strict=True))
        self._on_top = {}
        for name, data in arrays.items():
            if name.startswith("upload."):
                upload = decode(data.tobytes())
                assert isinstance(upload, Upload)
                self._on_top[upload.sequence] = upload
        self._exploring = header["exploring"]
        self._threshold = self._terms = header["terms"]
        if self.stream is not None:
            prefix = "stream."
            kept = {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
            self.stream.restore(kept)
        self.outbox = {number: self._on_top[number] for number in header["unacknowledged"]}

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
        known = known_by(self.row, self.protocol, self._counting)
        upload = Upload(self.member, self._sequence, sums, known)
        self.outbox[self._sequence] = self._on_top[self._sequence] = upload
        return upload

    def hear(self, message: Download, told: Sums) -> None:
        """Take what peers have told, given what this one told itself: as a download, but nothing is acknowledged."""
        self.outbox.clear()
        self._on_top.clear()
        self._told = told
        self._adopt(message)

    def remember_told(self, told: Sums) -> None:
        """What this one has told itself, after a restart."""
        self._told = told

    def _own_sent(self) -> Sums:
        """What this client has uploaded, before it was noised."""
        return self.stream.own if isinstance(self.stream, ReleaseStream) else self._told

    def _acknowledged(self, sequence: int) -> None:
        self.outbox = {number: upload for number, upload in self.outbox.items() if number > sequence}

    def _adopt(self, message: Download) -> None:
        """What coordinator and client have in common: the download, and uploads that it does not contain."""
        if message.own:
            shared = [message.sums, *(upload.sums for upload in self._on_top.values())]
            slack = message.slack
        else:
            own = self._own_sent()
            width = exact_width(self.plan, own, self.ridge)
            mixed, slack = mix(own, message.sums, message.slack, self.ridge, width)
            shared = [mixed]
        given = shared_row(shared, slack, self.dim, self.ridge, self._work.M)
        if self._fresh:
            adopt(self.row, given, self.dim, self.ridge, self._work.M)
        else:
            take_over(self.row, given, self.dim)
        self.row[VERSION] = message.version


def make_coordinator(system: System, world: World, seed: int = 0) -> Coordinator | MemberKeeper | None:
    """The coordinator's machine of a system; None if the system has no coordinator. It draws noise if it is trusted."""
    told = system.told(world)
    known_one_by_one = told.member_coordinator(world, seed)
    if known_one_by_one is not None:
        return known_one_by_one
    layout, dim = told.structure.layout(world), told.shared_dim(world)
    hub = empty_hub(
        dim,
        layout.n_rows,
        layout.n_groups,
        layout.group_of,
        told.protocol.log_gamma_download(),
        system.ridge,
    )
    return told.protocol.coordinator(hub, system.ridge, dim, told.pool_noise())
