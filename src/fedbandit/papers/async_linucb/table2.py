"""Async-LinUCB, Table 2: who gains from a little communication on Delicious, by activity."""

import numpy as np

from fedbandit.studies.claims import Claim, Finding, ordered
from fedbandit.studies.declaration import Experiment, Point, Scale
from fedbandit.studies.measured import Measured
from fedbandit.studies.panels import Sweep
from fedbandit.studies.verdicts import margin


def _points() -> list[Point]:
    points = [Point("random arms", "uniform", "delicious", None)]
    for label, gamma in (("γ = ∞", "inf"), ("γ = 6001", "6001"), ("γ = 3", "3")):
        system = f"async-linucb:gamma_upload={gamma},gamma_download={gamma},alpha=0.3,ridge=0.2"
        points.append(Point(label, system, "delicious", None, extra="activity"))
    return points


def _most_from_the_active(measured: Measured) -> Finding:
    """More than half of the uploads of each seed."""
    groups = [run.extra["groups"] for run in measured.runs[measured.line("γ = 6001")[0]]]
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
    printed={("γ = ∞", ""): 6678, ("γ = 6001", ""): 7251, ("γ = 3", ""): 5091},
    claims=(
        ordered("γ = 3", "γ = ∞", "γ = 6001", measure="reward", text="A little communication is best, much is worst."),
        ordered("γ = ∞", "γ = 6001", "γ = 3", measure="uploads", text="Uploads grow as γ falls."),
        Claim("With γ = 6001 most uploads come from active users.", _most_from_the_active, ("γ = 6001",)),
    ),
)
