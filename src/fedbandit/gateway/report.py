"""What a gateway's answers have earned, and in shadow mode what the bandit's would have."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedbandit.errors import FedbanditError
from fedbandit.types import Array

NO_PROPENSITIES = "It is not known: give the propensity of your choice with every event, and let it be below 1."


def report(finished: Array, *, shadow: bool) -> dict[str, Any]:
    """Estimates with 95 % intervals, from columns reward, agrees, weight (`Events.finished`).

    In shadow mode the bandit is evaluated as it was when each event was ranked: w = π(a)/p, with the caller's choice a
    and its propensity p; the mean is self-normalised (`fedbandit.evaluation.self_normalised`).
    """
    from fedbandit.evaluation.estimators import effective_sample_size, mean, self_normalised

    rewards, agrees, weights = finished.T if finished.size else np.empty((3, 0))
    found: dict[str, Any] = {"events": len(rewards), "earned": None}
    if len(rewards) > 1:
        found["earned"] = _numbers(mean("earned", rewards))
    if not shadow:
        return found
    found |= {"would_have_earned": None, "why_not": None, "agreement": None, "earned_where_agreed": None}
    if len(rewards):
        found["agreement"] = float(agrees.mean())
    if agrees.sum() > 1:
        found["earned_where_agreed"] = _numbers(mean("where agreed", rewards[agrees > 0]))
    known = ~np.isnan(weights)
    try:
        estimate = self_normalised(weights[known], rewards[known])
        ess = effective_sample_size(weights[known])
        found["would_have_earned"] = {**_numbers(estimate), "effective_events": ess}
    except FedbanditError as error:
        found["why_not"] = NO_PROPENSITIES if not known.any() else str(error)
    return found


def _numbers(estimate: Any) -> dict[str, float]:
    low, high = estimate.interval
    return {"value": estimate.value, "low": low, "high": high}
