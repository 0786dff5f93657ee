"""Which arm to pull? Policies score the offered arms with one row of statistics and nothing else.

A policy is a frozen dataclass of parameters with one method, `plan`, that turns them into the few numbers a compiled
chooser reads (`PolicyPlan`). To add one: a file like `ucb.py` with the dataclass and the chooser, a code in
`plan.py`, and a branch in `choose.py`.
"""

from fedbandit.engine.fast.choose import Scratch, choose, choose_at, ready_for, scratch
from fedbandit.policies.greedy import Greedy
from fedbandit.policies.perturbed_history import LinPHE
from fedbandit.policies.plan import Policy, PolicyPlan, WidthRule
from fedbandit.policies.squared_bonus import SquaredBonus
from fedbandit.policies.thompson import LinTS
from fedbandit.policies.ucb import UCB
from fedbandit.policies.uniform import Uniform

__all__ = [
    "UCB",
    "Greedy",
    "LinPHE",
    "LinTS",
    "Policy",
    "PolicyPlan",
    "Scratch",
    "SquaredBonus",
    "Uniform",
    "WidthRule",
    "choose",
    "choose_at",
    "ready_for",
    "scratch",
]
