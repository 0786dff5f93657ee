"""Systems that find clusters, against the naive oracles: equal arms, regret, messages and partitions."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedbandit as fb
from fedbandit.engine.simulation import Simulation
from fedbandit.environments.recorded import RecordedStream
from fedbandit.protocols import CountTriggered
from fedbandit.structures import PhasedClusters
from fedbandit.system import System
from tests import naive, naive_clusters
from tests.logs import KINDS, random_log, recorded
from tests.naive import Log, Outcome
from tests.test_exact import POLICIES, check_equal

Oracle = Callable[..., tuple[Outcome, list[list[list[int]]]]]


def clustered_log(seed: int, kind: str = "ball", *, n_tastes: int = 3, **options: Any) -> Log:
    """A log in which client i has taste i mod n_tastes."""
    log = random_log(seed, kind, **options)
    rng = np.random.default_rng([seed, 1])
    tastes = rng.standard_normal((n_tastes, log.dim))
    tastes /= np.linalg.norm(tastes, axis=1, keepdims=True)
    means = [X @ tastes[i % n_tastes] for i, X in zip(log.clients, log.arms, strict=True)]
    return log._replace(means=means, rewards=[mean + 0.1 * rng.standard_normal(mean.size) for mean in means])


def check(
    make: Callable[..., System],
    oracle: Oracle,
    log: Log,
    policy: str,
    *,
    seed: int,
    ridge: float = 1.0,
    **keywords: Any,
) -> int:
    """Package (fused and not) and oracle agree; the number of different partitions seen."""
    renamed = {key: value for key, value in keywords.items() if key not in ("clustering", "counting")}
    expected, history = oracle(log, POLICIES[policy][1], ridge=ridge, seed=seed, **keywords)
    for fuse in (True, False):
        system = make(policy=POLICIES[policy][0], ridge=ridge, **renamed)
        simulation = Simulation(system, recorded(log), len(log.clients), seed, fuse=fuse)
        while not simulation.finished:
            simulation.advance()
        result = simulation.result()
        found = dict(zip(result.cluster_rounds, result.clusters, strict=True))
        now = found[0]
        for t, expected_partition in enumerate(history):
            now = found.get(t + 1, now)
            assert sorted(now) == expected_partition, f"clusters differ after round {t + 1}"
        check_equal(simulation, expected)
    return len({str(partition) for partition in history})


CASES: dict[str, tuple[Callable[..., System], Oracle, dict[str, Any]]] = {
    "club": (fb.club, naive_clusters.club, {"alpha_split": 0.4}),
    "club-strict": (fb.club, naive_clusters.club, {"alpha_split": 0.15}),
    "sclub": (fb.sclub, naive_clusters.sclub, {"alpha_split": 0.35, "alpha_merge": 0.4}),
    "sclub-busy": (
        fb.sclub,
        naive_clusters.sclub,
        {"alpha_split": 0.2, "alpha_merge": 0.3, "alpha_frequency": 0.1},
    ),
    "fclub": (fb.fclub, naive_clusters.fclub, {"alpha_split": 0.4, "alpha_merge": 0.6}),
    "fclub-dc": (
        fb.fclub_dc,
        naive_clusters.fclub,
        {"alpha_split": 0.4, "alpha_merge": 0.6, "upload": 1.3, "download": 1.5},
    ),
    "fclub-dc-published": (
        fb.fclub_dc,
        naive_clusters.fclub,
        {"alpha_split": 0.5, "alpha_merge": 0.6, "upload": 1.5, "download": 1.2, "fresh": False},
    ),
    "fclub-dc-silent": (
        fb.fclub_dc,
        naive_clusters.fclub,
        {"alpha_split": 0.4, "alpha_merge": 0.5, "upload": math.inf, "download": math.inf},
    ),
    "homo": (fb.homo, naive_clusters.fclub, {"clustering": False}),
    "homo-dc": (fb.homo_dc, naive_clusters.fclub, {"clustering": False, "upload": 1.4, "download": 1.2}),
}
CHANGING = [name for name in CASES if "homo" not in name]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_every_system_on_every_kind_of_data(name: str, kind: str) -> None:
    make, oracle, keywords = CASES[name]
    seed = 10 * list(CASES).index(name) + KINDS.index(kind)
    log = clustered_log(seed, kind, horizon=140, n_clients=8)
    check(make, oracle, log, "ucb", seed=seed, n_servers=3, **keywords)


@pytest.mark.parametrize("name", CHANGING)
def test_clusters_do_change_in_these_cases(name: str) -> None:
    """So that the comparison above compares something; sets also merge again."""
    make, oracle, keywords = CASES[name]
    log = clustered_log(3, "sphere", horizon=300, n_clients=8)
    assert check(make, oracle, log, "ucb", seed=3, n_servers=2, **keywords) >= (2 if "fclub" in name else 3)
    if "sclub" in name:
        _, history = oracle(log, naive.Policy(), n_servers=2, seed=3, **keywords)
        counts = [len(partition) for partition in history]
        assert any(after < before for before, after in pairwise(counts))


@pytest.mark.parametrize("policy", list(POLICIES))
@pytest.mark.parametrize("name", ["club", "sclub", "fclub-dc", "fclub-dc-published"])
def test_every_policy(name: str, policy: str) -> None:
    """Random streams are those of users, whatever becomes of their clusters; rewards are late."""
    make, oracle, keywords = CASES[name]
    log = clustered_log(5, "ball", horizon=120, longest_delay=9)
    check(make, oracle, log, policy, seed=5, n_servers=2, **keywords)


def test_triggers_on_counts() -> None:
    """The structure does not care by which protocol local clusters share."""

    def make(policy: Any, ridge: float, upload: float, download: float, **structure: Any) -> System:
        return System(policy, CountTriggered(upload, download), PhasedClusters(**structure), ridge=ridge)

    log = clustered_log(6, horizon=200, n_clients=8)
    keywords = {"alpha_split": 0.4, "alpha_merge": 0.6, "upload": 1.3, "download": 1.5, "counting": True}
    check(make, naive_clusters.fclub, log, "ucb", seed=6, n_servers=4, **keywords)


@pytest.mark.parametrize("chunk", [1, 7])
@pytest.mark.parametrize("name", ["club", "sclub", "fclub-dc"])
def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch, name: str, chunk: int) -> None:
    monkeypatch.setattr(RecordedStream, "chunk", chunk)
    make, oracle, keywords = CASES[name]
    check(make, oracle, clustered_log(chunk, longest_delay=5), "lints", seed=chunk, n_servers=2, **keywords)


factors = st.sampled_from([1.0, 1.05, 1.5, 3.0, math.inf])
alphas = st.sampled_from([0.05, 0.2, 0.4, 0.8, 2.0])


@st.composite
def anything(draw: st.DrawFn) -> tuple[str, dict[str, Any], Log, str, float, int]:
    """A system with random parameters, data, and a policy."""
    n = draw(st.integers(1, 9), label="clients")
    log = clustered_log(
        draw(st.integers(0, 2**20), label="data seed"),
        draw(st.sampled_from(KINDS), label="kind"),
        n_tastes=draw(st.integers(1, 4), label="tastes"),
        horizon=draw(st.integers(1, 80), label="horizon"),
        n_clients=n,
        dim=draw(st.integers(1, 4), label="dim"),
        most_arms=4,
        longest_delay=draw(st.sampled_from([0, 0, 3, 20]), label="longest delay"),
        skewed=draw(st.booleans(), label="skewed"),
    )
    name = draw(st.sampled_from(["club", "sclub", "fclub", "fclub-dc", "homo-dc"]), label="system")
    keywords: dict[str, Any] = {"n_servers": draw(st.integers(1, n), label="servers")}
    if "homo" not in name:
        keywords["alpha_split"] = draw(alphas, label="split")
    if name in ("sclub", "fclub", "fclub-dc"):
        keywords["alpha_merge"] = draw(alphas, label="merge")
    if name == "sclub":
        keywords["alpha_frequency"] = draw(alphas, label="frequency")
    if "dc" in name:
        keywords |= {"upload": draw(factors, label="upload"), "download": draw(factors, label="download")}
    if name == "fclub-dc":
        keywords["fresh"] = draw(st.booleans(), label="fresh")
    if "homo" in name:
        keywords["clustering"] = False
    ridge = draw(st.sampled_from([0.1, 1.0, 3.0]), label="ridge")
    return name, keywords, log, draw(st.sampled_from(list(POLICIES))), ridge, draw(st.integers(0, 99))


@given(anything())
def test_anything(drawn: tuple[str, dict[str, Any], Log, str, float, int]) -> None:
    """Whatever the parameters and the data."""
    name, keywords, log, policy, ridge, seed = drawn
    make, oracle, _ = CASES[name]
    check(make, oracle, log, policy, seed=seed, ridge=ridge, **keywords)
