"""All experiments of the papers are there, and what they declare makes sense."""

from __future__ import annotations

import math
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest

from fedbandit.environments.block import actions_per_round, world_of
from fedbandit.errors import FedbanditError
from fedbandit.presets import linucb
from fedbandit.studies import Experiment, Measured, Point
from fedbandit.studies.experiment import choose, experiment_names, load
from fedbandit.studies.specs import described
from fedbandit.studies.trials import Curve, Label, Run
from fedbandit.system import System
from tests.cli.command_line import refusal

FIGURES = {
    "fclub": ("fig2a", "fig2b", "fig2b-ratings", "parameters", "running-time", "yelp"),
    "hetofedbandit": ("fig2", "fig3", "fig4", "table1"),
    "private-collaborative": ("fig1a", "fig1b", "fig1c", "fig2", "table1"),
    "feducb": ("fig1a", "fig1b", "fig1c"),
    "async-linucb": ("fig2a", "fig2b", "fig3", "fig4a", "fig4b", "fig4c", "fig5", "table2", "low-communication"),
    "beyond": ("private-async", "clustered-local-privacy", "tight-noise", "peer-to-peer", "trust", "forgetting"),
}
WANTED = [f"{paper}/{figure}" for paper, figures in FIGURES.items() for figure in figures]
MOST_AT_QUICK = 6_000_000
"""Interactions of an experiment at the scale quick: at 40 µs each, two minutes on two cores."""


def everything() -> dict[str, Experiment]:
    return {name: load(name) for name in experiment_names()}


def points() -> list[tuple[str, Point]]:
    return [
        (f"{name}:{scale}", point)
        for name, experiment in everything().items()
        for scale, declared in experiment.scales.items()
        for point in declared.points
    ]


def test_every_figure_and_table_is_there() -> None:
    assert sorted(everything()) == sorted(WANTED)
    for experiment in everything().values():
        assert set(experiment.scales) == {"quick", "paper"}
        assert experiment.panels
        assert experiment.claims
        assert experiment.reference
        assert experiment.reports or experiment.name.startswith("beyond/")


def test_every_system_and_environment_can_be_made() -> None:
    for where, point in points():
        assert isinstance(point.make_system(), System)
        if callable(point.env):
            continue  # a data set, which may not be at hand
        assert point.horizon is not None, where
        world_of(point.env, point.horizon)


def test_every_point_is_described_and_can_be_sent_to_a_process() -> None:
    for where, point in points():
        assert re.match(r"[\w-]+(:|$)", described(point.system)), where
        assert re.match(r"[\w-]+(:|$)", described(point.env)), where
        assert pickle.loads(pickle.dumps(point)).label == point.label


def test_what_is_quick_is_small() -> None:
    for name, experiment in everything().items():
        total = 0
        scale = experiment.scales["quick"]
        for point in scale.points:
            if not callable(point.env):
                assert point.horizon is not None
                total += scale.seeds * point.horizon * actions_per_round(point.env)
        assert total <= MOST_AT_QUICK, name


