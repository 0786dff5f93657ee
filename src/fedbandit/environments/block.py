"""The form in which every environment hands over interactions, and what it must tell about itself."""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar, Literal, NamedTuple, Protocol

from fedbandit.errors import FedbanditError, require, whole_number
from fedbandit.types import Array, Ints
from fedbandit.world import World


class RewardKind(IntEnum):
    """How a reward is made from the mean of the chosen arm."""

    GAUSSIAN = 0  # mean + noise
    BERNOULLI = 1  # 1 if noise < mean
    RECORDED = 2  # as given


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


class Stream(Protocol):
    """The interactions of one seed.

    A stream whose attribute `draws_ahead` is true may be asked for its next block by another thread.
    """

    @property
    def chunk(self) -> int:
        """Blocks that begin at multiples of this and are no longer cost least."""
        ...

    def block(self, start: int, stop: int) -> Block:
        """Interactions start, …, stop − 1."""
        ...


class Environment(Protocol):
    """Parameters of a world, and the facts that engines and systems need."""

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

    def open(self, seed: int) -> Stream:
        """The stream of a seed."""
        ...


def actions_per_round(env: Environment) -> int:
    """Interactions in one round: one, or one of every client."""
    return env.n_clients if env.rounds == "all" else 1


def graph_of(env: Environment, seed: int) -> Array | None:
    """The weights between users, if the environment knows them: given, or drawn with everything else of a seed."""
    graph = getattr(env, "graph", None)
    return graph(seed) if callable(graph) else graph


def world_of(env: Environment, horizon: int, seed: int = 0) -> World:
    """What systems are told about this environment when it is run for `horizon` rounds with this seed."""
    if not isinstance(env, type) and hasattr(env, "not_simulated"):
        raise FedbanditError(env.not_simulated)
    if isinstance(env, type) or not hasattr(env, "open"):
        raise FedbanditError(f"The environment is {env!r}, but must be one such as fb.environments.homogeneous(…).")
    horizon = whole_number("horizon", horizon, 1, 10**12)
    if env.longest is not None:
        require(
            horizon <= env.longest,
            "horizon",
            horizon,
            f"at most {env.longest}, the rounds there are data for",
        )
    return World(
        n_clients=env.n_clients,
        dim=env.dim,
        horizon=horizon * actions_per_round(env),
        noise=env.declared_noise,
        bound=env.bound,
        per_round=actions_per_round(env),
        graph=graph_of(env, seed),
        server_of=tuple(int(server) for server in getattr(env, "server_of", ())),
        d_global=getattr(env, "d_global", None),
    )
