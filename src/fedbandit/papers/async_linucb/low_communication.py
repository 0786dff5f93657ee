"""Async-LinUCB, App. H.3: hardly any communication on Delicious."""

from fedbandit.studies.claims import trend
from fedbandit.studies.declaration import Experiment, Point, Scale
from fedbandit.studies.panels import Sweep, Tradeoff


def _points(powers: tuple[int, ...]) -> list[Point]:
    points = [Point("random arms", "uniform", "delicious", None)]
    for power in powers:
        system = f"async-linucb:gamma_upload=1e{power},gamma_download=1e{power},alpha=0.3,ridge=0.2"
        points.append(Point("Async-LinUCB", system, "delicious", None, value=10.0**power))
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
        trend("Async-LinUCB", measure="messages", direction="falls", text="Messages fall as γ rises."),
        trend(
            "Async-LinUCB",
            measure="normalised_reward",
            direction="falls",
            text="Reward falls as γ rises from 10⁴: here more communication is better.",
        ),
    ),
)
