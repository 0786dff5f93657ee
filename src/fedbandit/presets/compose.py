"""What presets are made with: the registry, and the keywords they have in common."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import cache, wraps
from typing import Any, NamedTuple, ParamSpec, TypedDict, Unpack, get_args, get_type_hints

from fedbandit.errors import FedbanditError, require, shown, unknown
from fedbandit.parts import build_part, check_switch, kind_named
from fedbandit.policies import POLICIES, Policy
from fedbandit.privacy import NoPrivacy, Privacy, PrivateStatistics
from fedbandit.privacy.trust import Own, Trust
from fedbandit.protocols import MessageProtocol
from fedbandit.structures import Structure
from fedbandit.system import System

P = ParamSpec("P")
PRESETS: dict[str, Callable[..., System]] = {}


POOLED_WIDTH = 0.6
"""α where one client's noise is in everybody's total (`trust`), unless a number of the formula is given: its bounds are
far from what such noise does. The best of a few in FedUCB's world, and good in others (docs/privacy.md)."""


class Basic(TypedDict, total=False):
    """Keywords that every learning preset takes, but for those of forgetting.

    ridge: λ, by default 0.1.
    noise: σ assumed by the confidence width, by default what the environment declares.
    confidence: δ of the width, by default 0.1.
    alpha: a fixed width instead of the formula.
    policy: "ucb" (default), "lints", "linphe", "squared" (as FCLUB's code), "greedy", "uniform", one with parameters of
        its own such as "igw(gamma=10)", one in a file ("my.py:MyPolicy"), or a policy composed by hand.
    """

    ridge: float
    noise: float | None
    confidence: float
    alpha: float | None
    policy: str | Policy


class Common(Basic, total=False):
    """Keywords that every learning preset takes.

    discount: γ, what an observation counts a round later, or "changes:3" for as many changes (by default 1: for ever).
    window: the number of rounds whose observations count, or "adaptive": as many as a test finds no change in.
    """

    discount: float | str
    window: int | str | None


def preset(function: Callable[P, System]) -> Callable[P, System]:
    """Register a function as a system by its name; the system carries that name."""
    # Not that of what it wraps: a decorator may take more, and says so by **keywords.
    own = inspect.signature(function, follow_wrapped=False).parameters.values()
    rest = next((parameter for parameter in own if parameter.kind is parameter.VAR_KEYWORD), None)
    any_keyword = rest is not None and "Unpack[" not in _as_text(rest.annotation)

    @wraps(function)
    def named(*args: P.args, **kwargs: P.kwargs) -> System:
        known = keywords_of(named)
        for name, value in kwargs.items():
            if not any_keyword and name not in known:
                raise unknown(f"keyword of {function.__name__}", name, known)
            if name in known:
                _check_kind(known[name], value)
        return named_after(function.__name__, function(*args, **kwargs))

    PRESETS[function.__name__] = named
    return named


def _check_kind(keyword: Keyword, value: object) -> None:
    """Refuse what would be taken for something else, or end in a traceback: a switch, or a part, that is none."""
    if keyword.annotation == "bool":
        check_switch(keyword.name, value)
    if keyword.name == "privacy" and value is not None and "str" not in keyword.annotation:
        require(isinstance(value, Privacy), "privacy", value, "a privacy part, such as NoisyRewards(1.0), or None")


def named_after(function: str, system: object) -> System:
    """What a function returned, by the function's name, if it is a system."""
    if not isinstance(system, System):
        raise FedbanditError(f"{function} returned {shown(system)}, which is not a System.")
    return replace(system, name=function)


class Keyword(NamedTuple):
    """A keyword that a preset, an environment or a user's function takes; the annotation as text."""

    name: str
    required: bool
    default: object
    annotation: str

    @property
    def is_switch(self) -> bool:
        """Whether it is only ever on or off."""
        return isinstance(self.default, bool) or self.annotation == "bool"


@cache
def keywords_of(function: Callable[..., Any]) -> dict[str, Keyword]:
    """All keywords of a function by name; `**rest` stands for those of its TypedDict, or the common ones.

    >>> import fedbandit as fb
    >>> list(keywords_of(fb.sync_linucb))
    ['threshold', 'warm_join', 'ridge', 'noise', 'confidence', 'alpha', 'policy', 'discount', 'window']
    """
    try:
        hints = get_type_hints(inspect.unwrap(function))
    except (NameError, TypeError):  # a user's annotation that cannot be resolved
        hints = {}
    found = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            plain = "" if parameter.annotation is parameter.empty else parameter.annotation
            annotation = _as_text(hints.get(parameter.name, plain))
            required = parameter.default is parameter.empty
            found[parameter.name] = Keyword(parameter.name, required, parameter.default, annotation)
    rest = _rest_of(function)
    if rest is not None:
        kind = next(iter(get_args(hints.get(rest.name))), Common)
        found |= {name: Keyword(name, False, None, _as_text(hint)) for name, hint in get_type_hints(kind).items()}
    return found


def _rest_of(function: Callable[..., Any]) -> inspect.Parameter | None:
    """Its `**` parameter."""
    parameters = inspect.signature(function).parameters.values()
    return next((parameter for parameter in parameters if parameter.kind is parameter.VAR_KEYWORD), None)


def _as_text(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def trusting(privacy: Privacy | None, trust: Trust | None, own: Own | None) -> Privacy | None:
    """A privacy part with another trust, and another kind of own data, if they are given."""
    if trust is None and own is None:
        return privacy
    if not isinstance(privacy, PrivateStatistics):
        raise FedbanditError(
            f"{'own' if trust is None else 'trust'} was given, but nothing noises statistics; add "
            "privacy=PrivateStatistics(…)."
        )
    return replace(privacy, trust=privacy.trust if trust is None else trust, own=privacy.own if own is None else own)


def compose(
    protocol: MessageProtocol, structure: Structure, privacy: Privacy | None = None, **common: Unpack[Common]
) -> System:
    """A system of these parts with the policy and ridge that the common keywords ask for."""
    ridge, policy = common.get("ridge", 0.1), common.get("policy", "ucb")
    if privacy is not None and privacy.pooled and policy == "ucb" and not common.keys() & {"noise", "confidence"}:
        common.setdefault("alpha", POOLED_WIDTH)
    width: dict[str, Any] = {key: value for key, value in common.items() if key in ("noise", "confidence", "alpha")}
    unexpected = sorted(set(common) - set(Common.__annotations__))
    if unexpected:
        raise unknown("keyword", unexpected[0], Common.__annotations__)
    if isinstance(policy, str) and "(" in policy:
        policy = build_part("policy", policy, POLICIES)
    if isinstance(policy, str):
        kind = kind_named("policy", policy, POLICIES)
        taken = inspect.signature(kind).parameters
        stray = [key for key in width if key not in taken]
        if stray:
            raise FedbanditError(f"{', '.join(stray)} was given, but the policy {policy!r} has no width.")
        chosen: Policy = kind(**width)
    elif width:
        raise FedbanditError(
            f"{', '.join(width)} was given beside the policy {policy!r}; set it on the policy instead."
        )
    else:
        chosen = policy
    forgotten: dict[str, Any] = {key: value for key, value in common.items() if key in ("discount", "window")}
    return System(chosen, protocol, structure, privacy or NoPrivacy(), ridge, **forgotten)
