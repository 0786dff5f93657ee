"""IPS, SNIPS and DR equal those of an independent library on the same logs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedbandit.evaluation import doubly_robust, inverse_propensity, self_normalised
from tests.evaluation.independent import CASES, make_log

THEIRS = json.loads((Path(__file__).parents[1] / "fixtures" / "obp.json").read_text())


@pytest.mark.parametrize("case", CASES)
def test_estimates_equal_those_of_open_bandit_pipeline(case: str) -> None:
    log = make_log(**CASES[case])
    rows = np.arange(len(log.taken))
    weights = log.policy[rows, log.taken] / log.propensities
    of_policy = (log.policy * log.predicted).sum(axis=1)
    found = (
        inverse_propensity(weights, log.rewards),
        self_normalised(weights, log.rewards),
        doubly_robust(weights, log.rewards, log.predicted[rows, log.taken], of_policy),
    )
    assert {estimate.name: estimate.value for estimate in found} == pytest.approx(THEIRS[case], rel=1e-9, abs=1e-12)
    assert log.rewards.sum() > 5, "there is something to be compared"
