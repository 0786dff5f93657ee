"""Dubey & Pentland, Differentially-Private Federated Linear Bandits, NeurIPS 2020."""

from __future__ import annotations

import math
from functools import partial

from fedbandit.presets import feducb

DELTA = 0.1
PLAIN = partial(feducb, epsilon=math.inf)
PUBLISHED = partial(feducb, epsilon=1.0, delta=DELTA, calibration="published")
REMARKS = (
    "'as published' is the paper's mechanism, scale and width; its claim does not hold, as the trigger reads raw data. "
    "'proven' is ours: tight noise, widths that know it, synchronisation by counts, and an agent's own data exact.",
    "δ = 0.1 is the paper's; nobody should use it.",
)