@pytest.mark.parametrize("name", ["hetofedbandit/table1", "feducb/fig1b"])
def test_an_experiment_is_loaded_without_the_others(name: str) -> None:
    paper, module = name.split("/")
    code = (
        "import sys; from fedbandit.studies.experiment import choose; "
        f"choose(['{name}']); print(sorted(m for m in sys.modules if m.startswith('fedbandit.papers.')))"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said.strip() == str([f"fedbandit.papers.{paper}", f"fedbandit.papers.{paper}.{module}"])


def test_every_claim_says_something_about_what_is_run() -> None:
    for experiment in everything().values():
        for scale in experiment.scales.values():
            series = {point.series for point in scale.points}
            for claim in experiment.claims:
                if claim.scales is None:
                    assert set(claim.needs) <= series, (experiment.name, claim.text)
        texts = [claim.text for claim in experiment.claims]
        assert len(set(texts)) == len(texts), experiment.name
        facets = {point.facet for scale in experiment.scales.values() for point in scale.points}
        assert {panel.facet for panel in experiment.panels} <= facets, experiment.name


def on_a_map(rng: np.random.Generator) -> dict[str, list[float]]:
    """Users in a cloud or on a cross, with the active ones at a random distance."""
    at = rng.standard_normal((300, 2))
    if rng.random() < 0.5:
        at[np.arange(300), rng.integers(0, 2, 300)] *= 0.05
    at[:60] *= rng.uniform(0.1, 3.0)
    return {"x": at[:, 0].tolist(), "y": at[:, 1].tolist(), "activity": [90] * 60 + [10] * 240}


def invented(experiment: Experiment, scale: str, draw: int) -> Measured:
    """What an experiment might have measured: series at random levels with random trends, seeds nearly alike.

    The first draw has what the paper prints; clusters, groups and curves are made up in the same way.
    """
    rng = np.random.default_rng(draw)
    names = ("regret", "reward", "uploads", "downloads", "messages_seen", "seconds", "estimation_error", "clusters",
             "rand_index")  # fmt: skip
    series = dict.fromkeys(point.series for point in experiment.scale(scale).points)
    level, slope = (
        {one: dict(zip(names, rng.normal(0, size, len(names)), strict=True)) for one in series} for size in (3.0, 0.8)
    )
    growth = {one: rng.uniform(0.1, 1.3) for one in series}
    runs = []
    rounds = np.arange(1, 101)
    users = on_a_map(rng)
    for place, point in enumerate(experiment.scale(scale).points):
        one = point.series
        for seed in range(3):
            found = {n: math.exp(5 + level[one][n] + place * slope[one][n] / 10) for n in names}
            if draw == 0:
                found["regret"] = experiment.printed.get((one, point.value), found["regret"])
            found = {n: number * (1 + 1e-4 * rng.standard_normal()) for n, number in found.items()}
            system = "uniform" if one == "random arms" else one
            report = {**found, "system": system, "environment": described(point.env), "horizon": 100, "seed": seed}
            regret = np.asarray(found["regret"] * (rounds / 100) ** growth[one], dtype=np.float64)
            curve = Curve(rounds, regret, regret, rounds, rounds)
            groups = [{"above": above, "uploads": int(rng.integers(0, 9))} for above in (0, 60)]
            runs.append(Run(point.label, report, curve, 10, {"groups": groups, "map": users}))
    return Measured.of(runs)


@pytest.mark.parametrize("scale", ["quick", "paper"])
@pytest.mark.parametrize("name", WANTED)
def test_no_claim_is_vacuous(name: str, scale: str) -> None:
    """Each claim of each experiment holds for some numbers that might have been measured, and fails for others."""
    experiment = load(name)
    checked = [claim for claim in experiment.claims if claim.scales is None or scale in claim.scales]
    unseen = {(claim.text, verdict) for claim in checked for verdict in (True, False)}
    for draw in range(400):
        world = invented(experiment, scale, draw)
        unseen -= {(claim.text, claim.find(world, scale).holds) for claim in checked}
        if not unseen:
            break
    assert not unseen


def test_printed_numbers_belong_to_points() -> None:
    for experiment in everything().values():
        keys = {(p.series, p.value) for scale in experiment.scales.values() for p in scale.points}
        assert set(experiment.printed) <= keys, experiment.name


def test_names_choose_experiments() -> None:
    chosen = choose(["feducb", "async_linucb/fig2a", "feducb/fig1a"])
    assert [e.name for e in chosen] == ["feducb/fig1a", "feducb/fig1b", "feducb/fig1c", "async-linucb/fig2a"]
    assert len(choose([], everything=True)) == len(WANTED)
    for names, everything in (([], False), (["feducb"], True)):
        with pytest.raises(FedbanditError, match="--all"):
            choose(names, everything)


def test_an_unknown_experiment_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, "reproduce", "async-linucb/fig2c")
    assert said.startswith("There is no experiment 'async-linucb/fig2c'; did you mean 'async-linucb/fig")
    assert "did you mean 'hetofedbandit/table1'?" in refusal(capsys, "reproduce", "hetofedbandits/table1")


def test_a_declaration_that_contradicts_itself_is_refused() -> None:
    good = load("async-linucb/fig2a")
    scale = good.scales["quick"]
    with pytest.raises(FedbanditError, match="Two points"):
        type(scale)((scale.points[0], scale.points[0]), 1)
    with pytest.raises(FedbanditError, match="no measure 'regert'; did you mean 'regret'"):
        Experiment("x", good.scales, good.panels, measures=("regert",))
    only = type(scale)([Point("other", linucb, good.scales["quick"].points[0].env, 10)], 1)
    with pytest.raises(FedbanditError, match="no series 'Async-LinUCB'"):
        Experiment("x", {"quick": only}, good.panels, claims=good.claims)
    with pytest.raises(FedbanditError, match="no scale of x 'papr'; did you mean 'paper'"):
        Experiment("x", good.scales, good.panels).scale("papr")
    assert Label("Async", 0.5).text == "Async, 0.5"
