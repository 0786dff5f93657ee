"""One θ for each action: against the dense regression of the paper, on a link, encoded, and after a restart."""

from __future__ import annotations

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.actions import as_rows
from fedbandit.errors import FedbanditError
from fedbandit.machines.link import Link
from fedbandit.model import REFRESH_EVERY
from fedbandit.policies import UCB
from fedbandit.structures.action_model import ActionModel
from fedbandit.sums import add
from tests.oracles.naive_disjoint import DisjointLinUCB

A, F, N = 6, 3, 3


def world(horizon: int = 300) -> fb.World:
    return fb.World(n_clients=N, dim=F, horizon=horizon, actions=A)


def drive(link: Link, rounds: int, seed: int = 0, every: bool = True) -> list[int]:
    """Arms that are chosen when all actions are offered for one situation, or some of them with features each."""
    rng = np.random.default_rng(seed)
    theta, arms = rng.standard_normal((A, F)), []
    for t in range(rounds):
        k = A if every else int(rng.integers(2, A))
        actions = np.arange(A) if every else rng.permutation(A)[:k]
        x = rng.standard_normal((1 if every else k, F))
        rows = as_rows(x / (2 * np.linalg.norm(x, axis=1, keepdims=True)), actions, A)
        choice = link.select(t % N, rows)
        a, features = int(rows[choice.arm, 0]), rows[choice.arm, 1:]
        link.observe(t % N, choice.number, float(theta[a] @ features + 0.1 * rng.standard_normal()))
        arms.append(choice.arm)
    return arms


@pytest.mark.parametrize("every", [True, False])
def test_arms_are_those_of_the_dense_regression(every: bool) -> None:
    """Everybody always up to date is all data in one place: arm for arm the paper's algorithm on A·f dimensions."""
    oracle = DisjointLinUCB(A, F, alpha=0.3, ridge=0.5)
    up_to_date = fb.async_linucb(alpha=0.3, ridge=0.5, gamma_upload=1.0, gamma_download=1.0, warm_join=True)
    link = Link(up_to_date, world())
    rng = np.random.default_rng(3)
    theta = rng.standard_normal((A, F))
    for t in range(2 * REFRESH_EVERY):
        k = A if every else int(rng.integers(2, A))
        actions = np.arange(A) if every else rng.permutation(A)[:k]
        x = rng.standard_normal((k, F))
        x /= 1.01 * np.linalg.norm(x, axis=1, keepdims=True)
        choice = link.select(t % N, as_rows(x, actions, A))
        assert choice.arm == oracle.choose(list(zip(actions.tolist(), x, strict=True))), t
        a, features = int(actions[choice.arm]), x[choice.arm]
        y = float(theta[a] @ features + 0.1 * rng.standard_normal())
        link.observe(t % N, choice.number, y)
        oracle.learn(a, features, y)
    model = link.clients[0].model
    np.testing.assert_allclose(model.theta.ravel(), np.linalg.solve(oracle.A, oracle.b), atol=1e-9)
    logdet = np.linalg.slogdet(oracle.A / 0.5)[1]
    assert link.coordinator is not None
    assert link.coordinator.logdet(link.coordinator.share(0)) == pytest.approx(logdet)


SYSTEMS = {
    "asynchronous": fb.async_linucb(gamma_upload=2.0, gamma_download=2.0),
    "counts": fb.count_linucb(factor_upload=1.3, factor_download=1.3, warm_join=True),
    "synchronous": fb.sync_linucb(threshold=2.0),
    "alone": fb.linucb(),
    "groups": fb.System(UCB(), fb.protocols.EventTriggered(2.0, 2.0), fb.structures.FixedGroups([0, 1, 0])),
    "sampling": fb.async_linucb(policy="lints"),
    "perturbing": fb.async_linucb(policy="linphe"),
    "igw": fb.async_linucb(policy="igw"),
    "noisy rewards": fb.async_linucb(privacy=fb.privacy.NoisyRewards(epsilon=5.0, low=-3.0, high=3.0)),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_same_over_encoded_messages_and_after_a_restart(name: str) -> None:
    system = SYSTEMS[name]
    plain, encoded = Link(system, world()), Link(system, world(), encoded=True)
    arms = drive(plain, 120, every=False)
    assert drive(encoded, 120, every=False) == arms
    again = Link(system, world(), encoded=True)
    again.restore(encoded.state())
    assert drive(again, 60, seed=9) == drive(plain, 60, seed=9) == drive(encoded, 60, seed=9)
    account = plain.tally()
    assert account is None or account.applied + account.pending == account.observed == 180


def test_uploads_carry_the_blocks_that_were_observed() -> None:
    link = Link(fb.count_linucb(factor_upload=1.0, factor_download=1e9), world(), encoded=True)
    drive(link, 50)
    assert link.uploads == link.blocks[0] == 50
    assert link.coordinator is not None
    gathered = link.coordinator.gathered()
    assert gathered.V.shape == (A, F, F)
    total = link.clients[0].model.in_common()
    for i in (1, 2):
        total = add(total, link.clients[i].model.in_common())
    np.testing.assert_allclose(gathered.b, total.b, atol=1e-12)


def test_a_model_keeps_few_pending_blocks() -> None:
    model = ActionModel(1000, 2, 0.1)
    model.observe(np.array([7.0, 0.6, 0.8]), 1.0)
    pending = model.pending()
    assert (pending.actions.tolist(), pending.V.shape, pending.n) == ([7], (1, 2, 2), 1)
    assert model.logdet == pytest.approx(np.log(1 + 1 / 0.1))


def test_parts_that_know_one_parameter_are_refused() -> None:
    for system, name in (
        (fb.feducb(epsilon=1.0, delta=1e-2), "PrivateStatistics"),
        (fb.async_linucb_am(), "GlobalLocal"),
        (fb.hetofedbandit(), "HomogeneityCliques"),
        (fb.club(), "PrunedGraph"),
        (fb.System(UCB(), fb.protocols.Gossip()), "Gossip"),
    ):
        with pytest.raises(FedbanditError, match=f"{name} is refused where each action has a θ of its own"):
            system.told(world())


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([[6.0, 0.1, 0.1, 0.1]], "There is no action 6.0: the terms have actions 0, …, 5"),
        ([[0.5, 0.1, 0.1, 0.1]], "There is no action 0.5"),
        ([[0.0, 1.0, 1.0, 1.0]], "norm of a context is 1.7"),
        ([[0.0, 0.1, 0.1]], r"must be \(K, 4\)"),
    ],
)
def test_rows_that_are_none(rows: list[list[float]], sentence: str) -> None:
    with pytest.raises(FedbanditError, match=sentence):
        Link(fb.linucb(), world()).select(0, np.array(rows))


def test_actions_that_are_none() -> None:
    x = np.full((2, F), 0.1)
    with pytest.raises(FedbanditError, match="There is no action 9: the terms have actions 0, …, 5"):
        as_rows(x, [0, 9], A)
    with pytest.raises(FedbanditError, match="2 rows of features, but 6 actions; say which"):
        as_rows(x, None, A)
    with pytest.raises(FedbanditError, match="actions is 'red', but must be a list of whole numbers"):
        as_rows(x, "red", A)
