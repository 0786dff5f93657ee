"""The simulator lives the lives of the corpus: with either engine the same arms and uploads as in the files."""

from __future__ import annotations

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.engine.simulation import Engine
from fedbandit.errors import FedbanditError
from tests.vectors.make import POLICIES, asynchronous_life
from tests.vectors.run import FOLDER, read

REFUSED = [("igw", "fast")]
"""What the fast engine does not know; `engine="auto"` takes the plain one."""


@pytest.mark.parametrize("engine", ["plain", "fast"])
@pytest.mark.parametrize("policy", POLICIES)
def test_simulated_lives(policy: str, engine: Engine) -> None:
    """A file has one of two clients; the other one's life is that of the script that wrote it."""
    case, life = read(FOLDER / f"async-{policy}.json"), asynchronous_life(policy)
    chosen = [event["arm"] for event in case["events"] if event["do"] == "select"]
    assert [arm for who, _, arm, _ in life.history if who == 0] == chosen
    who, X, arms, rewards = zip(*life.history, strict=True)
    Y = np.zeros((len(who), 4))
    Y[np.arange(len(who)), arms] = rewards
    env = fb.environments.recorded(who, np.array(X), Y, Y, n_clients=2, bound=1.0, noise=0.1)
    system = fb.async_linucb(gamma_upload=1.5, gamma_download=1.5, policy=policy)
    if (policy, engine) in REFUSED:
        with pytest.raises(FedbanditError, match="The fast engine does not know the policy"):
            fb.simulate(system, env, len(who), 7, engine=engine)
        return
    found = fb.simulate(system, env, len(who), 7, engine=engine, per_client=True)
    assert found.arms.tolist() == list(arms)
    assert found.by_client is not None
    assert found.by_client.uploads is not None
    assert found.by_client.uploads[0] == case["events"][-1]["uploads"] > 0
