"""Parts by name: what the command line, configurations and the checks know a part by.

A part is found if its package imports it. Its name is that of its class with hyphens, unless it has a `name`. One in a
user's file is named as systems there are: `my.py:MyPolicy`, `my.py:MyPolicy(c=10)`.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import numpy as np

from fedbandit.errors import FedbanditError, number, require, shown, unknown
from fedbandit.user_code import named_in_file

Part = TypeVar("Part")


def found_in(namespace: Mapping[str, Any], kind: Callable[..., Part]) -> dict[str, Callable[..., Part]]:
    """The parts of a kind that a package imports, by name: one line, with or without an entry in its `__all__`.

    >>> from fedbandit.policies import Greedy, Policy
    >>> sorted(found_in({"Greedy": Greedy, "Policy": Policy}, Policy))
    ['greedy']
    """
    kinds = [thing for thing in namespace.values() if isinstance(thing, type) and kind in thing.__mro__[1:]]
    bases = [thing for thing in kinds if getattr(thing, "_is_protocol", False) or inspect.isabstract(thing)]
    return {name_of(thing): thing for thing in kinds if thing not in bases}


def name_of(part: type) -> str:
    """What a kind of part is called.

    >>> class CountTriggered: ...
    >>> name_of(CountTriggered)
    'count-triggered'
    """
    return getattr(part, "name", None) or re.sub(r"(?<=[a-z])(?=[A-Z])", "-", part.__name__).lower()


def check_switch(name: str, value: object) -> None:
    """Refuse what is neither on nor off: the text "no" would be on."""
    require(isinstance(value, bool | np.bool_), name, value, "True or False")


def check_switches(part: object) -> None:
    """Refuse a part of which a keyword that is on or off is neither.

    >>> from fedbandit.protocols import EventTriggered
    >>> check_switches(EventTriggered(warm_join="no"))
    Traceback (most recent call last):
    fedbandit.errors.FedbanditError: warm_join of EventTriggered is 'no', but must be True or False.
    """
    for parameter in fields(part) if is_dataclass(part) else ():
        if parameter.type in (bool, "bool"):
            check_switch(f"{parameter.name} of {type(part).__name__}", getattr(part, parameter.name))


def build_part(role: str, text: str, kinds: Mapping[str, Callable[..., Part]]) -> Part:
    """The part that text such as `count-triggered(factor_upload=1.5)` describes.

    >>> from fedbandit.protocols import PROTOCOLS
    >>> build_part("protocol", "count-triggered(batch=4)", PROTOCOLS).batch
    4
    """
    require(isinstance(text, str), f"The {role}", text, f"text that names one of: {', '.join(sorted(kinds))}")
    found = re.fullmatch(r"(.*\.py:[\w-]+|[^(]*?)\s*(\(.*)?", text.strip(), flags=re.DOTALL)
    name, given = found.groups() if found else (text, None)
    kind = kind_named(role, name, kinds)
    keywords = {} if given is None else _keywords(role, text, given)
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)  # of a class without parameters
    taken = {key: one for key, one in inspect.signature(kind).parameters.items() if one.kind not in several}
    for keyword in keywords:
        if keyword not in taken:
            raise unknown(f"keyword of {name}", keyword, taken)
    missing = [key for key, parameter in taken.items() if parameter.default is parameter.empty and key not in keywords]
    if missing:
        raise FedbanditError(f"The {role} {name} needs {missing[0]}: write {name}({missing[0]}=…).")
    try:
        made = kind(**keywords)
    except FedbanditError:
        raise
    except Exception as error:  # of a user's own class
        raise FedbanditError(f"The {role} {text} cannot be made: {type(error).__name__}: {error}") from error
    for keyword, value in keywords.items():  # what a user's own class did not look at
        if taken[keyword].annotation in (float, "float", int, "int"):
            number(value, keyword, "a number", finite=False)
    return made


def kind_named(role: str, name: str, kinds: Mapping[str, Callable[..., Part]]) -> Callable[..., Part]:
    """The kind of part of this name, or the one in a user's file: my.py:MyPolicy."""
    if name.endswith(".py"):
        raise FedbanditError(f"{name!r} is a file; name the {role} in it as well: {name}:My{role.capitalize()}.")
    if ".py:" in name:
        return named_in_file(role, name)
    name = name.replace("_", "-")
    if name not in kinds:
        raise unknown(role, name, kinds)
    return kinds[name]


def _keywords(role: str, text: str, given: str) -> dict[str, Any]:
    """The keywords in `(key=value, …)`; values are Python literals, or inf."""
    try:
        call = ast.parse(f"part{given}", mode="eval").body
        if isinstance(call, ast.Call) and not call.args and all(keyword.arg for keyword in call.keywords):
            return {str(keyword.arg): _literal(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError):
        pass
    raise FedbanditError(
        f"The {role} is {shown(text)}, but must be a name, or a name with keywords such as "
        "count-triggered(factor_upload=1.5)."
    )


def _literal(node: ast.expr) -> Any:
    return float("inf") if isinstance(node, ast.Name) and node.id == "inf" else ast.literal_eval(node)
