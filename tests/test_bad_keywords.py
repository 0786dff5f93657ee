"""Whatever a keyword is given, the answer is a system that runs or one sentence, never a traceback.

Keywords are found by themselves: those of all exported parts, presets and synthetic environments.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.environments.block import world_of
from fedbandit.policies import POLICIES
from fedbandit.presets.compose import PRESETS, keywords_of
from fedbandit.privacy import PRIVACIES
from fedbandit.protocols import PROTOCOLS
from fedbandit.structures import STRUCTURES
from fedbandit.system import System

WRONG: tuple[Any, ...] = (
    None, "x", "", b"x", -1, 0, 1, 2.5, math.nan, math.inf, -math.inf, -1e-300, True, False, 1j, object(), [], [1, 2],
    ["a", "b", "c"], (1,), {"a": 1}, np.float64(2), np.int64(2), np.bool_(True), np.array("x"),
)  # fmt: skip
"""What somebody may write by mistake, and numbers as NumPy has them. (An array where a word belongs ends in NumPy's own
error, here and elsewhere.)"""

NEEDED: dict[str, dict[str, Any]] = {"fixed-groups": {"labels": (0, 1, 0)}, "noisy-rewards": {"epsilon": 1.0}}
SETTLED = ("world", "portions", "neighbours")
"""Fields that a system fills in."""

ENV = fb.environments.homogeneous(n_clients=3, dim=3, n_arms=3, rounds="all")
ON_GRAPH = fb.environments.collaborative(n_clients=3, dim=3, n_arms=3, rounds="all")
ENVIRONMENTS = {
    "homogeneous": {},
    "clustered": {"n_clusters": 2},
    "collaborative": {},
    "simulator": {"groups": 2},
    "global_local": {"d_global": 1},
    "feducb": {},
    "fclub": {"n_clusters": 2},
}


def tried(make: Callable[[], Any], what: str) -> Any:
    """What is made, None if it is refused; anything else is a failure."""
    try:
        return make()
    except fb.FedbanditError:
        return None
    except Exception as error:
        raise AssertionError(f"{what} ended with {error!r}") from error


def runs(system: System, what: str) -> None:
    """Two rounds, or a sentence."""
    env = ON_GRAPH if isinstance(system.structure, fb.structures.OnGraph) else ENV
    tried(lambda: fb.simulate(system, env, 2, engine="plain"), what)


KINDS = [
    (role, name, kind)
    for role, kinds in (
        ("policy", POLICIES),
        ("protocol", PROTOCOLS),
        ("structure", STRUCTURES),
        ("privacy", PRIVACIES),
    )
    for name, kind in kinds.items()
]


def with_part(role: str, part: Any) -> System | None:
    """The first system that takes the part, if there is one."""
    fitting: tuple[dict[str, Any], ...] = (
        {},
        {"protocol": PROTOCOLS["count-triggered"]()},
        {"protocol": PROTOCOLS["synchronous"]()},
        {"protocol": PROTOCOLS["scheduled"]()},
        {"structure": STRUCTURES["homogeneity-cliques"](recluster=1.5)},
        {"structure": STRUCTURES["weighted-graph"]()},
        {"structure": STRUCTURES["phased-clusters"](), "protocol": PROTOCOLS["count-triggered"]()},
    )
    for others in fitting:
        system = tried(lambda others=others: System(**{**others, role: part}), repr(part))  # type: ignore[misc]
        if system is not None:
            return system
    return None


@pytest.mark.parametrize(("role", "name", "kind"), KINDS, ids=[name for _, name, _ in KINDS])
def test_keywords_of_parts(role: str, name: str, kind: Any) -> None:
    for parameter in dataclasses.fields(kind):
        for value in () if parameter.name in SETTLED else WRONG:
            what = f"{name}({parameter.name}={value!r})"
            given = {**NEEDED.get(name, {}), parameter.name: value}
            part = tried(lambda given=given: kind(**given), what)  # type: ignore[misc]
            system = None if part is None else with_part(role, part)
            if system is not None:
                runs(system, what)


@pytest.mark.parametrize("name", PRESETS)
def test_keywords_of_presets(name: str) -> None:
    for keyword in keywords_of(PRESETS[name]):
        for value in WRONG:
            what = f"{name}({keyword}={value!r})"
            system = tried(lambda k=keyword, v=value: PRESETS[name](**{k: v}), what)  # type: ignore[misc]
            if system is not None:
                runs(system, what)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_keywords_of_environments(name: str) -> None:
    kind = getattr(fb.environments, name)
    for parameter in dataclasses.fields(kind):
        for value in WRONG:
            what = f"{name}({parameter.name}={value!r})"
            given = {"n_clients": 3, "dim": 3, "n_arms": 3, **ENVIRONMENTS[name], parameter.name: value}
            env = tried(lambda given=given: kind(**given), what)  # type: ignore[misc]
            if env is not None:
                tried(lambda env=env: fb.simulate(fb.linucb(), env, 2, engine="plain"), what)  # type: ignore[misc]


def test_a_switch_that_is_text_is_refused() -> None:
    """The text "no" would be on."""
    with pytest.raises(fb.FedbanditError, match="warm_join is 'no', but must be True or False"):
        fb.async_linucb(warm_join="no")  # type: ignore[arg-type]
    with pytest.raises(fb.FedbanditError, match="within of PhasedClusters is 'no', but must be True or False"):
        System(protocol=PROTOCOLS["count-triggered"](), structure=STRUCTURES["phased-clusters"](within="no"))


def test_numbers_of_numpy_are_numbers() -> None:
    part = STRUCTURES["released-phases"](first=np.int64(2))
    system = System(protocol=PROTOCOLS["count-triggered"](), structure=part)
    assert fb.simulate(system, ENV, 10, engine="plain").horizon == 10
    published = PRIVACIES["published-clusters"](releases=np.int64(4))
    private = System(
        structure=STRUCTURES["phased-clusters"](), protocol=PROTOCOLS["event-triggered"](), privacy=published
    )
    private.told(world_of(ENV, 10))


def test_a_budget_beyond_what_calibration_can_tell_is_refused() -> None:
    for epsilon in (1e10, 1e300):
        with pytest.raises(fb.FedbanditError, match="must be at most 1e\\+09, or inf for no noise"):
            fb.feducb(epsilon=epsilon)
    assert fb.feducb(epsilon=1e9).guarantee.epsilon == 1e9
