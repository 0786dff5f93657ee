"""Compact rows against full ones that have been given, and have seen, the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.engine.checkpoint import read_checkpoint, write_checkpoint
from fedbandit.engine.fast import compact, statistics
from fedbandit.engine.fast import row as fast_row
from fedbandit.engine.fast.packed import multiply_packed
from fedbandit.engine.fast.row_model import shared_row
from fedbandit.engine.fast.rows import RowsLearner
from fedbandit.engine.fast.slots import COMPACT, FULL
from fedbandit.engine.simulation import Simulation
from fedbandit.environments.recorded import RecordedStream
from fedbandit.sums import EXACT, Sums
from fedbandit.types import Array
from tests.logs import KINDS, random_log, recorded

RIDGE = 0.3


def given_to(rng: np.random.Generator, d: int) -> Array:
    """What a coordinator may have broadcast: a row that ends where base does."""
    X, Y = rng.standard_normal((30, d)), rng.standard_normal(30)
    whole = shared_row([Sums(X.T @ X, X.T @ Y, 30)], EXACT, d, RIDGE, statistics.scratch_matrix(d))
    return np.ascontiguousarray(whole[: fast_row.shared_length(d)])


def full_row(given: Array, X: Array, Y: Array) -> Array:
    """A row that was given this and has observed those."""
    d = X.shape[1]
    row: Array = fast_row.empty_rows(1, d)[0]
    fast_row.start_row(row, d, RIDGE)
    statistics.adopt(row, given, d, RIDGE, statistics.scratch_matrix(d))
    u = np.zeros(d)
    for x, y in zip(X, Y, strict=True):
        multiply_packed(fast_row.inverse_of(row, d), x, u)
        statistics.observe(row, x, y, u, RIDGE, statistics.scratch_matrix(d))
    return row


@pytest.mark.parametrize("k", range(compact.MOST_LISTED + 1))
@pytest.mark.parametrize("d", [1, 3, 10])
def test_a_light_row_made_full(d: int, k: int) -> None:
    """Whatever was in the memory that it is put in."""
    rng = np.random.default_rng(d + 100 * k)
    given, X, Y = given_to(rng, d), rng.standard_normal((k, d)), rng.standard_normal(k)
    small = np.full(compact.compact_length(d), np.nan)
    compact.start_compact(small)
    chosen = np.zeros(fast_row.row_length(d))
    for x, y in zip(X, Y, strict=True):
        chosen[fast_row.STEPS] += 1
        compact.note_observation(small, chosen, x, float(y))
    row = np.full(fast_row.row_length(d), np.nan)
    compact.load_scalars(small, given, row)
    compact.load_model(small, given, row, d, np.zeros(d))
    expected = full_row(given, X, Y)
    expected[fast_row.STEPS] = k
    hot = fast_row.hot_length(d)
    used = np.r_[: fast_row.HEAD + d, fast_row.inverse_at(d) : hot]  # Δb, in between, is left to `complete`
    np.testing.assert_allclose(row[used], expected[used], atol=1e-12)
    compact.complete(small, given, row, d)
    used = np.r_[used, fast_row.HEAD + d : fast_row.HEAD + 2 * d, hot : fast_row.list_end(row, d)]
    np.testing.assert_allclose(row[used], expected[used], atol=1e-12)
    assert not any(np.isnan(array).any() for array in compact.dump_compact(small[None], d).values())


def test_what_was_sent_is_remembered() -> None:
    """A compact row that has uploaded three observations has those as its own, and none pending."""
    d, rng = 4, np.random.default_rng(0)
    small = np.zeros(compact.compact_length(d))
    row = full_row(given_to(rng, d), rng.standard_normal((2, d)), rng.standard_normal(2))
    row[fast_row.STEPS] = 5
    compact.note_upload(small, row)  # and the third, which was sent as it was observed
    given = given_to(rng, d)
    compact.load_scalars(small, given, row)
    compact.load_model(small, given, row, d, np.zeros(d))
    counts = [fast_row.N_OWN, fast_row.N_PENDING, fast_row.N_LISTED, fast_row.STEPS, fast_row.N]
    assert row[counts].tolist() == [3, 0, 0, 5, 30]
    np.testing.assert_array_equal(fast_row.theta_of(row, d), fast_row.theta_of(given, d))


def test_most_clients_that_upload_stay_compact() -> None:
    """They are given all there is with their upload, so that they need no matrices of their own."""
    env = fb.environments.homogeneous(n_clients=2000, dim=5, n_arms=4, pool=50)
    simulation = Simulation(fb.async_linucb(ridge=0.1), env, 6000, 0, engine="fast")
    while not simulation.finished:
        simulation.advance()
    learner = simulation.learner
    assert isinstance(learner, RowsLearner)
    uploads = simulation.result().communication.uploads
    assert uploads > 1000
    assert learner.slots.taken[COMPACT] > 1500
    moved_with_many = np.count_nonzero(np.bincount(env.open(0).block(0, 6000).clients) > compact.MOST_LISTED)
    assert learner.slots.taken[FULL] < min(uploads / 3, moved_with_many)


@pytest.mark.parametrize("seed", range(24))
def test_a_resumed_run_ends_in_the_same_state(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To rounding, also where clients have different thresholds and cohorts are empty now and then."""
    monkeypatch.setattr(RecordedStream, "chunk", 1)
    rng, n, horizon = np.random.default_rng(seed), 80, 112
    log = random_log(seed, KINDS[seed % len(KINDS)], horizon=horizon, n_clients=n, dim=1 + seed % 3, longest_delay=1)
    down = rng.choice([1.0, 1.5, 3.0, 10.0, np.inf], size=n) if seed % 2 else [2.0, np.inf][seed // 2 % 2]
    system = fb.async_linucb(gamma_upload=1.5, gamma_download=down)
    states = []
    for stop in (horizon, 37 + seed):
        simulation = Simulation(system, recorded(log), horizon, 0, engine="fast")
        while not simulation.finished:
            simulation.advance()
            if simulation.done == stop < horizon:
                write_checkpoint(tmp_path / "checkpoint", simulation, "")
                simulation = Simulation(system, recorded(log), horizon, 0, engine="fast")
                read_checkpoint(tmp_path / "checkpoint", simulation, "")
        states.append(simulation.learner.state().arrays)
    whole, resumed = states
    for name, array in whole.items():
        np.testing.assert_allclose(array, resumed[name], rtol=1e-9, atol=1e-9, err_msg=name)
