"""Systems and environments by text: a name, a name with keywords, or a function in anyone's file.

    async-linucb
    async-linucb:gamma_upload=5,gamma_download=5
    path/to/my.py:my_system
    path/to/my.py:my_system:strength=2

A `Spec` is only text, so it travels to a worker process where a function loaded from a file could not.
"""

from __future__ import annotations

import importlib.util
import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from fedbandit.environments import ENVIRONMENTS, Environment
from fedbandit.environments.recorded_file import recorded_file
from fedbandit.errors import FedbanditError, unknown
from fedbandit.presets import PRESETS
from fedbandit.presets.compose import named_after
from fedbandit.studies.keywords import Keyword, Value, convert, keywords_of
from fedbandit.system import System

SYSTEMS = PRESETS
ENVIRONMENTS_BY_TEXT: dict[str, Callable[..., Environment]] = {**ENVIRONMENTS, "recorded": recorded_file}
WORLD_DEFAULTS = {"n_clients": "100", "dim": "25", "n_arms": "25"}
"""What an environment is made with when it needs a keyword that was not given."""


def hyphenated(name: str) -> str:
    """A name as it is written on the command line; one that names a file stays as it is."""
    return name if ".py:" in name else name.replace("_", "-")


@dataclass(frozen=True)
class Spec:
    """A name and keywords, both as text."""

    name: str
    keywords: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Take a text apart. A comma begins a keyword only if `=` follows, so values may have commas.

        >>> Spec.parse("async-linucb:gamma-upload=2,gamma_download=inf")
        Spec(name='async_linucb', keywords=(('gamma_upload', '2'), ('gamma_download', 'inf')))
        >>> Spec.parse("homogeneous:drift=100,200,pool=50").keywords
        (('drift', '100,200'), ('pool', '50'))
        """
        if text.endswith(".py"):
            raise FedbanditError(f"{text!r} is a file; name the function in it as well: {text}:my_system.")
        if ".py:" in text:
            path, _, rest = text.partition(".py:")
            function, _, inline = rest.partition(":")
            return cls(f"{path}.py:{function}", _inline_keywords(inline, text))
        name, _, inline = text.partition(":")
        return cls(name.replace("-", "_"), _inline_keywords(inline, text))

    @property
    def label(self) -> str:
        """The text again, in its usual form."""
        inline = ",".join(f"{key}={value}" for key, value in self.keywords)
        return hyphenated(self.name) + (f":{inline}" if inline else "")

    def over(self, flags: Mapping[str, str]) -> Spec:
        """The spec with these keywords added where it does not set them itself."""
        return replace(self, keywords=tuple({**flags, **dict(self.keywords)}.items()))


def _inline_keywords(inline: str, text: str) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    for part in filter(None, inline.split(",")):
        key, equals, value = part.partition("=")
        if equals:
            found.append((key.strip().replace("-", "_"), value))
        elif found:
            found[-1] = (found[-1][0], f"{found[-1][1]},{part}")
        else:
            raise FedbanditError(f"{part!r} in {text!r} is not of the form keyword=value.")
    return tuple(found)


def system_maker(name: str) -> Callable[..., System]:
    """The preset of this name, or the function that a file holds."""
    return _maker("system", name, SYSTEMS)


def environment_maker(name: str) -> Callable[..., Environment]:
    """The environment of this name, or the function that a file holds."""
    return _maker("environment", name, ENVIRONMENTS_BY_TEXT)


def build_system(spec: Spec) -> System:
    """Make the system; one from a file is called after its function."""
    maker = system_maker(spec.name)
    return named_after(maker.__name__, _make(maker, spec, {}))


@lru_cache(maxsize=4)  # a worker runs many trials on one recorded file
def build_environment(spec: Spec) -> Environment:
    """Make the environment, with `WORLD_DEFAULTS` for what it needs and was not given."""
    env: Environment = _make(environment_maker(spec.name), spec, WORLD_DEFAULTS)
    if not hasattr(env, "open"):
        raise FedbanditError(f"{spec.name} returned {env!r}, which is not an environment.")
    return env


def distribute(flags: Mapping[str, str], systems: list[Spec], env: Spec) -> tuple[list[Spec], Spec]:
    """Give each flag to the environment if it takes it, otherwise to every system that does."""
    env_takes = keywords_of(environment_maker(env.name))
    system_takes = [keywords_of(system_maker(spec.name)) for spec in systems]
    for name in flags:
        if name not in env_takes and not any(name in takes for takes in system_takes):
            named = ", ".join(dict.fromkeys(hyphenated(spec.name) for spec in systems))
            raise FedbanditError(f"--{hyphenated(name)} is a keyword neither of {named} nor of {hyphenated(env.name)}.")
    told = [
        spec.over({key: text for key, text in flags.items() if key in takes and key not in env_takes})
        for spec, takes in zip(systems, system_takes, strict=True)
    ]
    return told, env.over({key: text for key, text in flags.items() if key in env_takes})


def _make(maker: Callable[..., Any], spec: Spec, defaults: Mapping[str, str]) -> Any:
    takes = keywords_of(maker)
    given = dict(spec.keywords)
    for name in given:
        if name not in takes:
            raise _not_a_keyword(name, spec, takes)
    for keyword in takes.values():
        if keyword.required and keyword.name not in given:
            if keyword.name not in defaults:
                raise FedbanditError(f"{hyphenated(spec.name)} needs --{hyphenated(keyword.name)}.")
            given[keyword.name] = defaults[keyword.name]
    values: dict[str, Value] = {name: convert(text, takes[name]) for name, text in given.items()}
    try:
        return maker(**values)
    except FedbanditError:
        raise
    except (TypeError, ValueError) as error:
        # A value of a type nobody foresaw. A user's own function keeps its traceback: the fault may be there.
        if ".py:" in spec.name:
            raise
        raise FedbanditError(f"{spec.over(given).label} makes no sense: {error}.") from error


def _not_a_keyword(name: str, spec: Spec, takes: Mapping[str, Keyword]) -> FedbanditError:
    if not takes:
        return FedbanditError(f"{hyphenated(spec.name)} takes no keywords, but was given {name!r}.")
    return unknown(f"keyword of {hyphenated(spec.name)}", name, takes)


def _maker(kind: str, name: str, table: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    if ".py:" in name:
        path, _, function = name.partition(".py:")
        return _function_in(f"{path}.py", function)
    if name not in table:
        raise unknown(kind, hyphenated(name), map(hyphenated, table))
    return table[name]


def _function_in(path: str, name: str) -> Callable[..., Any]:
    module = module_at(Path(path).resolve())
    function = getattr(module, name.replace("-", "_"), None)
    if not callable(function):
        own = [key for key, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__]
        raise unknown("function", f"{path}:{name}", (f"{path}:{function}" for function in own))
    return function


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
    return module
