"""Every skeleton of CONTRIBUTING.md is built as it is written, and passes the checks that all parts pass."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.checks import HORIZON, Linked, checks_for, run
from fedbandit.cli.main import main
from fedbandit.environments.synthetic import Synthetic
from fedbandit.errors import FedbanditError
from fedbandit.machines.link import Link
from fedbandit.model import RidgeModel
from fedbandit.network.coordinator.limits import Limits
from fedbandit.network.coordinator.rules import Robust, Rules
from fedbandit.network.invitation import Agreement
from fedbandit.parts import build_part, found_in, name_of
from fedbandit.policies import POLICIES, LinPHE, Policy
from fedbandit.presets import PRESETS
from fedbandit.privacy import Privacy, PrivateStatistics
from fedbandit.protocols import CountTriggered, EventTriggered, MessageProtocol, Scheduled, ServerQueue, Synchronous
from fedbandit.sharing import FoundGroups, no_members
from fedbandit.streams import Draw, policy_key
from fedbandit.structures import FixedGroups, Structure
from fedbandit.structures.action_model import ActionModel
from fedbandit.sums import Form
from fedbandit.system import System
from fedbandit.world import World
from tests.cli.command_line import refusal

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SKELETONS = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", TEXT, flags=re.DOTALL))
KINDS: tuple[Any, ...] = (Policy, MessageProtocol, Structure, Privacy)


@pytest.fixture
def module(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A skeleton as a module of its own."""
    monkeypatch.setattr(sys.modules[fb.preset.__module__], "PRESETS", dict(PRESETS))
    name = "skeleton_" + Path(request.param).stem
    made = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, made)
    exec(compile(SKELETONS[request.param], request.param, "exec"), made.__dict__)
    return made


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with every skeleton at its path, and its import line where ruff sorts it to."""
    root = tmp_path_factory.mktemp("installed")
    shutil.copy(ROOT / "pyproject.toml", root)
    shutil.copytree(ROOT / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in SKELETONS.items():
        path = root / "src" / "fedbandit" / ("presets/my_system.py" if name == "my_system.py" else name)
        path.write_text(text.lstrip("\n"), encoding="utf-8")
        defined = re.findall(r"^class (\w+)\((?:Policy|Structure|MessageProtocol|Privacy|Synthetic)\):", text, re.M)
        (thing,) = defined or ["hospitals"]
        init = path.parent / "__init__.py"
        line, before = f"from fedbandit.{path.parent.name}.{path.stem} import {thing}\n", init.read_text("utf-8")
        init.write_text(before.replace("from fedbandit.", line + "from fedbandit.", 1), encoding="utf-8")
    in_copy(root, "-m", "ruff", "check", "--no-cache", "--select", "I", "--fix", "src")
    return root


def in_copy(root: Path, *words: str) -> str:
    """What a Python that imports the copy prints."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_skeletons_that_are_installed_as_told_pass_ruff(installed: Path) -> None:
    places = [str(path.relative_to(installed)) for path in (installed / "src").rglob("__init__.py")]
    places += ["src/fedbandit/" + name.replace("my_system", "presets/my_system") for name in SKELETONS]
    in_copy(installed, "-m", "ruff", "check", "--no-cache", *places)
    in_copy(installed, "-m", "ruff", "format", "--no-cache", "--check", *places)


def test_skeletons_that_are_installed_as_told_are_found_by_name(installed: Path) -> None:
    fedbandit = ("-m", "fedbandit")
    for kind, name in (
        ("policies", "decaying-greedy"),
        ("structures", "blocks"),
        ("structures", "near-estimates"),
        ("protocols", "every-few"),
        ("privacies", "laplace-rewards"),
    ):
        assert f"  {name} " in in_copy(installed, *fedbandit, "list", kind)
    assert "c how long it explores" in " ".join(in_copy(installed, *fedbandit, "list", "decaying-greedy").split())
    words = ("--env", "two-camps", "--structure", "near-estimates", "--protocol", "every-few", "--policy")
    ran = in_copy(installed, *fedbandit, "simulate", "composed", *words, "decaying-greedy(c=9)", *SMALL)
    assert json.loads(ran)["engine"] == "plain"
    ran = in_copy(installed, *fedbandit, "simulate", "hospitals", "--env", "two-camps", *SMALL)
    assert json.loads(ran)["system"] == "hospitals"
    in_copy(installed, "-c", "import fedbandit as fb; fb.environments.two_camps(n_clients=2, dim=3, n_arms=2)")


