"""What all peers of a federation agree on: each says it in its greeting, and keeps it in its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

from fedbandit.errors import FedbanditError, number, shown, whole_number
from fedbandit.network.coordinator.limits import Limits
from fedbandit.network.invitation import Agreement, UnsoundChange
from fedbandit.system import System
from fedbandit.world import World


@dataclass(frozen=True)
class Terms:
    """The terms of a federation of peers: decentralised FedUCB among so many.

    >>> Terms(peers=3, dim=2).agreement.build().guarantee.epsilon
    1.0
    """

    peers: int
    dim: int
    ttl: int = 1
    observations: int = 10_000
    epsilon: float = 1.0
    delta: float = 1e-5
    reward_bound: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what nobody can agree on."""
        for name, least in (("peers", 2), ("dim", 1), ("ttl", 1), ("observations", 1)):
            object.__setattr__(self, name, whole_number(name, getattr(self, name), least))
        bound = number(self.reward_bound, "reward_bound", "a finite number > 0", at_least=1e-300)
        object.__setattr__(self, "reward_bound", bound)
        self.agreement.build()
        for name in ("epsilon", "delta"):
            object.__setattr__(self, name, float(getattr(self, name)))

    @cached_property
    def world(self) -> World:
        """As a system is told it; each peer makes `observations` of its own."""
        horizon = self.observations * self.peers
        return World(n_clients=self.peers, dim=self.dim, horizon=horizon, per_round=self.peers)

    @cached_property
    def agreement(self) -> Agreement:
        """The same as a coordinator would have it."""
        given = {"epsilon": self.epsilon, "delta": self.delta, "topology": "unknown", "ttl": self.ttl}
        return Agreement("feducb", given, self.world, reward_bound=self.reward_bound)

    @property
    def system(self) -> System:
        """What each peer runs."""
        return self.agreement.build()

    @cached_property
    def limits(self) -> Limits:
        """What n observations can add up to."""
        return Limits.of(self.system, self.world, self.reward_bound)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "epsilon": repr(float(self.epsilon))}  # JSON has no ∞

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Terms:
        """What `as_json` gave."""
        return cls(**{**value, "epsilon": float(value["epsilon"])})

    def difference(self, theirs: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
        """The first term that a neighbour has otherwise, with its value there and here."""
        return next(((k, theirs.get(k), mine) for k, mine in self.as_json().items() if theirs.get(k) != mine), None)

    def require_sound_change(self, new: Terms, member: int, where: str) -> None:
        """Refuse new terms under which what the state in `where` holds would mean something else.

        What may change is what `Agreement.require_sound_change` allows a member of any federation.
        """
        changed = [one.name for one in fields(self) if getattr(self, one.name) != getattr(new, one.name)]
        alone = [(name, replace(self, **{name: getattr(new, name)})) for name in changed]
        for name, terms in (*alone, *((name, new) for name in changed[:1])):  # the last: all of them together
            if reason := self._reason(terms, member):
                raise FedbanditError(
                    f"{name} is {shown(getattr(new, name))}, but the state in {where} is of a peer with {name} = "
                    f"{shown(getattr(self, name))} ({reason}): open it with that."
                )

    def _reason(self, new: Terms, member: int) -> str:
        """Why it cannot go on under these; empty if it can."""
        if new.ttl != self.ttl:
            return "statistics would be of another number of estimators"
        try:
            self.agreement.require_sound_change(new.agreement, [member])
        except UnsoundChange as change:
            return change.reason
        return ""
