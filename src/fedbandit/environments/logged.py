"""Logged decisions: what was offered, what somebody else's policy chose, and the reward of that alone."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedbandit.actions import as_rows
from fedbandit.environments.residuals import residual_noise
from fedbandit.errors import FedbanditError, checked_call, number, require, unknown
from fedbandit.features import Hashed
from fedbandit.types import Array, Ints

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class LoggedDecisions:
    """A log, made by `from_frame`, which checks it.

    It is no environment: rewards of arms that were not chosen are unknown, so nothing can be simulated on it.
    `fedbandit.evaluation` says what it tells about a system.
    """

    clients: Ints = field(repr=False)  # (n,)
    X: Array = field(
        repr=False
    )  # (R, d) arms; or (n, f) situations of actions with a θ each; or rows (action, features)
    arms: Ints = field(repr=False)  # (n, K) rows of X; or (n, 0)
    counts: Ints = field(repr=False)  # (n,) how many of them were offered
    chosen: Ints = field(repr=False)  # (n,) position in `arms`
    rewards: Array = field(repr=False)  # (n,) of the chosen arm
    propensities: Array = field(repr=False)  # (n,) probability with which it was chosen, or (0,) if unknown
    client_names: tuple[Hashable, ...] = field(repr=False)
    bound: float
    n_actions: int  # with a θ each; 0 if arms have contexts of their own
    uniform: bool  # whether every offered arm was equally likely to be chosen
    notes: tuple[str, ...] = ()  # what whoever evaluates it should know
    segments: NDArray[Any] = field(default_factory=lambda: np.empty(0), repr=False)  # (n,) labels, or (0,) for none
    measured_bound: bool = False  # whether `bound` is the largest norm there is
    declared_noise: float | None = None  # σ of rewards, if somebody said it
    action_names: tuple[Hashable, ...] = ()  # of the actions 0, 1, …, sorted; () if arms have contexts of their own
    feature_names: tuple[str, ...] = ()  # the column that each entry of X is from, as far as they have names

    @property
    def n_decisions(self) -> int:
        """How many decisions were logged."""
        return len(self.clients)

    @property
    def n_clients(self) -> int:
        """How many clients decided."""
        return len(self.client_names)

    @property
    def dim(self) -> int:
        """The length of a context, or of a situation where each action has a θ of its own."""
        return int(self.X.shape[1]) - (self.n_actions > 0 and not self._situations)

    @property
    def _situations(self) -> bool:
        """Whether every decision offered every action, in one situation."""
        return self.n_actions > 0 and self.arms.shape[1] == 0

    def offered(self, t: int) -> Array:
        """What was offered in decision t: contexts (K, d), or rows (action, situation)."""
        if not self._situations:
            return self.X[self.arms[t, : self.counts[t]]]
        return as_rows(self.X[[t]], None, self.n_actions)

    def contexts(self, decisions: Ints, positions: Ints) -> Array:
        """One arm in each of some decisions: contexts (m, d), or rows (action, situation)."""
        if not self._situations:
            return self.X[self.arms[decisions, positions]]
        return np.column_stack([positions, self.X[decisions]])

    @cached_property
    def noise(self) -> float:
        """σ of the logged rewards: as it was declared, or as a regression for each action, or client, leaves it."""
        if self.declared_noise is not None:
            return self.declared_noise
        x = self.contexts(np.arange(self.n_decisions), self.chosen)
        if self.n_actions:
            return residual_noise(x[:, 1:], self.rewards, x[:, 0].astype(np.int64))
        return residual_noise(x, self.rewards, self.clients)


@checked_call
def from_frame(
    frame: Any,
    client: str,
    features: Sequence[str] | str,
    reward: str,
    *,
    action: str | None = None,
    decision: str | None = None,
    chosen: str | None = None,
    propensity: str | None = None,
    logged: Literal["unknown", "uniform"] = "unknown",
    segment: str | None = None,
    bound: float | None = None,
    noise: float | None = None,
    place: Callable[[int], str] | None = None,
) -> LoggedDecisions:
    """Logged decisions from a table: a pandas or Arrow table, or a dict of columns.

    Two layouts. With `action`, a row is a decision: its features describe the situation, and the arms are all actions
    that occur, numbered as sorted (`action_names`); each has a θ of its own, for the features and a constant. With
    `decision` and `chosen`, a row is an arm that was offered: rows with equal `decision` were offered together, and
    `chosen` is true in one of them; features describe the arm; rewards of others are not read. Columns called
    "action", "decision", "chosen" or "propensity" are taken for what they say.

    Rows are in the order of time: systems learn from earlier ones, and are judged on later ones.
    `propensity` is the probability with which the chosen arm was chosen; logged="uniform" says that all offered arms
    were equally likely. Without either a log says nothing about other policies than the one that wrote it. A column of
    `segment`s is what reports are broken down by. `bound` is L with ‖x‖ ≤ L, which systems that protect contexts need;
    by default it is the largest norm there is. `noise` is the σ that widths assume, by default what a regression leaves
    of the logged rewards. `place` says how errors name a row.

    A column of texts is one of categories: it becomes one feature for each that occurs, 1 where it is that one, or if
    they are more than `MOST_CATEGORIES`, as many features into which they are hashed.

    >>> log = from_frame(
    ...     {"who": ["a", "b"], "age": [0.1, 0.7], "action": ["x", "y"], "click": [1, 0]},
    ...     client="who", features=["age"], reward="click", logged="uniform",
    ... )
    >>> log.n_decisions, log.n_clients, log.n_actions, log.dim
    (2, 2, 2, 2)
    """
    table = _Table(frame, place or (lambda row: f"Row {row + 1}"))
    require(logged in ("unknown", "uniform"), "logged", logged, "'unknown' or 'uniform'")
    names = [features] if isinstance(features, str) else list(features)
    require(len(names) > 0, "features", names, "at least one column")
    used = {client, reward, *names}
    action, decision, chosen, propensity = (
        name if name is not None else (usual if usual in table.names and usual not in used else None)
        for name, usual in ((action, "action"), (decision, "decision"), (chosen, "chosen"), (propensity, "propensity"))
    )
    if action is not None and decision is not None:
        raise FedbanditError("A log has either a column of actions or one of decisions, not both; name the one meant.")
    if action is None and (decision is None or chosen is None):
        raise FedbanditError(
            "A log without the arms that were not chosen says nothing about other choices; name a column with the "
            "action, or columns with the decision and with which of its arms was chosen."
        )
    encoded = [table.features(name) for name in names]
    X = np.concatenate(encoded, axis=1)
    who = table.column(client)
    if action is not None:
        parts = _one_row_each(table, X, action)
        rows = np.arange(len(X))
    else:
        assert decision is not None
        assert chosen is not None
        parts, rows = _one_row_per_arm(table, X, table.column(decision), table.flags(chosen), who)
    client_names, clients = np.unique(who[rows], return_inverse=True)
    probabilities = _propensities(table, propensity, rows, parts.counts, logged)
    return LoggedDecisions(
        clients=clients.astype(np.int64),
        X=parts.X,
        arms=parts.arms,
        counts=parts.counts,
        chosen=parts.chosen,
        rewards=table.numbers(reward, rows),
        propensities=probabilities,
        client_names=tuple(client_names.tolist()),
        bound=_checked_bound(bound, parts.X),
        measured_bound=bound is None,
        declared_noise=None if noise is None else number(noise, "noise", "a finite number ≥ 0, or None", at_least=0.0),
        n_actions=parts.n_actions,
        action_names=parts.action_names,
        feature_names=tuple(
            entry for name, part in zip(names, encoded, strict=True) for entry in table.entries(name, part)
        ),
        segments=table.column(segment)[rows].astype(str) if segment is not None else np.empty(0),
        uniform=bool(probabilities.size and np.allclose(probabilities * parts.counts, 1.0, rtol=0, atol=1e-6)),
    )


def _checked_bound(bound: float | None, X: Array) -> float:
    """The declared L, if contexts keep to it, or the largest norm."""
    largest = float(np.sqrt(np.einsum("ij,ij->i", X, X).max()))
    if bound is None:
        return max(largest, 1e-12)
    require(number(bound, "bound", "a finite number > 0") > 0, "bound", bound, "a finite number > 0")
    if largest > bound * (1 + 1e-9):
        raise FedbanditError(f"A context has norm {largest:.6g}, above the declared bound {bound:g}.")
    return float(bound)


@dataclass(frozen=True)
class _Parts:
    X: Array
    arms: Ints
    counts: Ints
    chosen: Ints
    n_actions: int = 0
    action_names: tuple[Hashable, ...] = ()


def _one_row_each(table: _Table, X: Array, action: str) -> _Parts:
    """Situations with a one appended; each action has a θ of its own for them."""
    actions, chosen = np.unique(table.column(action), return_inverse=True)
    n, k = len(X), actions.size
    if k < 2:
        raise FedbanditError(f"The column {action!r} holds one action only, so there is nothing to choose from.")
    situations = np.concatenate([X, np.ones((n, 1))], axis=1)
    return _Parts(
        situations, np.empty((n, 0), dtype=np.int64), np.full(n, k), chosen.astype(np.int64), k, tuple(actions.tolist())
    )


def _one_row_per_arm(
    table: _Table, X: Array, decision: NDArray[Any], chosen: Bools, who: NDArray[Any]
) -> tuple[_Parts, Ints]:
    """Arms of a decision together, in an order that does not tell which was chosen; and the rows of chosen arms."""
    _, first, of = np.unique(decision, return_index=True, return_inverse=True)
    of = np.argsort(np.argsort(first))[of]  # numbered as they first appear
    n, counts = first.size, np.bincount(of)
    first = np.sort(first)
    picked = np.bincount(of, weights=chosen)
    if (picked != 1).any():
        t = int(np.argmax(picked != 1))
        raise FedbanditError(f"{table.place(first[t])}: decision {decision[first[t]]} has {picked[t]:.0f} chosen arms.")
    if counts.min() < 2:
        t = int(np.argmin(counts))
        raise FedbanditError(f"{table.place(first[t])}: decision {decision[first[t]]} has one arm; nothing was chosen.")
    strange = who != who[first[of]]
    if strange.any():
        row = int(np.argmax(strange))
        raise FedbanditError(f"{table.place(row)}: decision {decision[row]} belongs to two clients.")
    order = np.lexsort((np.random.default_rng(0).random(len(X)), of))  # logs often list the chosen arm first
    arms = np.zeros((n, int(counts.max())), dtype=np.int64)
    arms[np.arange(arms.shape[1]) < counts[:, None]] = order
    begin = np.concatenate([[0], np.cumsum(counts)[:-1]])
    where = np.flatnonzero(chosen[order])
    return _Parts(np.array(X, order="C"), arms, counts, where - begin), order[where]


def _propensities(table: _Table, name: str | None, rows: Ints, counts: Ints, logged: str) -> Array:
    if name is None:
        return 1.0 / counts if logged == "uniform" else np.empty(0)
    found = table.numbers(name, rows)
    wrong = ~((found > 0) & (found <= 1 + 1e-9))
    if wrong.any():
        t = int(np.argmax(wrong))
        raise FedbanditError(f"{table.place(rows[t])}: the propensity is {found[t]:g}, but must be in (0, 1].")
    if logged == "uniform" and not np.allclose(found * counts, 1.0, rtol=0, atol=1e-6):
        t = int(np.argmax(np.abs(found * counts - 1)))
        raise FedbanditError(
            f"{table.place(rows[t])}: the log is said to be uniform, but the propensity of one of {counts[t]} arms is "
            f"{found[t]:g}."
        )
    return found


class _Table:
    """Columns of whatever was given, with errors that name the row."""

    def __init__(self, frame: Any, place: Callable[[int], str]) -> None:
        names = getattr(frame, "column_names", None)  # Arrow
        self.names = [str(name) for name in (names if names is not None else list(frame.keys()))]
        self.frame = frame
        self.place = place

    def column(self, name: str) -> NDArray[Any]:
        if name not in self.names:
            raise unknown("column", name, self.names)
        values = np.asarray(self.frame[name])
        require(values.ndim == 1 and values.size > 0, f"the shape of column {name!r}", values.shape, "(n,) with n ≥ 1")
        if values.dtype.kind == "O":
            missing = np.array([value is None or value != value for value in values])
            if missing.any():
                raise FedbanditError(f"{self.place(int(np.argmax(missing)))}: {name} is missing.")
            if len({type(value) for value in values}) > 1 or isinstance(values[0], str):
                values = values.astype(str)
        return values

    def numbers(self, name: str, rows: Ints | None = None) -> Array:
        if name not in self.names:
            raise unknown("column", name, self.names)
        raw = np.asarray(self.frame[name])
        where = np.arange(raw.size) if rows is None else rows
        raw = raw[where]
        try:
            values = raw.astype(np.float64)
        except (TypeError, ValueError):
            values = np.array([_number(value) for value in raw])
        wrong = ~np.isfinite(values)
        if wrong.any():
            at = int(np.argmax(wrong))
            is_what = "missing" if raw[at] is None or raw[at] == "" else str(raw[at])
            raise FedbanditError(f"{self.place(int(where[at]))}: {name} is {is_what}, but must be a finite number.")
        return values

    def features(self, name: str) -> Array:
        """A column of numbers as it is, (n, 1); one of texts encoded, (n, categories)."""
        if name not in self.names:
            raise unknown("column", name, self.names)
        values = self.column(name)
        texts = values.dtype.kind in "US" and np.isnan([_number(value) for value in np.unique(values)]).all()
        return encoded_categories(name, values.astype(str)) if texts else self.numbers(name)[:, None]

    def entries(self, name: str, encoded: Array) -> list[str]:
        """What the entries of an encoded column are called: by the column, or "column=category"."""
        if encoded.shape[1] == 1:
            return [name]
        categories = np.unique(self.column(name).astype(str)).tolist()
        return (
            [f"{name}={category}" for category in categories]
            if len(categories) == encoded.shape[1]
            else [name] * encoded.shape[1]
        )

    def flags(self, name: str) -> Bools:
        values = self.numbers(name)
        wrong = (values != 0) & (values != 1)
        if wrong.any():
            raise FedbanditError(f"{self.place(int(np.argmax(wrong)))}: {name} must be true or false, or 1 or 0.")
        return values == 1


def _number(value: Any) -> float:
    words = {"true": 1.0, "false": 0.0}
    try:
        return words[value.lower()] if isinstance(value, str) and value.lower() in words else float(value)
    except (TypeError, ValueError):
        return float("nan")


MOST_CATEGORIES = 64
"""More of them are hashed into as many entries."""


def encoded_categories(name: str, values: NDArray[Any]) -> Array:
    """One entry for each category that occurs; or ±1 in one of `MOST_CATEGORIES`, as `fb.Features` hashes.

    >>> encoded_categories("colour", np.array(["red", "blue", "red"])).tolist()
    [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
    """
    categories, which = np.unique(values, return_inverse=True)
    if categories.size <= MOST_CATEGORIES:
        return np.eye(categories.size)[which]
    hashed = Hashed(MOST_CATEGORIES)
    return np.stack([hashed.encode(name, category) for category in categories.tolist()])[which]
