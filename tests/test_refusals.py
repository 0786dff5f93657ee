"""Bad input in Python: one sentence that names the value, never an error of NumPy."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.machines.client import ClientMachine
from fedbandit.presets import PRESETS
from fedbandit.world import World

X, Y, WHO = np.ones((6, 2, 2)) / 2, np.ones((6, 2)) / 2, [0, 1, 2, 0, 1, 2]


def world(**keywords: Any) -> fb.environments.Homogeneous:
    return fb.environments.homogeneous(**{"n_clients": 4, "dim": 3, "n_arms": 2, **keywords})


def machine() -> ClientMachine:
    return ClientMachine(0, fb.linucb(), World(n_clients=1, dim=2, horizon=10, noise=0.1, bound=1.0))


def rewarded(reward: Any) -> object:
    client = machine()
    return client.observe(client.select([[1.0, 0.0]]).number, reward)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: fb.async_linucb(gama_upload=2), "There is no keyword of async_linucb 'gama_upload'; did you mean"),  # type: ignore[call-arg]
        (lambda: fb.sync_linucb(treshold=2), "did you mean 'threshold'?"),  # type: ignore[call-arg]
        (lambda: fb.uniform(ridge=1.0), "There is no keyword of uniform 'ridge'; there is none."),  # type: ignore[call-arg]
        (lambda: fb.sync_linucb(threshold=float("-inf")), "threshold is -inf"),
        (
            lambda: fb.feducb(as_printed=True, calibration="proven"),
            "as_printed is True, but must be False, unless calibration is 'published'.",
        ),
        (
            lambda: fb.environments.fclub(theta=np.eye(3), n_clients=2),
            "n_clients is 2, but must be 3, as theta has so many users; `first` takes fewer of them.",
        ),
        (
            lambda: fb.environments.fclub(theta=np.eye(3), dim=4),
            "dim is 4, but must be 3, as theta has so many columns.",
        ),
        (lambda: fb.sync_linucb(threshold=np.ones(2)), "threshold is array([1., 1.])"),  # type: ignore[arg-type]
        (lambda: fb.async_linucb(gamma_upload=[2.0] * 5000 + [0.5]), "gamma_upload of client 5000 is 0.5"),
        (lambda: fb.environments.recorded([0, [1], 2], X, Y, Y), "clients holds lists of different lengths"),  # type: ignore[arg-type]
        (lambda: fb.environments.recorded(WHO, X, Y, Y, delays=[1, [2], 1, 1, 1, 1]), "delays holds lists"),  # type: ignore[arg-type]
        (lambda: fb.environments.recorded(WHO, X, Y, Y, delays=[-1] * 6), "delays is [-1, -1"),
        (lambda: fb.environments.recorded(WHO, X, Y, Y, delays=[0.5] * 6), "delays is [0.5, 0.5"),
        (lambda: fb.environments.recorded(WHO, X, Y, np.array(3.0)), "rewards is of type ndarray"),
        (lambda: fb.environments.recorded(WHO, X + 1j, Y, Y), "arms holds something that is not a number"),
        (lambda: fb.environments.recorded([0] * 5 + [10**9], X, Y, Y), "the largest client is 1000000000"),
        (lambda: world(contexts=np.ones(3)), "contexts is array([1., 1., 1.])"),
        (lambda: world(drift="soon"), "drift is 'soon'"),
        (lambda: world(delay="soon"), "delay is 'soon'"),
        (lambda: world(pool="many"), "pool is 'many'"),
        (lambda: world(n_clients=1000, arrivals=[0.5] * 1000), "…, but must be probabilities that sum to 1."),
        (lambda: fb.simulate(fb.linucb(), world(), 2**70), "horizon is 1180591620717411303424"),
        (lambda: fb.simulate(fb.linucb(), world(), 9, checkpoint="x", checkpoint_every="a"), "checkpoint_every is 'a'"),  # type: ignore[arg-type]
        (lambda: machine().select("a"), "arms is 'a'"),
        (lambda: machine().select([[1.0, 0.0], [1.0]]), "arms is [[1.0, 0.0], [1.0]]"),
        (lambda: rewarded("a"), "reward is 'a'"),
        (lambda: rewarded(np.ones(3)), "reward is array([1., 1., 1.])"),
        (lambda: rewarded(float("inf")), "reward is inf"),
        (lambda: rewarded(10**400), "reward is 1000"),
        (lambda: fb.async_linucb(gamma_upload=None), "gamma_upload is None"),  # type: ignore[arg-type]
        (lambda: fb.async_linucb(gamma_upload=10**400), "gamma_upload is 1000"),
        (lambda: world(n_client=4), "no keyword of homogeneous 'n_client'; did you mean 'n_clients'?"),
        (lambda: fb.environments.homogeneous(n_clients=4), "homogeneous(…): missing a required argument: 'dim'."),  # type: ignore[call-arg]
        (lambda: fb.environments.recorded(WHO, X, Y, Y, delay=1), "did you mean 'delays'?"),  # type: ignore[call-arg]
        (lambda: fb.environments.lastfm(pth="x"), "no keyword of lastfm 'pth'; did you mean 'path'?"),  # type: ignore[call-arg]
        (lambda: fb.simulate(fb.linucb(), world(), horizn=5), "keyword of simulate 'horizn'; did you mean 'horizon'?"),  # type: ignore[call-arg]
        (lambda: fb.compare([fb.linucb()], world(), 5, seds=2), "keyword of compare 'seds'; did you mean 'seeds'?"),  # type: ignore[call-arg]
        (lambda: fb.compare(fb.linucb(), world(), 5), "but must be a list of systems such as [fb.linucb()]."),  # type: ignore[arg-type]
        (lambda: fb.compare(["linucb"], world(), 5), "The system is 'linucb', but must be a System"),  # type: ignore[list-item]
        (lambda: fb.compare([fb.colin], world(), 5), "forget to call the preset, as fb.colin()?"),  # type: ignore[list-item]
        (lambda: fb.evaluation.compare(fb.linucb(), None), "but must be a list of systems"),  # type: ignore[arg-type]
        (lambda: fb.feducb(epsilon="abc"), "epsilon is 'abc', but must be a number > 0 (inf for no noise)."),  # type: ignore[arg-type]
        (lambda: fb.feducb(epsilon="1"), "epsilon is '1', but must be a number > 0"),  # type: ignore[arg-type]
        (lambda: fb.feducb(epsilon=["1"]), "epsilon is '1', but must be a number > 0"),  # type: ignore[list-item]
        (lambda: fb.feducb(epsilon=[]), "epsilon is [], but must be a number > 0, or one for each client."),
        (lambda: fb.feducb(delta="1"), "delta is '1', but must be between 0 and 1."),  # type: ignore[arg-type]
        (lambda: fb.dp_linucb(epsilon="1"), "epsilon is '1', but must be a number > 0"),  # type: ignore[arg-type]
        (lambda: fb.ldp_colin(epsilon="1"), "epsilon is '1', but must be a number > 0"),  # type: ignore[arg-type]
        (lambda: fb.Require(epsilon="1"), "epsilon is '1', but must be a number > 0 (inf for any)."),  # type: ignore[arg-type]
        (lambda: fb.Result.load(Path(__file__)), "is not a file that fedbandit wrote."),
    ],
)
def test_bad_input_is_refused_with_a_short_sentence(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(fb.FedbanditError) as refused:
        call()
    text = str(refused.value)
    assert sentence in text
    assert len(text) < 300
    assert "\n" not in text


@pytest.mark.parametrize("reward", [True, np.True_, np.float32(0.5), np.int64(1), np.array(0.5)])
def test_rewards_of_any_kind_of_number(reward: Any) -> None:
    rewarded(reward)


def test_a_keyword_that_a_decorator_adds_is_not_refused() -> None:
    def louder(function: Callable[..., fb.System]) -> Callable[..., fb.System]:
        @functools.wraps(function)
        def inner(*args: Any, volume: int = 1, **keywords: Any) -> fb.System:  # noqa: ARG001
            return function(*args, **keywords)

        return inner

    def quiet(ridge: float = 1.0) -> fb.System:
        return fb.linucb(ridge=ridge)

    try:
        assert fb.preset(louder(quiet))(ridge=2.0, volume=3).ridge == 2.0
    finally:
        PRESETS.pop("quiet", None)


def test_a_preset_that_forgets_to_return_its_system() -> None:
    def forgetful() -> fb.System:  # type: ignore[return]
        fb.linucb()

    try:
        with pytest.raises(fb.FedbanditError, match=r"^forgetful returned None, which is not a System\.$"):
            fb.preset(forgetful)()
    finally:
        PRESETS.pop("forgetful", None)


def test_numbers_of_numpy_are_numbers() -> None:
    env = world(pool=np.int64(10), delay=np.int64(3), drift=np.array([9, 5]))
    assert (env.pool, env.delay_range, env.drift) == (10, (3, 3), (5, 9))


def test_a_checkpoint_that_is_not_whole(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.npz"
    fb.simulate(fb.linucb(), world(), 30, checkpoint=path, checkpoint_every=1)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files if name != "totals.regret"}
    np.savez(path, **arrays)
    with pytest.raises(fb.FedbanditError, match=r"does not fit: The stored state has no 'totals\.regret'"):
        fb.simulate(fb.linucb(), world(), 30, checkpoint=path)


@pytest.mark.parametrize(
    ("system", "sentence"),
    [
        (fb.linucb(), "none: nothing leaves the clients, and nothing is noised"),
        (fb.linucb_central(), "none: all data is in one place, and nothing is noised"),
        (fb.club(n_servers=3), "none: local servers have all data of their users, and nothing is noised"),
        (fb.async_linucb(), "none: statistics leave the clients without noise"),
    ],
)
def test_what_is_said_where_nothing_is_guaranteed(system: fb.System, sentence: str) -> None:
    assert str(system.guarantee) == sentence
