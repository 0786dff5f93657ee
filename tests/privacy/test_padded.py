"""Counts that are padded: what is sent is the clock's, whatever was observed, and taking part is protected."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.audit.likelihood import Handed, epsilon_of_shift
from fedbandit.audit.neighbours import RecordLimits, pairs_of, some_history
from fedbandit.audit.observer import observe_client
from fedbandit.errors import FedbanditError
from fedbandit.machines.client import ClientMachine
from fedbandit.messages import Collect, Contribution, Upload
from fedbandit.network.coordinator.limits import Limits
from fedbandit.privacy import PrivateStatistics
from fedbandit.protocols import CountTriggered, MessageProtocol, Scheduled
from fedbandit.structures import Structure

N, D = 5, 3
WORLD = fb.World(n_clients=N, dim=D, horizon=500, per_round=N)


def system(counts: str = "padded", **keywords: object) -> fb.System:
    privacy = PrivateStatistics(counts=counts, own="exact", **keywords)  # type: ignore[arg-type]
    return fb.System(protocol=Scheduled(growth=1.5, batch=2), privacy=privacy)


@pytest.mark.parametrize("trust", ["nobody", "sums"])
def test_where_everybody_acts_once_a_round_nothing_changes(trust: str) -> None:
    """The clock's counts are then those of the clients: the same arms and messages."""
    env = fb.environments.feducb(n_clients=N, dim=D)
    padded, public = (
        fb.simulate(system(counts, trust=trust), env, horizon=60, seed=0) for counts in ("padded", "public")
    )
    assert (padded.arms == public.arms).all()
    assert padded.communication.uploads == public.communication.uploads


@pytest.mark.parametrize("trust", ["nobody", "sums"])
def test_counts_are_those_of_the_clock_whatever_was_observed(trust: str) -> None:
    """Nothing at all, or ten times as much: messages of the same shape at each call."""
    told = system(trust=trust).told(WORLD)
    said = []
    for visits in (0, 1, 10):
        client, rng = ClientMachine(0, told, WORLD, 0), np.random.default_rng(0)
        counts = []
        for epoch in range(1, 6):
            for _ in range(visits):
                assert not client.observe(client.select(rng.uniform(-0.5, 0.5, (4, D))).number, 0.5)
            (message,) = client.receive(Collect(0, epoch, epoch - 1))
            assert isinstance(message, Upload | Contribution)
            if isinstance(message, Upload):
                Limits.of(told, WORLD, 1.0).check(message)
                assert message.sums.V.any(), "noised, also if there was nothing"
                counts.append((message.sums.n, message.known))
            else:
                counts.append((message.n, float(message.excess.shape[0])))
        said.append(counts)
    assert said[0] == said[1] == said[2]


def test_taking_part_is_within_the_claim() -> None:
    """The exact ε between a history and the same without one interaction, by all that is handed to the noise."""
    told = system().told(WORLD)
    assert isinstance(told.privacy, PrivateStatistics)
    bounds = RecordLimits.of(WORLD, told.privacy.reward_rule, told.guarantee.protects)
    mechanism = told.privacy.mechanisms[0]
    there, _ = pairs_of(bounds, mechanism)["sums"]
    rest = some_history(bounds, 60, np.random.default_rng(0))
    handed = []
    for first in (there, there._replace(y=math.nan)):
        source = Handed()
        client = ClientMachine(0, told, WORLD, 0, source=source)
        observe_client(client, [first, *rest], calls={2, 4, 6, 9, 14, 21, 32, 48})
        handed.append(source)
    assert handed[0].scales == handed[1].scales
    z = (np.array(handed[0].values) - np.array(handed[1].values)) / np.array(handed[0].scales)[:, None, None]
    assert 0.5 < epsilon_of_shift(mechanism, z) < 1.0


def test_the_claim_says_so() -> None:
    claim = system().told(WORLD).guarantee
    assert claim.neighbours == "replace, add or remove one interaction"
    assert "how many rewards it observed" not in claim.sentence()
    assert "how many rewards it observed" in system("public").told(WORLD).guarantee.sentence()


@pytest.mark.parametrize(
    ("privacy", "protocol", "structure", "sentence"),
    [
        ({"counts": "hidden"}, Scheduled(), fb.structures.Everyone(), "'public' or 'padded'"),
        ({"trust": "coordinator"}, Scheduled(), fb.structures.Everyone(), "'nobody' or 'sums' with padded counts"),
        ({"contribution": 9}, Scheduled(), fb.structures.Everyone(), "None with counts='padded'"),
        ({"calibration": "published"}, Scheduled(), fb.structures.Everyone(), "'proven' with padded counts"),
        ({}, CountTriggered(2.0, 2.0), fb.structures.Everyone(), "those of a clock"),
        ({}, Scheduled(), fb.structures.EvidenceClusters(), "padded counts do not tell"),
    ],
)
def test_what_cannot_be_padded(
    privacy: dict[str, object], protocol: MessageProtocol, structure: Structure, sentence: str
) -> None:
    with pytest.raises(FedbanditError, match=sentence):
        fb.System(
            protocol=protocol,
            structure=structure,
            privacy=PrivateStatistics(**{"counts": "padded", **privacy}),  # type: ignore[arg-type]
        ).told(WORLD)
