"""The agreement: what a client must know before it can act, and what all members of a federation have in common.

Its `digest` is what a client says at every join, so that nobody takes part under other terms than the others. Terms may
change where that is sound (`require_sound_change`): then a client that joins under the old ones is told so, asks for
the invitation again, and goes on with its state.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import inspect
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedbandit.errors import FedbanditError, number, require, shown, unknown, whole_number
from fedbandit.features import Features
from fedbandit.machines.servers_coordinator import local_servers
from fedbandit.network.jsonable import from_json, to_json
from fedbandit.presets import PRESETS
from fedbandit.privacy import PRIVACIES, Privacy, PrivateStatistics
from fedbandit.structures import Everyone
from fedbandit.system import System
from fedbandit.types import Ints
from fedbandit.world import World

_FOUND_OUT = ("mixing", "estimators", "spectrum", "measured_bound")
"""Facts of a world that systems and environments tell; nobody agrees on them."""


@dataclass(frozen=True)
class Agreement:
    """What all members of a federation agree on.

    `system` is the name of a preset, called with `keywords`; |reward| ≤ `reward_bound`. A privacy part is a table,
    {"noises": "statistics", "epsilon": 1.0, …}, or with "rewards" or the name of any privacy part. `schema` says what
    the features are (`Schema`), None that clients see to it themselves. Where each action has a θ of its own,
    `action_names` are their names in order; without any they are numbers. `period` is how long a round is, in seconds,
    where models forget (`forgetting`), None where they do not.

    >>> agreement = Agreement("async-linucb", {"gamma_upload": 2.0}, World(n_clients=3, dim=2, horizon=100))
    >>> agreement.build().protocol.gamma_upload, Agreement.of_json(agreement.as_json()) == agreement
    (2.0, True)
    """

    system: str
    keywords: Mapping[str, Any] = field(default_factory=dict)
    world: World = field(default_factory=lambda: World(n_clients=1, dim=1, horizon=1))
    seed: int = 0
    reward_bound: float = 1.0
    schema: Schema | None = None
    action_names: tuple[str, ...] = ()
    period: float | None = None

    def __post_init__(self) -> None:
        """Refuse what no federation can agree on."""
        if self.period is not None:
            number(self.period, "period", "a number of seconds ≥ 1", at_least=1.0)
        whole_number("seed", self.seed, 0)
        number(self.reward_bound, "reward_bound", "a finite number ≥ 0", at_least=0.0)
        if self.schema is not None:
            self.schema.require_for(self.world.dim)
        object.__setattr__(self, "action_names", tuple(self.action_names))
        names, A = self.action_names, self.world.actions
        texts = all(isinstance(name, str) and name for name in names) and len(set(names)) == len(names)
        good = not names or (texts and len(names) == A)
        require(good, "action_names", list(names), f"the names of {A} actions, each once")

    def build(self) -> System:
        """The system, settled for the world; a name or keyword that does not exist is refused."""
        return self._built

    @cached_property
    def _built(self) -> System:
        for role, value in (("system", self.system), *self.keywords.items()):
            if ".py:" in str(value):  # a coordinator must not make a client run a file
                only = "only in a coordinator's configuration can it stand in a file; " if role == "structure" else ""
                raise FedbanditError(
                    f"{role} is {shown(value)}, which is code in a file, and every client of a federation must have "
                    f"the same code: {only}install it as part of fedbandit (CONTRIBUTING.md), and give its name."
                )
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

    def round_at(self, seconds: float) -> int:
        """The round at a time in seconds since 1970; 0 where models do not forget."""
        return 0 if self.period is None else max(int(seconds // self.period), 0)

    @property
    def servers(self) -> Ints | None:
        """The local server of each user, if it is local servers that take part; None if it is clients."""
        return local_servers(self.build(), self.world)

    @property
    def places(self) -> int:
        """How many nodes can take part: clients, or local servers."""
        servers = self.servers
        return self.world.n_clients if servers is None else int(servers.max()) + 1

    def as_json(self) -> dict[str, Any]:
        """Plain values. Two agreements are the same if these are."""
        schema = None if self.schema is None else self.schema.as_json()
        plain: dict[str, Any] = to_json(
            {**dataclasses.asdict(replace(self, schema=None)), "keywords": dict(self.keywords), "schema": schema}
        )
        plain["world"] = {key: value for key, value in plain["world"].items() if key not in _FOUND_OUT}
        absent: dict[str, Any] = {"schema": None, "action_names": [], "period": None}  # left out, as they always were
        return {key: value for key, value in plain.items() if key not in absent or value != absent[key]}

    @property
    def digest(self) -> bytes:
        """16 bytes of SHA-256 over the terms as canonical JSON; what is at its default is left out.

        >>> Agreement("linucb").digest == Agreement("linucb", seed=0).digest != Agreement("linucb", seed=1).digest
        True
        """
        plain = self.as_json()
        fresh: dict[str, Any] = to_json(dataclasses.asdict(World(n_clients=1, dim=1, horizon=1)))
        always = ("n_clients", "dim", "horizon")
        plain["world"] = {k: v for k, v in plain["world"].items() if k in always or v != fresh[k]}
        said = {key: value for key, value in plain.items() if value not in (None, {})}
        return hashlib.sha256(_canonical(said)).digest()[:16]

    def meaning(self, federation: str) -> bytes:
        """16 bytes of SHA-256 over what a context means in a federation of that name; no sound change changes them.

        >>> terms = Agreement("linucb", reward_bound=2.0)
        >>> terms.meaning("shops") == Agreement("linucb").meaning("shops") != Agreement("linucb").meaning("clinics")
        True
        """
        plain, world = self.as_json(), self.world
        said = {
            "federation": federation,
            "dim": world.dim,
            "bound": float(world.bound),
            "actions": world.actions,
            "action_names": list(self.action_names),
            "schema": plain.get("schema"),
        }
        return hashlib.sha256(_canonical(said)).digest()[:16]

    def require_sound_change(self, new: Agreement, members: Iterable[int]) -> None:
        """Refuse new terms under which what was learnt, sent and promised would mean something else.

        In a private federation every member's claim and noise stay as they are: its releases are one stream, calibrated
        for all of its life, which no ε can be changed in the middle of. What changes neither can change (policies,
        rules, the ε of places that nobody has had).
        """
        old, other = self.build(), new.build()
        private = other.guarantee.basis != "none" or old.guarantee.basis != "none"
        for what, ours, theirs in _differences(self.as_json(), new.as_json()):
            field = what.removeprefix("world.")
            reason = _UNSOUND.get(field.partition(".")[0])
            if reason is not None:
                raise UnsoundChange(field, ours, theirs, reason, private=private)
        if private and not all(_same_privacy(old, other, i) for i in members):
            what, ours, theirs = min(_differences(self.as_json(), new.as_json()), key=lambda d: "epsilon" not in d[0])
            reason = "members have released under it, with noise calibrated for all their life"
            raise UnsoundChange(what, ours, theirs, reason, private=True)
        for part in ("structure", "privacy", "ridge", "discount", "window"):
            kept = _alike(old, other) if part == "structure" else part == "privacy" and private
            if getattr(old, part) != getattr(other, part) and not kept:
                given = dict(self.keywords), dict(new.keywords)
                raise UnsoundChange("keywords", *given, f"it changes the {part}", private=private)
        if type(old.protocol) is not type(other.protocol):
            given = dict(self.keywords), dict(new.keywords)
            raise UnsoundChange("keywords", *given, "it changes the protocol", private=private)

    def is_sound_change(self, new: Agreement) -> bool:
        """Whether whoever has nothing to do with privacy goes on under new terms as it is."""
        try:
            self.require_sound_change(new, ())
        except UnsoundChange:
            return False
        return True

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Agreement:
        """What `as_json` gave."""
        try:
            known = {field.name for field in dataclasses.fields(World)}
            world = {key: inner for key, inner in from_json(value["world"]).items() if key in known}
            world |= {key: tuple(world[key]) for key in ("server_of", "spectrum") if key in world}
            if world.get("graph") is not None:
                world["graph"] = np.array(world["graph"], dtype=np.float64)
            schema = value.get("schema")
            given = {**value, "schema": None if schema is None else Schema.of_json(from_json(schema))}
            return cls(**{**given, "keywords": from_json(value["keywords"]), "world": World(**world)})
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise FedbanditError(f"The coordinator's invitation cannot be understood: {error}.") from None


@dataclass(frozen=True)
class Schema:
    """What features are: their names in order, and how a client makes contexts of them.

    `intercept` adds a constant feature; `longest` is the norm of the longest feature vector there can be. An `encoding`
    says how named values become those features; it has its own intercept and norm.

    >>> Schema(("age", "price"), intercept=True).require_for(3)
    >>> Schema.of(Features(action={"price": {"number": [0, 9]}})).features
    ('price', 'intercept')
    """

    features: tuple[str, ...]
    intercept: bool = False
    longest: float | None = None
    encoding: Features | None = None

    def __post_init__(self) -> None:
        """Refuse names that are none."""
        object.__setattr__(self, "features", tuple(self.features))
        for name in self.features:
            require(isinstance(name, str) and bool(name), "a feature of the schema", name, "a text")
        require(len(set(self.features)) == len(self.features), "features", list(self.features), "names, each once")
        require(isinstance(self.intercept, bool), "intercept", self.intercept, "true or false")
        if self.longest is not None:
            number(self.longest, "longest", "a finite number > 0", at_least=1e-300)
        if self.encoding is not None and (self.features, self.intercept, self.longest) != (
            *(self.encoding.names, False, 1.0),
        ):
            raise FedbanditError(
                "A schema with an encoding has the encoding's names, no other intercept, and longest 1."
            )

    @classmethod
    def of(cls, encoding: Features) -> Schema:
        """The schema of an encoding."""
        return cls(encoding.names, longest=1.0, encoding=encoding)

    def as_json(self) -> dict[str, Any]:
        """Plain values; the encoding only where there is one, as it always was."""
        plain = {"features": list(self.features), "intercept": self.intercept, "longest": self.longest}
        return plain if self.encoding is None else {**plain, "encoding": self.encoding.as_json()}

    def require_for(self, dim: int) -> None:
        """Refuse a schema of another number of features."""
        count = len(self.features) + self.intercept
        require(count == dim, "the number of features in the schema", count, f"dim = {dim}, with the intercept")

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Schema:
        """What `as_json` gave."""
        encoding = value.get("encoding")
        of = None if encoding is None else Features.of_json(encoding)
        return cls(tuple(value["features"]), value.get("intercept", False), value.get("longest"), of)


_UNSOUND = {
    "system": "another system",
    "dim": "statistics of another length",
    "actions": "statistics of other actions",
    "action_names": "actions would mean something else",
    "seed": "random choices would begin anew",
    "d_global": "another part is shared",
    "schema": "features would mean something else",
    "bound": "contexts would be scaled otherwise",
    "graph": "other users would share",
    "period": "rounds would be others",
}
"""Fields that no federation can change while it runs, with the reason; see `fedbandit migrate`."""


def _canonical(plain: Mapping[str, Any]) -> bytes:
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """The fields that differ, with their values; those of tables by their names in them."""
    for key in sorted({*ours, *theirs}):
        one, other = ours.get(key), theirs.get(key)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            for inner, a, b in _differences(one, other):
                yield f"{key}.{inner}", a, b
        elif one != other:
            yield key, one, other


class UnsoundChange(FedbanditError):
    """New terms that a federation cannot go on under, in the words of its operator; `of_file` has a client's."""

    def __init__(self, field: str, ours: object, theirs: object, reason: str, *, private: bool) -> None:
        way = "" if private else "see fedbandit migrate, or "
        super().__init__(
            f"{field} is {theirs!r}, but the federation has {ours!r}, and that cannot change while it runs ({reason}); "
            f"{way}use another name for a new federation."
        )
        self._differs = f"is for {field} {ours!r}, but the federation now has {theirs!r} ({reason})"
        self._private, self.reason = private, reason

    def of_file(self, where: str) -> FedbanditError:
        """What a client is told whose file is still under the old terms."""
        migrate = "fedbandit migrate FEDERATION --client FILE --backup FILE --url URL"
        way = "begin with a new file" if self._private else f"close the client and move its file over with {migrate}"
        return FedbanditError(f"The state {where} {self._differs}; {way}.")


