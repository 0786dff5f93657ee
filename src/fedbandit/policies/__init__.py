"""Which arm to pull? A policy scores the offered arms with a model and nothing else.

A policy is a frozen dataclass of parameters with one method, `choose(model, contexts, draw)`, in one file and one line
below; `POLICIES` finds it by its `name`. Whatever the model's structure is, it answers the same questions
(`fedbandit.model.Model`). A kernel for the fast engine is optional.
"""

from fedbandit.parts import found_in
from fedbandit.policies.greedy import Greedy
from fedbandit.policies.inverse_gap import IGW
from fedbandit.policies.perturbed_history import LinPHE
from fedbandit.policies.policy import Policy, WidthRule, best
from fedbandit.policies.sampling import Sampling
from fedbandit.policies.squared_bonus import SquaredBonus
from fedbandit.policies.thompson import LinTS
from fedbandit.policies.ucb import UCB
from fedbandit.policies.uniform import Uniform
from fedbandit.policies.widest import Widest

__all__ = [
    "IGW",
    "POLICIES",
    "UCB",
    "Greedy",
    "LinPHE",
    "LinTS",
    "Policy",
    "Sampling",
    "SquaredBonus",
    "Uniform",
    "Widest",
    "WidthRule",
    "best",
]

POLICIES = found_in(globals(), Policy)
"""Policies by name, as the command line and presets know them."""
