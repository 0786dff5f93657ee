"""Async-LinUCB, App. H.3: hardly any communication on Delicious."""

from functools import partial

from fedbandit.environments import delicious
from fedbandit.papers.async_linucb import WIDTH
from fedbandit.presets import async_linucb, uniform
from fedbandit.studies import Experiment, Point, Scale, Sweep, Tradeoff, Trend


def _points(powers: tuple[int, ...]) -> list[Point]:
    points = [Point("random arms", uniform, delicious)]
    for gamma in (10.0**power for power in powers):
        system = partial(async_linucb, gamma_upload=gamma, gamma_download=gamma, **WIDTH)
        points.append(Point("Async-LinUCB", system, delicious, value=gamma))
    return points


EXPERIMENT = Experiment(
    title="hardly any communication on Delicious",
    reference="Li & Wang 2022, App. H.3",
    reports="With γ from 10²⁰ to 10⁴ reward rises with communication, from 1.6891 to 1.8348 as messages go from 0 to "
    "14,230; with more communication than that it falls.",
    scales={
        "quick": Scale(_points((4, 8, 14, 20)), seeds=4),
        "paper": Scale(_points((4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20)), seeds=5),
    },
    panels=(
        Tradeoff(y="normalised_reward", without=("random arms",)),
        Sweep(y="normalised_reward", x="γ", log_x=True, without=("random arms",)),
    ),
    measures=("normalised_reward", "messages"),
    value_name="γ",
    claims=(
        Trend("Async-LinUCB", measure="messages", direction="falls", text="Messages fall as γ rises."),
        Trend(
            "Async-LinUCB",
            measure="normalised_reward",
            direction="falls",
            text="Reward falls as γ rises from 10⁴: here more communication is better.",
        ),
    ),
)
