"""Every part, preset and environment that can be found passes the public checks; one that cannot be built fails."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from fedbandit.checks import CLIENTS, run
from fedbandit.environments import ENVIRONMENTS, Block, Homogeneous, Unstructured
from fedbandit.environments.synthetic import SyntheticStream
from fedbandit.policies import POLICIES
from fedbandit.presets import PRESETS
from fedbandit.privacy import PRIVACIES, Guarantee, Privacy
from fedbandit.protocols import PROTOCOLS
from fedbandit.structures import STRUCTURES

EXAMPLES: dict[str, dict[str, Any]] = {
    "fixed-groups": {"labels": [i % 2 for i in range(CLIENTS)]},
    "noisy-rewards": {"epsilon": 2.0},
}
"""Keywords of parts that have no default for everything. A part that needs some and has none here fails."""

FILES = Path(__file__).parent / "environments" / "datasets" / "fixture"
RECORDED = np.random.default_rng(0).uniform(-0.5, 0.5, (60, 4, 3))
WORLDS: dict[str, dict[str, Any]] = {
    "recorded": {
        "clients": np.arange(60) % CLIENTS,
        "arms": RECORDED,
        "means": RECORDED[:, :, 0],
        "rewards": RECORDED[:, :, 1],
        "delays": np.arange(60) % 5,
    },
    "lastfm": {"path": FILES, "dim": 5, "n_arms": 6},
    "delicious": {"path": FILES, "dim": 5, "n_arms": 6},
    "movielens": {"path": FILES, "dim": 5, "n_arms": 6, "release": "1m", "most_active": 8},
    "movielens_users": {"path": FILES, "dim": 4, "n_clients": 20, "n_clusters": 3, "release": "1m"},
}
"""Keywords of environments that are not synthetic."""

PARTS = {name: kind for kinds in (POLICIES, PROTOCOLS, STRUCTURES, PRIVACIES) for name, kind in kinds.items()}
THINGS = {name: make for name, make in {**PRESETS, **PARTS}.items() if name != "dislinucb"}  # another name


def build(name: str) -> Any:
    """The part or preset of this name."""
    return THINGS[name](**EXAMPLES.get(name, {}))


@pytest.mark.parametrize("name", sorted(THINGS))
def test_it_does_what_all_must(name: str) -> None:
    run(build(name))


def test_all_kinds_of_parts_were_found() -> None:
    assert {"ucb", "lints", "linphe", "greedy", "uniform", "squared"} <= set(POLICIES)
    assert {"event-triggered", "count-triggered", "synchronous", "never", "gossip", "scheduled"} <= set(PROTOCOLS)
    assert {"everyone", "central", "fixed-groups", "evidence-clusters", "phased-clusters"} <= set(STRUCTURES)
    assert {"no-privacy", "private-statistics", "noisy-rewards"} <= set(PRIVACIES)


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_an_environment_does_what_all_must(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDBANDIT_CACHE", str(tmp_path))
    make = ENVIRONMENTS[name]
    run(make if isinstance(make, type) else make(**WORLDS[name]))


class Spoilt(SyntheticStream):
    """A stream that does not do what it must, in one way."""

    fault: ClassVar[str] = ""

    def block(self, start: int, stop: int) -> Block:
        block = super().block(start, stop)
        match self.fault:
            case "forgets its seed":
                return block._replace(noise=np.random.default_rng().permutation(block.noise))
            case "counts from each block":
                return block._replace(clients=np.arange(stop - start) % self.env.n_clients)
            case "long contexts":
                return block._replace(X=2 * block.X)
            case "loud":
                return block._replace(noise=2 * block.noise)
            case "late":
                return block._replace(delays=np.full(stop - start, 7))
            case "strangers":
                return block._replace(clients=block.clients + 1)
            case "wrong shape":
                return block._replace(means=block.means[:, :1])
            case _:
                return block


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("forgets its seed", "stream_repeats_itself: two streams of one seed differ, in noise"),
        ("counts from each block", "blocks_are_cut_anywhere: a stream that is cut .*, in clients"),
        ("long contexts", "a context has the norm .*, and bound is 1"),
        ("loud", "noise has the standard deviation 0.2.*, and 0.1 is declared"),
        ("late", "delays reach 7, and longest_delay is 0"),
        ("strangers", "clients are not in 0, …, n_clients − 1"),
        ("wrong shape", "interactions_are_as_declared: arms or means are not"),
    ],
)
def test_an_environment_that_does_not_fails(fault: str, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Spoilt, "fault", fault)
    monkeypatch.setattr(Homogeneous, "open", lambda env, seed: Spoilt(env, seed))
    with pytest.raises(AssertionError, match=sentence):
        run(Homogeneous)


def test_an_environment_without_a_fact_is_told_which() -> None:
    class Bare(Unstructured):
        def open(self, seed: int) -> None: ...

    with pytest.raises(AssertionError, match=r"environment_tells_its_world: .*Bare"):
        run(Bare())


@dataclass(frozen=True)
class Claimed(Privacy):
    """A claim, and no noise."""

    epsilon: float = 1.0

    def guarantee(self) -> Guarantee:
        claim = Guarantee(basis="proven", protects="rewards", against="everyone but the client", unit="interaction")
        return replace(claim, neighbours="one reward is replaced", epsilon=self.epsilon, mechanism="none")


def test_a_claim_without_noise_fails() -> None:
    with pytest.raises(AssertionError, match="a_claim_has_noise: ε = 1 is claimed, but nothing is noised"):
        run(Claimed())


def test_what_a_part_was_not_tried_with_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    run(PRIVACIES["private-statistics"]())
    assert re.search(r"^not tried \[graph\]: [A-Z].*\.$", capsys.readouterr().out, flags=re.MULTILINE)
