"""The simulator as a whole: results, files, checkpoints, delays, drift, and the same without the compiler."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.engine.fast.draws import COMPILED
from fedbandit.engine.fast.packed import unpacked
from fedbandit.engine.fast.row import base_of, inverse_of, row_length
from fedbandit.engine.fast.rows import RowsLearner
from fedbandit.engine.fast.slots import COMPACT, FULL
from fedbandit.engine.fast.statistics import add_pending_unpacked
from fedbandit.engine.simulation import Engine, Simulation
from fedbandit.environments.block import world_of
from fedbandit.environments.kernels import PLAIN
from fedbandit.errors import FedbanditError
from fedbandit.files import read_arrays, write_arrays
from fedbandit.machines.link import Link
from fedbandit.messages import Collect, Download, Join, Message, Receipt, Request, Upload, encode, encoded_size
from fedbandit.presets import PRESETS

ENGINES: tuple[Engine, Engine] = ("plain", "fast")


def small(**options: object) -> fb.environments.Homogeneous:
    return fb.environments.homogeneous(**({"n_clients": 6, "dim": 3, "n_arms": 4} | options))  # type: ignore[arg-type]


def rows_of(simulation: Simulation) -> RowsLearner:
    """The learner of a simulation whose models are rows."""
    assert isinstance(simulation.learner, RowsLearner)
    return simulation.learner


def test_a_result_is_made_once_and_not_too_soon() -> None:
    simulation = Simulation(fb.async_linucb(), small(n_arms=40, dim=50), 300, 0)  # blocks of 262 interactions
    simulation.advance()
    with pytest.raises(FedbanditError, match="is at round 262 of 300; it has no result yet"):
        simulation.result()
    simulation.advance()
    regret = simulation.result().regret.copy()
    simulation.advance()  # there is nothing left to do
    np.testing.assert_array_equal(simulation.result().regret, regret)
    np.testing.assert_array_equal(fb.simulate(fb.async_linucb(), small(n_arms=40, dim=50), 300).regret, regret)


def test_each_engine_draws_with_kernels_of_its_own() -> None:
    """Drawing in Python would be most of what a compiled simulation does."""
    kinds = {engine: Simulation(fb.linucb(), small(), 9, 0, engine=engine)._blocks.kernels for engine in ENGINES}
    assert kinds == {"plain": PLAIN, "fast": COMPILED}


def test_same_data_for_every_system() -> None:
    env = small(noise=0.0)
    uniform = fb.simulate(fb.uniform(), env, 300, seed=4)
    linucb = fb.simulate(fb.linucb(), env, 300, seed=4)
    same = uniform.arms == linucb.arms
    gains = np.diff(uniform.reward, prepend=0.0), np.diff(linucb.reward, prepend=0.0)
    assert 0 < same.sum() < 300
    np.testing.assert_allclose(gains[0][same], gains[1][same], atol=1e-12)


@pytest.mark.parametrize("name", sorted(PRESETS))
@pytest.mark.parametrize("rounds", ["one", "all"])
def test_checkpoint_and_resume(
    name: str, rounds: Literal["one", "all"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = PRESETS[name]()
    kind = (
        fb.environments.collaborative
        if isinstance(system.structure, fb.structures.OnGraph)
        else fb.environments.homogeneous
    )
    env: fb.environments.Environment = kind(  # blocks of 1,638 interactions
        n_clients=6, rounds=rounds, delay=(0, 3), n_arms=40, dim=8
    )
    horizon = 4000 if rounds == "one" else 700
    whole = fb.simulate(system, env, horizon, seed=2)
    path = tmp_path / "half.npz"

    class Killed(Exception):
        pass

    advance = Simulation.advance

    def advance_until_killed(self: Simulation) -> None:
        if path.exists():
            raise Killed
        advance(self)

    monkeypatch.setattr(Simulation, "advance", advance_until_killed)
    with pytest.raises(Killed):
        fb.simulate(system, env, horizon, seed=2, checkpoint=path, checkpoint_every=1)
    monkeypatch.setattr(Simulation, "advance", advance)
    resumed = fb.simulate(system, env, horizon, seed=2, checkpoint=path, checkpoint_every=10**9)
    assert np.array_equal(whole.arms, resumed.arms)
    assert np.array_equal(whole.regret, resumed.regret)
    assert np.array_equal(whole.communication.message_curve, resumed.communication.message_curve)
    assert whole.communication.bytes == resumed.communication.bytes


def test_checkpoint_of_another_simulation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    env = small(n_arms=200, dim=8)
    fb.simulate(fb.linucb(), env, 1000, checkpoint=path, checkpoint_every=1)
    with pytest.raises(FedbanditError, match="another simulation"):
        fb.simulate(fb.linucb(), env, 1000, seed=1, checkpoint=path)
    with pytest.raises(FedbanditError, match="another simulation"):
        fb.simulate(fb.linucb(ridge=0.2), env, 1000, checkpoint=path)
    header, arrays = read_arrays(path)
    write_arrays(path, header | {"format": 7}, arrays)
    with pytest.raises(FedbanditError, match=r"is of format 7, .* reads format 1 or 2 or 3; .* or remove the file"):
        fb.simulate(fb.linucb(), env, 1000, checkpoint=path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(FedbanditError, match=r"The checkpoint in .* is damaged: it was cut off .*, or remove the file"):
        fb.simulate(fb.linucb(), env, 1000, checkpoint=path)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(FedbanditError, match="not a file that fedbandit wrote"):
        fb.simulate(fb.linucb(), env, 1000, checkpoint=path)


def test_save_and_load(tmp_path: Path) -> None:
    result = fb.simulate(fb.sync_linucb(threshold=1.0), small(), 200, seed=1)
    loaded = fb.Result.load(result.save(tmp_path / "run.npz"))
    assert loaded.summary() == result.summary()
    assert loaded.parameters == result.parameters
    assert np.array_equal(loaded.arms, result.arms)
    assert os.listdir(tmp_path) == ["run.npz"]
    with pytest.raises(FedbanditError, match="no file"):
        fb.Result.load(tmp_path / "missing.npz")


def test_to_frame_and_plot() -> None:
    result = fb.simulate(fb.async_linucb(), small(), 200)
    frame = result.to_frame()
    assert len(frame) == 200
    assert frame["regret"].iloc[-1] == result.regret[-1]
    assert frame["uploads"].iloc[-1] == result.communication.uploads
    axes = result.plot()
    assert axes.lines[0].get_ydata()[-1] == result.regret[-1]


def test_rounds_all_has_one_point_per_round() -> None:
    env = small(rounds="all")
    result = fb.simulate(fb.async_linucb(gamma_upload=1.5, gamma_download=1.5), env, 50)
    assert result.regret.shape == (50,)
    assert result.arms.shape == (50, 6)
    assert result.communication.upload_curve.shape == (50,)
    simulation = Simulation(fb.linucb(), env, 50, 0)
    while not simulation.finished:
        simulation.advance()
    assert simulation.interactions == 300


class Heard(Link):
    """A link that keeps everything that is carried."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.heard: list[Message] = []
        super().__init__(*args, **options)

    def carry(self, message: Message) -> Message:
        self.heard.append(message)
        return super().carry(message)


