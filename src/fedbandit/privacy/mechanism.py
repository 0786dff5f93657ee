"""A mechanism that a client can run: noise on running sums, with a hard cap on how many are released.

A `Mechanism` is parameters, a `StreamState` is arrays (save them with `np.savez(file, **state._asdict())`). The state
holds exact sums and noise: it belongs to whoever is trusted with the data and never leaves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from fedbandit.errors import FedbanditError, require, unknown, whole_number
from fedbandit.privacy.blt import blt, endless, independent
from fedbandit.privacy.calibration import check_budget, check_epsilon, gaussian_epsilon, gaussian_multiplier
from fedbandit.privacy.dense import dense
from fedbandit.privacy.factorisation import Factorisation
from fedbandit.privacy.noise import (
    UNIT,
    Kind,
    Size,
    Source,
    entry_variance,
    gram_sensitivity,
    perturb,
    reward_sensitivity,
)
from fedbandit.privacy.tree import Tree
from fedbandit.types import Array

FEW = 64
"""Releases up to which the best factorisation is taken by default: its memory grows with them."""


def best(n_max: int) -> Factorisation:
    """The dense factorisation for few releases, a BLT for many."""
    return dense(n_max) if n_max <= FEW else blt(n_max)


FactorisationKind: TypeAlias = Literal["best", "dense", "blt", "endless", "tree", "independent"]
FACTORISATIONS: dict[str, Callable[[int], Factorisation]] = {
    "best": best,
    "dense": dense,
    "blt": blt,
    "endless": endless,
    "tree": Tree,
    "independent": independent,
}
_NAMES = {"tree": "binary tree", "independent": "independent noise", "blt": "BLT", "endless": "BLT", "dense": "dense"}


def _described(kind: str, n_max: int) -> tuple[str, str]:
    """The factorisation, and for how many releases it is."""
    name = "dense" if kind == "best" and n_max <= FEW else "blt" if kind == "best" else kind
    return _NAMES[name], "any number of releases" if kind == "endless" else f"at most {n_max} releases"


@dataclass(frozen=True)
class Mechanism:
    """Which noise, how much, and what is claimed for it.

    `scale` is that of z (see `factorisation`): the standard deviation of an entry, off the diagonal for matrices.
    `sensitivity` is the largest norm (Frobenius, ℓ2) by which one replaced record changes an increment.
    """

    factorisation: Factorisation
    noise: Kind
    dim: int
    scale: float
    sensitivity: float
    epsilon: float
    delta: float
    basis: Literal["proven", "as published", "none"]
    description: str
    reward_weight: float = 1.0

    @property
    def n_max(self) -> int:
        """The cap on the number of releases."""
        return self.factorisation.n_max

    @property
    def shape(self) -> Size:
        """Of an increment: (d+1) × (d+1) for matrices [x; κy][x; κy]ᵀ, d for vectors x y."""
        return (self.dim + 1, self.dim + 1) if self.noise == "symmetric" else (self.dim,)


class StreamState(NamedTuple):
    """What a stream remembers between releases."""

    spent: int  # releases so far
    total: Array  # the exact running sum
    noisy: Array  # what was released last, to send again if it was lost: never draw twice for the same data
    coded: Array  # what C x of later releases needs: exact data
    memory: Array  # what B u of later releases needs, u = C x + z


def gram_mechanism(
    epsilon: float,
    delta: float,
    n_max: int,
    dim: int,
    *,
    context_bound: float = 1.0,
    reward_bound: float = 1.0,
    reward_weight: float = 0.5,
    kind: FactorisationKind = "best",
) -> Mechanism:
    """Running sums of [x; κy][x; κy]ᵀ, that is V = Σ x xᵀ and b = Σ x y, with Gaussian noise.

    The noise on entries of V has the standard deviation m (L² + κ²B²) times the factorisation's error, that on b is
    1/κ times as large: κ = 1 balances them, κ = ½ (the default) takes 37 % off V and adds 25 % to b (L = B = 1).

    *Guarantee.* (ε, δ)-DP for one record (x, y), replaced by any other with ‖x‖ ≤ L, |y| ≤ B, against whoever sees all
    n_max releases; increments may depend on earlier releases. How many records an increment has is public, and when
    it is released must not depend on the data. Tight: at the worst pair of neighbours δ(ε) is attained.

    >>> mechanism = gram_mechanism(1.0, 1e-5, n_max=128, dim=10)
    >>> print(mechanism.description)
    BLT Gaussian on matrices, at most 128 releases
    >>> round(float(noise_std(mechanism).max()), 1)
    12.2
    """
    check_budget(epsilon, delta)
    sensitivity = gram_sensitivity(context_bound, reward_bound, reward_weight)
    return _gaussian(epsilon, delta, n_max, dim, "symmetric", sensitivity, kind, reward_weight)


def reward_mechanism(
    epsilon: float,
    delta: float,
    n_max: int,
    dim: int,
    *,
    context_bound: float = 1.0,
    reward_range: float = 1.0,
    kind: FactorisationKind = "best",
) -> Mechanism:
    """Running sums of x y where contexts are public and rewards are not: Gaussian noise, or gamma noise if δ = 0.

    *Guarantee.* (ε, δ)-DP for one reward, replaced by any other of the same range, against whoever sees all releases.
    With δ = 0 it is pure: each increment is in at most `levels` nodes of the tree, a node has ε/levels.

    >>> reward_mechanism(1.0, 0.0, n_max=128, dim=5, kind="tree").scale  # levels · L / ε
    8.0
    """
    sensitivity = reward_sensitivity(context_bound, reward_range)
    if delta > 0:
        check_budget(epsilon, delta)
        return _gaussian(epsilon, delta, n_max, dim, "vector", sensitivity, kind, 1.0)
    check_epsilon(epsilon)
    require(delta == 0, "delta", delta, "0 (pure) or between 0 and 1")
    if kind == "best":
        kind = "tree"
    if kind not in ("tree", "independent"):
        raise FedbanditError(f"Pure ε (delta = 0) has no {kind} noise; use kind='tree', or a delta above 0.")
    stream = factorise(kind, n_max)
    name, how_many = _described(kind, n_max)
    return Mechanism(
        factorisation=stream,
        noise="gamma",
        dim=whole_number("dim", dim),
        scale=stream.column_norm(1) * sensitivity / epsilon,
        sensitivity=sensitivity,
        epsilon=epsilon,
        delta=0.0,
        basis="none" if math.isinf(epsilon) else "proven",
        description=f"{name}, gamma on vectors, {how_many}",
    )


def _gaussian(
    epsilon: float,
    delta: float,
    n_max: int,
    dim: int,
    noise: Kind,
    sensitivity: float,
    kind: FactorisationKind,
    reward_weight: float,
) -> Mechanism:
    stream = factorise(kind, n_max)
    what = "matrices" if noise == "symmetric" else "vectors"
    name, how_many = _described(kind, n_max)
    return Mechanism(
        factorisation=stream,
        noise=noise,
        dim=whole_number("dim", dim),
        scale=gaussian_multiplier(epsilon, delta) * stream.column_norm(2) * sensitivity / UNIT[noise],
        sensitivity=sensitivity,
        epsilon=epsilon,
        delta=delta,
        basis="none" if math.isinf(epsilon) else "proven",
        description=f"{name} Gaussian on {what}, {how_many}",
        reward_weight=reward_weight,
    )


def factorise(kind: str, n_max: int) -> Factorisation:
    """The factorisation of this name."""
    if kind not in FACTORISATIONS:
        raise unknown("mechanism for continual release", kind, FACTORISATIONS)
    return FACTORISATIONS[kind](whole_number("n_max", n_max))


def start(mechanism: Mechanism, batch: Size = ()) -> StreamState:
    """The state before the first release. With a batch, many independent streams run side by side."""
    shape = (*batch, *mechanism.shape)
    memory = mechanism.factorisation.start(shape)
    return StreamState(0, np.zeros(shape), np.zeros(shape), memory, memory.copy())


def release(mechanism: Mechanism, state: StreamState, increment: Array, source: Source) -> tuple[Array, StreamState]:
    """The noisy running sum after one more increment, and the state that replaces `state`.

    It is a function of u = C x + z alone, so that if u is drawn float-safely, whatever is computed from it is.

    Calling it again on the same state would draw new noise for the same data, which leaks: whoever has lost a release
    sends `state.noisy` again.

    >>> mechanism = gram_mechanism(math.inf, 1e-5, n_max=1, dim=1)  # no noise
    >>> state = start(mechanism)
    >>> noisy, state = release(mechanism, state, stack(np.array([[4.0]]), np.array([2.0]), 0.5), None)
    >>> unstack(noisy, 0.5)
    (array([[4.]]), array([2.]))
    >>> release(mechanism, state, noisy, None)
    Traceback (most recent call last):
    fedbandit.errors.FedbanditError: All 1 releases of this stream are spent; nothing more may leave it.
    """
    if state.spent >= mechanism.n_max:
        raise FedbanditError(f"All {mechanism.n_max} releases of this stream are spent; nothing more may leave it.")
    if increment.shape != state.total.shape or not np.isfinite(increment).all():
        raise FedbanditError(
            f"An increment of shape {increment.shape} was to be released, but this stream takes finite numbers "
            f"of shape {state.total.shape}."
        )
    k = state.spent + 1
    total = state.total + increment
    noisy, coded, memory = total, state.coded, state.memory
    if mechanism.scale > 0:
        exact, coded = mechanism.factorisation.encode(coded, k, increment)
        u = perturb(source, mechanism.noise, exact, mechanism.scale)
        noisy, memory = mechanism.factorisation.step(memory, k, u)
        noisy = noisy.copy()
    noisy.flags.writeable = False  # a retry must find the same numbers
    return noisy, StreamState(k, total, noisy, coded, memory)


def stack(V: Array, b: Array, reward_weight: float) -> Array:
    """[[V, κb], [κbᵀ, 0]]. The corner κ²Σy² is not needed, and not released."""
    d = b.shape[-1]
    M = np.zeros((d + 1, d + 1))
    M[:d, :d] = V
    M[:d, d] = M[d, :d] = reward_weight * b
    return M


def unstack(M: Array, reward_weight: float) -> tuple[Array, Array]:
    """V and b, the inverse of `stack`."""
    return M[:-1, :-1], M[:-1, -1] / reward_weight


def distance(mechanism: Mechanism, *, releases: int | None = None, records: int = 1) -> float:
    """How far apart neighbouring streams are, in standard deviations (Gaussian) or in ε (gamma, Laplace).

    `records` replaced records (a group, or all that one client contributed) are at most that many times as far apart.
    """
    order = 2 if mechanism.noise in ("symmetric", "vector") else 1
    moved = mechanism.factorisation.column_norm(order, releases) * mechanism.sensitivity * records
    if mechanism.noise == "laplace":
        moved *= math.sqrt(mechanism.dim)  # ‖D‖₁ ≤ √d ‖D‖₂, attained by a dense D
    length = UNIT[mechanism.noise] * mechanism.scale
    return moved / length if length > 0 else math.inf


def epsilon_of(mechanism: Mechanism, *, releases: int | None = None, records: int = 1) -> float:
    """The ε that the noise really gives at the mechanism's δ: for a ledger (so far), for groups, for published scales.

    >>> mechanism = gram_mechanism(1.0, 1e-5, n_max=128, dim=10)
    >>> [round(epsilon_of(mechanism, releases=k), 2) for k in (1, 16, 128)]
    [0.59, 0.85, 1.0]
    >>> round(epsilon_of(mechanism, records=10), 1)  # ten records of one person
    14.4
    """
    far = distance(mechanism, releases=releases, records=records)
    return gaussian_epsilon(far, mechanism.delta) if mechanism.noise in ("symmetric", "vector") else far


def noise_std(mechanism: Mechanism) -> Array:
    """Standard deviation of a coordinate (off the diagonal of V) of each release, 1, …, n_max."""
    entry = math.sqrt(entry_variance(mechanism.noise, mechanism.dim))
    return mechanism.scale * entry * mechanism.factorisation.row_norms()
