"""Policies in plain NumPy: a stranger's works everywhere at once, and a clone of a known one pulls its arms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.model import Model, RidgeModel
from fedbandit.policies import POLICIES, UCB, LinPHE, LinTS, Policy, best
from fedbandit.policies.perturbed_history import semidefinite_cholesky
from fedbandit.streams import Draw, policy_key
from fedbandit.types import Array


@dataclass(frozen=True)
class Clone(LinPHE):
    """LinPHE under another name."""

    name: ClassVar[str] = "clone"


@dataclass(frozen=True)
class Decaying(Policy):
    """ε-greedy with ε = min(1, c/n)."""

    c: float = 5.0
    name: ClassVar[str] = "decaying"

    def choose(self, model: Model, contexts: Array, draw: Draw) -> int:
        """A random arm now and then."""
        if draw.uniform() * model.n < self.c:
            return draw.index(len(contexts))
        return best(model.means(contexts))


HOMES: dict[str, tuple[Any, Any]] = {
    "alone": (fb.linucb, fb.environments.homogeneous(n_clients=6, dim=4, n_arms=5)),
    "federated": (fb.async_linucb, fb.environments.homogeneous(n_clients=6, dim=4, n_arms=5)),
    "central": (fb.linucb_central, fb.environments.homogeneous(n_clients=6, dim=4, n_arms=5)),
    "two parts": (fb.async_linucb_am, fb.environments.global_local(n_clients=6, dim=4, n_arms=5, d_global=2)),
    "graph": (fb.colin, fb.environments.collaborative(n_clients=6, dim=4, n_arms=5)),
    "clusters": (fb.fclub_dc, fb.environments.fclub(n_clients=6, dim=4, n_arms=5, n_clusters=2, n_servers=2)),
}


@pytest.mark.parametrize("home", HOMES)
def test_a_clone_pulls_the_arms_of_the_original(home: str) -> None:
    make, env = HOMES[home]
    original = fb.simulate(make(policy=LinPHE(alpha=0.3)), env, 240, 1)
    clone = fb.simulate(make(policy=Clone(alpha=0.3)), env, 240, 1)
    assert clone.engine == "plain", "a subclass may choose otherwise, so it has no kernel"
    np.testing.assert_array_equal(original.arms, clone.arms)


@pytest.mark.parametrize("home", HOMES)
def test_a_strangers_policy_learns_everywhere(home: str) -> None:
    make, env = HOMES[home]
    learned = fb.simulate(make(policy=Decaying(c=8.0)), env, 1500, 0).reward[-1]
    random = fb.simulate(fb.uniform(), env, 1500, 0).reward[-1]
    assert learned > random


def test_the_engine_that_is_asked_for_says_which_part_it_does_not_know() -> None:
    env = fb.environments.homogeneous(n_clients=2, dim=2, n_arms=2)
    with pytest.raises(fb.FedbanditError, match="does not know the policy Decaying; use engine='plain'"):
        fb.simulate(fb.linucb(policy=Decaying()), env, 10, engine="fast")


def test_policies_are_found_by_name() -> None:
    assert POLICIES["lints"] is LinTS
    assert fb.linucb(policy="linphe").policy == LinPHE()


@pytest.mark.parametrize("rank", [0, 1, 3, 5])
def test_a_semidefinite_factor(rank: int) -> None:
    X = np.random.default_rng(rank).standard_normal((rank, 5))
    L = semidefinite_cholesky(X.T @ X)
    np.testing.assert_allclose(L @ L.T, X.T @ X, atol=1e-9)
    np.testing.assert_array_equal(L, np.tril(L))


def test_ties_go_to_the_lowest_index() -> None:
    model = RidgeModel(2, 1.0)
    policy = UCB(alpha=1.0)
    contexts = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    assert policy.choose(model, contexts, Draw(policy_key(0), 0, 0)) == 0
