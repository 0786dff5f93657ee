"""Measures beyond regret: what logged decisions tell about a system, and rewards on data sets of likes.

Logs hold what somebody else's policy chose. What they tell are estimates, never a simulation:

| question                                              | needs                  | answer                       |
|-------------------------------------------------------|------------------------|------------------------------|
| what would this system earn *while it learns*?        | arms logged uniformly  | `replay`                     |
| what would it earn with what it learned from the log? | known propensities     | `evaluate_frozen`            |
| which of several is better, and by how much?          | one of the two         | `compare`: paired            |
| what would it earn, and there are no propensities?    | –                      | the log cannot tell: refused |
"""

from fedbandit.evaluation.comparison import LogComparison, compare, evaluate
from fedbandit.evaluation.estimators import (
    Estimate,
    difference,
    doubly_robust,
    inverse_propensity,
    mean,
    self_normalised,
)
from fedbandit.evaluation.likes import Group, by_activity, normalised_reward
from fedbandit.evaluation.logs import LogEvaluation, evaluate_frozen, replay

__all__ = [
    "Estimate",
    "Group",
    "LogComparison",
    "LogEvaluation",
    "by_activity",
    "compare",
    "difference",
    "doubly_robust",
    "evaluate",
    "evaluate_frozen",
    "inverse_propensity",
    "mean",
    "normalised_reward",
    "replay",
    "self_normalised",
]
