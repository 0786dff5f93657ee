"""The papers' systems by name: each a short function that composes four parts.

To add one, write a function that returns a `System` and decorate it with `@preset`; it is then found by the command
line, by `fedbandit list` and by the conformance tests. It may stand in any file: `fedbandit simulate my.py:my_system`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec, TypedDict, Unpack

from fedbandit.errors import FedbanditError, unknown
from fedbandit.policies import UCB, Greedy, LinPHE, LinTS, Policy, Uniform
from fedbandit.protocols import CountTriggered, EventTriggered, Factor, MessageProtocol, Never, Synchronous
from fedbandit.structures import Central, Everyone, Structure
from fedbandit.system import System

P = ParamSpec("P")
PRESETS: dict[str, Callable[..., System]] = {}

POLICIES: dict[str, type[UCB] | type[LinTS] | type[LinPHE] | type[Greedy] | type[Uniform]] = {
    "ucb": UCB,
    "lints": LinTS,
    "linphe": LinPHE,
    "greedy": Greedy,
    "uniform": Uniform,
}


class Common(TypedDict, total=False):
    """Keywords that every learning preset takes.

    ridge: λ, by default 0.1.
    noise: σ assumed by the confidence width, by default what the environment declares.
    confidence: δ of the width, by default 0.1.
    alpha: a fixed width instead of the formula.
    policy: "ucb" (default), "lints", "linphe", "greedy", "uniform", or a policy composed by hand.
    """

    ridge: float
    noise: float | None
    confidence: float
    alpha: float | None
    policy: str | Policy


def preset(function: Callable[P, System]) -> Callable[P, System]:
    """Register a function as a system by its name; the system carries that name."""

    @wraps(function)
    def named(*args: P.args, **kwargs: P.kwargs) -> System:
        return replace(function(*args, **kwargs), name=function.__name__)

    PRESETS[function.__name__] = named
    return named


def compose(protocol: MessageProtocol, structure: Structure, **common: Unpack[Common]) -> System:
    """A system of this protocol and structure with the policy and ridge that the common keywords ask for."""
    ridge, policy = common.get("ridge", 0.1), common.get("policy", "ucb")
    width: dict[str, Any] = {key: value for key, value in common.items() if key not in ("ridge", "policy")}
    unexpected = sorted(set(common) - set(Common.__annotations__))
    if unexpected:
        raise unknown("keyword", unexpected[0], Common.__annotations__)
    if isinstance(policy, str):
        if policy not in POLICIES:
            raise unknown("policy", policy, POLICIES)
        kind = POLICIES[policy]
        if kind in (Greedy, Uniform) and width:
            raise FedbanditError(f"{', '.join(width)} was given, but the policy {policy!r} has no width.")
        chosen: Policy = kind(**width)
    elif width:
        raise FedbanditError(
            f"{', '.join(width)} was given beside the policy {policy!r}; set it on the policy instead."
        )
    else:
        chosen = policy
    return System(chosen, protocol, structure, ridge=ridge)


@preset
def uniform() -> System:
    """Uniformly random arms: the yardstick."""
    return System(Uniform(), Never(), Everyone())


@preset
def linucb(**common: Unpack[Common]) -> System:
    """Independent LinUCB, one per client: no communication."""
    return compose(Never(), Everyone(), **common)


@preset
def linucb_central(**common: Unpack[Common]) -> System:
    """Centralised LinUCB: one model that sees all raw data; it exchanges no statistics, so none are counted."""
    return compose(Never(), Central(), **common)


@preset
def sync_linucb(*, threshold: float | str | None = None, **common: Unpack[Common]) -> System:
    """Synchronous federated LinUCB, also called DisLinUCB (Async-LinUCB paper, Alg. 4)."""
    return compose(Synchronous(threshold), Everyone(), **common)


dislinucb = PRESETS["dislinucb"] = sync_linucb


@preset
def async_linucb(
    *,
    gamma_upload: Factor = 5.0,
    gamma_download: Factor = 5.0,
    warm_join: bool = False,
    **common: Unpack[Common],
) -> System:
    """Asynchronous event-triggered federated LinUCB (Async-LinUCB, Alg. 1 and 2)."""
    return compose(EventTriggered(gamma_upload, gamma_download, warm_join), Everyone(), **common)


@preset
def count_linucb(
    *,
    factor_upload: Factor = 2.0,
    factor_download: Factor = 2.0,
    warm_join: bool = False,
    **common: Unpack[Common],
) -> System:
    """Federated LinUCB that communicates by counts alone: the timing of messages reveals no data."""
    return compose(CountTriggered(factor_upload, factor_download, warm_join), Everyone(), **common)
