"""Tests; `tests.oracles.naive` holds slow, obvious oracles."""
