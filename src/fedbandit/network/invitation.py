"""The agreement: what a client must know before it can act, and what all members of a federation have in common."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedbandit.errors import FedbanditError, number, unknown, whole_number
from fedbandit.network.jsonable import from_json, to_json
from fedbandit.presets import PRESETS
from fedbandit.privacy import PRIVACIES, Privacy
from fedbandit.system import System
from fedbandit.world import World


@dataclass(frozen=True)
class Agreement:
    """What all members of a federation agree on.

    `system` is the name of a preset, called with `keywords`; |reward| ≤ `reward_bound`. A privacy part is a table,
    {"noises": "statistics", "epsilon": 1.0, …}, or with "rewards" or the name of any privacy part.

    >>> agreement = Agreement("async-linucb", {"gamma_upload": 2.0}, World(n_clients=3, dim=2, horizon=100))
    >>> agreement.build().protocol.gamma_upload, Agreement.of_json(agreement.as_json()) == agreement
    (2.0, True)
    """

    system: str
    keywords: Mapping[str, Any] = field(default_factory=dict)
    world: World = field(default_factory=lambda: World(n_clients=1, dim=1, horizon=1))
    seed: int = 0
    reward_bound: float = 10.0

    def __post_init__(self) -> None:
        """Refuse what no federation can agree on."""
        whole_number("seed", self.seed, 0)
        number(self.reward_bound, "reward_bound", "a finite number ≥ 0", at_least=0.0)

    def build(self) -> System:
        """The system, settled for the world; a name or keyword that does not exist is refused."""
        name = self.system.replace("-", "_")
        if name not in PRESETS:
            raise unknown("system", self.system, (preset.replace("_", "-") for preset in PRESETS))
        try:
            given = dict(self.keywords)
            if "privacy" in given and name != "composed":  # which takes the names of parts itself
                given["privacy"] = _privacy(given["privacy"])
            return PRESETS[name](**given).told(self.world)
        except FedbanditError:
            raise
        except (TypeError, ValueError) as error:
            raise FedbanditError(f"{self.system} cannot be made with {dict(self.keywords)}: {error}.") from None

    def as_json(self) -> dict[str, Any]:
        """Plain values. Two agreements are the same if these are."""
        plain: dict[str, Any] = to_json({**dataclasses.asdict(self), "keywords": dict(self.keywords)})
        return plain

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Agreement:
        """What `as_json` gave."""
        try:
            known = {field.name for field in dataclasses.fields(World)}
            world = {key: inner for key, inner in from_json(value["world"]).items() if key in known}
            world["server_of"] = tuple(world.get("server_of", ()))
            if world.get("graph") is not None:
                world["graph"] = np.array(world["graph"], dtype=np.float64)
            return cls(**{**value, "keywords": from_json(value["keywords"]), "world": World(**world)})
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise FedbanditError(f"The coordinator's invitation cannot be understood: {error}.") from None


_SHORT = {"statistics": "private-statistics", "rewards": "noisy-rewards"}
"""Short names of privacy parts."""


def _privacy(value: object) -> Privacy:
    """The privacy part that a table describes."""
    noises = value.get("noises") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(noises, str):
        raise FedbanditError(
            f"privacy is {value!r}, but must be a table such as {{noises = 'statistics', epsilon = 1.0}}."
        )
    name = _SHORT.get(noises, noises)
    if name not in PRIVACIES:
        raise unknown("privacy part", name, (*_SHORT, *PRIVACIES))
    known = [key for key in inspect.signature(PRIVACIES[name]).parameters if key != "world"]
    keywords = {key: inner for key, inner in value.items() if key != "noises"}
    for key in keywords:
        if key not in known:
            raise unknown(f"key of privacy by {name}", key, known)
    return PRIVACIES[name](**keywords)