def test_communication_is_counted_as_messages_scalars_and_bytes() -> None:
    system, env = fb.sync_linucb(threshold=0.5), small()
    result = fb.simulate(system, env, 120, seed=3)
    link = Heard(system, world_of(env, 120), 3, encoded=True)
    block = env.open(3).block(0, 120)
    for s, i in enumerate(block.clients.tolist()):
        choice, a, _ = link.select(i, block.X[block.arms[s]])
        link.observe(i, choice, float(block.means[s, a] + block.noise[s]))
    c = result.communication
    assert c.uploads == sum(isinstance(message, Upload) for message in link.heard) > 0
    assert c.downloads == sum(isinstance(message, Download) for message in link.heard)
    assert c.scalars == (c.uploads + c.downloads) * 9
    counted = [message for message in link.heard if not isinstance(message, Join | Receipt)]
    size = sum(len(encode(message)) for message in counted)
    assert c.bytes == size, "the simulator counts the bytes that machines really exchange"
    assert c.scalar_curve[-1] == c.scalars
    assert c.byte_curve[-1] == c.bytes - c.control_messages * encoded_size(Request, 3)
    assert (np.diff(c.byte_curve) > 0).sum() == (np.diff(c.message_curve) > 0).sum()
    assert encoded_size(Request, 3) == encoded_size(Collect, 3) < encoded_size(Upload, 3) < encoded_size(Download, 3)