def test_skeletons_that_are_installed_as_told_explain_their_keywords(installed: Path) -> None:
    """No third file has to be edited for a part with a keyword of its own."""
    shutil.copytree(ROOT / "tests", installed / "tests", ignore=shutil.ignore_patterns("__pycache__", "fixtures"))
    in_copy(installed, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_keywords.py", "-k", "every_keyword")


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
    run(part)


@pytest.mark.parametrize("module", ["my_system.py"], indirect=True)
def test_a_system_passes_every_check(module: ModuleType) -> None:
    run(module.hospitals())


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


@pytest.mark.parametrize("module", ["structures/blocks.py"], indirect=True)
def test_groups_that_are_homogeneous_may_forget_and_be_compared(module: ModuleType) -> None:
    (structure,) = parts_in(module)
    system = System(protocol=EventTriggered(2.0, 2.0), structure=structure, discount=0.9)
    assert fb.simulate(system, fb.environments.homogeneous(n_clients=4, dim=3, n_arms=5), 50).engine == "plain"
    Rules(robust=Robust()).require_for(replace(system, discount=1.0), World(4, 3, 100))
    mixed = type("Mixed", (type(structure),), {"homogeneous": False})()
    with pytest.raises(FedbanditError, match="Mixed is refused with discount or window"):
        System(protocol=EventTriggered(2.0, 2.0), structure=mixed, discount=0.9).told(World(4, 3, 100))
    with pytest.raises(FedbanditError, match="robust is refused: in Mixed members may differ"):
        Rules(robust=Robust()).require_for(replace(system, discount=1.0, structure=mixed), World(4, 3, 100))


def test_a_personal_part_is_declared_and_not_guessed_by_class() -> None:
    @dataclass(frozen=True)
    class Mine(Structure):
        has_personal_part: ClassVar[bool] = True

    world = World(4, 3, 100)
    system = System(protocol=EventTriggered(2.0, 2.0), structure=Mine()).told(world)
    assert Limits.of(system, world, 1.0).reward_bound == np.inf
    with pytest.raises(FedbanditError, match="PrivateStatistics with Mine is refused: in a model of two parts"):
        System(protocol=CountTriggered(), structure=Mine(), privacy=PrivateStatistics())


@pytest.mark.parametrize("module", ["environments/two_camps.py"], indirect=True)
def test_an_environment_passes_every_check_and_can_be_simulated(module: ModuleType) -> None:
    (kind,) = (t for t in vars(module).values() if isinstance(t, type) and Synthetic in t.__mro__[1:])
    run(kind)
    result = fb.simulate(fb.linucb(), kind(n_clients=4, dim=3, n_arms=5), 200)
    assert np.isfinite(result.regret[-1])


def written(text: str, folder: Path, name: str) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


CLUSTERS = SKELETONS["structures/near_estimates.py"]
GREEDY = SKELETONS["policies/decaying_greedy.py"]
SMALL = ["--clients", "4", "--dim", "3", "--arms", "5", "--horizon", "200", "--json"]


@pytest.mark.parametrize(
    ("skeleton", "sentence"),
    [
        (CLUSTERS.replace("by_member: ClassVar[bool] = True", ""), "returns NearGroups, .* but by_member is False"),
        (CLUSTERS.replace("def next_wake", "def wakes"), "NearGroups does not say when to look for groups"),
        (CLUSTERS.replace("return sorted(groups)", "return [[0], [1]]"), "leaves out clients 2, 3; every client"),
        (CLUSTERS.replace("return sorted(groups)", "return [[0, 1], [1, 2, 3]]"), "names twice client 1; every"),
        (CLUSTERS.replace("return sorted(groups)", "return [[0, 1, 2, 3, 4]]"), "do not exist, client 4; every"),
        (
            CLUSTERS.replace("return sorted(groups)", "return None"),
            "find returned is None, but must be a list of groups",
        ),
        (
            CLUSTERS.replace("return sorted(groups)", "return [0, 0, 1, 1]"),
            r"returned is \[0, 0, 1, 1\], but must be a",
        ),
        (
            CLUSTERS.replace("return sorted(groups)", "return [[0.0, 1.0]]"),
            r"returned is \[\[0.0, 1.0\]\], but must be",
        ),
        (
            CLUSTERS.replace("return next_growth", "return done; next_growth"),
            r"NearGroups.next_wake\(0\) is 0, but must be a whole number ≥ 1",
        ),
        (CLUSTERS.replace("def sharing", "def shared"), "NearEstimates says by_member, but has no sharing"),
    ],
)
def test_a_clustering_that_never_shares_is_refused(skeleton: str, sentence: str, tmp_path: Path) -> None:
    named = written(skeleton, tmp_path, "wrong.py") + ":NearEstimates"
    system = fb.composed(protocol="event-triggered(gamma_upload=2,gamma_download=2)", structure=named)
    with pytest.raises(FedbanditError, match=sentence):
        fb.simulate(system, fb.environments.homogeneous(n_clients=4, dim=3, n_arms=5), 200)
    with pytest.raises(AssertionError, match=rf"\w+( \[[\w-]+\])?: .*{sentence}"):
        run(system.structure)


def test_a_clustering_that_never_looks_fails_its_check(tmp_path: Path) -> None:
    blind = "    def regroup(self, members, done, noise=None):\n        return False\n\n    def next_wake"
    late = CLUSTERS.replace("    def next_wake", blind)
    structure: Structure = build_part("structure", written(late, tmp_path, "late.py") + ":NearEstimates", {})
    with pytest.raises(AssertionError, match="found_groups_are_used: groups were never looked for"):
        run(structure)


@pytest.mark.parametrize(
    "protocol",
    [EventTriggered(2.0, 2.0), CountTriggered(), Synchronous(1.0), ServerQueue(), Scheduled(growth=100.0)],
    ids=lambda protocol: type(protocol).__name__,
)
def test_a_clustering_looks_every_five_rounds_however_often_it_is_asked(protocol: Any, tmp_path: Path) -> None:
    text = CLUSTERS.replace("return next_growth", "return done + 5; next_growth")
    structure: Structure = build_part("structure", written(text, tmp_path, "fives.py") + ":NearEstimates", {})
    linked = Linked(System(protocol=protocol, structure=structure), encoded=False)
    assert linked.link.coordinator is not None
    sharing = linked.link.coordinator.sharing
    assert isinstance(sharing, FoundGroups)
    with patch.object(sharing, "find", wraps=sharing.find) as find:
        linked()
    assert [call.args[1] for call in find.call_args_list if call.args[1] % 5 == 0] == list(range(5, HORIZON + 1, 5))


def test_groups_that_are_found_are_kept_in_order(tmp_path: Path) -> None:
    text = CLUSTERS.replace("return sorted(groups)", "return [{3, 1}, [], np.array([2, 0])]")
    structure: Structure = build_part("structure", written(text, tmp_path, "unsorted.py") + ":NearEstimates", {})
    sharing = structure.sharing(World(4, 3, 100), 0.1)
    assert sharing.regroup(no_members(4, Form(3)), 1)
    assert sharing.groups() == [[0, 2], [1, 3]]
    assert not sharing.regroup(no_members(4, Form(3)), 2)


@pytest.mark.parametrize(
    "labels",
    ["np.arange(3)", "[0, 0, 1, 1]", "np.zeros((4, 1), dtype=int)", "np.zeros(4)", "np.array([0, 1, 0, -1])",
     "np.array([0, 0, 0, 4])"],
)  # fmt: skip
def test_groups_that_are_no_labels_are_refused(labels: str, tmp_path: Path) -> None:
    text = SKELETONS["structures/blocks.py"].replace("np.arange(world.n_clients) // self.size", labels)
    structure: Structure = build_part("structure", written(text, tmp_path, "labels.py") + ":Blocks", {})
    sentence = r"Blocks.groups\(world\) is .*, but must be an array of 4 whole numbers from 0 to 3"
    with pytest.raises(FedbanditError, match=sentence):
        System(protocol=EventTriggered(), structure=structure).told(World(4, 3, 100))
    with pytest.raises(AssertionError, match=f"structure_places_everyone: {sentence}"):
        run(structure)


def test_parts_in_a_file_are_named_as_systems_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = written(GREEDY, tmp_path, "my_greedy.py") + ":DecayingGreedy"
    near = written(CLUSTERS, tmp_path, "near_ones.py") + ":NearEstimates(distance=0.4)"
    usual: Any = fb.async_linucb(policy=mine).policy
    assert fb.async_linucb(policy=f"{mine}(c=10)").policy == replace(usual, c=10)
    regret = []
    for words in (
        ["async-linucb", "--policy", f"{mine}(c=10)"],
        [f"async-linucb:policy={mine}(c=10)"],
        ["async-linucb", f"--policy={mine}"],
        ["composed", "--policy", mine, "--structure", near, "--protocol", "scheduled"],
    ):
        assert main(["simulate", *words, *SMALL]) == 0, capsys.readouterr().err
        regret.append(json.loads(capsys.readouterr().out)["regret"])
    assert regret[0] == regret[1]
    assert regret[0] != regret[2]
    wrong = mine.replace("Decaying", "Growing")
    assert f"There is no policy '{wrong}'; did you mean '{mine}'?" in refusal(
        capsys, "simulate", "composed", "--policy", wrong
    )
    assert "name the policy in it as well" in refusal(capsys, "simulate", "linucb", "--policy", mine.split(":")[0])


@pytest.mark.parametrize("keywords", [{"policy": "my.py:Mine"}, {"structure": "my.py:Mine(c=1)"}])
def test_a_federation_does_not_run_files(keywords: dict[str, Any]) -> None:
    system = "async-linucb" if "policy" in keywords else "composed"
    with pytest.raises(FedbanditError, match="every client of a federation must have the same code"):
        Agreement(system, keywords, World(3, 2, 100)).build()


def test_a_policy_that_errs_with_stacked_parts_fails_its_check(tmp_path: Path) -> None:
    text = GREEDY.replace(
        "best(model.means(contexts))", "best(sum(X @ part.theta for part, X in model.stacks(contexts)))"
    )
    policy: Policy = build_part("policy", written(text, tmp_path, "one_theta.py") + ":DecayingGreedy(c=0.0)", {})
    with pytest.raises(AssertionError, match="policy_knows_actions: "):
        run(policy)


def test_a_class_that_needs_arguments_is_refused_with_a_sentence() -> None:
    """A class stands for `thing()`, and these say that they must be given something."""
    for kind in (fb.environments.Recorded, FixedGroups):
        with pytest.raises(FedbanditError, match=rf"^{kind.__name__}\(…\): missing a required argument: '\w+'\.$"):
            run(kind)


SAMPLING = """
from dataclasses import dataclass
import numpy as np
from fedbandit.policies import Sampling

@dataclass(frozen=True)
class Wide(Sampling):
    def root(self, part):
        values, vectors = np.linalg.eigh(part.inverse)
        if values[0] < 0 or part.V.ndim != 2:
            raise AssertionError("one part after another")
        return self.scaled(part, 2 * vectors * np.sqrt(values))
"""


def test_a_policy_that_samples_writes_only_the_root_of_one_part(tmp_path: Path) -> None:
    policy: Policy = build_part("policy", written(SAMPLING, tmp_path, "wide.py") + ":Wide", {})
    run(policy)
    assert "sampling" not in POLICIES, "a base of policies is none"


COUNTER = """
from fedbandit.policies import Policy, best

class Counting(Policy):
    asked = 0

    def told(self, world):
        return Counting()

    def choose(self, model, contexts, draw):
        self.asked += 1
        return draw.index(len(contexts)) if draw.uniform() * self.asked < 5 else best(model.means(contexts))
"""


def test_a_policy_that_remembers_fails_its_check(tmp_path: Path) -> None:
    policy: Policy = build_part("policy", written(COUNTER, tmp_path, "counting.py") + ":Counting", {})
    checks = dict(checks_for(policy))
    checks["repeats_itself [shared]"]()
    with pytest.raises(AssertionError, match="asked again with the same model, contexts and draw, it chose another"):
        checks["policy_remembers_nothing"]()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("c='a'", "c is 'a', but must be a number."),
        ("k=0", "The policy .*one.py:One.k=0. cannot be made: ZeroDivisionError: "),
    ],
)
def test_a_part_that_cannot_be_made_is_a_sentence(given: str, sentence: str, tmp_path: Path) -> None:
    text = GREEDY.replace(
        "    c: float", "    k: int = 1\n\n    def __post_init__(self):\n        1 / self.k\n\n    c: float"
    )
    named = written(text, tmp_path, "one.py") + f":DecayingGreedy({given})"
    with pytest.raises(FedbanditError, match=sentence.replace("One", "DecayingGreedy")):
        fb.linucb(policy=named)


