"""Invitations carry resolved numbers; what a client cannot do, or would do otherwise, it refuses with a sentence."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

import fedbandit as fb
from fedbandit.errors import FedbanditError
from fedbandit.network.invitation import Agreement
from fedbandit.network.resolved import accept, client_terms, invitation

WORLD = fb.World(n_clients=3, dim=4, horizon=1000)
SYSTEMS = (
    "async-linucb",
    "async-linucb-am",
    "clustered-linucb",
    "count-linucb",
    "hetofedbandit",
    "hetofedbandit-async",
    "sync-linucb",
)


@pytest.mark.parametrize("name", SYSTEMS)
def test_an_invitation_is_accepted_by_whoever_reads_it(name: str) -> None:
    agreement = Agreement(name, {}, WORLD)
    answer = json.loads(json.dumps(invitation(agreement, "shops", 1, "a"), allow_nan=False))
    assert accept(answer) == (agreement, 1)
    for numbers in (answer["client"]["trigger"]["threshold"], answer["client"]["model"]["ridge"]):
        assert isinstance(numbers, float) or numbers == "inf"


def test_thresholds_are_those_of_the_member() -> None:
    agreement = Agreement("async-linucb", {"gamma_upload": [2.0, 3.0, 4.0]}, WORLD)
    assert [round(client_terms(agreement, i)["trigger"]["threshold"], 4) for i in range(3)] == [0.6931, 1.0986, 1.3863]


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (("versions",), [2, 3], "speaks version 2 and 3 of the protocol, this client version 1"),
        (("client", "capabilities"), ["ridge", "telepathy"], "can do telepathy, which this one cannot"),
        (("client", "trigger", "threshold"), 0.5, r"trigger\.threshold = 0\.5, this version of fedbandit has 1\.609"),
        (("client", "policy", "alpha"), 1.0, r"policy\.alpha = 1\.0"),
        (("client", "draws", "key"), [1, 2], r"draws\.key"),
        (("client", "says"), "request", "says = 'request'"),
        (("agreement", "system"), "telepathy", "no system 'telepathy'"),
    ],
)
def test_other_numbers_are_refused_with_their_name(path: tuple[str, ...], value: Any, sentence: str) -> None:
    answer = copy.deepcopy(invitation(Agreement("async-linucb", {}, WORLD), "shops", 0, "a"))
    inner: Any = answer
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(FedbanditError, match=sentence):
        accept(answer)


def test_numbers_may_differ_by_rounding() -> None:
    answer = invitation(Agreement("async-linucb", {}, WORLD), "shops", 0, "a")
    answer["client"]["trigger"]["threshold"] *= 1 + 1e-15
    accept(answer)
