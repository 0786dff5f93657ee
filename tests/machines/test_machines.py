"""Client and coordinator machines: exactly once, in any order, and refusing what makes no sense."""

from __future__ import annotations

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.engine.fast.packed import unpacked
from fedbandit.engine.fast.statistics import N_PENDING, N, base_b_of, base_of, pending_b_of
from fedbandit.errors import FedbanditError
from fedbandit.machines.client import ClientMachine, make_coordinator
from fedbandit.messages import Collect, Download, Join, Receipt, Request, Upload
from fedbandit.protocols import Broadcast, Coordinator, MemberKeeper
from fedbandit.sums import zero_sums


def star_of(system: fb.System) -> Coordinator:
    """The coordinator of a system in which everybody shares."""
    machine = make_coordinator(system, WORLD)
    assert machine is not None
    assert not isinstance(machine, MemberKeeper)
    return machine


WORLD = fb.World(n_clients=3, dim=2, horizon=100)


def feed(client: ClientMachine, n: int, seed: int = 0) -> list[object]:
    """Let a client act n times; what it wants to send."""
    rng = np.random.default_rng(seed)
    sent: list[object] = []
    for _ in range(n):
        choice = client.select(rng.standard_normal((4, 2)) / 4)
        sent += client.observe(choice.number, float(rng.standard_normal()))
    return sent


def test_a_repeated_upload_is_applied_once() -> None:
    system = fb.async_linucb(gamma_upload=1.0, gamma_download=1.0)
    coordinator = star_of(system)
    client = ClientMachine(1, system, WORLD)
    coordinator.receive(client.join()[0])
    (upload,) = feed(client, 1)
    assert isinstance(upload, Upload)
    first = coordinator.receive(upload)
    before = coordinator.hub.pool.copy()
    again = coordinator.receive(upload)
    assert Receipt(1, 1) in first
    assert again == [Receipt(1, 1)]
    assert np.array_equal(before, coordinator.hub.pool)
    assert coordinator.hub.pool[0, N] == 1


def test_an_upload_waits_in_the_outbox_until_it_is_acknowledged() -> None:
    client = ClientMachine(0, fb.async_linucb(gamma_upload=1.0), WORLD)
    uploads = feed(client, 3)
    assert list(client.outbox.values()) == uploads
    client.receive(Receipt(0, 2))
    assert list(client.outbox) == [3]


def test_a_download_that_crossed_an_upload_loses_nothing() -> None:
    client = ClientMachine(0, fb.async_linucb(gamma_upload=1.0), WORLD)
    first, second = feed(client, 2)
    assert isinstance(first, Upload)
    assert isinstance(second, Upload)
    client.receive(Download(0, version=1, acknowledged=1, sums=first.sums))
    np.testing.assert_allclose(unpacked(base_of(client.row, 2), 2), first.sums.V + second.sums.V)
    np.testing.assert_allclose(base_b_of(client.row, 2), first.sums.b + second.sums.b)
    assert client.row[N] == 2
    stale = base_of(client.row, 2).copy()
    client.receive(Download(0, version=1, acknowledged=2, sums=zero_sums(2)))
    assert np.array_equal(base_of(client.row, 2), stale), "an older or repeated download must change nothing"


def test_downloads_keep_pending_observations() -> None:
    client = ClientMachine(0, fb.async_linucb(gamma_upload=float("inf")), WORLD)
    feed(client, 12)
    other = ClientMachine(1, fb.async_linucb(gamma_upload=1.0), WORLD)
    (upload,) = feed(other, 1, seed=5)
    assert isinstance(upload, Upload)
    before = pending_b_of(client.row, 2).copy()
    client.receive(Download(0, 1, 0, upload.sums))
    np.testing.assert_allclose(base_b_of(client.row, 2), upload.sums.b)
    np.testing.assert_allclose(pending_b_of(client.row, 2), before)
    assert (client.row[N], client.row[N_PENDING]) == (13, 12)


def test_rewards_may_come_late_out_of_order_or_never() -> None:
    client = ClientMachine(0, fb.linucb(), WORLD)
    first = client.select([[1.0, 0.0], [0.0, 1.0]])
    second = client.select([[1.0, 0.0], [0.0, 1.0]])
    client.observe(second.number, 1.0)
    client.observe(first.number, 0.5)
    with pytest.raises(FedbanditError, match="Choice 1 is not waiting"):
        client.observe(first.number, 0.5)
    assert client.row[N] == 2