CLONE = """
from dataclasses import dataclass, replace

import numpy as np

from fedbandit.policies import Policy, best


@dataclass(frozen=True)
class MyPHE(Policy):
    spread: float | None = None

    def told(self, world):
        return replace(self, spread=world.noise) if self.spread is None else self

    def choose(self, model, contexts, draw):
        scores = np.zeros(len(contexts))
        for part, X in model.parts(contexts):
            d = len(part.V)
            L = np.zeros((d, d))
            for j in range(d):
                column = part.V[j:, j] - L[j:, :j] @ L[j, :j]
                if column[0] > 1e-12 * part.V.diagonal().max():
                    L[j:, j] = column / column[0] ** 0.5
            scores += X @ (part.theta + self.spread * part.inverse @ L @ draw.normal(d))
        return best(scores)
"""


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("linucb", "homogeneous"),
        ("async_linucb", "homogeneous"),
        ("async_linucb_am", "global_local"),
        ("colin", "collaborative"),
        ("fclub", "clustered"),
        ("hetofedbandit", "clustered"),
    ],
)
def test_a_clone_of_linphe_pulls_its_arms(name: str, kind: str, tmp_path: Path) -> None:
    """Written from this guide alone: `parts` and `draw`, nothing else."""
    clone = written(CLONE, tmp_path, "my_phe.py") + ":MyPHE"
    env = getattr(fb.environments, kind)(n_clients=4, dim=6, n_arms=5)
    first, second = (
        fb.simulate(PRESETS[name](policy=policy), env, 300, engine="plain").arms for policy in (clone, "linphe")
    )
    np.testing.assert_array_equal(first, second)