def test_drift_hurts_a_learner_that_trusts_the_past() -> None:
    steady = fb.simulate(fb.linucb_central(), small(), 2000).regret[-1]
    drifting = fb.simulate(fb.linucb_central(), small(drift=(1000,)), 2000).regret[-1]
    assert drifting > 2 * steady


def test_delayed_rewards_cost_regret_but_are_learned() -> None:
    at_once = fb.simulate(fb.linucb_central(), small(), 1000).regret[-1]
    late = fb.simulate(fb.linucb_central(), small(delay=100), 1000).regret[-1]
    never = fb.simulate(fb.linucb_central(), small(delay=5000), 1000).regret[-1]
    assert at_once < late < never


def test_block_boundaries_leave_no_trace() -> None:
    """Cutting the stream elsewhere changes nothing: the same run on recorded arrays, which come in other blocks."""
    env = small(n_arms=40, dim=8, delay=(0, 5))
    block = env.open(1).block(0, 2500)
    copy = fb.environments.recorded(
        block.clients,
        block.X[block.arms],
        block.means,
        block.means + block.noise[:, None],
        n_clients=6,
        bound=1.0,
        noise=env.noise,
        delays=block.delays,
    )
    system = fb.async_linucb(gamma_upload=1.3, gamma_download=1.3)
    assert np.array_equal(fb.simulate(system, env, 2500, 1).arms, fb.simulate(system, copy, 2500, 1).arms)


def test_without_the_compiler_everything_is_the_same() -> None:
    """NUMBA_DISABLE_JIT runs the same source as plain Python: equal arms, equal messages."""
    script = (
        "import json, sys; import fedbandit as fb; from fedbandit.presets import PRESETS\n"
        "env = fb.environments.collaborative(n_clients=4, dim=5, n_arms=4, pool=30, delay=(0, 3))\n"
        "policies = ['ucb', 'lints', 'linphe', 'greedy', 'uniform']\n"
        "systems = [make() for make in PRESETS.values()]\n"
        "systems += [fb.async_linucb(policy=p, gamma_upload=1.2, gamma_download=1.3) for p in policies]\n"
        "systems += [fb.colin(policy=p) for p in policies]\n"
        "systems += [fb.async_linucb_am(policy=p, d_global=3, gamma_upload=1.2) for p in policies]\n"
        "systems += [fb.dp_goblin(mechanism='sums'), fb.dp_goblin(calibration='published')]\n"
        "results = [fb.simulate(s, env, 150, 7) for s in systems]\n"
        "print(json.dumps([[r.arms.tolist(), r.communication.message_curve.tolist()] for r in results]))"
    )

    def run(**more: str) -> object:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", script],
            env=os.environ | more,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert run() == run(NUMBA_DISABLE_JIT="1")


