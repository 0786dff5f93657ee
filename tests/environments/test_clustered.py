"""Clustered worlds: distances of parameters, and refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import fedbandit as fb

# ------------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"n_clusters": 9}, "n_clusters is 9, but must be at most n_clients = 8, since every cluster has a user."),
        ({"n_clusters": 0}, "n_clusters is 0"),
        ({"n_servers": 9}, "every server has a user"),
        ({"gap": -1.0}, "gap is -1.0"),
        ({"gap": 3.0}, "at most 2, the largest distance between centres"),
        ({"gap": 1.2, "n_clusters": 8, "dim": 2}, "were not found"),
        ({"spread": math.nan}, "spread is nan"),
        ({"sizes": (4, 3)}, "sum to n_clients = 8"),
        ({"sizes": (8, 0)}, "a size is 0"),
        ({"sizes": (8,)}, "2 whole numbers"),
        ({"sizes": "big"}, "sizes is 'big'"),
    ],
)
def test_bad_worlds_are_refused(keywords: dict[str, Any], words: str) -> None:
    options: dict[str, Any] = {"n_clients": 8, "dim": 4, "n_arms": 6, "n_clusters": 2, "gap": 0.9, **keywords}
    with pytest.raises(fb.FedbanditError, match=words):
        fb.environments.clustered(**options).open(0)


@pytest.mark.parametrize("rewards", ["gaussian", "bernoulli"])
@pytest.mark.parametrize("sizes", [None, "random", (1, 7, 4)])
def test_clustered_parameters_keep_their_distances(rewards: Any, sizes: Any) -> None:
    env = fb.environments.clustered(
        n_clients=12, dim=6, n_arms=4, n_clusters=3, gap=0.5, spread=0.05, sizes=sizes, rewards=rewards, n_servers=5
    )
    theta, taste = env.draw_parameters(np.random.default_rng(1))
    theta, label = theta[taste], env.partition
    apart = np.linalg.norm(theta[:, None] - theta, axis=2)
    same = label[:, None] == label
    assert apart[~same].min() >= 0.5
    assert 0 < apart[same & ~np.eye(12, dtype=bool)].max() <= 0.1
    assert np.linalg.norm(theta, axis=1).max() <= 1 + 1e-12
    assert np.bincount(label).min() >= 1
    assert sizes in (None, "random") or np.bincount(label).tolist() == list(sizes)
    assert set(env.server_of.tolist()) == set(range(5))
    means = env.open(0).block(0, 50).means
    assert rewards == "gaussian" or (means.min() >= 0 and means.max() <= 1)
