"""Servers of many users: they choose and learn for them. Messages in, messages out; no I/O, no clock.

`LocalServer` serves users whose models are all in one place: one for all, clusters, neighbourhoods, a graph. A server
whose local clusters take part in a federation is in `cluster_server`. `LocalServers` are all servers of a system in one
process, for the plain engine.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from typing import Generic, TypedDict, TypeVar, Unpack

import numpy as np

from fedbandit.errors import FedbanditError, number
from fedbandit.machines.client import Choice
from fedbandit.machines.graph_noise import graph_noise
from fedbandit.messages import Message
from fedbandit.model import Model
from fedbandit.policies import Policy
from fedbandit.policies.policy import choice_of
from fedbandit.privacy.noise import Source, perturb
from fedbandit.privacy.privacy import Releases
from fedbandit.rewards import learnt, refused, reward_plan
from fedbandit.sharing import NEVER
from fedbandit.state import State, joined, parts_of, stored
from fedbandit.streams import Draw, policy_key
from fedbandit.system import System
from fedbandit.types import Array, Ints
from fedbandit.world import World


class Kept(TypedDict, total=False):
    """How many choices wait for their rewards, and where noise comes from."""

    waiting: int
    source: Source | None


class Server(ABC):
    """What servers of many users have in common: random streams, rewards, and choices that wait for one.

    `system` has been told the world. A user's random numbers are its own: models are shared, and change hands. Of
    choices whose reward has not come the latest `waiting` are kept; they are numbered for all users of a server.
    Noise for privacy is that of a simulation, unless `source` is given, as it must be on a network.
    """

    def __init__(
        self,
        users: Ints,
        system: System,
        world: World,
        seed: int = 0,
        *,
        waiting: int = 10_000,
        source: Source | None = None,
    ) -> None:
        self.users: list[int] = users.tolist()
        """Their numbers in the world."""
        self.dim = world.dim + (world.actions > 0)  # of a context; with actions of their own, rows (action, features)
        self._policy = system.policy.told(system.as_seen(world))
        self._key = policy_key(seed)
        rule = system.privacy.reward_rule
        self._source, self._reward_scale = source, rule.scale
        self._rewards = reward_plan(rule if source is None else rule._replace(scale=0.0), seed)
        self._steps: dict[int, int] = {}  # stream → arms chosen so far
        self._observed: dict[int, int] = {}  # stream → rewards learnt from so far
        self._chosen: dict[int, tuple[int, Array]] = {}
        self._choices = 0
        self._waiting = waiting

    @abstractmethod
    def model_of(self, user: int) -> Model:
        """What the user's arms are scored with now."""

    @abstractmethod
    def learn(self, user: int, x: Array, y: float) -> None:
        """Learn from one observation without saying anything."""

    def speak(self, user: int) -> list[Message]:  # noqa: ARG002
        """What to send after an observation of a user."""
        return []

    def chooser_of(self, user: int) -> Policy:  # noqa: ARG002
        """The policy that makes a user's next choice."""
        return self._policy

    def stream_of(self, user: int) -> int:
        """Whose random streams this user's choices and rewards take."""
        return user

    def select(self, user: int, arms: Array) -> Choice:
        """Choose one of the arms, given as a (K, d) array of contexts, for a user."""
        stream = self.stream_of(user)
        step = self._steps.get(stream, 0)
        a = choice_of(self.chooser_of(user), self.model_of(user), arms, Draw(self._key, stream, step))
        self.await_reward(self._choices + 1, user, arms[a].copy())
        return Choice(self._choices, a)

    def await_reward(self, choice: int, user: int, x: Array) -> None:
        """A user has chosen, now or before a crash: expect the reward, and forget the oldest if there are too many."""
        stream = self.stream_of(user)
        self._steps[stream] = self._steps.get(stream, 0) + 1
        self._choices = max(self._choices, choice)
        self._chosen[choice] = user, x
        if len(self._chosen) > self._waiting:
            del self._chosen[next(iter(self._chosen))]

    def number_choices_from(self, number: int) -> None:
        """The next choice gets the number after this one."""
        self._choices = number

    def waits_for(self, choice: int) -> tuple[int, Array] | None:
        """The user and the context of a choice whose reward has not come."""
        return self._chosen.get(choice)

    def forget(self, choice: int) -> None:
        """The reward of this choice will never come."""
        self._chosen.pop(choice, None)

    def observe(self, choice: int, reward: float) -> list[Message]:
        """Learn the reward of a choice, and say what to send."""
        if choice not in self._chosen:
            raise FedbanditError(f"Choice {choice} is not waiting for a reward.")
        user, _ = self._chosen[choice]
        return self.take(choice, self.perceive(user, number(reward, "reward", "a finite number")))

    def take(self, choice: int, y: float) -> list[Message]:
        """Learn a choice's reward as it was perceived, and say what to send."""
        user, x = self._chosen.pop(choice)
        self.learn(user, x, y)
        return self.speak(user)

    def perceive(self, user: int, reward: float) -> float:
        """The reward to learn from: in range, and noised where that is the mechanism. Ask once for each reward."""
        stream = self.stream_of(user)
        step = self._observed.get(stream, 0)
        y = learnt(self._rewards, reward, stream, step)
        if math.isnan(y):
            raise refused(self._rewards, reward)
        if self._source is not None and self._reward_scale > 0:
            y = float(perturb(self._source, "laplace", np.array(y), self._reward_scale))
        self.count_reward(user)
        return y

    def count_reward(self, user: int) -> None:
        """A reward of this user has been perceived; after a crash, one that is on record."""
        stream = self.stream_of(user)
        self._observed[stream] = self._observed.get(stream, 0) + 1

    @property
    def observed(self) -> int:
        """Rewards learnt from so far."""
        return sum(self._observed.values())

    @property
    def clipped(self) -> int:
        """Rewards so far that were outside the range for which privacy is claimed."""
        return int(self._rewards.clipped[0])

    def state(self) -> State:
        """Counters, and what was chosen and has no reward yet."""
        users = [user for user, _ in self._chosen.values()]
        contexts = np.array([x for _, x in self._chosen.values()], dtype=np.float64).reshape(-1, self.dim)
        arrays = {
            "steps": np.array(list(self._steps.items()), dtype=np.int64).reshape(-1, 2),
            "observed": np.array(list(self._observed.items()), dtype=np.int64).reshape(-1, 2),
            "waiting": np.array([list(self._chosen), users], dtype=np.int64).reshape(2, -1),
            "contexts": contexts,
        }
        return State({"choices": self._choices, "clipped": self.clipped}, arrays)

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        header, arrays = state
        count = arrays["waiting"].shape[-1]
        self._steps, self._observed = (
            dict(stored(state, name, (len(arrays[name]), 2)).tolist()) for name in ("steps", "observed")
        )
        self._choices, self._rewards.clipped[0] = header["choices"], header["clipped"]
        contexts = stored(state, "contexts", (count, self.dim))
        waiting = zip(*stored(state, "waiting", (2, count)).tolist(), contexts, strict=True)
        self._chosen = {choice: (user, x.copy()) for choice, user, x in waiting}


