"""Errors that a user can act on: one sentence that names the value and says what was expected."""

from __future__ import annotations

import difflib
import inspect
import math
import numbers
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
Made = TypeVar("Made")


class FedbanditError(ValueError):
    """Bad input. The command line prints its sentence and exits with status 2."""


def require(condition: bool, name: str, value: object, expected: str) -> None:
    """Refuse `value` unless `condition` holds.

    >>> require(False, "gamma_upload", 0.5, "a number ≥ 1")
    Traceback (most recent call last):
    fedbandit.errors.FedbanditError: gamma_upload is 0.5, but must be a number ≥ 1.
    """
    if not condition:
        raise FedbanditError(f"{name} is {shown(value)}, but must be {expected}.")


def shown(value: object) -> str:
    """What to write for a value in a sentence: its beginning if it is long, without line breaks.

    >>> shown([0.5] * 1000)
    '[0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, …'
    """
    text = " ".join(repr(value).split())
    return text if len(text) <= 120 else f"{text[:60].rstrip()} …"


def as_sentence(text: object) -> str:
    """What another program has said, on one line and as the end of a sentence.

    >>> as_sentence("no  password supplied"), as_sentence("Is it running?"), as_sentence("not for '::1'.")
    ('no password supplied.', 'Is it running?', "not for '::1'.")
    """
    said = " ".join(str(text).split()).rstrip(".")
    return said if said.endswith(("?", "!")) else f"{said}."


def whole_number(name: str, value: object, least: int = 1, most: int | None = None) -> int:
    """`value` as an int, if it is a whole number of at least `least` and at most `most` (NumPy's count too).

    >>> whole_number("seed", 1.5, 0)
    Traceback (most recent call last):
    fedbandit.errors.FedbanditError: seed is 1.5, but must be a whole number ≥ 0.
    """
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    require(number >= least, name, value, f"a whole number ≥ {least}")
    require(most is None or number <= most, name, value, f"a whole number ≤ {most}")
    return number


def number(value: object, name: str, expected: str, at_least: float = -math.inf, *, finite: bool = True) -> float:
    """`value` as a float, if it is a finite number of at least `at_least`; or an infinite one, if that is allowed.

    >>> number("x", "ridge", "a finite number > 0")
    Traceback (most recent call last):
    fedbandit.errors.FedbanditError: ridge is 'x', but must be a finite number > 0.
    """
    plain: object = value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value
    try:
        real = float(plain) if isinstance(plain, numbers.Real) else math.nan
    except OverflowError:
        real = math.inf
    require(real >= at_least and (math.isfinite(real) or not finite), name, value, expected)
    return real


_CALLED = {
    "dp_accounting": "dp-accounting",
    "numba": "Numba",
    "opendp": "OpenDP",
    "ray": "Ray",
    "scipy": "SciPy",
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
}


def needs(module: str, extra: str, what: str) -> Any:
    """Import a module that comes with an extra; where it is missing, say what needs it and how to get it.

    >>> needs("no_such_package", "plots", "A plot")
    Traceback (most recent call last):
    fedbandit.errors.FedbanditError: A plot needs no_such_package: pip install 'fedbandit[plots]'.
    """
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise  # it is there, but lacks something itself
    called = _CALLED.get(package, package)
    raise FedbanditError(f"{what} needs {called}: pip install 'fedbandit[{extra}]'.")


def check_call(
    name: str, function: Callable[..., object], args: Sequence[object], keywords: Mapping[str, object]
) -> None:
    """Refuse keywords that a function does not take, with the nearest one that it does, and a call that lacks some.

    >>> check_call("sorted", sorted, [[]], {"revers": True})
    Traceback (most recent call last):
    fedbandit.errors.FedbanditError: There is no keyword of sorted 'revers'; did you mean 'reverse'?
    >>> check_call("sorted", sorted, [], {})
    Traceback (most recent call last):
    fedbandit.errors.FedbanditError: sorted(…): missing a required argument: 'iterable'.
    """
    signature = inspect.signature(function)
    taken = signature.parameters
    if not any(one.kind is one.VAR_KEYWORD for one in taken.values()):
        for keyword in keywords:
            if keyword not in taken:
                raise unknown(f"keyword of {name}", keyword, taken.keys() - {"self"})
    try:
        signature.bind(*args, **keywords)
    except TypeError as error:
        raise FedbanditError(f"{name}(…): {error}.") from None


def checked_call(function: Callable[P, Made]) -> Callable[P, Made]:
    """The function, with a sentence instead of Python's error for a call that it does not take."""

    @wraps(function)
    def checked(*args: P.args, **keywords: P.kwargs) -> Made:
        check_call(function.__name__, function, args, keywords)
        return function(*args, **keywords)

    return checked


def unknown(kind: str, name: object, known: Iterable[str]) -> FedbanditError:
    """The error for a name that does not exist, or is none, with the nearest one that does.

    >>> print(unknown("system", "async-linubc", ["async-linucb", "uniform"]))
    There is no system 'async-linubc'; did you mean 'async-linucb'?
    >>> print(unknown("system", 3, ["async-linucb", "uniform"]))
    There is no system 3; there are: async-linucb, uniform.
    """
    names = sorted(known)
    folded = {other.lower(): other for other in reversed(names)}
    asked = str(name)[:200].lower()  # what is longer is near nothing, but would be looked at for seconds
    near = [folded[key] for key in difflib.get_close_matches(asked, folded, n=1, cutoff=0.6)]
    there_are = f"there are: {', '.join(names)}." if names else "there is none."
    hint = f"did you mean {near[0]!r}?" if near else there_are
    return FedbanditError(f"There is no {kind} {shown(name)}; {hint}")
