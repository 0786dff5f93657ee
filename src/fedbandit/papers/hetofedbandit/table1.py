"""HetoFedBandit, Table 1 (App. H): sensitivity to the number of clusters and their distance."""

from fedbandit.papers.hetofedbandit import ALONE, DIS, DYCLU, FCLUB, HFB, HFB_E, compared, world
from fedbandit.studies import Below, Experiment, NearPrinted, Ordered, Point, Scale, Sweep

SETTINGS = {
    "M = 1": (1, 0.85),
    "M = 4": (4, 0.85),
    "M = 30": (30, 0.85),
    "M = 4, γ = 0.65": (4, 0.65),
    "M = 4, γ = 0.05": (4, 0.05),
}
PRINTED = {
    ALONE: (772, 785, 781, 778, 788),
    DIS: (59, 23_776, 25_124, 20_129, 23_824),
    FCLUB: (648, 784, 791, 788, 771),
    DYCLU: (49, 227, 777, 232, 269),
    HFB: (576, 669, 884, 700, 917),
    HFB_E: (174, 444, 822, 462, 582),
}
BY_SETTING = {name: dict(zip(SETTINGS, numbers, strict=True)) for name, numbers in PRINTED.items()}


def _points(horizon: int) -> list[Point]:
    points = []
    for setting, (n_clusters, gap) in SETTINGS.items():
        points += compared(world(30, n_clusters, horizon, gap), horizon, value=setting)
    return points


EXPERIMENT = Experiment(
    title="sensitivity to the number of clusters and their distance",
    reference="Blaser et al. 2024, Table 1, App. H: N = 30, T = 3,000, d = 25",
    reports="Fewer clusters mean less regret of HetoFedBandit and -E; closer clusters mean more.",
    remarks=(
        "σ = λ = δ = 0.1 as in §4.2. With M = 30 every client is a cluster of its own: nothing can be gained.",
        "An independent oracle gives 667–726 for LinUCB where 772–785 is printed.",
    ),
    scales={"quick": Scale(_points(1_000), seeds=2), "paper": Scale(_points(3_000), seeds=10)},
    panels=(Sweep(x="setting"), Sweep(y="messages", x="setting", without=(ALONE, DYCLU))),
    printed={(name, setting): float(n) for name, row in BY_SETTING.items() for setting, n in row.items()},
    pivot=True,
    value_name="setting",
    claims=(
        Below(HFB_E, ALONE, at="M = 1", text="With one cluster HetoFedBandit-E is below independent learning."),
        Below(HFB_E, ALONE, at="M = 4", text="With four clusters HetoFedBandit-E is below independent learning."),
        Below(HFB_E, HFB, at="M = 4", text="With four clusters HetoFedBandit-E is below HetoFedBandit."),
        Below(HFB_E, FCLUB, at="M = 4", text="With four clusters HetoFedBandit-E is below FCLUB_DC."),
        Below(ALONE, DIS, at="M = 4", factor=3.0, text="DisLinUCB fails as soon as clients differ."),
        Ordered((DYCLU, HFB_E, ALONE), at="M = 4", text="DyClu, which has all data in one place, is best with M = 4."),
        NearPrinted(
            ALONE,
            BY_SETTING[ALONE],
            within=0.2,
            otherwise="Independent oracles agree with us: 667–726. The printed world is not fully specified.",
        ),
        NearPrinted(HFB_E, BY_SETTING[HFB_E], within=0.3),
    ),
)