def test_memory_only_for_clients_that_have_acted() -> None:
    """A million rows are 3.1 GB of addresses, but only those of clients that act become memory."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    env = fb.environments.homogeneous(n_clients=1_000_000, dim=10, n_arms=5, arrivals="skewed")
    fb.simulate(fb.async_linucb(), small(), 50, engine="fast")  # what the compiler takes does not count
    before = resident()
    simulation = Simulation(fb.async_linucb(), env, 2000, 0, engine="fast")
    while not simulation.finished:
        simulation.advance()
    active = len(np.unique(env.open(0).block(0, 2000).clients))
    assert rows_of(simulation).slots.taken[COMPACT] == active >= rows_of(simulation).slots.taken[FULL]
    assert rows_of(simulation).rows.shape == (1_000_001, row_length(10))  # one is the scratch row
    assert resident() - before < 200e6


def test_rows_grow_where_they_cannot_all_be_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    env = fb.environments.homogeneous(n_clients=6000, dim=3, n_arms=4, arrivals="round-robin")
    whole = fb.simulate(fb.async_linucb(), env, 7000)
    monkeypatch.setattr("fedbandit.engine.fast.rows.LARGEST_AT_ONCE", 0)
    simulation = Simulation(fb.async_linucb(), env, 7000, 0, engine="fast")
    assert len(rows_of(simulation).rows) == 4097
    while not simulation.finished:
        simulation.advance()
    assert len(rows_of(simulation).rows) == 6001
    assert np.array_equal(simulation.result().arms, whole.arms)


def test_an_inverse_stays_an_inverse() -> None:
    env = fb.environments.homogeneous(n_clients=1, dim=10, n_arms=3, pool=50)
    simulation = Simulation(fb.linucb(ridge=0.5), env, 20_000, 0, engine="fast")
    while not simulation.finished:
        simulation.advance()
    V = unpacked(base_of(rows_of(simulation).rows[0], 10), 10)
    add_pending_unpacked(rows_of(simulation).rows[0], 10, V)
    exact = np.linalg.inv(V + 0.5 * np.eye(10))
    np.testing.assert_allclose(
        unpacked(inverse_of(rows_of(simulation).rows[0], 10), 10), exact, rtol=1e-8, atol=1e-8 * np.abs(exact).max()
    )


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: fb.simulate(fb.linucb, small(), 10), "forget to call the preset"),  # type: ignore[arg-type]
        (lambda: fb.simulate(fb.linucb(), small(), 0), "horizon is 0"),
        (lambda: fb.simulate(fb.linucb(), small(), 10, seed=-1), "seed is -1"),
        (lambda: fb.async_linucb(gamma_upload=0.5), "gamma_upload is 0.5"),
        (lambda: fb.async_linucb(gamma_upload="exp(1/M)"), "did you mean 'exp"),
        (
            lambda: fb.simulate(fb.async_linucb(gamma_upload=np.full(3, 2.0)), small(), 10),
            "length of gamma_upload is 3",
        ),
        (lambda: fb.sync_linucb(threshold=-1.0), "threshold is -1.0"),
        (lambda: fb.linucb(policy="ubc"), "did you mean 'ucb'"),
        (lambda: fb.linucb(ridge=0.0), "ridge is 0.0"),
        (lambda: fb.linucb(confidence=1.5), "confidence is 1.5"),
        (lambda: fb.linucb(alpha=-1.0), "alpha is -1.0"),
        (lambda: fb.linucb(alhpa=1.0), "did you mean 'alpha'"),  # type: ignore[call-arg]
        (lambda: fb.linucb(policy=fb.policies.UCB(), alpha=1.0), "set it on the policy instead"),
        (
            lambda: fb.System(structure=fb.structures.Central(), protocol=fb.protocols.always()),
            "nobody to exchange",
        ),
        (lambda: fb.System(policy="ucb"), "not a Policy instance."),  # type: ignore[arg-type]
        (lambda: fb.linucb(policy=fb.policies.LinTS), "not a Policy instance; call it: LinTS()."),  # type: ignore[arg-type]
        (
            lambda: fb.simulate(fb.System(structure=fb.structures.FixedGroups([0])), small(), 9),
            "number of labels is 1",
        ),
    ],
)
def test_bad_input_gets_one_sentence(make: object, sentence: str) -> None:
    with pytest.raises(FedbanditError) as caught:
        make()  # type: ignore[operator]
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_draws_for_itself() -> None:
    """The thread that draws ahead is not there in a child, which must not wait for it."""
    env = fb.environments.homogeneous(n_clients=3, dim=20, n_arms=300)
    expected = fb.simulate(fb.linucb(), env, 400).regret[-1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # forking beside threads, which is what is tried here
        with multiprocessing.get_context("fork").Pool(1) as pool:
            found = pool.apply_async(fb.simulate, (fb.linucb(), env, 400)).get(timeout=60)
    assert found.regret[-1] == expected