def test_synchronous_collects_from_all_and_ignores_requests_under_way() -> None:
    system = fb.sync_linucb(threshold=0.0)
    coordinator = star_of(system)
    clients = [ClientMachine(i, system, WORLD) for i in range(3)]
    for client in clients:
        coordinator.receive(client.join()[0])
    (request,) = feed(clients[0], 1)
    assert request == Request(0)
    (collect,) = coordinator.receive(Request(0))
    assert isinstance(collect, Broadcast)
    assert [message.member for message in collect.addressed()] == [0, 1, 2]
    assert coordinator.receive(Request(1)) == []
    answers = []
    for client in clients:
        (upload,) = client.receive(Collect(client.member, 1))
        assert client.receive(Collect(client.member, 1)) == [], "one answer for each epoch"
        answers += coordinator.receive(upload)
    download = answers[-1]
    assert isinstance(download, Broadcast)
    assert download.count == 3
    assert coordinator.hub.pool[0, N] == 1


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (Upload(0, 1, zero_sums(2), 0.0), "before it joined"),
        (Upload(7, 1, zero_sums(2), 0.0), "not one of 3 clients"),
        (Request(0), "does not take a Request"),
    ],
)
def test_a_coordinator_refuses(message: Upload | Request, sentence: str) -> None:
    coordinator = star_of(fb.async_linucb())
    with pytest.raises(FedbanditError, match=sentence):
        coordinator.receive(message)


def test_a_coordinator_refuses_gaps_and_other_dimensions_and_stays_as_it_was() -> None:
    coordinator = star_of(fb.async_linucb())
    coordinator.receive(Join(0))
    before = coordinator.hub.pool.copy()
    for message, sentence in (
        (Upload(0, 5, zero_sums(2), 0.0), "1 is the next one expected"),
        (Upload(0, 1, zero_sums(3), 0.0), "dimension 3, expected 2"),
    ):
        with pytest.raises(FedbanditError, match=sentence):
            coordinator.receive(message)
        assert np.array_equal(before, coordinator.hub.pool)
        assert coordinator.applied == {}


@pytest.mark.parametrize(
    ("arms", "sentence"),
    [
        ([[1.0, 0.0, 0.0]], "shape of arms"),
        ([[np.nan, 0.0]], "not finite"),
        ([[3.0, 4.0]], "norm of a context is 5"),
    ],
)
def test_a_client_refuses_bad_contexts(arms: list[list[float]], sentence: str) -> None:
    client = ClientMachine(0, fb.linucb(), WORLD)
    with pytest.raises(FedbanditError, match=sentence):
        client.select(arms)
    with pytest.raises(FedbanditError, match="reward is nan"):
        client.observe(client.select([[1.0, 0.0]]).number, float("nan"))


def test_a_receipt_that_overtakes_an_older_download_loses_nothing() -> None:
    client = ClientMachine(0, fb.async_linucb(gamma_upload=1.0), WORLD)
    (own,) = feed(client, 1)
    (others,) = feed(ClientMachine(1, fb.async_linucb(gamma_upload=1.0), WORLD), 1, seed=5)
    assert isinstance(own, Upload)
    assert isinstance(others, Upload)
    client.receive(Receipt(0, 1))
    client.receive(Download(0, version=1, acknowledged=0, sums=others.sums))
    np.testing.assert_allclose(unpacked(base_of(client.row, 2), 2), own.sums.V + others.sums.V)
    assert client.row[N] == 2
    assert client.outbox == {}


def test_statistics_that_cannot_be_are_refused() -> None:
    coordinator = star_of(fb.async_linucb())
    coordinator.receive(Join(0))
    before = coordinator.hub.pool.copy()
    good = zero_sums(2)
    for upload, sentence in (
        (Upload(0, 1, good._replace(V=-np.eye(2)), 0.0), "positive semi-definite"),
        (Upload(0, 1, good, float("nan")), "not finite"),
    ):
        with pytest.raises(FedbanditError, match=sentence):
            coordinator.receive(upload)
        assert np.array_equal(before, coordinator.hub.pool)


def test_a_member_answers_a_collection_once() -> None:
    coordinator = star_of(fb.sync_linucb(threshold=0.0))
    for i in range(3):
        coordinator.receive(Join(i))
    coordinator.receive(Request(0))
    coordinator.receive(Upload(0, 1, zero_sums(2), 0.0))
    with pytest.raises(FedbanditError, match="was not asked"):
        coordinator.receive(Upload(0, 2, zero_sums(2), 0.0))
    coordinator.receive(Upload(1, 1, zero_sums(2), 0.0))
    assert isinstance(coordinator.receive(Upload(2, 1, zero_sums(2), 0.0))[-1], Broadcast)


def test_machines_refuse_what_is_not_for_them() -> None:
    with pytest.raises(FedbanditError, match="clients share models"):
        ClientMachine(0, fb.linucb_central(), WORLD)
    client = ClientMachine(0, fb.async_linucb(), WORLD)
    with pytest.raises(FedbanditError, match="addressee is 1"):
        client.receive(Receipt(1, 1))
    with pytest.raises(FedbanditError, match="dimension is 3"):
        client.receive(Download(0, 1, 0, zero_sums(3)))


def test_a_choice_can_be_forgotten() -> None:
    client = fb.ClientMachine(0, fb.linucb(), fb.World(n_clients=1, dim=2, horizon=10))
    choice = client.select([[1.0, 0.0], [0.0, 1.0]])
    for _ in range(2):
        client.forget(choice.number)
    with pytest.raises(FedbanditError, match=r"Choice 1 is not waiting for a reward"):
        client.observe(choice.number, 1.0)
