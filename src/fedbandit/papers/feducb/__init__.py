"""Dubey & Pentland, Differentially-Private Federated Linear Bandits, NeurIPS 2020."""

from __future__ import annotations

import math
from functools import partial

from fedbandit.presets import feducb

DELTA = 0.1
PLAIN = partial(feducb, epsilon=math.inf)
PUBLISHED = partial(feducb, epsilon=1.0, delta=DELTA, calibration="published", threshold="theorem")
PRINTED = partial(feducb, epsilon=1.0, delta=DELTA, as_printed=True)
OFTEN = partial(feducb, epsilon=1.0, delta=DELTA, calibration="published", threshold="T/(N d log T)")
REMARKS = (
    "'as published' is the paper's mechanism, scale and width with Theorem 1's D, which synchronises about once; until "
    "then an agent learns from its own data and λI. 'as printed' is Alg. 1 to the letter: V = Mρ_min I at first. "
    "'… often' has D = T/(N d log T), the threshold of Async-LinUCB's code. No claim of these three holds, as the "
    "trigger reads raw data.",
    "'proven' is ours: tight noise, widths that know it, synchronisation by counts, and an agent's own data exact.",
    "δ = 0.1 is the paper's; nobody should use it.",
)
