"""What a client must know before it can act: the system, the world, and which member it is."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedbandit.errors import FedbanditError, number, unknown, whole_number
from fedbandit.presets import PRESETS, Common
from fedbandit.system import System
from fedbandit.world import World


@dataclass(frozen=True)
class Terms:
    """What all members of a federation agree on.

    `system` is the name of a preset and `keywords` are what it is called with; |reward| ≤ `reward_bound`.

    >>> terms = Terms("async-linucb", {"gamma_upload": 2.0}, World(n_clients=3, dim=2, horizon=100))
    >>> terms.build().protocol.gamma_upload, Terms.of_json(terms.as_json()) == terms
    (2.0, True)
    """

    system: str
    keywords: Mapping[str, Any] = field(default_factory=dict)
    world: World = field(default_factory=lambda: World(n_clients=1, dim=1, horizon=1))
    seed: int = 0
    reward_bound: float = 10.0

    def __post_init__(self) -> None:
        """Refuse terms that no federation can have."""
        whole_number("seed", self.seed, 0)
        number(self.reward_bound, "reward_bound", "a finite number ≥ 0", at_least=0.0)

    def build(self) -> System:
        """The system, settled for the world; a name or keyword that does not exist is refused."""
        name = self.system.replace("-", "_")
        if name not in PRESETS:
            raise unknown("system", self.system, (preset.replace("_", "-") for preset in PRESETS))
        parameters = inspect.signature(PRESETS[name]).parameters.values()
        known = {p.name for p in parameters if p.kind is not p.VAR_KEYWORD}
        if any(p.kind is p.VAR_KEYWORD for p in parameters):
            known |= set(Common.__annotations__)
        for keyword in self.keywords:
            if keyword not in known:
                raise unknown(f"keyword of {self.system}", keyword, known)
        try:
            return PRESETS[name](**self.keywords).told(self.world)
        except FedbanditError:
            raise
        except (TypeError, ValueError) as error:
            raise FedbanditError(f"{self.system} cannot be made with {dict(self.keywords)}: {error}.") from None

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**dataclasses.asdict(self), "keywords": dict(self.keywords)}

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Terms:
        """What `as_json` gave."""
        try:
            return cls(**{**value, "world": World(**value["world"])})
        except (TypeError, KeyError) as error:
            raise FedbanditError(f"The coordinator's invitation cannot be understood: {error}.") from None
