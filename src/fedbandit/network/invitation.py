"""What a client must know before it can act: the system, the world, and which member it is."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedbandit.errors import FedbanditError, number, unknown, whole_number
from fedbandit.presets import PRESETS
from fedbandit.presets.compose import keywords_of
from fedbandit.privacy import NoisyRewards, PrivateStatistics
from fedbandit.privacy.privacy import Privacy
from fedbandit.system import System
from fedbandit.world import World


@dataclass(frozen=True)
class Terms:
    """What all members of a federation agree on.

    `system` is the name of a preset and `keywords` are what it is called with; |reward| ≤ `reward_bound`. A privacy
    part is a table, {"noises": "statistics", "epsilon": 1.0, …} or {"noises": "rewards", …}.

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
        for keyword in self.keywords:
            if keyword not in keywords_of(PRESETS[name]):
                raise unknown(f"keyword of {self.system}", keyword, keywords_of(PRESETS[name]))
        try:
            given = {key: _privacy(value) if key == "privacy" else value for key, value in self.keywords.items()}
            return PRESETS[name](**given).told(self.world)
        except FedbanditError:
            raise
        except (TypeError, ValueError) as error:
            raise FedbanditError(f"{self.system} cannot be made with {dict(self.keywords)}: {error}.") from None

    def as_json(self) -> dict[str, Any]:
        """Plain values, as JSON has them: numbers that are not finite are text."""
        plain: dict[str, Any] = _plain({**dataclasses.asdict(self), "keywords": dict(self.keywords)})
        return plain

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Terms:
        """What `as_json` gave."""
        try:
            known = {field.name for field in dataclasses.fields(World)}
            world = {key: inner for key, inner in _numbers(value["world"]).items() if key in known}
            world["server_of"] = tuple(world.get("server_of", ()))
            if world.get("graph") is not None:
                world["graph"] = np.array(world["graph"], dtype=np.float64)
            return cls(**{**value, "keywords": _numbers(value["keywords"]), "world": World(**world)})
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise FedbanditError(f"The coordinator's invitation cannot be understood: {error}.") from None


def _privacy(value: object) -> Privacy:
    """The privacy part that a table describes."""
    parts: dict[str, Callable[..., Privacy]] = {"statistics": PrivateStatistics, "rewards": NoisyRewards}
    if not isinstance(value, Mapping) or value.get("noises") not in parts:
        raise FedbanditError(
            f"privacy is {value!r}, but must be a table such as {{noises = 'statistics', epsilon = 1.0}}, with "
            f"noises = {' or '.join(map(repr, parts))}."
        )
    part = parts[value["noises"]]
    known = [field.name for field in dataclasses.fields(part) if field.name != "world"]  # type: ignore[arg-type]
    for key in value:
        if key not in (*known, "noises"):
            raise unknown(f"key of privacy by noise on {value['noises']}", key, known)
    return part(**{key: inner for key, inner in value.items() if key != "noises"})


def _plain(value: Any) -> Any:
    """What JSON would give back."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return repr(float(value)) if isinstance(value, float) and not math.isfinite(value) else value


def _numbers(value: Any) -> Any:
    """With infinities as numbers again."""
    if isinstance(value, Mapping):
        return {key: _numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_numbers(inner) for inner in value]
    return float(value) if value in ("inf", "-inf", "nan") else value


def on_a_network(terms: Terms) -> Terms:
    """The terms as a coordinator on a network has them; a system that cannot be run there is refused.

    Where the coordinator does something between rounds, a round is one in which everybody acts about once.
    """
    system = terms.build()
    if not system.structure.separate:
        hint = "give gamma_upload and gamma_download" if "graph" in terms.keywords else "it can be simulated"
        raise FedbanditError(
            f"{terms.system} has models that several users share at one place, so there are no clients; {hint}."
        )
    machine = system.told(terms.world).coordinator(terms.world)
    if machine is None:
        peers = ": its peers talk to one another; see fedbandit peer" if system.protocol.says == "gossip" else ""
        raise FedbanditError(f"{terms.system} has no coordinator{peers or ', since its clients exchange nothing'}.")
    if system.privacy.site == "coordinator":
        raise FedbanditError(
            f"{terms.system} has the coordinator draw the noise, which on a network it does not; choose a system whose "
            "clients do."
        )
    if not machine.clocked:
        return terms
    world = dataclasses.replace(terms.world, per_round=terms.world.n_clients)
    return dataclasses.replace(terms, world=world)
