"""The simulator. `plain` runs every system as machines joined by a link; `fast` accelerates those that it knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedbandit.engine.result import Communication, Result
    from fedbandit.engine.simulation import simulate

__all__ = ["Communication", "Result", "simulate"]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in __all__:
        return getattr(import_module("fedbandit.engine." + ("simulation" if name == "simulate" else "result")), name)
    raise AttributeError(name)
