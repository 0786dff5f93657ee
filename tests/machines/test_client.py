"""The client machine: exactly once, in any order, and refusing what makes no sense."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.errors import FedbanditError
from fedbandit.machines.client import ClientMachine
from fedbandit.messages import Collect, Download, Receipt, Request, Upload
from fedbandit.model import Model
from fedbandit.policies import Policy
from fedbandit.policies.policy import Randomness
from fedbandit.streams import Draw
from fedbandit.sums import zero_sums
from fedbandit.types import Array

WORLD = fb.World(n_clients=3, dim=2, horizon=100)


def feed(client: ClientMachine, n: int, seed: int = 0) -> list[object]:
    """Let a client act n times; what it wants to send."""
    rng = np.random.default_rng(seed)
    sent: list[object] = []
    for _ in range(n):
        choice = client.select(rng.standard_normal((4, 2)) / 4)
        sent += client.observe(choice.number, float(rng.standard_normal()))
    return sent


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
    np.testing.assert_allclose(client.model.in_common().V, first.sums.V + second.sums.V)
    np.testing.assert_allclose(client.model.in_common().b, first.sums.b + second.sums.b)
    assert client.model.n == 2
    stale = client.model.in_common().V.copy()
    client.receive(Download(0, version=1, acknowledged=2, sums=zero_sums(2)))
    assert np.array_equal(client.model.in_common().V, stale), "an older or repeated download must change nothing"


def test_downloads_keep_pending_observations() -> None:
    client = ClientMachine(0, fb.async_linucb(gamma_upload=float("inf")), WORLD)
    feed(client, 12)
    other = ClientMachine(1, fb.async_linucb(gamma_upload=1.0), WORLD)
    (upload,) = feed(other, 1, seed=5)
    assert isinstance(upload, Upload)
    before = client.model.pending().b
    client.receive(Download(0, 1, 0, upload.sums))
    np.testing.assert_allclose(client.model.in_common().b, upload.sums.b)
    np.testing.assert_allclose(client.model.pending().b, before)
    assert (client.model.n, client.model.n_pending) == (13, 12)


def test_rewards_may_come_late_out_of_order_or_never() -> None:
    client = ClientMachine(0, fb.linucb(), WORLD)
    first = client.select([[1.0, 0.0], [0.0, 1.0]])
    second = client.select([[1.0, 0.0], [0.0, 1.0]])
    client.observe(second.number, 1.0)
    client.observe(first.number, 0.5)
    with pytest.raises(FedbanditError, match="Choice 1 is not waiting"):
        client.observe(first.number, 0.5)
    assert client.model.n == 2


def test_clients_ask_answer_each_call_once_and_adopt_what_all_have() -> None:
    system = fb.sync_linucb(threshold=0.0).told(WORLD)
    coordinator = system.coordinator(WORLD)
    assert coordinator is not None
    clients = [ClientMachine(i, system, WORLD) for i in range(3)]
    for client in clients:
        coordinator.receive(client.join()[0])
    (request,) = feed(clients[0], 1)
    assert request == Request(0)
    assert coordinator.receive(Request(0)) == [Collect(i, 1) for i in range(3)]
    assert coordinator.receive(Request(1)) == [], "one is under way"
    answers = []
    for client in clients:
        (upload,) = client.receive(Collect(client.member, 1))
        assert client.receive(Collect(client.member, 1)) == [], "one answer for each epoch"
        answers += coordinator.receive(upload)
    for client, download in zip(clients, answers[-3:], strict=True):
        client.receive(download)
        assert (client.model.n, client.outbox) == (1, {})


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
    np.testing.assert_allclose(client.model.in_common().V, own.sums.V + others.sums.V)
    assert client.model.n == 2
    assert client.outbox == {}


def test_machines_refuse_what_is_not_for_them() -> None:
    with pytest.raises(FedbanditError, match="clients share models"):
        ClientMachine(0, fb.linucb_central(), WORLD)
    client = ClientMachine(0, fb.async_linucb(), WORLD)
    with pytest.raises(FedbanditError, match="addressee is 1"):
        client.receive(Receipt(1, 1))
    with pytest.raises(FedbanditError, match="dimension 3, expected 2"):
        client.receive(Download(0, 1, 0, zero_sums(3)))


def test_a_choice_can_be_forgotten() -> None:
    client = fb.ClientMachine(0, fb.linucb(), fb.World(n_clients=1, dim=2, horizon=10))
    choice = client.select([[1.0, 0.0], [0.0, 1.0]])
    for _ in range(2):
        client.forget(choice.number)
    with pytest.raises(FedbanditError, match=r"Choice 1 is not waiting for a reward"):
        client.observe(choice.number, 1.0)


def test_a_download_has_exactly_the_uploads_that_it_lacks_put_on_top() -> None:
    """Also those that are kept as one running sum; one that lacks a part of that sum is as good as lost."""
    client = ClientMachine(0, fb.async_linucb(gamma_upload=1.0), WORLD)
    uploads = [upload for upload in feed(client, 20) if isinstance(upload, Upload)]
    client.receive(Receipt(0, 18))  # 8 of these are kept by themselves, 10 as a sum
    client.receive(Download(0, 1, 9, zero_sums(2)))
    assert client.version == 0
    client.receive(Download(0, 2, 0, zero_sums(2)))
    assert (client.version, len(client.outbox)) == (0, 2)
    client.receive(Download(0, 3, 12, zero_sums(2)))
    V = sum((upload.sums.V for upload in uploads[12:]), np.zeros((2, 2)))
    np.testing.assert_allclose(client.model.in_common().V, V, rtol=1e-12)
    client.receive(Receipt(0, 20))
    uploads += [upload for upload in feed(client, 20, seed=1) if isinstance(upload, Upload)]
    client.receive(Download(0, 4, 20, zero_sums(2)))
    client.receive(Receipt(0, 40))  # before the model is looked at: 12 of these become a sum
    V = sum((upload.sums.V for upload in uploads[20:]), np.zeros((2, 2)))
    np.testing.assert_allclose(client.model.in_common().V, V, rtol=1e-12)


@dataclass(frozen=True)
class Second(Policy):
    """Always the second arm: a rule of a user's own."""

    name: ClassVar[str] = "second"
    randomness: ClassVar[Randomness] = "none"

    def choose(self, model: Model, contexts: Array, draw: Draw) -> int:  # noqa: ARG002
        """The second."""
        return 1


