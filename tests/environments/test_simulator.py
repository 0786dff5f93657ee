"""The lab's simulator: masks of groups, and files of what was drawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.streams import Purpose, generator


def test_the_lab_s_simulator_has_a_mask_for_each_group() -> None:
    env = fb.environments.simulator(n_clients=12, dim=6, pool=60, groups=3, threshold=0.3)
    for seed in range(3):
        stream = env.open(seed)
        assert stream.pool is not None
        theta, W = env.draw_users(generator(seed, Purpose.WORLD))
        for x in (stream.pool, theta):
            np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1.0)
            assert (x >= 0).all()
            for block in np.split(x > 0, 3):
                assert (block == block[0]).all()
        np.testing.assert_allclose(W, env.graph_of(seed))
        np.testing.assert_allclose(stream.parameters[0], W @ theta)
    signed = fb.environments.simulator(dim=6, features="gaussian").open(0).pool
    assert signed is not None
    assert (signed < 0).any()


def test_the_simulator_reads_what_the_lab_has_drawn(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    drawn = {}
    for name, n in (("users", 4), ("articles", 9)):
        drawn[name] = rng.dirichlet(np.ones(3), size=n)
        lines = [json.dumps([k, row.tolist()]) for k, row in enumerate(drawn[name])]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    files: dict[str, Any] = {name: tmp_path / name for name in drawn}
    env = fb.environments.simulator(n_arms=3, groups=2, **files)
    assert (env.n_clients, env.dim, env.pool) == (4, 3, 9)
    for seed in (0, 1):
        np.testing.assert_array_equal(env.open(seed).pool, drawn["articles"])
        np.testing.assert_allclose(env.open(seed).parameters[0], env.graph_of(seed) @ drawn["users"])
    fb.simulate(fb.colin(isolated=True), env, 20, seed=0)
    (tmp_path / "users").write_text("[0, [1]]\n3\n")
    with pytest.raises(fb.FedbanditError, match=r"no file of the simulator"):
        fb.environments.simulator(**files)
    with pytest.raises(fb.FedbanditError, match="length of an article"):
        fb.environments.simulator(users=np.eye(3), articles=np.eye(4), groups=2, n_arms=2)
