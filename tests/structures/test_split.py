"""Async-LinUCB-AM against the oracle that runs the alternations, machines, limits, and bad input."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit import checks
from fedbandit.engine.simulation import Simulation
from fedbandit.errors import FedbanditError
from fedbandit.privacy import PrivateStatistics
from fedbandit.protocols import CountTriggered
from fedbandit.structures import GlobalLocal
from tests.logs import random_log, recorded
from tests.oracles import naive
from tests.oracles.naive_split import async_linucb_am

POLICIES = {
    "ucb": naive.Policy("ucb"),
    "greedy": naive.Policy("greedy"),
    "lints": naive.Policy("lints"),
    "linphe": naive.Policy("linphe"),
    "uniform": naive.Policy("uniform"),
}
SPLITS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "two and two": ({"d_global": 2}, {"d_g": 2, "first": 2, "sizes": [2] * 6}),
    "three and one": ({"d_global": 3}, {"d_g": 3, "first": 3, "sizes": [1] * 6}),
    "each its own": (
        {"d_global": 2, "d_local": [2, 1, 0, 2, 1, 2]},
        {"d_g": 2, "first": 2, "sizes": [2, 1, 0, 2, 1, 2]},
    ),
    "the same features": ({}, {"d_g": 4, "first": 0, "sizes": [4] * 6}),
    "some of them twice": ({"d_global": 4, "d_local": 2, "overlap": True}, {"d_g": 4, "first": 0, "sizes": [2] * 6}),
}


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("startup", [True, False])
def test_the_oracle_agrees_on_arms_and_messages(split: str, startup: bool) -> None:
    ours, theirs = SPLITS[split]
    for policy, gamma, warm, delay in (("ucb", 1.3, False, 0), ("lints", 1.0, True, 0), ("ucb", 2.0, True, 4)):
        log = random_log(5, horizon=160, longest_delay=delay)
        system = fb.async_linucb_am(
            gamma_upload=gamma, gamma_download=gamma, warm_join=warm, startup=startup, policy=policy, **ours
        )
        expected = async_linucb_am(log, POLICIES[policy], gamma=gamma, startup=startup, warm=warm, **theirs)
        result = fb.simulate(system, recorded(log), 160)
        np.testing.assert_array_equal(result.arms, expected[0])
        np.testing.assert_array_equal(result.communication.per_round_uploads, expected[1])
        np.testing.assert_array_equal(result.communication.per_round_downloads, expected[2])
        assert result.communication.dim == theirs["d_g"]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("startup", [True, False])
def test_eq_7_as_printed(split: str, startup: bool) -> None:
    """Generalised inverses and projections; arms differ from those of ridge regressions."""
    ours, theirs = SPLITS[split]
    log = random_log(5, horizon=160)
    gammas: dict[str, Any] = {"gamma_upload": 1.3, "gamma_download": 1.3}
    system = fb.async_linucb_am(startup=startup, projected=True, **gammas, **ours)
    expected = async_linucb_am(log, POLICIES["ucb"], gamma=1.3, startup=startup, projected=True, **theirs)
    result = fb.simulate(system, recorded(log), 160)
    np.testing.assert_array_equal(result.arms, expected[0])
    np.testing.assert_array_equal(result.communication.per_round_uploads, expected[1])
    ridge = fb.simulate(fb.async_linucb_am(startup=startup, **gammas, **ours), recorded(log), 160)
    assert startup or (ridge.arms != result.arms).any()


def test_the_width_of_lemma_3_3_is_a_keyword() -> None:
    env = fb.environments.global_local(n_clients=8, dim=6, n_arms=5, d_global=3)
    wide, narrow = (fb.simulate(fb.async_linucb_am(partial_noise=extra), env, 800) for extra in (2.0, 0.0))
    assert wide.regret[-1] > 1.5 * narrow.regret[-1]
    with pytest.raises(FedbanditError, match="partial_noise is -1"):
        fb.async_linucb_am(partial_noise=-1.0)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy(policy: str) -> None:
    ours, theirs = SPLITS["two and two"]
    log = random_log(6, "sphere", horizon=160)
    result = fb.simulate(
        fb.async_linucb_am(policy=policy, gamma_upload=1.5, gamma_download=1.5, **ours), recorded(log), 160
    )
    expected = async_linucb_am(log, POLICIES[policy], gamma=1.5, **theirs)
    np.testing.assert_array_equal(result.arms, expected[0])


@pytest.mark.parametrize("policy", ["ucb", "lints", "linphe"])
def test_without_a_personal_part_it_is_async_linucb(policy: str) -> None:
    env = fb.environments.homogeneous(n_clients=8, dim=4, n_arms=5, delay=(0, 3))
    gammas: dict[str, Any] = {"gamma_upload": 1.5, "gamma_download": 1.5, "policy": policy}
    split, plain = fb.async_linucb_am(d_global=4, **gammas), fb.async_linucb(**gammas)
    one, other = fb.simulate(split, env, 2000, 3), fb.simulate(plain, env, 2000, 3)
    np.testing.assert_array_equal(one.arms, other.arms)
    np.testing.assert_array_equal(one.communication.message_curve, other.communication.message_curve)


def test_with_infinite_thresholds_nothing_is_shared() -> None:
    env = fb.environments.global_local(n_clients=8, dim=6, n_arms=5, d_global=3)
    gammas: dict[str, Any] = {"gamma_upload": math.inf, "gamma_download": math.inf}
    apart = fb.simulate(fb.async_linucb_am(**gammas), env, 1500)
    assert apart.communication.messages == 0
    shared = fb.simulate(fb.async_linucb_am(startup=False, gamma_upload=1.5, gamma_download=1.5), env, 1500)
    assert shared.regret[-1] < apart.regret[-1]


def test_more_in_common_means_less_regret_and_more_messages() -> None:
    regrets, messages = [], []
    for d_global in (2, 6, 10):
        env = fb.environments.global_local(n_clients=60, dim=10, n_arms=10, d_global=d_global)
        runs = [fb.simulate(fb.async_linucb_am(startup=False), env, 3000, seed) for seed in range(3)]
        regrets.append(np.mean([run.regret[-1] for run in runs]))
        messages.append(np.mean([run.communication.messages for run in runs]))
    assert regrets[0] > regrets[1] > regrets[2]
    assert messages[0] < messages[1] < messages[2]


@pytest.mark.parametrize(
    "keywords",
    [
        {"d_global": 2, "gamma_upload": 1.5, "gamma_download": 1.5},
        {"d_global": 1, "d_local": (0, 1, 2, 2), "policy": "lints", "gamma_upload": 1.2, "gamma_download": 1.2},
        {"startup": False, "policy": "linphe", "warm_join": True},
        {"d_global": 2, "privacy": fb.privacy.NoisyRewards(4.0)},
    ],
)
def test_bytes_agree(keywords: dict[str, Any]) -> None:
    checks.bytes_agree(fb.async_linucb_am(**keywords))


def test_a_checkpoint_goes_on_as_if_nothing_had_happened(tmp_path: Any) -> None:
    from fedbandit.engine.checkpoint import fingerprint, write_checkpoint

    env = fb.environments.global_local(n_clients=4, dim=4, n_arms=5, pool=50, delay=(0, 9))
    system = fb.async_linucb_am(gamma_upload=1.5, gamma_download=1.5)
    half = Simulation(system, env, 6000, 7)
    half.advance()
    write_checkpoint(tmp_path / "half.npz", half, fingerprint(system, env, 6000, 7))
    again = fb.simulate(system, env, 6000, 7, checkpoint=tmp_path / "half.npz")
    np.testing.assert_array_equal(again.arms, fb.simulate(system, env, 6000, 7).arms)


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({"d_global": 7}, "d_global is 7, but must be at most 4"),
        ({"d_global": 2, "d_local": 1}, r"d_global \+ d_local is 3, but must be 4"),
        ({"d_global": 2, "d_local": [2, 2]}, "the length of d_local is 2"),
        ({"d_global": 0}, "d_global is 0"),
        ({"d_local": -1}, "d_local is -1"),
        ({"d_global": 2, "d_local": 3, "overlap": True}, "all entries"),
    ],
)
def test_dimensions_that_do_not_match_are_refused(keywords: dict[str, Any], sentence: str) -> None:
    env = fb.environments.homogeneous(n_clients=3, dim=4, n_arms=5)
    with pytest.raises(fb.FedbanditError, match=sentence):
        fb.simulate(fb.async_linucb_am(**keywords), env, 10)


def test_pairs_that_make_no_sense_are_refused() -> None:
    with pytest.raises(fb.FedbanditError, match="two parts"):
        fb.System(protocol=CountTriggered(), structure=GlobalLocal(2), privacy=PrivateStatistics())
