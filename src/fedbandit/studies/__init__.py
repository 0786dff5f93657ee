"""Many runs at once: experiments declared as points, panels and claims, run in parallel, kept, and reported.

A declaration needs the names below. `trials` says what is run and `workers` where; `store` keeps runs; `measured`,
`claims` and `verdicts` say what came of them; `figures` and `report` show it; `reproduce` does all of that for
experiments, `compare` for systems side by side. `specs` and `user_file` read what users type.
"""

from fedbandit.studies.claims import Below, BetterFront, Claim, Finding, Grows, NearPrinted, Ordered, ScalesLike, Trend
from fedbandit.studies.experiment import Experiment, Scale
from fedbandit.studies.figures import Curves, Overlay, Panel, Sweep, Tradeoff
from fedbandit.studies.measured import Measured
from fedbandit.studies.trials import MakesEnvironment, MakesSystem, Point, Value

__all__ = [
    "Below",
    "BetterFront",
    "Claim",
    "Curves",
    "Experiment",
    "Finding",
    "Grows",
    "MakesEnvironment",
    "MakesSystem",
    "Measured",
    "NearPrinted",
    "Ordered",
    "Overlay",
    "Panel",
    "Point",
    "Scale",
    "ScalesLike",
    "Sweep",
    "Tradeoff",
    "Trend",
    "Value",
]
