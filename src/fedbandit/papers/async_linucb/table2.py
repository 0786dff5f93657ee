"""Async-LinUCB, Table 2: who gains from a little communication on Delicious, by activity."""

import math
from functools import partial

import numpy as np

from fedbandit.environments import delicious
from fedbandit.papers.async_linucb import WIDTH
from fedbandit.presets import async_linucb, uniform
from fedbandit.studies import Claim, Experiment, Finding, Measured, Ordered, Point, Scale, Sweep
from fedbandit.studies.verdicts import margin

LITTLE = "γ = 6001"


def _points() -> list[Point]:
    points = [Point("random arms", uniform, delicious)]
    for series, gamma in (("γ = ∞", math.inf), (LITTLE, 6001.0), ("γ = 3", 3.0)):
        system = partial(async_linucb, gamma_upload=gamma, gamma_download=gamma, **WIDTH)
        points.append(Point(series, system, delicious, extra="activity"))
    return points


class FromTheActive(Claim):
    """More than half of the uploads of each seed come from active users."""

    about = ("series",)
    series = LITTLE

    def usual_text(self) -> str:
        return f"With {self.series} most uploads come from active users."

    def check(self, measured: Measured) -> Finding:
        groups = [run.extra["groups"] for run in measured.runs[measured.at(self.series, None)]]
        uploads = [sum(group["uploads"] for group in seed) for seed in groups]
        active = [sum(group["uploads"] for group in seed if group["above"] >= 60) for seed in groups]
        found = margin(np.array(active) - 0.5 * np.array(uploads))
        return Finding(found.holds, f"{sum(active)} of {sum(uploads)} uploads are from users above 60")


EXPERIMENT = Experiment(
    title="who gains from a little communication on Delicious",
    reference="Li & Wang 2022, Table 2, App. H.3",
    reports="Rewards 6,678 without communication, 7,251 with γ = 6001 (14,230 messages, 11 uploads, most of them from "
    "active users) and 5,091 with γ = 3 (54,006 messages, 1,423 uploads from all groups).",
    remarks=("Groups are steps of ten interactions, of which the paper's copy has none above a hundred.",),
    scales={"quick": Scale(_points(), seeds=2), "paper": Scale(_points(), seeds=5)},
    panels=(
        Sweep(y="normalised_reward", title="reward", without=("random arms",)),
        Sweep(y="messages", title="communication", without=("random arms",)),
    ),
    measures=("reward", "normalised_reward", "uploads", "messages"),
    printed={("γ = ∞", ""): 6678, (LITTLE, ""): 7251, ("γ = 3", ""): 5091},
    claims=(
        Ordered(("γ = 3", "γ = ∞", LITTLE), measure="reward", text="A little communication is best, much is worst."),
        Ordered(("γ = ∞", LITTLE, "γ = 3"), measure="uploads", text="Uploads grow as γ falls."),
        FromTheActive(),
    ),
)
