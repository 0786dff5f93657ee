"""Systems, environments, parts and experiments that stand in a user's file: my.py:name."""

from __future__ import annotations

import importlib.util
import sys
import zlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from fedbandit.errors import FedbanditError, unknown


def named_in_file(role: str, text: str) -> Callable[..., Any]:
    """The function or class that a text such as path/to/my.py:name means."""
    file, _, name = text.rpartition(":")
    module = module_at(Path(file).resolve())
    thing = vars(module).get(name.replace("-", "_"))
    if not callable(thing):
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        raise unknown(role, text, (f"{file}:{other}" for other in own))
    made: Callable[..., Any] = thing
    return made


_LOADED: list[Path] = []


def loaded_files() -> tuple[Path, ...]:
    """The users' files that have been loaded, in this order."""
    return tuple(_LOADED)


@lru_cache
def module_at(path: Path) -> ModuleType:
    """Run a user's file as a module. It may import its neighbours, as it could if Python ran it."""
    if not path.is_file():
        raise FedbanditError(f"There is no file {str(path)!r}.")
    name = f"{path.stem}_{zlib.crc32(bytes(path)):08x}"  # two files may have one stem
    found = importlib.util.spec_from_file_location(name, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module  # dataclasses look themselves up
    sys.path.insert(0, str(path.parent))
    try:
        found.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise FedbanditError(f"{str(path)!r} cannot be loaded: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(path.parent))
    _LOADED.append(path)
    return module
