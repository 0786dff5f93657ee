"""The coordinator's configuration, a TOML file. An error in it is one sentence.

```toml
[server]
host = "127.0.0.1"             # off loopback, keys are required
port = 8765                    # 0: any free one
store = "federation.db"        # or "postgresql://…"
keys = "keys"                  # the folder that `fedbandit keys init` made
rate = 500                     # messages a second from one client

[federations.shops]
system = "async-linucb"
clients = 100
dim = 25
horizon = 100_000
keywords = {gamma_upload = 2.0, gamma_download = 2.0}
```
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from fedbandit.errors import FedbanditError, number, require, unknown, whole_number
from fedbandit.features import Features
from fedbandit.machines.sums.terms import Authority
from fedbandit.network.addresses import is_loopback
from fedbandit.network.certificates import AUTHORITY
from fedbandit.network.certified import read_authority
from fedbandit.network.coordinator.federation import ROUNDS_TO_ANSWER, Federation
from fedbandit.network.coordinator.recorded import coordinator_of
from fedbandit.network.coordinator.rules import Robust, Rules
from fedbandit.network.invitation import Agreement, Schema
from fedbandit.network.stores import Store
from fedbandit.privacy import PublishedClusters
from fedbandit.structures.held import HeldByCoordinator, hold, unknown_schedule
from fedbandit.world import World

_SERVER: dict[str, type | tuple[type, ...]] = {
    "host": str,
    "port": int,
    "store": str,
    "keys": str,
    "rate": (int, float),
    "connections": int,
    "connections_per_address": int,
    "connections_per_client": int,
    "advertise": str,
    "lease": (int, float),
    "fronts": int,
    "hosts": list,
    "origins": list,
}
_SAID: dict[type | tuple[type, ...], str] = {
    str: "a text", int: "a whole number", (int, float): "a number", list: "a list of texts",
}  # fmt: skip
_NEEDED = ("system", "clients", "dim", "horizon")
_OPTIONAL = ("actions", "noise", "bound", "reward_bound", "seed", "round_seconds", "patience", "keywords", "schema",
             "servers", "retract", "weight", "client_rate", "robust", "erasure", "certified", "relays",
             "period")  # fmt: skip


@dataclass(frozen=True)
class FederationConfig:
    """One federation: the agreement, how long a round is, how many rounds an answer is awaited, and rules."""

    agreement: Agreement
    round_seconds: float = 1.0
    patience: int = ROUNDS_TO_ANSWER
    rules: Rules = field(default_factory=Rules)
    beside: ClassVar[tuple[str, ...]] = ()
    """Journals beside its own that its store has."""

    @property
    def digest(self) -> str:
        """By which coordinators of one federation see that they are configured alike."""
        rules = {f.name: repr(value) for f in fields(Rules) if (value := getattr(self.rules, f.name)) != f.default}
        told = [self.agreement.as_json(), self.round_seconds, self.patience, rules]
        return hashlib.blake2b(json.dumps(told, sort_keys=True).encode(), digest_size=16).hexdigest()

    def open(self, name: str, store: Store) -> Federation:
        """Go on where the store is."""
        return Federation(name, self.agreement, store, self.patience, rules=self.rules)

    def __post_init__(self) -> None:
        """Refuse a clock that stands still or runs wild."""
        value = number(self.round_seconds, "round_seconds", "a number of seconds from 0.01 to 86400", at_least=0.01)
        require(value <= 86_400, "round_seconds", value, "a number of seconds from 0.01 to 86400")
        whole_number("patience", self.patience)
        self.rules.require_for(self.agreement.build(), self.agreement.world)


@dataclass(frozen=True)
class ServerConfig:
    """A coordinator and its federations."""

    federations: Mapping[str, FederationConfig] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 8765
    store: str | None = "federation.db"
    keys: Path | None = None
    rate: float = 500.0
    connections: int | None = None
    """In all; as many as there can be files if it is not said."""
    connections_per_address: int | None = None
    connections_per_client: int = 4
    advertise: str = ""
    """The address, such as "https://a.example:8765", that coordinators on the same store send clients to."""
    lease: float = 5.0
    """Seconds without a sign of life after which another coordinator on the same store may take over."""
    fronts: int = 0
    """Processes for TLS, tokens and WebSockets, beside the one that checks, sums and writes; 0: one does it all."""
    hosts: tuple[str, ...] = ()
    """Names in a Host header, beside those of loopback and `host`, that are answered without keys."""
    origins: tuple[str, ...] = ()
    """Origins of pages in browsers, such as "https://shop.example", that may speak to this coordinator."""

    def __post_init__(self) -> None:
        """Refuse what cannot be served, or cannot be served safely."""
        require(0 <= self.port <= 65535, "port", self.port, "a number from 0 to 65535")
        number(self.rate, "rate", "a number of messages a second ≥ 1", at_least=1.0)
        for name in ("connections", "connections_per_address", "connections_per_client"):
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name))
        number(self.lease, "lease", "a number of seconds ≥ 1", at_least=1.0)
        if self.advertise:
            require(
                urlsplit(self.advertise).scheme in ("http", "https"),
                "advertise",
                self.advertise,
                "like https://a.example:8765",
            )
        require(0 <= self.fronts <= 64, "fronts", self.fronts, "a number of processes from 0 to 64")
        for origin in self.origins:
            require(urlsplit(str(origin)).scheme in ("http", "https"), "an origin", origin, "like https://shop.example")
        if not self.federations:
            raise FedbanditError("The configuration has no federation; add a table [federations.NAME].")
        if self.keys is None and not is_loopback(self.host):
            raise FedbanditError(
                f"host is {self.host!r}, which is not loopback, so keys are required; see fedbandit keys init."
            )
        for name, federation in self.federations.items():
            if federation.rules.certified and self.keys is None:
                raise FedbanditError(f"certified of federation {name!r} needs keys in [server], with the authority's.")

    def authority_of(self, federation: str) -> Authority | None:
        """Who must have certified the keys of this federation's clients for secure sums; None if nobody must."""
        if self.keys is None or not self.federations[federation].rules.certified:
            return None
        return read_authority(self.keys / AUTHORITY, federation)


