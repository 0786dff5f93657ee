"""Measures beyond regret: what logged decisions tell about a system, and rewards on data sets of likes.

Logs hold what somebody else's policy chose. What they tell are estimates, never a simulation:

| question                                              | needs                  | answer                       |
|-------------------------------------------------------|------------------------|------------------------------|
| what would this system earn *while it learns*?        | arms logged uniformly  | `replay`                     |
| what would it earn with what it learned from the log? | known propensities     | `evaluate_frozen`            |
| what would it earn, and there are no propensities?    | –                      | the log cannot tell: refused |
"""

from fedbandit.evaluation.estimators import Estimate, doubly_robust, inverse_propensity, mean, self_normalised
from fedbandit.evaluation.likes import Group, by_activity, normalised_reward
from fedbandit.evaluation.logs import LogEvaluation, evaluate_frozen, replay

__all__ = [
    "Estimate",
    "Group",
    "LogEvaluation",
    "by_activity",
    "doubly_robust",
    "evaluate_frozen",
    "inverse_propensity",
    "mean",
    "normalised_reward",
    "replay",
    "self_normalised",
]