def test_a_clone_of_linphe_pulls_its_arms_with_one_theta_for_each_action(tmp_path: Path) -> None:
    """Offered some actions, one of them twice; offered all in order, also those of one θ on 4·3 dimensions."""
    clone: Policy = build_part("policy", written(CLONE, tmp_path, "my_phe.py") + ":MyPHE", {})
    world, rng = World(1, 3, 300, actions=4), np.random.default_rng(0)
    actions, whole = ActionModel(4, 3, 0.1), RidgeModel(12, 0.1)
    policies = [policy.told(world) for policy in (clone, LinPHE())]
    for step in range(300):
        numbers = np.arange(4) if step % 2 else rng.integers(4, size=5)
        X = rng.standard_normal((len(numbers), 3)) / 3
        dense = (np.eye(4)[numbers][:, :, None] * X[:, None]).reshape(-1, 12)
        asked: list[tuple[Any, Any]] = [
            (actions, np.column_stack([numbers, X])),
            *([(whole, dense)] if step % 2 else []),
        ]
        arms = {
            policy.choose(model, contexts, Draw(policy_key(0), 0, step))
            for policy in policies
            for model, contexts in asked
        }
        assert len(arms) == 1, (step, arms)
        (a,) = arms
        y = float(X[a, numbers[a] % 3] + 0.1 * rng.standard_normal())
        actions.observe(np.r_[numbers[a], X[a]], y)
        whole.observe(dense[a], y)