class LocalServer(Server):
    """A server whose users' models are all its own: nothing is exchanged with anybody.

    >>> import fedbandit as fb
    >>> world = fb.World(n_clients=3, dim=2, horizon=100)
    >>> server = LocalServer(np.arange(3), fb.club().told(world), world)
    >>> choice = server.select(1, np.eye(2))
    >>> server.observe(choice.number, reward=1.0), server.serving.groups()
    ([], [[0, 1, 2]])
    """

    def __init__(self, users: Ints, system: System, world: World, seed: int = 0, **kept: Unpack[Kept]) -> None:
        super().__init__(users, system, world, seed, **kept)
        noise = graph_noise(system, world, seed)
        self.serving = system.structure.serve(system.as_seen(world), users, system.ridge, noise)

    def stream_of(self, user: int) -> int:
        """As the structure says."""
        return self.serving.stream_of(user)

    def model_of(self, user: int) -> Model:
        """What the structure gives."""
        return self.serving.model(user)

    def learn(self, user: int, x: Array, y: float) -> None:
        """Learn at once; there is nothing to send."""
        self.serving.observe(user, x, y)

    def state(self) -> State:
        """Also the models."""
        return joined({}, {"server": super().state(), "models": self.serving.state()})

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        parts = parts_of(state)
        super().restore(parts["server"])
        self.serving.restore(parts["models"])


