"""Blocks drawn once and ahead: the same as if drawn when asked for, by whichever thread."""

from __future__ import annotations

import threading
from typing import ClassVar

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.engine.draws import Ahead, usable_threads
from fedbandit.environments import Block
from fedbandit.environments.kernels import PLAIN, draw_distinct
from fedbandit.errors import FedbanditError
from fedbandit.types import Ints


class Observed:
    """A stream that remembers who asked for what, and draws three numbers for its arms."""

    chunk = 10

    def __init__(self, draws_ahead: bool) -> None:
        self.draws_ahead = draws_ahead
        self.asked: list[tuple[int, int, bool]] = []

    def block(self, start: int, stop: int) -> Block:
        self.asked.append((start, stop, threading.current_thread() is threading.main_thread()))
        arms = draw_distinct(np.random.default_rng(start), 9, stop - start, 3)
        env = fb.environments.homogeneous(n_clients=2, dim=2, n_arms=3)
        return env.open(0).block(start, stop)._replace(arms=arms)


@pytest.mark.parametrize(("allowed", "threads", "helped"), [(True, 2, True), (True, 1, False), (False, 2, False)])
def test_a_second_thread_draws_if_it_may(allowed: bool, threads: int, helped: bool) -> None:
    """If the stream allows it and there is a thread to spare; every block is drawn once."""
    stream = Observed(allowed)
    blocks = Ahead(stream, 25, threads=threads)
    for start in (0, 0, 10, 20):
        blocks.block(start)
    assert [(start, stop) for start, stop, _ in stream.asked] == [(0, 10), (10, 20), (20, 25)]
    assert [here for _, _, here in stream.asked] == [True, not helped, not helped]


class _Counting:
    """Plain shuffles that count themselves."""

    calls: ClassVar[int] = 0

    @classmethod
    def shuffle(cls, below: Ints, size: int) -> Ints:
        cls.calls += 1
        return PLAIN.shuffle_partially(below, size)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_engines_kernels_are_used_in_both_threads(threads: int) -> None:
    """And nowhere else."""
    _Counting.calls = 0
    blocks = Ahead(Observed(True), 20, threads=threads)
    blocks.kernels = PLAIN._replace(shuffle_partially=_Counting.shuffle)
    blocks.block(0)
    blocks.block(10)
    draw_distinct(np.random.default_rng(0), 9, 1, 3)
    assert _Counting.calls == 2


def test_threads_are_counted_or_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """FEDBANDIT_THREADS wins; nonsense is refused."""
    monkeypatch.delenv("FEDBANDIT_THREADS", raising=False)
    assert usable_threads() >= 1
    monkeypatch.setenv("FEDBANDIT_THREADS", "3")
    assert usable_threads() == 3
    monkeypatch.setenv("FEDBANDIT_THREADS", "many")
    with pytest.raises(FedbanditError, match="FEDBANDIT_THREADS is 'many', but must be a whole number ≥ 1"):
        usable_threads()
