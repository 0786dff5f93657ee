"""Secure sums on a faulty network: the right sum or none, and never two over one epoch.

`FEDBANDIT_STEPS` is how many steps there are in all, 100,000 if it is not set; `make soak` does a million.
"""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest

from fedbandit.machines.sums.server import SumServer
from fedbandit.testing.faulty import Faults
from fedbandit.testing.faulty_sums import FaultySums

SEEDS = 4
STEPS = int(os.environ.get("FEDBANDIT_STEPS", "100000")) // SEEDS


def run(network: FaultySums, steps: int) -> None:
    for _ in range(steps):
        network.step()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_right_sum_or_none(seed: int) -> None:
    network = FaultySums(members=3 + seed, seed=seed)
    run(network, STEPS)
    assert len(network.opened) > STEPS / 2000
    assert network.failed > 0
    assert network.crashes > 0


@pytest.mark.parametrize("behind", [1, 3, 6])
def test_a_relay_that_ends_takes_what_is_under_way_with_it(behind: int) -> None:
    """The right sum or none, as ever: of one over whom too few are left, too."""
    network = FaultySums(members=6, seed=behind, behind=behind)
    run(network, STEPS // 5)
    assert network.lost > 0
    assert len(network.opened) > 0
    assert network.failed > 0


def test_a_wrong_sum_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: what clients that dropped out have left in the sum is not taken off."""
    monkeypatch.setattr(SumServer, "_take_off", lambda *_: None)
    network = FaultySums(members=5, seed=1)
    with pytest.raises(AssertionError, match="not that of its members"):
        run(network, 20_000)


def test_a_reused_mask_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: everything a client sends is the same in every epoch."""
    seeds = itertools.cycle(range(1, 7))
    monkeypatch.setattr("fedbandit.machines.sums.client.new_seed", lambda: next(seeds))
    for half in ("client", "server"):
        monkeypatch.setattr(f"fedbandit.machines.sums.{half}.mask_purpose", lambda *_: b"")
    network = FaultySums(members=3, seed=0, faults=Faults(loss=0, duplication=0, crash=0, delay=0, ticks=0))
    monkeypatch.setattr(network, "draw", lambda: np.zeros(3, dtype=np.uint64))
    with pytest.raises(AssertionError, match="leave twice"):
        run(network, 5_000)