def load_config(path: Path) -> ServerConfig:
    """Read and check a configuration; paths in it are relative to the file."""
    try:
        table = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise FedbanditError(f"There is no file {str(path)!r}.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FedbanditError(f"{str(path)!r} cannot be read: {error}.") from None
    _known("table of the configuration", table, ("server", "federations"))
    server = _table("server", table.get("server", {}))
    _known("key of [server]", server, _SERVER)
    federations = {
        name: _federation(name, _table(f"federations.{name}", value), path.parent)
        for name, value in _table("federations", table.get("federations", {})).items()
    }
    settings: dict[str, Any] = dict(server)
    for key, kinds in _SERVER.items():
        value = settings.get(key)
        if value is not None and (not isinstance(value, kinds) or isinstance(value, bool)):
            raise FedbanditError(f"{key} of [server] is {value!r}, but must be {_SAID[kinds]}.")
        if isinstance(value, list):
            for one in value:
                require(isinstance(one, str), f"one of {key} of [server]", one, "a text")
    if "keys" in settings:
        settings["keys"] = path.parent / settings["keys"]
    settings |= {key: tuple(settings[key]) for key in ("hosts", "origins") if key in settings}
    settings["store"] = _store(settings.get("store", "federation.db"), path)
    return ServerConfig(federations, **settings)


def _store(where: str, path: Path) -> str:
    """The store: a file beside the configuration, a URL, or `env:NAME` for what that variable says."""
    if where.startswith("env:"):
        variable = where.removeprefix("env:")
        if variable not in os.environ:
            raise FedbanditError(f"store is {where!r}, but there is no variable {variable} in the environment.")
        where = os.environ[variable]
    elif "://" in where and urlsplit(where).password and path.stat().st_mode & 0o077:
        raise FedbanditError(
            f"{str(path)!r} has a password in it and can be read by others; chmod 600, or use PGPASSWORD or env:NAME."
        )
    return where if "://" in where else str(path.parent / where)


def _rules(table: Mapping[str, Any]) -> Rules:
    given = {key: table[key] for key in ("retract", "weight", "client_rate", "erasure", "certified") if key in table}
    for key in ("retract", "erasure", "certified"):
        require(isinstance(given.get(key, True), bool), key, given.get(key), "true or false")
    for key in ("weight", "client_rate"):
        if key in given:
            given[key] = number(given[key], key, "a number > 0", at_least=0.0)
    if "relays" in table:
        names = table["relays"]
        known = isinstance(names, list) and all(isinstance(name, str) for name in names)
        require(known, "relays", names, "a list of names, of members that are relays")
        given["relays"] = tuple(names)
    robust = table.get("robust", False)
    if isinstance(robust, dict):
        _known("key of robust", robust, ("liars", "false_alarm"))
        given["robust"] = Robust(**robust)
    else:
        require(isinstance(robust, bool), "robust", robust, "true, false or a table such as {liars = 0.3}")
        given["robust"] = Robust() if robust else None
    return Rules(**given)


def _schema(name: str, value: object) -> Schema | None:
    if value is None:
        return None
    table = _table(f"federations.{name}.schema", value)
    if "context" in table or "action" in table:
        return Schema.of(Features.of_json(table))
    _known("key of schema", table, ("features", "intercept", "longest", "context", "action", "interactions"))
    require(isinstance(table.get("features"), list), "features", table.get("features"), "a list of names")
    return Schema.of_json(table)


def _federation(name: str, table: dict[str, Any], folder: Path) -> FederationConfig:
    require(name.isascii() and name.replace("-", "").replace("_", "").isalnum(), "the name of a federation", name,
            "letters, digits, - and _")  # fmt: skip
    where = f"[federations.{name}]"
    _known(f"key of {where}", table, (*_NEEDED, *_OPTIONAL))
    try:
        schema = _schema(name, table.get("schema"))
        if schema is not None and schema.encoding is not None:
            table = {"dim": schema.encoding.dim, **table}
        _require_keys(table)
        names = table["actions"] if isinstance(table.get("actions"), list) else []
        world = World(
            n_clients=whole_number("clients", table["clients"]),
            dim=whole_number("dim", table["dim"]),
            horizon=whole_number("horizon", table["horizon"]),
            actions=len(names) or whole_number("actions", table.get("actions", 0), 0),
            noise=number(table.get("noise", 0.1), "noise", "a finite number ≥ 0", at_least=0.0),
            bound=number(table.get("bound", 1.0), "bound", "a finite number > 0", at_least=0.0),
            server_of=_servers(table.get("servers"), table["clients"]),
        )
        agreement = Agreement(
            str(table["system"]),
            _held(_table(f"federations.{name}.keywords", table.get("keywords", {})), folder),
            world,
            table.get("seed", 0),
            table.get("reward_bound", 1.0),
            schema,
            tuple(names),
            None if table.get("period") is None else seconds_of(table["period"]),
        )
        known = "servers" not in table or agreement.servers is not None
        require(known, "servers", table.get("servers"), f"left out: {agreement.system} has no local servers")
        return FederationConfig(
            on_a_network(agreement),
            table.get("round_seconds", 1.0),
            table.get("patience", ROUNDS_TO_ANSWER),
            _rules(table),
        )
    except FedbanditError as error:
        raise FedbanditError(f"{where}: {error}") from None


def _held(keywords: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A clustering in a file is loaded here, and clients are told its name and digest."""
    structure = keywords.get("structure")
    if not isinstance(structure, str) or ".py:" not in structure:
        return keywords
    return {**keywords, "structure": hold(structure, folder)}


def _require_keys(table: Mapping[str, Any]) -> None:
    for key in _NEEDED:
        if key not in table:
            raise FedbanditError(f"{key} is missing.")


def on_a_network(agreement: Agreement) -> Agreement:
    """The agreement as a coordinator on a network has it; a system that cannot be run there is refused.

    Where the coordinator does something between rounds, a round is one in which each client acts about once. Where
    models forget it is a period, and taken to have as many interactions of each client as a model has parameters.
    """
    system, name, servers = agreement.build(), agreement.system, agreement.servers
    if servers is None and not system.structure.separate:
        hint = "give gamma_upload and gamma_download" if "graph" in agreement.keywords else "it can be simulated"
        raise FedbanditError(
            f"{name} has models that several users share at one place, so there are no clients; {hint}."
        )
    if system.forgets and agreement.period is None:
        raise FedbanditError(f"{name} forgets as rounds go by; say how long a round is, such as period = '1d'.")
    if not system.forgets and agreement.period is not None:
        raise FedbanditError(f"period is given, but {name} forgets nothing; leave it out, or give discount or window.")
    if isinstance(system.discount, str):
        raise FedbanditError(
            f"discount is {system.discount!r}, which needs the number of rounds, and on a network nobody knows that; "
            "give a number, or window='adaptive'."
        )
    if servers is not None and agreement.world.actions:
        raise FedbanditError(f"{name} on local servers has one θ for all actions; leave actions out.")
    if servers is not None and system.privacy.pooled:
        raise FedbanditError(f"{name} has a total of all clients, which local servers are none of; leave servers out.")
    if isinstance(system.privacy, PublishedClusters):
        raise FedbanditError(
            f"{name} as published adds to statistics what no data can be, and no finite ε holds; it can be simulated."
        )
    if isinstance(system.structure, HeldByCoordinator) and system.privacy.perturbs == "statistics":
        raise unknown_schedule(system.structure.part)
    machine = coordinator_of(agreement)
    if machine is None:
        peers = ": its peers talk to one another; see fedbandit peer" if system.protocol.says == "gossip" else ""
        raise FedbanditError(f"{name} has no coordinator{peers or ', since its clients exchange nothing'}.")
    if system.privacy.site == "coordinator" and not system.privacy.pooled:
        raise FedbanditError(
            f"{name} has the coordinator draw the noise, which on a network it does not; choose a system whose "
            "clients do."
        )
    if agreement.period is not None:
        long_enough = agreement.world.parameters * agreement.world.n_clients  # an adaptive window's epoch is one period
        return replace(agreement, world=replace(agreement.world, per_round=long_enough))
    if not machine.clocked:
        return agreement
    return replace(agreement, world=replace(agreement.world, per_round=agreement.world.n_clients))


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def seconds_of(period: object) -> float:
    """A period of time in seconds: a number, or one with a unit.

    >>> seconds_of("1d"), seconds_of(90)
    (86400.0, 90.0)
    """
    said = "a number of seconds ≥ 1, or such as '30m', '6h', '1d', '2w'"
    if not isinstance(period, str):
        return number(period, "period", said, at_least=1.0)
    try:
        value = float(period[:-1]) * _UNITS[period[-1:]]
    except (ValueError, KeyError):
        value = 0.0
    require(1.0 <= value < math.inf, "period", period, said)
    return value


def _servers(value: object, clients: int) -> tuple[int, ...]:
    """The local server of each user: so many blocks of consecutive users, or a list."""
    if value is None:
        return ()
    if isinstance(value, list):
        return tuple(whole_number("a server", server, 0) for server in value)
    count = whole_number("servers", value)
    require(count <= clients, "servers", count, f"at most {clients}, the number of clients")
    return tuple(i * count // clients for i in range(clients))


def _table(name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FedbanditError(f"{name} is {value!r}, but must be a table.")
    return value


def _known(kind: str, table: Mapping[str, Any], known: Iterable[str]) -> None:
    for key in table:
        if key not in set(known):
            raise unknown(kind, key, known)
