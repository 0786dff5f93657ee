"""What all tests share: Hypothesis draws the same examples in every run, and never complains about a slow machine.

`FEDBANDIT_EXPLORE=1000 pytest …` looks for new examples instead, that many for each property.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # nothing but loopback; its thread would draw random numbers
os.environ.setdefault("DO_NOT_TRACK", "true")

explore = int(os.environ.get("FEDBANDIT_EXPLORE", "0"))
settings.register_profile(
    "fedbandit",
    deadline=None,
    derandomize=explore == 0,
    max_examples=explore or 50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("fedbandit")
