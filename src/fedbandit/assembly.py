"""How a coordinator that knows its members one by one puts their statistics together.

Where everybody shares with everybody, a coordinator needs one sum (`protocols.hub`). Clusters that are found while
running, that overlap, or a graph of users need more: what each member has released so far. A structure then is an
*assembly*: it says what a member is to be sent. The protocol says when.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from fedbandit.statistics import EXACT, Array, Ints, Slack, Sums
from fedbandit.world import World


class Noise(Protocol):
    """What is known about the noise in sums of private uploads."""

    def repair(self, V: Array, released: Ints, ridge: float) -> tuple[Array, Slack]:
        """A matrix to use in place of the noisy sum V of these clients' uploads, and what is to be known about it."""
        ...


@runtime_checkable
class NoiseInSums(Noise, Protocol):
    """Noise in clients' sums Σ x y alone, where every V is exact."""

    def radius(self, precision: Array, columns: Array, released: Ints) -> float:
        """A bound of the noise in Σ_j P_uj s_j in the norm of P_uu⁻¹, given that and all P_uj side by side."""
        ...


class Members(NamedTuple):
    """What each member has released so far: its own data, never what it downloaded."""

    V: Array  # (N, d, d)
    b: Array  # (N, d)
    n: Ints  # (N,)


class Share(NamedTuple):
    """What a member is to be sent."""

    sums: Sums
    slack: Slack = EXACT


def no_members(n_clients: int, dim: int) -> Members:
    """Nobody has released anything."""
    return Members(np.zeros((n_clients, dim, dim)), np.zeros((n_clients, dim)), np.zeros(n_clients, dtype=np.int64))


def summed(members: Members, group: Sequence[int], noise: Noise | None, ridge: float) -> Share:
    """The statistics of a group together; noisy ones are made usable."""
    who = np.asarray(group, dtype=np.int64)
    V, b, n = members.V[who].sum(axis=0), members.b[who].sum(axis=0), int(members.n[who].sum())
    if noise is None:
        return Share(Sums(V, b, n))
    V, slack = noise.repair(V, who[members.n[who] > 0], ridge)
    return Share(Sums(V, b, n), slack)


class Assembly(Protocol):
    """The running state of such a structure, at the coordinator."""

    exploring: bool
    """Whether clients still choose at random: the assembly ends that by its first regrouping."""

    def groups(self) -> list[list[int]]:
        """Who shares with whom now; groups may overlap."""
        ...

    def affected(self, member: int) -> Sequence[int]:
        """Whose share changes when this member releases something, the member itself included."""
        ...

    def share(self, member: int, members: Members, noise: Noise | None, ridge: float) -> Share:
        """What this member is to be sent."""
        ...

    def next_wake(self, done: int) -> int:
        """After `done` rounds: after how many it wants to look at everybody's statistics next (or a large number)."""
        ...

    def state(self) -> dict[str, Any]:
        """What it remembers, as plain values: for checkpoints and for a coordinator that restarts."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        ...

    def regroup(self, members: Members, done: int) -> bool:
        """Look, after `done` rounds; True if groups have changed."""
        ...


@runtime_checkable
class Grounded(Protocol):
    """An assembly whose members know something before they hear anything, because it is public."""

    def prior(self, member: int) -> Share:
        """What a member starts with."""
        ...


def prior_share(assembly: Assembly | None, member: int) -> Share | None:
    """What a member starts with, if it is more than nothing."""
    return assembly.prior(member) if isinstance(assembly, Grounded) else None


@runtime_checkable
class Assembled(Protocol):
    """A structure that needs to know members one by one."""

    def assembly(self, world: World, ridge: float) -> Assembly:
        """Its state before anything has happened."""
        ...
