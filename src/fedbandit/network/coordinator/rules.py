"""Rules of a coordinator for its members, beyond what statistics can be (`limits`): how much one may contribute, how
fast, and whether members that contradict the others are put in quarantine. They bound what a member that lies can do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedbandit.errors import FedbanditError, number, require
from fedbandit.machines.servers_coordinator import local_servers
from fedbandit.network.refusal import Refusal
from fedbandit.system import System
from fedbandit.types import Ints
from fedbandit.world import World

IN_ADVANCE = 60.0
"""Seconds for which a client may have observed before it joined: rewards that it kept while it had no invitation."""

AHEAD = 10
"""With `robust`: how many times the median of the members' observations one of them may have."""

FREE = 10
"""So many observations for each dimension have no weight: somebody has to be the first."""

MOST_COMPARED = 1000
"""Members that are compared with one another, each with all others."""


@dataclass(frozen=True)
class Robust:
    """Members that contradict the others are put in quarantine (`robust.py`).

    `liars` is the largest part of the places that may be taken by members who lie, alone or together; `false_alarm`
    bounds the probability with which a member that does not is ever put in quarantine. Until others can contradict it,
    a member may have `AHEAD` times as many observations as most have.
    """

    liars: float = 0.3
    false_alarm: float = 1e-3

    def __post_init__(self) -> None:
        """Refuse what cannot be held."""
        liars = number(self.liars, "liars", "a number > 0 and < 0.5", at_least=0.0)
        require(0.0 < liars < 0.5, "liars", liars, "a number > 0 and < 0.5: who contradicts whom is decided by most")
        rate = number(self.false_alarm, "false_alarm", "a probability > 0 and < 1", at_least=0.0)
        require(0.0 < rate < 1.0, "false_alarm", rate, "a probability > 0 and < 1")


@dataclass(frozen=True)
class Rules:
    """What one member may contribute.

    retract: whether each member's sums are kept (d² numbers each), so that a quarantine takes them out.
    weight: the largest part of all observations that may be one member's.
    client_rate: observations a second that a client can make at most; what it has since it joined is bounded by that.
    robust: whether members that contradict the others are found.
    erasure: whether a client can be erased, exactly.
    certified: whether only clients whose keys the authority of `fedbandit keys` has certified are in secure sums.
    relays: names of members that are relays, where clients noise what leaves them: they say how much noise there is.
    """

    retract: bool = True
    weight: float = 1.0
    client_rate: float = math.inf
    robust: Robust | None = None
    erasure: bool = False
    certified: bool = False
    relays: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse rules that mean nothing."""
        require(0.0 < self.weight <= 1.0, "weight", self.weight, "a number > 0 and ≤ 1")
        require(self.client_rate > 0, "client_rate", self.client_rate, "a number of observations a second > 0")
        if self.robust is not None and not self.retract:
            raise FedbanditError("robust needs retract = true: what a member has lied is to be taken out.")
        if self.erasure and not self.retract:
            raise FedbanditError("erasure needs retract = true: what a client has uploaded is to be taken out.")

    def require_for(self, system: System, world: World) -> None:
        """Refuse rules that a system cannot keep."""
        if self.erasure and local_servers(system, world) is not None:
            raise FedbanditError("erasure is refused: its members are local servers, which have many users each.")
        if self.erasure:
            machine = system.told(world).coordinator(world)
            why = "" if machine is None else machine.inseparable
            if machine is None or machine.pool is not None:
                why = "only sums over clients are known, in which nobody's part can be told"
            if why:
                raise FedbanditError(f"erasure is refused: {why}.")
        secure = system.privacy.pooled and system.privacy.site == "client"
        if self.certified and not secure:
            raise FedbanditError("certified is refused: the keys that it is about are those of secure sums.")
        if self.relays and not says_noise(system, world):
            raise FedbanditError("relays is refused: here no relay says how much noise there is, so none is named.")
        if self.robust is None:
            return
        name = type(system.structure).__name__
        if not system.structure.homogeneous:
            raise FedbanditError(
                f"robust is refused: in {name} members may differ, so that no difference shows a lie; use it where all "
                "members of a group have one parameter."
            )
        if world.actions:
            raise FedbanditError(
                "robust is refused: members are compared by one θ, and here each action has its own; leave robust or "
                "actions out."
            )
        if system.forgets:
            raise FedbanditError(
                "robust is refused: members are compared by all they have ever sent, and here models forget; leave "
                "robust or discount and window out."
            )
        if system.privacy.perturbs != "nothing":
            raise FedbanditError(
                "robust is refused: a single client's uploads are hidden by noise in this federation, so that nobody "
                "can tell a lie from noise; leave robust or privacy out."
            )
        require(
            3 <= world.n_clients <= MOST_COMPARED, "clients", world.n_clients, f"from 3 to {MOST_COMPARED} with robust"
        )

    @property
    def compares(self) -> bool:
        """Whether a rule looks at what others have."""
        return self.weight < 1.0 or self.robust is not None

    def check(self, name: str, n: int, dim: int, own: int, counts: Ints | None, seconds: float) -> None:
        """Refuse n more observations of a client that has `own` since it joined `seconds` ago.

        `counts` are all members', if a rule looks at them.
        """
        most = self.client_rate * (max(seconds, 0.0) + IN_ADVANCE)
        if own + n > most:
            raise Refusal(
                "rate",
                f"Client {name!r} would have {own + n} observations {seconds:.0f} s after it joined, more than "
                f"client_rate = {self.client_rate:g} a second allows.",
            )
        if counts is None:
            return
        everybody = int(counts.sum())
        if own + n > max(self.weight * (everybody + n), FREE * dim):
            raise Refusal(
                "weight",
                f"Client {name!r} would have {own + n} of {everybody + n} observations, more than weight = "
                f"{self.weight:g} allows; it is taken when others have more.",
            )
        if self.robust is not None and own + n > max(AHEAD * float(np.median(counts)), dim):
            raise Refusal(
                "weight",
                f"Client {name!r} would have {own + n} observations, more than {AHEAD} times as many as most members, "
                "with whom it has to be compared; it is taken when others have more.",
            )


def says_noise(system: System, world: World) -> bool:
    """Whether relays say how much noise there is in what they forward: that of their clients, which adds up."""
    machine = None if system.privacy.pooled else system.told(world).coordinator(world)
    return machine is not None and machine.noise is not None
