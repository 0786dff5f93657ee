"""Federated, private, collaborative linear contextual bandits.

Names are imported when they are first used, so that the command line answers without loading the compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedbandit._version import __version__

if TYPE_CHECKING:
    from fedbandit import bounds, checks, environments, evaluation, policies, privacy, protocols, structures
    from fedbandit.engine import Result, simulate
    from fedbandit.errors import FedbanditError
    from fedbandit.features import Features
    from fedbandit.machines.client import ClientMachine
    from fedbandit.network.client.asynchronous import AsyncClient
    from fedbandit.network.client.client import Client
    from fedbandit.network.client.local_server import LocalServer
    from fedbandit.network.invitation import Agreement
    from fedbandit.network.peer.peer import Peer
    from fedbandit.presets import (
        async_linucb,
        async_linucb_am,
        cdp_fclub_dc,
        club,
        clustered_linucb,
        colin,
        composed,
        count_linucb,
        dislinucb,
        dp_colin,
        dp_goblin,
        dp_linucb,
        dyclu,
        fclub,
        fclub_dc,
        feducb,
        goblin,
        hetofedbandit,
        hetofedbandit_async,
        hetofedbandit_dr,
        hetofedbandit_e,
        hetofedbandit_pq,
        homo,
        homo_dc,
        ldp_colin,
        ldp_goblin,
        linucb,
        linucb_central,
        preset,
        sclub,
        sync_linucb,
        uniform,
    )
    from fedbandit.privacy import Guarantee, Require
    from fedbandit.studies.compare import Comparison, compare
    from fedbandit.system import System
    from fedbandit.world import World

_MODULES = ("bounds", "checks", "environments", "evaluation", "policies", "privacy", "protocols", "structures")
_NAMES = {
    "Result": "engine",
    "simulate": "engine",
    "FedbanditError": "errors",
    "Agreement": "network.invitation",
    "Features": "features",
    "AsyncClient": "network.client.asynchronous",
    "Client": "network.client.client",
    "LocalServer": "network.client.local_server",
    "Peer": "network.peer.peer",
    "Comparison": "studies.compare",
    "compare": "studies.compare",
    "ClientMachine": "machines.client",
    "Guarantee": "privacy",
    "Require": "privacy",
    "System": "system",
    "World": "world",
    "preset": "presets",
}

__all__ = [
    "Agreement",
    "AsyncClient",
    "Client",
    "ClientMachine",
    "Comparison",
    "Features",
    "FedbanditError",
    "Guarantee",
    "LocalServer",
    "Peer",
    "Require",
    "Result",
    "System",
    "World",
    "__version__",
    "async_linucb",
    "async_linucb_am",
    "bounds",
    "cdp_fclub_dc",
    "checks",
    "club",
    "clustered_linucb",
    "colin",
    "compare",
    "composed",
    "count_linucb",
    "dislinucb",
    "dp_colin",
    "dp_goblin",
    "dp_linucb",
    "dyclu",
    "environments",
    "evaluation",
    "fclub",
    "fclub_dc",
    "feducb",
    "goblin",
    "hetofedbandit",
    "hetofedbandit_async",
    "hetofedbandit_dr",
    "hetofedbandit_e",
    "hetofedbandit_pq",
    "homo",
    "homo_dc",
    "ldp_colin",
    "ldp_goblin",
    "linucb",
    "linucb_central",
    "policies",
    "preset",
    "privacy",
    "protocols",
    "sclub",
    "simulate",
    "structures",
    "sync_linucb",
    "uniform",
]


if not TYPE_CHECKING:  # or a type checker would let every name pass

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return import_module(f"fedbandit.{name}")
        if name in _NAMES:
            return getattr(import_module(f"fedbandit.{_NAMES[name]}"), name)
        if name in __all__:  # what remains are the presets
            return getattr(import_module("fedbandit.presets"), name)
        raise AttributeError(f"module 'fedbandit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
