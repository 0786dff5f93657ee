"""A least number of observations in an upload."""

from __future__ import annotations

import pytest

import fedbandit as fb
from fedbandit.errors import FedbanditError
from fedbandit.messages import Upload


@pytest.mark.parametrize("least", [1, 5])
def test_every_upload_has_so_many(least: int) -> None:
    world = fb.World(n_clients=3, dim=2, horizon=300)
    client = fb.ClientMachine(0, fb.async_linucb(gamma_upload=1.5, at_least=least), world)
    sent = []
    for t in range(40):
        choice = client.select([[0.6, 0.1 * (t % 3)], [0.1, 0.5]])
        sent += [m.sums.n for m in client.observe(choice.number, 0.5) if isinstance(m, Upload)]
    assert min(sent) == least


def test_the_fast_engine_leaves_it_to_the_plain_one() -> None:
    env = fb.environments.homogeneous(n_clients=4, dim=2, n_arms=3)
    assert fb.simulate(fb.async_linucb(at_least=3), env, 100, seed=0).engine == "plain"
    with pytest.raises(FedbanditError, match="at_least is 0"):
        fb.async_linucb(at_least=0)
