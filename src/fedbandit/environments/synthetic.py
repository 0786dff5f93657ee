"""What synthetic environments have in common: who arrives, which arms are offered, how rewards come about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from fedbandit.environments.block import Block, RewardKind, Unstructured, actions_per_round
from fedbandit.environments.kernels import draw_distinct, expected_rewards, scale_rows
from fedbandit.errors import FedbanditError, number, require, shown, whole_number
from fedbandit.streams import Purpose, generator
from fedbandit.types import Array, Ints

ZIPF = 1.5
"""How skewed "skewed" arrivals are: with 1,000 clients, the busiest one acts in two of five rounds."""


Adversary = Callable[[np.random.Generator, Ints, Ints, Array], Array]
"""A function of random numbers, rounds (n,), clients (n,) and their true parameters (n, d); contexts (n, K, d)."""

Contexts = Literal["ball", "sphere", "decaying"] | Adversary

LATEST = 10**12
"""The latest round that anything can happen in."""


@dataclass(frozen=True)
class Synthetic(Unstructured):
    """Keywords shared by all synthetic environments.

    n_clients, dim, n_arms: N clients, contexts in R^d, K arms offered each time.
    noise: standard deviation of Gaussian rewards.
    pool: None for fresh arms each round, or the size of a fixed pool from which K distinct arms are offered.
    arrivals: "uniform", "round-robin", "skewed" (Zipf: client i with probability ∝ (i+1)^-1.5), or N probabilities.
    rounds: "one" client acts a round, or "all" do, in the order of their numbers, each with arms of its own.
    contexts: uniform in the unit "ball" or on the unit "sphere"; "decaying" ones are on the sphere too, but entry i of
        d had the variance (d − i)/d, i = 0, 1, …, before they were normalised: so are the pools of the codes of
        Async-LinUCB and HetoFedBandit.
        A function makes them adversarial or drifting: contexts(rng, rounds, clients, parameters) is told the random
        numbers to use, the round and the client of each of n interactions and their true parameters (n, d), and returns
        the arms (n, K, d), of norm ≤ 1. It sees everything but what systems do, so that all face the same arms.
    rewards: "gaussian", or "bernoulli" (contexts and parameters are then non-negative, so that means are in [0, 1]).
    delay: rounds until a reward is seen, a number, or (shortest, longest) for a random one. It is learnt from just
        before the action that many rounds later, so that with one client a round 1 is as good as 0.
    drift: rounds at which the hidden parameters are drawn anew.
    absent: the chance that a client is out of reach when its coordinator calls it.
    """

    n_clients: int
    dim: int
    n_arms: int
    noise: float = 0.1
    pool: int | None = None
    arrivals: Literal["uniform", "round-robin", "skewed"] | tuple[float, ...] = "uniform"
    rounds: Literal["one", "all"] = "one"
    contexts: Contexts = "ball"
    rewards: Literal["gaussian", "bernoulli"] = "gaussian"
    delay: int | tuple[int, int] = 0
    drift: tuple[int, ...] = ()
    absent: float = 0.0

    name: ClassVar[str]
    bound: ClassVar[float] = 1.0
    longest: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        """Check every keyword."""
        for field, most in (("n_clients", 10**10), ("dim", 10**5), ("n_arms", 10**8)):
            object.__setattr__(self, field, whole_number(field, getattr(self, field), 1, most))
        object.__setattr__(self, "noise", number(self.noise, "noise", "a finite number ≥ 0", at_least=0.0))
        if self.pool is not None:
            pool = whole_number("pool", self.pool, 1, 10**8)
            require(pool >= self.n_arms, "pool", pool, f"None or a size of at least n_arms = {self.n_arms}")
            object.__setattr__(self, "pool", pool)
        for field, choices in (
            ("rounds", ("one", "all")),
            *(() if callable(self.contexts) else (("contexts", ("ball", "sphere", "decaying")),)),
            ("rewards", ("gaussian", "bernoulli")),
        ):
            value = getattr(self, field)
            expected = " or ".join(map(repr, choices)) + (", or a function" if field == "contexts" else "")
            require(isinstance(value, str) and value in choices, field, value, expected)
        if callable(self.contexts) and (self.pool is not None or self.rewards == "bernoulli"):
            raise FedbanditError("contexts can be a function only with fresh arms (pool=None) and Gaussian rewards.")
        self._check_arrivals()
        low, high = self.delay_range
        require(0 <= low <= high, "delay", self.delay, "a number of rounds ≥ 0, or (shortest, longest)")
        self._check_drift()
        require(0 <= number(self.absent, "absent", "in [0, 1)") < 1, "absent", self.absent, "a chance in [0, 1)")

    def _check_drift(self) -> None:
        try:
            rounds = [whole_number("drift", t, 1, LATEST) for t in self.drift]
        except (TypeError, FedbanditError):
            raise FedbanditError(
                f"drift is {shown(self.drift)}, but must be a list of rounds from 1 to 10¹²."
            ) from None
        object.__setattr__(self, "drift", tuple(sorted(rounds)))

    def _check_arrivals(self) -> None:
        if isinstance(self.arrivals, str):
            known = ("uniform", "round-robin", "skewed")
            require(
                self.arrivals in known,
                "arrivals",
                self.arrivals,
                f"one of {known} or {self.n_clients} numbers",
            )
        else:
            try:
                p = np.asarray(self.arrivals, dtype=np.float64)
            except (TypeError, ValueError):
                raise FedbanditError(f"arrivals is {shown(self.arrivals)}, but must hold numbers.") from None
            require(p.shape == (self.n_clients,), "the shape of arrivals", p.shape, f"({self.n_clients},)")
            require(
                bool((p >= 0).all()) and abs(p.sum() - 1) < 1e-6,
                "arrivals",
                self.arrivals,
                "probabilities that sum to 1",
            )
            object.__setattr__(self, "arrivals", tuple((p / p.sum()).tolist()))
        if self.rounds == "all" and self.arrivals not in ("uniform", "round-robin"):
            raise FedbanditError("arrivals cannot be skewed with rounds='all', where every client acts in every round.")

    @property
    def delay_range(self) -> tuple[int, int]:
        """Shortest and longest delay in rounds."""
        ends = self.delay if isinstance(self.delay, tuple | list) else (self.delay, self.delay)
        try:
            low, high = (whole_number("delay", rounds, 0, LATEST) for rounds in ends)
        except ValueError:  # FedbanditError too
            raise FedbanditError(
                f"delay is {shown(self.delay)}, but must be a number of rounds from 0 to 10¹², or (shortest, longest)."
            ) from None
        return low, high

    @property
    def longest_delay(self) -> int:
        """In interactions."""
        return self.delay_range[1] * actions_per_round(self)

    @property
    def declared_noise(self) -> float:
        """σ: that of the Gaussian noise, or ½ for Bernoulli rewards."""
        return 0.5 if self.rewards == "bernoulli" else self.noise

    def draw_parameters(self, rng: np.random.Generator) -> tuple[Array, Ints]:
        """The parameters (M, d) and which of them each client has: (N,), or (1,) if all have the first."""
        raise NotImplementedError

    def draw_contexts(self, rng: np.random.Generator, n: int) -> Array:
        """n contexts."""
        x = rng.standard_normal((n, self.dim))
        if self.contexts == "decaying":
            x *= np.sqrt(1 - np.arange(self.dim) / self.dim)
        scale_rows(x, rng.random(n) ** (1 / self.dim) if self.contexts == "ball" else 1.0)
        return np.abs(x, out=x) if self.rewards == "bernoulli" else x

    def parameters_of(self, seed: int, done: int = 0) -> Array:
        """The true parameters (N, d) of a seed in the round after `done`, to compare estimates with."""
        stream = self.open(seed)
        phase = int(np.searchsorted(np.asarray(self.drift, dtype=np.int64), done, "right"))
        return np.asarray(stream.parameters[phase][np.resize(stream.taste, self.n_clients)])

    def open(self, seed: int) -> SyntheticStream:
        """The stream of a seed."""
        return SyntheticStream(self, whole_number("seed", seed, 0))


def unit_vectors(rng: np.random.Generator, n: int, dim: int, *, positive: bool = False) -> Array:
    """N vectors uniform on the unit sphere, or on its non-negative part."""
    x = rng.standard_normal((n, dim))
    scale_rows(x)
    return np.abs(x, out=x) if positive else x


def positive_directions(rng: np.random.Generator, n: int, dim: int) -> Array:
    """N vectors with entries U(0, 1), scaled to length one."""
    x = rng.random((n, dim))
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


class SyntheticStream:
    """The interactions of a synthetic environment for one seed, drawn chunk by chunk.

    Each chunk has generators of its own, so that it is the same whenever, and with whatever block, it is asked for.
    """

    draws_ahead: ClassVar[bool] = True

    def __init__(self, env: Synthetic, seed: int) -> None:
        self.env = env
        self.seed = seed
        self.chunk = 4096 if env.pool else max(16, 2**19 // (env.n_arms * env.dim))
        world = generator(seed, Purpose.WORLD)
        drawn = [env.draw_parameters(world) for _ in range(1 + len(env.drift))]
        self.parameters = np.stack([parameters for parameters, _ in drawn])  # (phases, M, d)
        self.taste = drawn[0][1]
        self.pool = env.draw_contexts(world, env.pool) if env.pool else None
        self._distribution = self._cumulative()
        self._table = self._pool_means()
        self._cached: tuple[int, Block] | None = None

    def block(self, start: int, stop: int) -> Block:
        """Interactions start, …, stop − 1, cut from one chunk or put together from several."""
        parts = []
        for c in range(start // self.chunk, (stop - 1) // self.chunk + 1):
            first = c * self.chunk
            parts.append(_cut(self._draw(c), max(start - first, 0), min(stop - first, self.chunk), self.pool is None))
        return parts[0] if len(parts) == 1 else _concatenate(parts, shift=self.pool is None)

    def _draw(self, c: int) -> Block:
        if self._cached is None or self._cached[0] != c:
            self._cached = (c, self._draw_chunk(c))
        return self._cached[1]

    def _draw_chunk(self, c: int) -> Block:
        env, n = self.env, self.chunk
        start = c * n
        clients = self._arrivals(c, start)
        rng = generator(self.seed, Purpose.CONTEXTS, c)
        per_round = actions_per_round(env)
        phase = np.searchsorted(
            np.asarray(env.drift, dtype=np.int64), np.arange(start, start + n) // per_round, "right"
        )
        taste = self.taste[clients] if len(self.taste) > 1 else np.broadcast_to(self.taste, n)
        if self.pool is not None:
            X, arms = self.pool, draw_distinct(rng, len(self.pool), n, env.n_arms)
        else:
            given = callable(env.contexts)
            X = self._given_arms(rng, start, clients, taste, phase) if given else self.fresh_arms(rng, n)
            arms = np.arange(n * env.n_arms).reshape(n, env.n_arms)
        means = self._means(X, arms, taste, phase)
        rng = generator(self.seed, Purpose.REWARDS, c)
        bernoulli = env.rewards == "bernoulli"
        return Block(
            clients=clients,
            X=X,
            arms=arms,
            counts=np.full(n, env.n_arms),
            means=means,
            reward_kind=int(RewardKind.BERNOULLI if bernoulli else RewardKind.GAUSSIAN),
            noise=rng.random(n) if bernoulli else env.noise * rng.standard_normal(n),
            rewards=np.empty((0, 0)),
            delays=self._delays(c),
        )

    def _given_arms(self, rng: np.random.Generator, start: int, clients: Ints, taste: Ints, phase: Ints) -> Array:
        """The arms that the environment's function wants."""
        env, n = self.env, clients.size
        assert callable(env.contexts)
        rounds = np.arange(start, start + n) // actions_per_round(env)
        X = np.asarray(env.contexts(rng, rounds, clients, self.parameters[phase, taste]), dtype=np.float64)
        wanted = (n, env.n_arms, env.dim)
        require(X.shape == wanted, "the shape of what contexts returned", X.shape, f"{wanted}")
        longest = float(np.sqrt(np.einsum("nkd,nkd->nk", X, X).max()))
        require(longest <= 1 + 1e-9, "the norm of a context that contexts returned", longest, "at most 1")
        return np.ascontiguousarray(X.reshape(-1, env.dim))

    def fresh_arms(self, rng: np.random.Generator, n: int) -> Array:
        """The arms of n interactions, K after K."""
        return self.env.draw_contexts(rng, n * self.env.n_arms)

    def _arrivals(self, c: int, start: int) -> Ints:
        env, n = self.env, self.chunk
        if env.rounds == "all" or env.arrivals == "round-robin":
            return np.arange(start, start + n) % env.n_clients
        rng = generator(self.seed, Purpose.ARRIVALS, c)
        if self._distribution is None:
            return rng.integers(0, env.n_clients, size=n)
        return np.searchsorted(self._distribution, rng.random(n), "right")

    def _cumulative(self) -> Array | None:
        """The distribution function of arrivals, or None where none is needed."""
        env = self.env
        if env.arrivals in ("uniform", "round-robin"):
            return None
        weights = np.arange(1, env.n_clients + 1) ** -ZIPF if env.arrivals == "skewed" else np.asarray(env.arrivals)
        total = np.cumsum(weights)
        total /= total[-1]
        total[-1] = 1.0  # so that no uniform number < 1 falls beyond
        return total

    def _delays(self, c: int) -> Ints:
        low, high = self.env.delay_range
        if high == 0:
            return np.empty(0, dtype=np.int64)
        rounds = generator(self.seed, Purpose.DELAYS, c).integers(low, high + 1, size=self.chunk)
        return actions_per_round(self.env) * rounds

    def _means(self, X: Array, arms: Ints, taste: Ints, phase: Ints) -> Array:
        """Expected rewards θᵀx of the arms (n, K)."""
        if self._table is None:
            return expected_rewards(X, arms, self.parameters[phase, taste])
        return self._table.take(((phase * self.parameters.shape[1] + taste) * len(X))[:, None] + arms)

    def _pool_means(self) -> Array | None:
        """Expected rewards of all pool arms for all parameters (phases, M, P), unless that is a lot."""
        if self.pool is None or self.parameters.shape[0] * self.parameters.shape[1] * len(self.pool) > 2**22:
            return None
        return np.ascontiguousarray(self.parameters @ self.pool.T)


def _cut(block: Block, start: int, stop: int, fresh: bool) -> Block:
    if start == 0 and stop == len(block.clients):
        return block
    k = block.arms.shape[1]
    rows = slice(start, stop)
    return block._replace(
        clients=block.clients[rows],
        X=block.X[start * k : stop * k] if fresh else block.X,
        arms=block.arms[rows] - start * k if fresh else block.arms[rows],
        counts=block.counts[rows],
        means=block.means[rows],
        noise=block.noise[rows],
        delays=block.delays[rows],
    )


def _concatenate(parts: list[Block], *, shift: bool) -> Block:
    arms, before = [], 0
    for part in parts:
        arms.append(part.arms + before)
        before += len(part.X) if shift else 0
    return parts[0]._replace(
        clients=np.concatenate([p.clients for p in parts]),
        X=np.concatenate([p.X for p in parts]) if shift else parts[0].X,
        arms=np.concatenate(arms),
        counts=np.concatenate([p.counts for p in parts]),
        means=np.concatenate([p.means for p in parts]),
        noise=np.concatenate([p.noise for p in parts]),
        delays=np.concatenate([p.delays for p in parts]),
    )