@pytest.mark.parametrize("kind", ["actions", "homogeneous", "global_local", "collaborative"])
def test_decaying_greedy_learns_in_every_kind_of_model(kind: str, tmp_path: Path) -> None:
    mine = written(GREEDY, tmp_path, "my_greedy.py") + ":DecayingGreedy(c=2)"
    if kind == "actions":
        link, rng, late = Link(fb.async_linucb(policy=mine), World(2, 3, 400, actions=4)), np.random.default_rng(0), []
        for t in range(400):
            choice = link.select(t % 2, np.column_stack([np.arange(4), np.tile(np.eye(3)[t % 3] / 2, (4, 1))]))
            link.observe(t % 2, choice.number, float(choice.arm == t % 3) + 0.1 * rng.standard_normal())
            late.append(choice.arm == t % 3)
        assert np.mean(late[200:]) > 0.9
        return
    system = {"homogeneous": "async_linucb", "global_local": "async_linucb_am", "collaborative": "colin"}[kind]
    env = getattr(fb.environments, kind)(n_clients=4, dim=6, n_arms=5)
    greedy, random = (fb.simulate(PRESETS[system](policy=policy), env, 600).reward[-1] for policy in (mine, "uniform"))
    assert greedy > random


def test_a_policy_without_a_name_is_called_after_its_class(tmp_path: Path) -> None:
    text = GREEDY.replace('name: ClassVar[str] = "decaying-greedy"', "")
    policy: Policy = build_part("policy", written(text, tmp_path, "unnamed.py") + ":DecayingGreedy", {})
    assert name_of(type(policy)) == "decaying-greedy"
    assert fb.simulate(System(policy), fb.environments.homogeneous(n_clients=2, dim=3, n_arms=5), 20).engine == "plain"