def _alike(old: System, new: System) -> bool:
    """Whether structures differ in nothing but what they were told about the world."""
    return type(old.structure) is type(new.structure) and isinstance(old.structure, Everyone)


def _same_privacy(old: System, new: System, member: int) -> bool:
    """Whether a member's claim, and all that its noise is calibrated for, are the same under both."""
    one, other = old.privacy, new.privacy
    if isinstance(one, PrivateStatistics) and isinstance(other, PrivateStatistics):
        other = replace(other, epsilon=one.epsilon)  # its own is in its mechanism and claim
    if one != other or one.pooled:
        return False
    streams = [system.privacy.stream(member, _nothing_drawn) for system in (old, new)]
    mechanisms = [None if stream is None else stream.mechanism for stream in streams]
    return mechanisms[0] == mechanisms[1] and old.guarantee_of(member) == new.guarantee_of(member)


def _nothing_drawn(_: int) -> np.random.Generator:
    raise FedbanditError("Nothing is drawn to compare mechanisms.")


_SHORT = {"statistics": "private-statistics", "rewards": "noisy-rewards"}
"""Short names of privacy parts."""


def _privacy(value: object) -> Privacy:
    """The privacy part that a table describes."""
    noises = value.get("noises") if isinstance(value, Mapping) else None
    if isinstance(value, Mapping) and noises is None and (near := difflib.get_close_matches("noises", value, n=1)):
        raise unknown("key of privacy", near[0], ["noises"])
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
