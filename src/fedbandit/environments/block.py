"""The form in which every environment hands over interactions, and what it must tell about itself."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np

from fedbandit.environments.logged import LoggedDecisions
from fedbandit.errors import FedbanditError, check_call, require, whole_number
from fedbandit.parts import name_of
from fedbandit.types import Array, Ints
from fedbandit.world import World


class RewardKind(IntEnum):
    """How a reward is made from the mean of the chosen arm."""

    GAUSSIAN = 0  # mean + noise
    BERNOULLI = 1  # 1 if noise < mean
    RECORDED = 2  # as given


NO_ACTIONS: Ints = np.zeros((0, 0), dtype=np.int64)


class Block(NamedTuple):
    """n interactions in a row, as plain arrays.

    The arms offered are row numbers of X, so that a pool of arms is stored once, and need not be looked at again: an
    array that is X of several blocks must stay as it is. Only the first `counts[s]` entries of a row of `arms` are
    arms. Drawn rewards take one number of `noise` a round, whichever arm is pulled.
    """

    clients: Ints  # (n,)
    X: Array  # (R, d)
    arms: Ints  # (n, K)
    counts: Ints  # (n,)
    means: Array  # (n, K)  expected rewards
    reward_kind: int
    noise: Array  # (n,)    or (0,) if recorded
    rewards: Array  # (n, K)  or (0, 0) unless recorded
    delays: Ints  # (n,)    interactions until the reward is seen, or (0,) if at once
    actions: Ints = NO_ACTIONS  # (n, K)  where each action has a θ of its own: which one each arm is; else (0, 0)


def offered(block: Block, s: int) -> Array:
    """The arms of interaction s as machines take them: contexts, or rows (action, features)."""
    k = int(block.counts[s])
    X = block.X[block.arms[s, :k]]
    return X if block.actions.size == 0 else np.column_stack([block.actions[s, :k], X])


class Stream(Protocol):
    """The interactions of one seed."""

    @property
    def chunk(self) -> int:
        """Blocks that begin at multiples of this and are no longer cost least."""
        ...

    @property
    def draws_ahead(self) -> bool:
        """Whether another thread may ask for the next block, and should, as drawing takes long."""
        ...

    def block(self, start: int, stop: int) -> Block:
        """Interactions start, …, stop − 1."""
        ...


class Environment(Protocol):
    """Parameters of a world, and the facts that engines and systems need.

    Most environments know nothing of the last three, graph, servers and parts: they derive from `Unstructured`.
    """

    name: ClassVar[str]

    @property
    def n_clients(self) -> int:
        """N."""
        ...

    @property
    def dim(self) -> int:
        """d, the length of a context."""
        ...

    @property
    def n_arms(self) -> int:
        """The most arms that are offered at once."""
        ...

    @property
    def rounds(self) -> Literal["one", "all"]:
        """Who acts in a round: one client, or all of them."""
        ...

    @property
    def declared_noise(self) -> float:
        """The sub-Gaussian σ of rewards."""
        ...

    @property
    def bound(self) -> float:
        """L with ‖x‖ ≤ L for every context."""
        ...

    @property
    def longest(self) -> int | None:
        """The largest horizon there are data for, or None."""
        ...

    @property
    def longest_delay(self) -> int:
        """The most interactions a reward can be late."""
        ...

    @property
    def absent(self) -> float:
        """The chance that a client is out of reach when its coordinator calls it."""
        return 0.0

    def open(self, seed: int) -> Stream:
        """The stream of a seed."""
        ...

    def graph_of(self, seed: int) -> Array | None:
        """The weights between users (N, N), if there are any: given, or drawn with everything else of a seed."""
        ...

    @property
    def server_of(self) -> Ints | None:
        """The local server of each user (N,), if there are servers."""
        ...

    @property
    def d_global(self) -> int | None:
        """How many entries of a context, the first ones, concern all clients alike, if that is known."""
        ...


class Unstructured:
    """A base class for environments without graph, local servers and parts, all of whose clients can be reached."""

    absent: float = 0.0
    d_global: int | None = None

    def __new__(cls, *args: Any, **keywords: Any) -> Self:
        """Refuse keywords that do not exist, or are missing, with a sentence, whatever `__init__` is."""
        self = super().__new__(cls)
        if args or keywords:  # not a copy that is being unpickled
            check_call(name_of(cls), cls.__init__, (self, *args), keywords)
        return self

    def graph_of(self, seed: int) -> Array | None:  # noqa: ARG002
        """None."""
        return None

    @property
    def server_of(self) -> Ints | None:
        """None."""
        return None


def actions_per_round(env: Environment) -> int:
    """Interactions in one round: one, or one of every client."""
    return env.n_clients if env.rounds == "all" else 1


@runtime_checkable
class MeasuredBound(Protocol):
    """An environment whose bound may have been read off its data."""

    measured_bound: bool


@runtime_checkable
class Partitioned(Protocol):
    """An environment that knows which clients have the same parameter."""

    @property
    def partition(self) -> Ints | None:
        """The true cluster of each client (N,), or None."""
        ...


@runtime_checkable
class Numbered(Protocol):
    """An environment whose arms are numbered actions, each with a θ of its own."""

    @property
    def actions(self) -> int:
        """How many there are; 0 if all arms share one θ."""
        ...


def world_of(env: Environment, horizon: int, seed: int = 0) -> World:
    """What systems are told about this environment when it is run for `horizon` rounds with this seed."""
    if isinstance(env, LoggedDecisions):
        raise FedbanditError(
            "A log has the rewards of the arms that were chosen and of no others, so nothing can be simulated on it; "
            "use fedbandit.evaluation.replay or .evaluate_frozen."
        )
    if isinstance(env, type) or not hasattr(env, "open"):
        raise FedbanditError(f"The environment is {env!r}, but must be one such as fb.environments.homogeneous(…).")
    for fact in ("name", *(name for name in vars(Environment) if not name.startswith("_"))):
        if not hasattr(env, fact):
            raise FedbanditError(
                f"The environment {type(env).__name__} has no {fact!r}; give it one, or derive it from "
                "fb.environments.Synthetic or, with a stream of its own, from fb.environments.Unstructured."
            )
    horizon = whole_number("horizon", horizon, 1, 10**12)
    if env.longest is not None:
        require(
            horizon <= env.longest,
            "horizon",
            horizon,
            f"at most {env.longest}, the rounds there are data for",
        )
    servers = env.server_of
    return World(
        n_clients=env.n_clients,
        dim=env.dim,
        horizon=horizon * actions_per_round(env),
        noise=env.declared_noise,
        bound=env.bound,
        per_round=actions_per_round(env),
        graph=env.graph_of(seed),
        server_of=() if servers is None else tuple(servers.tolist()),
        d_global=env.d_global,
        actions=env.actions if isinstance(env, Numbered) else 0,
        measured_bound=isinstance(env, MeasuredBound) and env.measured_bound,
    )
