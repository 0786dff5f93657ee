"""Replay on the sample of the Open Bandit Dataset (`obd` of the obp wheel), where FEDBANDIT_DATA has it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fedbandit as fb
from fedbandit.environments import LoggedDecisions, from_frame
from fedbandit.evaluation import evaluate_frozen, replay

FOLDER = Path(os.environ.get("FEDBANDIT_DATA", "data")) / "obd"

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="there is no folder obd in FEDBANDIT_DATA")


def sample(policy: str) -> LoggedDecisions:
    """10,000 decisions among 80 items; the position of the item on the page is all that is known of a visitor here."""
    frame = pytest.importorskip("pandas").read_csv(FOLDER / policy / "all" / "all.csv", index_col=0)
    frame["visitor"] = 0
    for k in (1, 2):
        frame[f"at{k}"] = (frame.position == k).astype(float)
    return from_frame(frame, "visitor", ["at1", "at2"], "click", action="item_id", propensity="propensity_score")


@pytest.mark.parametrize("logged", ["random", "bts"])
def test_random_items_are_estimated_to_earn_what_they_earned(logged: str) -> None:
    earned = float(sample("random").rewards.mean())
    found = evaluate_frozen(fb.uniform(), sample(logged), train=0.2)
    assert earned == pytest.approx(0.0038)
    assert all(estimate.covers(earned) for estimate in found.estimates), found.estimates
    assert any("smallest propensity" in warning for warning in found.warnings) == (logged == "bts")


def test_a_hundred_uses_without_a_click_are_no_certainty() -> None:
    found = replay(fb.linucb(), sample("random"))
    assert found.used > 50
    assert found.estimates[0].interval[1] > 0.01
    assert "rate is known roughly" in found.warnings[-1]
