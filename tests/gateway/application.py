"""A simulated application behind a gateway: visitors of known taste, to hold estimates against the truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedbandit.environments.decision_log import DecisionLog
from fedbandit.features import Features
from fedbandit.gateway.events import Events
from fedbandit.gateway.gateway import Gateway
from fedbandit.network.client.client import Client
from fedbandit.network.invitation import Agreement, Schema
from fedbandit.types import Array
from fedbandit.world import World

ACTIONS = ("book", "film", "game")
FEATURES = Features(
    context={"age": {"number": [0, 1]}},
    action={"kind": {"category": list(ACTIONS)}},
    interactions=[("age", "kind")],
)


def alone(policy: str = "igw", features: Features = FEATURES) -> Agreement:
    """The terms of a gateway that learns alone."""
    world = World(n_clients=1, dim=features.dim, horizon=10_000, noise=0.5)
    return Agreement("linucb", {"policy": policy}, world, schema=Schema.of(features))


def open_alone(folder: Path | None = None, *, policy: str = "igw", **options: Any) -> Gateway:
    """A gateway that learns alone, kept in a folder or in memory."""
    state = None if folder is None else folder / "gateway.db"
    client = Client(None, agreement=alone(policy), state=None if folder is None else folder / "gateway.client.db")
    log = DecisionLog(folder / "log", client="gateway") if folder is not None and options.pop("log", True) else None
    return Gateway(client, Events(state), decisions=log, **options)


def visit(age: float, id: str | None = None, **more: Any) -> dict[str, Any]:
    """A request to rank all actions for a visitor."""
    actions = [{"id": kind, "features": {"kind": kind}} for kind in ACTIONS]
    return {"event_id": id, "actions": actions, "context": {"age": age}, **more}


def tastes(age: Array | float, rate: float) -> Array:
    """The click probability of each action, (…, 3): books for the old, films for the young."""
    a = np.asarray(age)[..., None]
    return rate * np.concatenate([0.4 + 1.2 * a, 1.6 - 1.2 * a, np.full(a.shape, 0.8)], axis=-1)
