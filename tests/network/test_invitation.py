"""The agreement survives JSON, and one that cannot be is refused."""

from __future__ import annotations

import pytest

import fedbandit as fb
from fedbandit.network.coordinator.config import on_a_network
from fedbandit.network.coordinator.limits import declared_noise
from fedbandit.network.invitation import Agreement

WORLD = fb.World(n_clients=3, dim=3, horizon=600)


def test_without_noise_nothing_is_allowed_for() -> None:
    agreement = on_a_network(Agreement("feducb", {"epsilon": float("inf")}, WORLD))
    assert declared_noise(agreement.build(), agreement.world) == (0.0, 0.0)
    assert Agreement.of_json(agreement.as_json()) == agreement, "infinity survives JSON"


def test_any_privacy_part_can_be_named() -> None:
    table = {"noises": "private-statistics", "epsilon": 2.0}
    short = {"noises": "statistics", "epsilon": 2.0}
    parts = [Agreement("count-linucb", {"privacy": one}, WORLD).build().privacy for one in (table, short)]
    assert parts[0] == parts[1]
    composed = {"protocol": "count-triggered", "privacy": "private-statistics(epsilon=2.0)"}
    assert Agreement("composed", composed, WORLD).build().privacy.guarantee().epsilon == 2.0


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ("strong", "must be a table"),
        ({"noises": "everything"}, "no privacy part 'everything'; there are: .*statistics"),
        ({"noise": "statistics", "epsilon": 1.0}, "no key of privacy 'noise'; did you mean 'noises'?"),
        ({"noises": "statistics", "epsilom": 1.0}, "epsilon"),
        ({"noises": "statistics", "epsilon": -1.0}, "epsilon"),
        ({"noises": "reward-sums", "epsilon": 1.0}, "RewardSums with Everyone is refused"),
    ],
)
def test_privacy_that_cannot_be_is_refused(table: object, sentence: str) -> None:
    with pytest.raises(fb.FedbanditError, match=sentence):
        Agreement("count-linucb", {"privacy": table}, WORLD).build()
