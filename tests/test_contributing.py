"""Every skeleton of CONTRIBUTING.md is built as it is written, and passes the checks that all parts pass."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.checks import checks_for
from fedbandit.environments.synthetic import Synthetic
from fedbandit.parts import found_in, name_of
from fedbandit.policies import Policy
from fedbandit.presets import PRESETS
from fedbandit.privacy import Privacy
from fedbandit.protocols import CountTriggered, EventTriggered, MessageProtocol, Scheduled, ServerQueue, Synchronous
from fedbandit.structures import Structure
from fedbandit.system import System

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
SKELETONS = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", TEXT, flags=re.DOTALL))
KINDS: tuple[Any, ...] = (Policy, MessageProtocol, Structure, Privacy)


@pytest.fixture
def module(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A skeleton as a module of its own."""
    monkeypatch.setattr("fedbandit.presets.PRESETS", dict(PRESETS))
    name = "skeleton_" + Path(request.param).stem
    made = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, made)
    exec(compile(SKELETONS[request.param], request.param, "exec"), made.__dict__)
    return made


def parts_in(module: ModuleType) -> list[Any]:
    """The parts that a skeleton defines, by their defaults."""
    mine = [thing for thing in vars(module).values() if getattr(thing, "__module__", "") == module.__name__]
    return [thing() for thing in mine if isinstance(thing, type) and any(kind in thing.__mro__[1:] for kind in KINDS)]


def test_there_is_a_skeleton_of_every_kind() -> None:
    rooms = {Path(name).parts[0] for name in SKELETONS}
    assert rooms == {"my_system.py", "policies", "structures", "protocols", "privacy", "environments"}


@pytest.mark.parametrize("module", [name for name in SKELETONS if name.startswith(("p", "s"))], indirect=True)
def test_a_part_passes_every_check(module: ModuleType) -> None:
    (part,) = parts_in(module)
    assert name_of(type(part)) in found_in({"__all__": [type(part).__name__], **vars(module)}, type(part).__mro__[1])
    for label, check in checks_for(part):
        try:
            check()
        except AssertionError as error:
            raise AssertionError(f"{label}: {error}") from error


@pytest.mark.parametrize("module", ["my_system.py"], indirect=True)
def test_a_system_passes_every_check(module: ModuleType) -> None:
    for _, check in checks_for(module.hospitals()):
        check()


@pytest.mark.parametrize("module", ["structures/near_estimates.py"], indirect=True)
def test_a_clustering_runs_under_every_protocol_that_knows_members(module: ModuleType) -> None:
    (structure,) = parts_in(module)
    protocols = (EventTriggered(2.0, 2.0), CountTriggered(), Synchronous(1.0), ServerQueue(), Scheduled())
    env = fb.environments.clustered(n_clients=6, dim=3, n_arms=5, n_clusters=2, gap=1.2)
    for protocol in protocols:
        result = fb.simulate(System(protocol=protocol, structure=structure), env, 1500)
        assert result.engine == "plain"
        assert result.communication.downloads > 0
        assert result.rand_index(env.partition)[-1] == 1.0


@pytest.mark.parametrize("module", ["environments/two_camps.py"], indirect=True)
def test_an_environment_can_be_simulated(module: ModuleType) -> None:
    (kind,) = (t for t in vars(module).values() if isinstance(t, type) and Synthetic in t.__mro__[1:])
    result = fb.simulate(fb.linucb(), kind(n_clients=4, dim=3, n_arms=5), 200)
    assert np.isfinite(result.regret[-1])
