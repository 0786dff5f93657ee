"""Thresholds that are factors ≥ 1: a number, one for each client, or a rule by name that the world settles."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from fedbandit.errors import FedbanditError, require, shown, unknown
from fedbandit.model import TIE
from fedbandit.types import Array
from fedbandit.world import World

Factor: TypeAlias = float | str | Sequence[float] | Array
RulesByName: TypeAlias = Mapping[str, Callable[[World], float]]


def check_factor(name: str, value: Factor, rules: RulesByName) -> float | str | Array:
    """The factor in its plain form, if it is one."""
    if isinstance(value, str):
        if value not in rules:
            raise unknown(f"rule for {name}", value, rules)
        return value
    try:
        factors = np.asarray(math.nan if value is None else value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise FedbanditError(
            f"{name} is {shown(value)}, but must be a number or a list with one for each client."
        ) from None
    require(factors.ndim <= 1, name, value, "a number or a list with one for each client")
    low = np.flatnonzero(~(np.atleast_1d(factors) >= 1))
    if low.size:
        whose = name if factors.ndim == 0 else f"{name} of client {low[0]}"
        bad = value if factors.ndim == 0 else float(factors[low[0]])
        require(False, whose, bad, "≥ 1 (1 communicates always, inf never)")
    return float(factors) if factors.ndim == 0 else factors


def settle_factor(name: str, value: Factor, rules: RulesByName, world: World) -> float | Array:
    """The number that a rule gives in this world; a list must have one entry for each client."""
    if isinstance(value, str):
        return float(rules[value](world))
    factors = np.asarray(value, dtype=np.float64)
    if factors.ndim == 0:
        return float(factors)
    require(factors.size == world.n_clients, f"the length of {name}", factors.size, f"{world.n_clients}, one a client")
    return factors


def growth_releases(world: World, least_growth: float) -> int:
    """How often a log-determinant can grow by `least_growth` in this world, for a ridge of 10⁻³ or more."""
    largest = world.parameters * math.log1p(world.horizon * world.bound**2 / (world.parameters * 1e-3))
    return min(world.horizon, 1 + int(largest / least_growth)) if least_growth > 0 else world.horizon


def count_releases(factor: float, horizon: int, batch: int = 1) -> int:
    """How often a count that ends at `horizon` triggers: when it is `factor` times what it was, and `batch` more.

    >>> count_releases(2.0, 1000), count_releases(1.5, 1000, batch=8), count_releases(1.0, 100)
    (10, 12, 100)
    """
    return max(len(count_portions(factor, horizon, batch)), 1)


def count_portions(factor: float, horizon: int, batch: int = 1) -> tuple[int, ...]:
    """By how much the count has grown each time.

    >>> count_portions(1.5, 20, batch=4)
    (4, 4, 4, 6)
    """
    portions, n = [], 0
    while not math.isinf(factor):
        grown = max(math.ceil(factor * n - TIE), n + batch)
        if grown > horizon:
            break
        portions.append(grown - n)
        n = grown
    return tuple(portions)


def settled(factor: Factor) -> Array:
    """A factor that is no longer open, as an array of one or of N."""
    if isinstance(factor, str):
        raise FedbanditError(f"The rule {factor!r} has no value before the protocol is told the world.")
    return np.atleast_1d(np.asarray(factor, dtype=np.float64))
