"""Keywords as text: which ones a function takes, and what Python value a piece of text stands for."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, get_type_hints

from fedbandit.errors import FedbanditError

Scalar: TypeAlias = int | float | bool | str | None
Value: TypeAlias = Scalar | tuple[Scalar, ...]

# What an annotation must mention for a value of this type to be welcome; numbers need no permission.
_PERMISSION: tuple[tuple[type, tuple[str, ...]], ...] = (
    (bool, ("bool",)),
    (str, ("str", "Literal", "Path")),
    (tuple, ("tuple", "Array", "Sequence", "list")),
    (type(None), ("None",)),
)


class Keyword(NamedTuple):
    """A keyword that a preset, an environment or a user's function takes."""

    name: str
    required: bool
    default: object
    annotation: str

    @property
    def is_switch(self) -> bool:
        """Whether it is only ever on or off."""
        return isinstance(self.default, bool)


def keywords_of(function: Callable[..., Any]) -> dict[str, Keyword]:
    """All keywords of a function; `**common` stands for those of `presets.Common`.

    >>> import fedbandit as fb
    >>> list(keywords_of(fb.sync_linucb))
    ['threshold', 'ridge', 'noise', 'confidence', 'alpha', 'policy']
    """
    from fedbandit.presets import Common

    found: dict[str, Keyword] = {}
    hints = _hints(function)
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            for name, annotation in get_type_hints(Common).items():
                found[name] = Keyword(name, False, None, _as_text(annotation))
        elif parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            required = parameter.default is parameter.empty
            plain = "" if parameter.annotation is parameter.empty else parameter.annotation
            annotation = _as_text(hints.get(parameter.name, plain))
            found[parameter.name] = Keyword(parameter.name, required, parameter.default, annotation)
    return found


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """What the annotations stand for, where they can be resolved: `Factor` is a number, a list or a name."""
    try:
        return get_type_hints(inspect.unwrap(function))
    except (NameError, TypeError):
        return {}


def _as_text(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def read_value(text: str) -> Value:
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
    written_whole = "." not in text and math.isfinite(number) and number.is_integer()
    return int(number) if written_whole else number


def convert(text: str, keyword: Keyword) -> Value:
    """The value of a keyword given as text, refused if the keyword cannot be of that type.

    >>> convert("100", Keyword("drift", False, (), "tuple[int, ...]"))
    (100,)
    >>> convert("much", Keyword("noise", False, 0.1, "float"))
    Traceback (most recent call last):
    fedbandit.errors.FedbanditError: noise is 'much', but must be a value of type float.
    """
    if keyword.annotation == "str" or "Path" in keyword.annotation:
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
