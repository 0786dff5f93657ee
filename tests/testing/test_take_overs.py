"""Coordinators take over from one another, on a network that fails: nothing is lost, nothing counts twice, and whoever
was overtaken writes nothing. Clients that were erased are gone.
"""

from __future__ import annotations

from typing import Any

import pytest

from fedbandit.network.coordinator.config import on_a_network
from fedbandit.network.invitation import Agreement
from fedbandit.testing.take_overs import TakeOvers
from tests.testing.test_faulty import RUN, STEPS, SYSTEMS, WORLD


@pytest.mark.parametrize(("system", "keywords"), SYSTEMS)
@pytest.mark.parametrize("erase", [0.0, 0.005])
def test_invariants_hold_with_take_overs(system: str, keywords: dict[str, Any], erase: float) -> None:
    runs = max(1, round(STEPS / (len(SYSTEMS) * 2 * RUN)))
    refused = taken = erased = 0
    for seed in range(runs):
        network = TakeOvers(on_a_network(Agreement(system, keywords, WORLD)), seed, erase=erase)
        for step in range(-(-STEPS // (len(SYSTEMS) * 2 * runs))):
            network.step()
            if step % 100 == 0:
                network.check()
        network.overtaken = None
        network.drain()
        network.check()
        refused, taken, erased = (
            refused + network.refused_when_overtaken, taken + network.take_overs, erased + network.erasures,
        )  # fmt: skip
    assert taken > 0
    assert refused > 0
    assert (erased > 0) == (erase > 0)
