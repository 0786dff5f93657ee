"""Anyone's own arrays, replayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from fedbandit.environments.block import NO_ACTIONS, Block, RewardKind, Unstructured, actions_per_round
from fedbandit.environments.residuals import MOST, residual_noise
from fedbandit.errors import FedbanditError, checked_call, number, require, whole_number
from fedbandit.types import Array, Ints


@dataclass(frozen=True)
class Recorded(Unstructured):
    """Interactions given as plain arrays; made by `recorded`, which checks them."""

    clients: Ints = field(repr=False)  # (T,)
    X: Array = field(repr=False)  # (all arms of all rounds, d)
    arms: Ints = field(repr=False)  # (T, K) rows of X
    counts: Ints = field(repr=False)  # (T,)
    means: Array = field(repr=False)  # (T, K)
    payoffs: Array = field(repr=False)  # (T, K)
    delays: Ints = field(repr=False)  # (T,) or (0,)
    n_clients: int
    bound: float
    noise: float
    rounds: Literal["one", "all"]
    graph: Array | None = field(default=None, repr=False)
    server_of: Ints | None = field(default=None, repr=False)
    partition: Ints | None = field(default=None, repr=False)
    d_global: int | None = None
    measured_bound: bool = False
    measured_noise: bool = False  # σ was estimated
    ids: Ints = field(default_factory=lambda: NO_ACTIONS, repr=False)  # (T, K) numbers of actions, or (0, 0)
    actions: int = 0

    name: ClassVar[str] = "recorded"

    @property
    def dim(self) -> int:
        """The length of a context."""
        return int(self.X.shape[1])

    @property
    def n_arms(self) -> int:
        """The most arms that any round offers."""
        return int(self.arms.shape[1])

    @property
    def declared_noise(self) -> float:
        """σ as declared, or as estimated."""
        return self.noise

    @property
    def notes(self) -> tuple[str, ...]:
        """What whoever runs it should know."""
        said = []
        if self.measured_noise:
            said.append(f"The noise σ = {self.noise:.3g} of the recorded rewards was estimated (noise=… declares it).")
        if 2 * (acting := np.unique(self.clients).size) < self.n_clients:
            said.append(f"Only {acting:,} of {self.n_clients:,} clients ever act; number them 0, 1, ….")
        return tuple(said)

    @property
    def longest(self) -> int | None:
        """The rounds there are."""
        return len(self.clients) // actions_per_round(self)

    @property
    def longest_delay(self) -> int:
        """The longest of the given delays."""
        return int(self.delays.max()) if self.delays.size else 0

    def graph_of(self, seed: int) -> Array | None:  # noqa: ARG002
        """The graph that was given."""
        return self.graph

    def open(self, seed: int) -> RecordedStream:  # noqa: ARG002
        """The stream, which is the same for every seed."""
        return RecordedStream(self)


class RecordedStream:
    """Recorded interactions, in order."""

    chunk = 65536
    draws_ahead = False  # nothing to draw

    def __init__(self, env: Recorded) -> None:
        self.env = env

    def block(self, start: int, stop: int) -> Block:
        """Interactions start, …, stop − 1."""
        env, rows = self.env, slice(start, stop)
        return Block(
            clients=env.clients[rows],
            X=env.X,
            arms=env.arms[rows],
            counts=env.counts[rows],
            means=env.means[rows],
            reward_kind=int(RewardKind.RECORDED),
            noise=np.empty(0),
            rewards=env.payoffs[rows],
            delays=env.delays[rows],
            actions=env.ids[rows] if env.actions else NO_ACTIONS,
        )


@checked_call
def recorded(
    clients: ArrayLike,
    arms: ArrayLike | Sequence[ArrayLike],
    means: ArrayLike | Sequence[ArrayLike],
    rewards: ArrayLike | Sequence[ArrayLike],
    *,
    n_clients: int | None = None,
    bound: float | None = None,
    noise: float | None = None,
    actions: ArrayLike | Sequence[ArrayLike] | None = None,
    delays: ArrayLike | None = None,
    rounds: Literal["one", "all"] = "one",
    graph: ArrayLike | None = None,
    server_of: ArrayLike | None = None,
    partition: ArrayLike | None = None,
    d_global: int | None = None,
) -> Recorded:
    """Replay arrays: who acts each round (T,), contexts (T, K, d), expected and realised rewards (T, K).

    Rounds may offer different numbers of arms: then `arms`, `means` and `rewards` are lists with one entry a round.
    `bound` is L with ‖x‖ ≤ L, by default the largest norm there is (which tells about the data: systems that protect
    contexts need a bound that was declared); `noise` is the σ that widths assume unless they say otherwise, by default
    what a regression of each client's rewards leaves (`residuals`); `delays` (T,) says after how many rounds each
    reward is seen. With rounds="all" there are N entries a round, for clients 0, …, N − 1 in this order, and delays are
    counted in interactions.

    With `actions`, (T, K) numbers from 0 on, each action has a θ of its own, and `arms` are its features. If a round
    has one vector of features, `arms` is (T, f), they are the same for all its actions: all there are, in order.

    Where they are known: `graph` (N, N) holds the weights between clients, `server_of` (N,) the local server of each,
    numbered from 0, for FCLUB's systems; `partition` (N,) the true cluster of each, to compare found ones with; the
    first `d_global` entries of a context concern all clients alike.

    >>> env = recorded([0, 1], [[[1.0, 0.0], [0.0, 1.0]]] * 2, [[1.0, 0.0]] * 2, [[1.0, 0.0]] * 2)
    >>> env.longest, env.dim, env.n_arms
    (2, 2, 2)
    >>> recorded([0, 1], [[1.0, 0.5], [0.2, 1.0]], [[1.0, 0.0, 0.5]] * 2, [[1.0, 0.0, 0.5]] * 2).actions
    3
    """
    require(isinstance(rounds, str) and rounds in ("one", "all"), "rounds", rounds, "'one' or 'all'")
    for name, value in (("noise", noise), ("bound", bound)):
        if value is not None:
            number(value, name, "a finite number ≥ 0, or None", at_least=0.0)
    who = _clients(clients, n_clients)
    situations = _situations(arms, who.size)
    if situations is None:
        x, rows, counts = _contexts(arms, who.size)
    else:
        x, rows, counts, actions = _for_all_actions(situations, means, actions)
    ids = _ids(actions, counts)
    expected = _per_arm("means", means, counts)
    realised = _per_arm("rewards", rewards, counts)
    norms = np.sqrt(np.einsum("ij,ij->i", x, x))
    if bound is not None and norms.size and norms.max() > bound * (1 + 1e-9):
        raise FedbanditError(f"A context has norm {norms.max():.6g}, above the declared bound {bound:g}.")
    late = np.empty(0, dtype=np.int64)
    if delays is not None:
        late = _whole_numbers("delays", delays)
        require(late.shape == who.shape, "the shape of delays", late.shape, f"{who.shape}, one a round")
        require(bool((late >= 0).all()), "delays", delays, "whole numbers ≥ 0")
    n = int(who.max()) + 1 if n_clients is None else whole_number("n_clients", n_clients, 1)
    if rounds == "all" and not (who.size % n == 0 and np.array_equal(who, np.arange(who.size) % n)):
        raise FedbanditError(f"With rounds='all', clients must be 0, …, {n - 1} over and over again.")
    largest = max(float(norms.max()), 1e-12 if bound is None else bound)  # even if rounding made it larger
    weights = None if graph is None else _floats("graph", graph)
    if weights is not None:
        require(
            weights.shape == (n, n), "the shape of graph", weights.shape, f"({n}, {n}), a row and a column a client"
        )
    sigma = _noise(x, rows, counts, realised, who, ids) if noise is None else noise
    return Recorded(
        who, x, rows, counts, expected, realised, late, n, largest, sigma, rounds, weights,
        server_of=_labels("server_of", server_of, n),
        partition=_labels("partition", partition, n),
        d_global=None if d_global is None else whole_number("d_global", d_global, 1, x.shape[1]),
        measured_bound=bound is None,
        measured_noise=noise is None,
        ids=ids,
        actions=max(int(ids.max()) + 1, 2) if ids.size else 0,
    )  # fmt: skip


def _situations(arms: object, horizon: int) -> Array | None:
    """The features (T, f) of rounds whose actions share them; None if each arm has its own."""
    rows = arms if isinstance(arms, np.ndarray) else None
    if isinstance(arms, list | tuple) and arms and isinstance(arms[0], list | tuple | np.ndarray) and len(arms[0]):
        rows = _floats("arms", arms) if isinstance(arms[0][0], int | float | np.number) else None
    if rows is None or rows.ndim != 2 or rows.dtype == object:
        return None
    x = _floats("arms", rows)
    require(len(x) == horizon, "the number of rounds in arms", len(x), f"{horizon}, as in clients")
    bad = np.flatnonzero(~np.isfinite(x).all(axis=1))
    if bad.size:
        raise FedbanditError(f"A context in round {bad[0]} is not finite.")
    return np.array(x, order="C")


def _for_all_actions(x: Array, means: object, actions: object) -> tuple[Array, Ints, Ints, Ints]:
    """Every round offers every action, all with the round's features."""
    require(actions is None, "actions", actions, "left out where arms is (T, f): each round offers all of them")
    table = _floats("means", means)  # type: ignore[arg-type]
    require(table.ndim == 2 and len(table) == len(x), "the shape of means", table.shape, f"({len(x)}, A)")
    T, A = table.shape
    rows = np.broadcast_to(np.arange(T)[:, None], (T, A))
    return x, rows, np.full(T, A), np.broadcast_to(np.arange(A), (T, A))


