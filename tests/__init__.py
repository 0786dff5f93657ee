"""Tests; `tests.naive` holds slow, obvious oracles."""
