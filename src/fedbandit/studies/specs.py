"""Systems and environments as users type them: a name, a name with keywords, or a function in a file.

    async-linucb
    async-linucb:gamma_upload=5,gamma_download=5
    path/to/my.py:my_system
    path/to/my.py:my_system:strength=2

A spec is text only. Called, it makes the system or the environment; it also travels to a worker process, where the
same file is loaded again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias, TypeVar

from fedbandit.environments import ENVIRONMENTS, Environment
from fedbandit.environments.recorded_file import recorded_file
from fedbandit.errors import FedbanditError, unknown
from fedbandit.presets import PRESETS
from fedbandit.presets.compose import Keyword, keywords_of, named_after
from fedbandit.system import System
from fedbandit.user_code import named_in_file

SYSTEMS = PRESETS
ENVIRONMENTS_BY_TEXT: dict[str, Callable[..., Environment]] = {**ENVIRONMENTS, "recorded": recorded_file}
WORLD_DEFAULTS = {"n_clients": "100", "dim": "25", "n_arms": "25"}
"""Values of keywords that an environment requires and a user did not give."""

Scalar: TypeAlias = int | float | bool | str | None

# What an annotation must mention for a value of this type to be welcome; numbers need no permission.
_PERMISSION: tuple[tuple[type, tuple[str, ...]], ...] = (
    (bool, ("bool",)),
    (str, ("str", "Literal", "Path")),
    (tuple, ("tuple", "Array", "Sequence", "list")),
    (type(None), ("None",)),
)


def hyphenated(name: str) -> str:
    """A name as it is written on the command line; one that names a file stays as it is."""
    return name if ".py:" in name else name.replace("_", "-")


def is_in_file(text: str) -> bool:
    """Whether a system or an environment is one in a file; a keyword's value may name a file too.

    >>> is_in_file("my.py:hospitals:factor=2"), is_in_file("async-linucb:policy=my.py:EpsilonGreedy")
    (True, False)
    """
    return ".py:" in text and not re.match(r"[\w-]+:[\w-]+=", text)


@dataclass(frozen=True)
class Spec:
    """A name and keywords, both as text."""

    name: str
    keywords: tuple[tuple[str, str], ...] = ()

    example: ClassVar[str] = "my_system"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Take a text apart. A comma begins a keyword only if `=` follows, so values may have commas.

        >>> SystemSpec.parse("async-linucb:gamma-upload=2,gamma_download=inf")
        SystemSpec(name='async_linucb', keywords=(('gamma_upload', '2'), ('gamma_download', 'inf')))
        >>> EnvironmentSpec.parse("homogeneous:drift=100,200,pool=50").keywords
        (('drift', '100,200'), ('pool', '50'))
        """
        if text.endswith(".py"):
            raise FedbanditError(f"{text!r} is a file; name the function in it as well: {text}:{cls.example}.")
        if is_in_file(text):
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

    @property
    def title(self) -> str:
        """What tables and legends call it: the label, and a function in a file by its own name."""
        return self.label if self.file is None else hyphenated(self.label.partition(".py:")[2])

    @property
    def file(self) -> Path | None:
        """The user's file, if the name is that of a function in one."""
        path, marker, _ = self.name.partition(".py:")
        return Path(f"{path}.py") if marker else None

    def over(self, flags: Mapping[str, str]) -> Self:
        """The spec with these keywords added where it does not set them itself."""
        return replace(self, keywords=tuple({**flags, **dict(self.keywords)}.items()))

    def _maker(self, kind: str, table: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
        """The function of this name, in a table or in the user's file."""
        if self.file is None:
            if self.name not in table:
                raise unknown(kind, hyphenated(self.name), map(hyphenated, table))
            return table[self.name]
        return named_in_file("function", self.name)

    def _make(self, maker: Callable[..., Any], defaults: Mapping[str, str]) -> Any:
        takes, given = keywords_of(maker), dict(self.keywords)
        for name in given:
            if name not in takes:
                if not takes:
                    raise FedbanditError(f"{hyphenated(self.name)} takes no keywords, but was given {name!r}.")
                raise unknown(f"keyword of {hyphenated(self.name)}", name, takes)
        for keyword in takes.values():
            if keyword.required and keyword.name not in given:
                if keyword.name not in defaults:
                    raise FedbanditError(f"{hyphenated(self.name)} needs --{hyphenated(keyword.name)}.")
                given[keyword.name] = defaults[keyword.name]
        values = {name: convert(text, takes[name]) for name, text in given.items()}
        try:
            return maker(**values)
        except FedbanditError:
            raise
        except (TypeError, ValueError) as error:
            if self.file is not None:  # a user's own function keeps its traceback: the fault may be there
                raise
            raise FedbanditError(f"{self.over(given).label} makes no sense: {error}.") from error


class SystemSpec(Spec):
    """A system as text."""

    @property
    def maker(self) -> Callable[..., System]:
        """The preset, or the user's function."""
        return self._maker("system", SYSTEMS)

    def __call__(self) -> System:
        """Make the system; one from a file is called after its function."""
        return named_after(self.maker.__name__, self._make(self.maker, {}))


class EnvironmentSpec(Spec):
    """An environment as text."""

    example: ClassVar[str] = "my_environment"

    @property
    def maker(self) -> Callable[..., Environment]:
        """The environment of this name, or the user's function."""
        return self._maker("environment", ENVIRONMENTS_BY_TEXT)

    def __call__(self) -> Environment:
        """Make the environment, with `WORLD_DEFAULTS` for required keywords that were not given."""
        env: Environment = self._make(self.maker, WORLD_DEFAULTS)
        if not hasattr(env, "open"):
            raise FedbanditError(f"{self.name} returned {env!r}, which is not an environment.")
        return env


AnySpec = TypeVar("AnySpec", SystemSpec, EnvironmentSpec)


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


def distribute(
    flags: Mapping[str, str], systems: Sequence[SystemSpec], envs: Sequence[EnvironmentSpec] = ()
) -> tuple[list[SystemSpec], list[EnvironmentSpec]]:
    """Give each flag to the environments that take it, otherwise to every system that does."""
    of_envs = {key: text for key, text in flags.items() if any(key in keywords_of(env.maker) for env in envs)}
    of_systems = {key: text for key, text in flags.items() if key not in of_envs}
    for name in of_systems:
        if not any(name in keywords_of(spec.maker) for spec in systems):
            named = ", ".join(dict.fromkeys(hyphenated(spec.name) for spec in systems))
            where = " nor of ".join([f"a keyword neither of {named}", *(hyphenated(env.name) for env in envs)])
            raise FedbanditError(f"--{hyphenated(name)} is {where if envs else f'not a keyword of {named}'}.")
    return [_told(spec, of_systems) for spec in systems], [_told(env, of_envs) for env in envs]


def _told(spec: AnySpec, flags: Mapping[str, str]) -> AnySpec:
    takes = keywords_of(spec.maker)
    return spec.over({key: text for key, text in flags.items() if key in takes})


def read_value(text: str) -> Scalar | tuple[Scalar, ...]:
    """The Python value that a piece of text looks like.

    >>> [read_value(text) for text in ("5", "2.5", "1e3", "inf", "true", "none", "100,200", "lints")]
    [5, 2.5, 1000, inf, True, None, (100, 200), 'lints']
    """
    if "," in text:
        return tuple(_read_scalar(part) for part in text.split(",") if part)
    return _read_scalar(text)


def _read_scalar(text: str) -> Scalar:
    text = text.strip()
    words: dict[str, Scalar] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return text
    # 1e6 is how people write a million, and counts must be whole.
    written_whole = "." not in text and abs(number) < 1e18 and number.is_integer()
    return int(number) if written_whole else number


def written(value: object) -> str:
    """A value as `read_value` reads it.

    >>> [written(value) for value in (None, True, 2.0, (100, 200), "lints")]
    ['none', 'true', '2.0', '100,200', 'lints']
    """
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(written, value)) if isinstance(value, list | tuple) else str(value)