def _ids(actions: ArrayLike | Sequence[ArrayLike] | None, counts: Ints) -> Ints:
    """The number of the action of each arm, padded with zeros, if arms are numbered."""
    if actions is None:
        return NO_ACTIONS
    if isinstance(actions, np.ndarray) and actions.ndim == 2 and actions.dtype.kind in "iu":
        require(actions.shape == (counts.size, int(counts.max())), "the shape of actions", actions.shape,
                f"({counts.size}, {int(counts.max())})")  # fmt: skip
        numbers: Ints = actions.astype(np.int64, copy=False)
    else:
        table = _per_arm("actions", actions, counts)
        require(bool((table == np.floor(table)).all()), "actions", actions, "whole numbers from 0 on")
        numbers = table.astype(np.int64)
    require(int(numbers.min()) >= 0, "the smallest action", int(numbers.min()), "at least 0")
    return numbers


def _noise(x: Array, rows: Ints, counts: Ints, realised: Array, who: Ints, ids: Ints) -> float:
    """σ of the realised rewards: of a regression for each client, or where actions have a θ of their own for each."""
    some = np.arange(0, counts.size, max(counts.size * rows.shape[1] // MOST, 1))
    at = np.arange(rows.shape[1]) < counts[some, None]
    group = ids[some] if ids.size else np.broadcast_to(who[some, None], at.shape)
    return residual_noise(x[rows[some][at]], realised[some][at], group[at])


def _labels(name: str, labels: ArrayLike | None, n: int) -> Ints | None:
    """A number for each client, if there are any; every number from 0 to the largest is somebody's."""
    if labels is None:
        return None
    found = _whole_numbers(name, labels)
    require(found.shape == (n,), f"the shape of {name}", found.shape, f"({n},), one a client")
    used = np.unique(found)
    require(bool((used == np.arange(used.size)).all()), name, labels, "numbers 0, 1, … without a gap")
    return found


def _clients(clients: ArrayLike, n_clients: int | None) -> Ints:
    who = _whole_numbers("clients", clients)
    require(who.ndim == 1 and who.size > 0, "the shape of clients", who.shape, "(T,) with T ≥ 1")
    require(bool((who >= 0).all()), "the smallest client", int(who.min()), "at least 0")
    largest = int(who.max())
    if n_clients is None:
        likely = largest < max(10**6, 1000 * who.size)
        require(likely, "the largest client", largest, "a number from 0 on, unless n_clients says how many there are")
    else:
        n_clients = whole_number("n_clients", n_clients, 1, 10**10)
        require(largest < n_clients, "the largest client", largest, f"below n_clients = {n_clients}")
    return who


def _whole_numbers(name: str, values: ArrayLike) -> Ints:
    """A copy of them."""
    try:
        numbers = np.asarray(values)
    except ValueError:  # lists of different lengths
        raise FedbanditError(f"{name} holds lists of different lengths, but must be a list of whole numbers.") from None
    if numbers.size and isinstance(numbers.flat[0], str):
        numbered = f"numpy.unique({name}, return_inverse=True)[1]"
        raise FedbanditError(f"{name} holds texts, but must hold whole numbers from 0 on, such as {numbered}.")
    require(numbers.dtype.kind in "iu" or numbers.size == 0, name, values, "whole numbers ≥ 0")
    return np.array(numbers, dtype=np.int64)


def _contexts(arms: ArrayLike | Sequence[ArrayLike], horizon: int) -> tuple[Array, Ints, Ints]:
    """All contexts one below the other, which of them each round offers, and how many."""
    per_round = _rounds("arms", arms, 3)
    require(len(per_round) == horizon, "the number of rounds in arms", len(per_round), f"{horizon}, as in clients")
    for t, arm_set in enumerate(per_round):
        good = arm_set.ndim == 2 and arm_set.shape[0] > 0 and arm_set.shape[1] == per_round[0].shape[-1] > 0
        require(good, f"the shape of arms in round {t}", arm_set.shape, "(K, d) with one d for all rounds")
        if isinstance(per_round, np.ndarray):
            break  # all rounds of one array have the same shape
    counts = np.fromiter((len(arm_set) for arm_set in per_round), dtype=np.int64, count=horizon)
    x = np.concatenate(per_round) if isinstance(per_round, list) else per_round.reshape(-1, per_round.shape[-1])
    if not np.isfinite(x).all():
        t = int(np.searchsorted(np.cumsum(counts), np.flatnonzero(~np.isfinite(x).all(axis=1))[0], "right"))
        raise FedbanditError(f"A context in round {t} is not finite.")
    rows = np.zeros((horizon, int(counts.max())), dtype=np.int64)
    offered = np.arange(rows.shape[1]) < counts[:, None]
    rows[offered] = np.arange(len(x))
    return np.array(x, order="C"), rows, counts  # a copy: the caller's array may change, or be read-only


def _per_arm(name: str, values: ArrayLike | Sequence[ArrayLike], counts: Ints) -> Array:
    """One number for each arm that is offered, padded with zeros."""
    per_round = _rounds(name, values, 2)
    require(len(per_round) == counts.size, f"the number of rounds in {name}", len(per_round), f"{counts.size}")
    for t, numbers in enumerate(per_round):
        require(numbers.shape == (counts[t],), f"the shape of {name} in round {t}", numbers.shape, f"({counts[t]},)")
    table = np.zeros((counts.size, int(counts.max())))
    table[np.arange(table.shape[1]) < counts[:, None]] = np.concatenate(list(per_round))
    bad = np.flatnonzero(~np.isfinite(table).all(axis=1))
    if bad.size:
        raise FedbanditError(f"A value of {name} in round {bad[0]} is not finite.")
    return table


def _rounds(name: str, values: ArrayLike | Sequence[ArrayLike], ndim: int) -> Array | list[Array]:
    """One array for all rounds where they are alike, else a list with one array a round."""
    if isinstance(values, np.ndarray) and values.dtype != object and values.ndim == ndim:
        return _floats(name, values)
    if not isinstance(values, Sequence | np.ndarray) or (isinstance(values, np.ndarray) and values.ndim == 0):
        raise FedbanditError(f"{name} is of type {type(values).__name__}, but must be an array or a list of arrays.")
    return [_floats(name, numbers) for numbers in values]


def _floats(name: str, values: ArrayLike) -> Array:
    try:
        numbers = np.asarray(values)
        if numbers.dtype.kind != "c":
            return np.asarray(numbers, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        uneven = "inhomogeneous" in str(error)
        why = "it has lists of different lengths" if uneven else str(error).rstrip(".")
    else:
        why = "it is complex"
    raise FedbanditError(f"{name} holds something that is not a number: {why}.")
