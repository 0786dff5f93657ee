"""What presets are made with: the registry, and the keywords they have in common."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec, TypedDict, Unpack

from fedbandit.errors import FedbanditError, shown, unknown
from fedbandit.policies import POLICIES, Policy
from fedbandit.privacy import NoPrivacy, Privacy
from fedbandit.protocols import MessageProtocol
from fedbandit.structures import Structure
from fedbandit.system import System

P = ParamSpec("P")
PRESETS: dict[str, Callable[..., System]] = {}


class Common(TypedDict, total=False):
    """Keywords that every learning preset takes.

    ridge: λ, by default 0.1.
    noise: σ assumed by the confidence width, by default what the environment declares.
    confidence: δ of the width, by default 0.1.
    alpha: a fixed width instead of the formula.
    policy: "ucb" (default), "lints", "linphe", "squared" (as FCLUB's code), "greedy", "uniform", or a policy composed
        by hand.
    """

    ridge: float
    noise: float | None
    confidence: float
    alpha: float | None
    policy: str | Policy


def preset(function: Callable[P, System]) -> Callable[P, System]:
    """Register a function as a system by its name; the system carries that name."""
    keywords = _keywords_of(function)

    @wraps(function)
    def named(*args: P.args, **kwargs: P.kwargs) -> System:
        for name in kwargs:
            if keywords is not None and name not in keywords:
                raise unknown(f"keyword of {function.__name__}", name, keywords)
        return named_after(function.__name__, function(*args, **kwargs))

    PRESETS[function.__name__] = named
    return named


def named_after(function: str, system: object) -> System:
    """What a function returned, by the function's name, if it is a system."""
    if not isinstance(system, System):
        raise FedbanditError(f"{function} returned {shown(system)}, which is not a System.")
    return replace(system, name=function)


def _keywords_of(function: Callable[..., System]) -> set[str] | None:
    """The names it takes, the common ones included; None if it takes whatever comes."""
    parameters = inspect.signature(function, follow_wrapped=False).parameters
    rest = [parameter for parameter in parameters.values() if parameter.kind is parameter.VAR_KEYWORD]
    if any(parameter.annotation not in ("Unpack[Common]", Unpack[Common]) for parameter in rest):
        return None
    names = set(parameters) - {parameter.name for parameter in rest}
    return names | set(Common.__annotations__) if rest else names


def compose(
    protocol: MessageProtocol, structure: Structure, privacy: Privacy | None = None, **common: Unpack[Common]
) -> System:
    """A system of these parts with the policy and ridge that the common keywords ask for."""
    ridge, policy = common.get("ridge", 0.1), common.get("policy", "ucb")
    width: dict[str, Any] = {key: value for key, value in common.items() if key not in ("ridge", "policy")}
    unexpected = sorted(set(common) - set(Common.__annotations__))
    if unexpected:
        raise unknown("keyword", unexpected[0], Common.__annotations__)
    if isinstance(policy, str):
        if policy not in POLICIES:
            raise unknown("policy", policy, POLICIES)
        kind = POLICIES[policy]
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
    return System(chosen, protocol, structure, privacy or NoPrivacy(), ridge)