def convert(text: str, keyword: Keyword) -> Scalar | tuple[Scalar, ...]:
    """The value of a keyword given as text, refused if the keyword cannot be of that type.

    >>> convert("100", Keyword("drift", False, (), "tuple[int, ...]"))
    (100,)
    >>> convert("much", Keyword("noise", False, 0.1, "float"))
    Traceback (most recent call last):
    fedbandit.errors.FedbanditError: noise is 'much', but must be a value of type float.
    """
    # Such as igw(gamma=10), or my.py:EpsilonGreedy
    described_part = ("(" in text or ".py:" in text) and "str" in keyword.annotation
    if keyword.annotation == "str" or "Path" in keyword.annotation or described_part:
        return text
    if keyword.name == "privacy":
        raise FedbanditError(
            f"privacy is {text!r}, but cannot be written here: name feducb, dp-linucb or another private system, or a "
            "function of yours, my.py:my_system, that returns one with privacy=PrivateStatistics(…)."
        )
    value = read_value(text)
    if isinstance(keyword.default, tuple) and not isinstance(value, tuple):
        value = (value,)
    for kind, words in _PERMISSION:
        if isinstance(value, kind) and keyword.annotation and not any(word in keyword.annotation for word in words):
            raise FedbanditError(f"{keyword.name} is {text!r}, but must be a value of type {keyword.annotation}.")
    return value


def described(thing: Any) -> str:
    """A system, an environment or its maker in a line: where possible as a user would type it.

    >>> import fedbandit as fb
    >>> described(partial(fb.async_linucb, gamma_upload=2.0)), described(fb.environments.fclub(n_servers=2))
    ('async-linucb:gamma_upload=2.0', 'fclub:n_servers=2')
    """
    if isinstance(thing, Spec):
        return thing.label
    if isinstance(thing, System):
        parts = (thing.policy, thing.protocol, thing.structure, thing.privacy)
        return f"{thing.name}: {', '.join(map(repr, parts))}, ridge={thing.ridge:g}"
    if isinstance(thing, partial):
        words = [*(described(arg) if callable(arg) else written(arg) for arg in thing.args)]
        name, keywords = thing.func.__name__, thing.keywords
    elif callable(thing):
        if thing.__name__ == "<lambda>":
            return described(thing())
        name, words, keywords = thing.__name__, [], {}
    else:
        name, words, keywords = thing.name, [], _unusual_fields(thing)
    words += [f"{key}={written(value)}" for key, value in keywords.items()]
    return hyphenated(name) + (f":{','.join(words)}" if words else "")


def _unusual_fields(env: Environment) -> dict[str, Any]:
    """The parameters of an environment that differ from their defaults; arrays of data are left out."""
    usual: dict[str, Any] = {field.name: field.default for field in fields(env)} if is_dataclass(env) else {}
    given = {name: getattr(env, name) for name in usual}
    return {
        name: value
        for name, value in given.items()
        if isinstance(value, int | float | str | tuple) and value != usual[name]
    }