AnyServer = TypeVar("AnyServer", bound=Server)


class AllServers(ABC, Generic[AnyServer]):
    """All servers of a system in one process, and what is counted of their messages."""

    def __init__(self, system: System, world: World, seed: int = 0, *, waiting: int = 10_000) -> None:
        self.system, self.world, self.seed = system.told(world), world, seed
        server_of = self.system.structure.servers(world)
        order = np.argsort(server_of, kind="stable")
        users = np.split(order, np.searchsorted(server_of[order], np.arange(1, server_of.max() + 1)))
        self.server_of: list[int] = server_of.tolist()
        """The server of each user."""
        self.servers = [self.make(server, some, waiting) for server, some in enumerate(users)]
        self.uploads = self.downloads = self.control_messages = 0
        self.sent_by: Counter[int] = Counter()
        self.received_by: Counter[int] = Counter()

    @abstractmethod
    def make(self, server: int, users: Ints, waiting: int) -> AnyServer:
        """The machine of a server."""

    def select(self, user: int, arms: Array) -> Choice:
        """Choose one of the arms for a user."""
        return self.servers[self.server_of[user]].select(user, arms)

    def model_of(self, user: int) -> Model:
        """What arms of a user are scored with."""
        return self.servers[self.server_of[user]].model_of(user)

    @property
    def clipped(self) -> int:
        """Rewards that were outside the range for which privacy is claimed."""
        return sum(server.clipped for server in self.servers)

    def state(self) -> State:
        """All servers."""
        counts = [self.uploads, self.downloads, self.control_messages]
        return joined({"counts": counts}, {f"server.{k}": server.state() for k, server in enumerate(self.servers)})

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        self.uploads, self.downloads, self.control_messages = state.header["counts"]
        parts = parts_of(state)
        for k, server in enumerate(self.servers):
            server.restore(parts[f"server.{k}"])


class LocalServers(AllServers[LocalServer]):
    """All servers of a system whose users' models are in one place: nothing is ever sent."""

    def __init__(self, system: System, world: World, seed: int = 0, *, waiting: int = 10_000) -> None:
        super().__init__(system, world, seed, waiting=waiting)
        self._noted = [server.serving.groups() for server in self.servers]
        self._groups = self._all(self._noted)

    def make(self, server: int, users: Ints, waiting: int) -> LocalServer:  # noqa: ARG002
        """The machine of a server."""
        return LocalServer(users, self.system, self.world, self.seed, waiting=waiting)

    def observe(self, user: int, choice: int, reward: float) -> None:
        """Learn the reward of one of the user's choices."""
        k = self.server_of[user]
        self.servers[k].observe(choice, reward)
        groups = self.servers[k].serving.groups()
        if groups is not self._noted[k]:
            self._noted[k] = groups
            self._groups = self._all(self._noted)

    def next_wake(self, done: int) -> int:  # noqa: ARG002
        """Nothing happens between rounds."""
        return NEVER

    def end_round(self, done: int) -> None:
        """Nothing."""

    def groups(self) -> list[list[int]] | None:
        """Who learns together, the same object while nothing changes; None if that is not followed meanwhile."""
        return self._groups

    def groups_at_end(self) -> list[list[int]] | None:
        """Who learns together when everything is over; it may take long to find out."""
        return self._all([server.serving.groups_at_end() for server in self.servers])

    @staticmethod
    def _all(parts: list[list[list[int]] | None]) -> list[list[int]] | None:
        known = [groups for groups in parts if groups is not None]
        return sorted(group for groups in known for group in groups) if len(known) == len(parts) else None

    def tally(self) -> None:
        """Nothing is sent anywhere."""

    def streams(self) -> dict[int, Releases]:
        """Nothing is released by anybody."""
        return {}

    def exhausted(self) -> list[int]:
        """Nobody has a budget."""
        return []

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        super().restore(state)
        self._noted = [server.serving.groups() for server in self.servers]
        self._groups = self._all(self._noted)