def test_one_arm_is_no_choice() -> None:
    client = ClientMachine(0, fb.async_linucb(policy=Second()), WORLD)
    assert client.select(np.zeros((1, 2))).arm == 0, "as when a log is learnt"
    assert client.select(np.zeros((2, 2))).arm == 1


@pytest.mark.parametrize("arm", [2, -1, None, 1.0, np.array([1]), "1"])
@pytest.mark.parametrize("make", [fb.async_linucb, fb.colin])
def test_what_is_no_arm_is_refused_with_a_sentence(make: Callable[..., fb.System], arm: Any) -> None:
    class NoArm(Policy):  # without a name
        def choose(self, model: Model, contexts: Array, draw: Draw) -> int:  # noqa: ARG002
            return arm

    env = fb.environments.collaborative(n_clients=3, dim=2, n_arms=2)
    with pytest.raises(FedbanditError, match=r"^The policy no-arm chose arm .* of 2; `choose` must return a whole num"):
        fb.simulate(make(policy=NoArm()), env, 5)  # type: ignore[abstract]


def test_numpys_whole_numbers_are_arms() -> None:
    class Numpys(Second):
        def choose(self, model: Model, contexts: Array, draw: Draw) -> int:  # noqa: ARG002
            return np.int64(1)  # type: ignore[return-value]

    chosen = ClientMachine(0, fb.async_linucb(policy=Numpys()), WORLD).select(np.zeros((2, 2)))
    assert type(chosen.arm) is int


class Silent(Policy):
    """Without `choose`."""


def test_a_policy_without_choose_is_refused_with_a_sentence() -> None:
    with pytest.raises(FedbanditError, match="The policy silent chose arm None of 2"):
        ClientMachine(0, fb.async_linucb(policy=Silent()), WORLD).select(np.zeros((2, 2)))  # type: ignore[abstract]
