"""The same log for us and for Open Bandit Pipeline (obp 0.4.1), whose estimates are in tests/fixtures/obp.json.

They were made in an environment of their own, with obp, scikit-learn and pandas (and an empty module `torch`, which obp
imports and these estimators do not use):

    python tests/evaluation/independent.py > tests/fixtures/obp.json
"""

from __future__ import annotations

import json
import random
from typing import Any, NamedTuple

import numpy as np


class Log(NamedTuple):
    """Decisions: what was taken, with which probability, its reward; π and r̂ of every action."""

    taken: Any  # (n,)
    propensities: Any  # (n,)
    rewards: Any  # (n,)
    policy: Any  # (n, K)
    predicted: Any  # (n, K)


def make_log(seed: int, n: int = 500, n_actions: int = 5, *, rate: float = 0.5, sure: bool = False) -> Log:
    """A log of a random policy with propensities from Python's own generator, which never changes."""
    draw = random.Random(seed)
    logging = np.array([[0.1 + draw.random() for _ in range(n_actions)] for _ in range(n)])
    logging /= logging.sum(axis=1, keepdims=True)
    taken = (logging.cumsum(axis=1) > np.array([[draw.random()] for _ in range(n)])).argmax(axis=1)
    worth = rate * np.array([[draw.random() for _ in range(n_actions)] for _ in range(n)])
    rewards = (np.array([draw.random() for _ in range(n)]) < worth[np.arange(n), taken]).astype(float)
    policy = np.array([[draw.random() ** 3 for _ in range(n_actions)] for _ in range(n)])
    policy = (
        np.eye(n_actions)[policy.argmax(axis=1)] if sure else np.asarray(policy / policy.sum(axis=1, keepdims=True))
    )
    predicted = worth * np.array([[0.5 + draw.random() for _ in range(n_actions)] for _ in range(n)])
    return Log(taken, logging[np.arange(n), taken], rewards, policy, predicted)


CASES: dict[str, dict[str, Any]] = {
    "stochastic": {"seed": 1},
    "deterministic": {"seed": 2, "sure": True},
    "clicks of 0.4 %": {"seed": 3, "n": 4000, "rate": 0.008},
}


def by_obp(log: Log) -> dict[str, float]:
    """What obp estimates."""
    from obp.ope import (  # type: ignore[import-not-found]
        DoublyRobust,
        InverseProbabilityWeighting,
        SelfNormalizedInverseProbabilityWeighting,
    )

    common = {
        "reward": log.rewards,
        "action": log.taken,
        "pscore": log.propensities,
        "action_dist": log.policy[:, :, None],
        "position": np.zeros(len(log.taken), dtype=int),
    }
    return {
        "inverse propensity": float(InverseProbabilityWeighting().estimate_policy_value(**common)),
        "self-normalised": float(SelfNormalizedInverseProbabilityWeighting().estimate_policy_value(**common)),
        "doubly robust": float(
            DoublyRobust().estimate_policy_value(**common, estimated_rewards_by_reg_model=log.predicted[:, :, None])
        ),
    }


if __name__ == "__main__":
    print(json.dumps({name: by_obp(make_log(**case)) for name, case in CASES.items()}, indent=1))
