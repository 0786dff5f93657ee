"""Policies in plain NumPy: a stranger's works everywhere at once, and a clone of a known one pulls its arms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.model import Model, RidgeModel
from fedbandit.policies import IGW, POLICIES, UCB, LinPHE, LinTS, Policy, best
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


def trained(n: int = 30) -> tuple[RidgeModel, Array]:
    rng = np.random.default_rng(3)
    model = RidgeModel(3, 0.5)
    for x in rng.standard_normal((n, 3)) / 2:
        model.observe(x, float(x @ [1.0, -0.5, 0.2]) + 0.1 * float(rng.standard_normal()))
    return model, rng.standard_normal((5, 3)) / 2


def test_inverse_gap_weights_follow_the_formula() -> None:
    """SquareCB, Alg. 1: p_a = 1/(K + γ gap_a), and the best arm gets the rest."""
    model, arms = trained()
    means = arms @ np.linalg.solve(model.V + 0.5 * np.eye(3), model.b)
    p = [1 / (5 + 7.0 * (means.max() - m)) for m in means]
    p[int(means.argmax())] = 1 - sum(p[a] for a in range(5) if a != means.argmax())
    np.testing.assert_allclose(IGW(gamma=7.0).propensities(model, arms, Draw(policy_key(0), 0, 0)), p, atol=1e-12)


def test_the_weight_of_gaps_grows_with_what_is_known() -> None:
    model, arms = trained()
    policy = IGW(noise=0.1, scale=2.0)
    alpha = 0.1 * math.sqrt(np.linalg.slogdet(model.V / 0.5 + np.eye(3))[1] + 2 * math.log(10)) + math.sqrt(0.5)
    draw = Draw(policy_key(0), 0, 0)
    same = IGW(gamma=2.0 * math.sqrt(5 * 30) / alpha)
    np.testing.assert_allclose(policy.propensities(model, arms, draw), same.propensities(model, arms, draw), atol=1e-9)
    empty = RidgeModel(3, 0.5)
    np.testing.assert_allclose(policy.propensities(empty, arms, draw), 0.2)


def test_thompson_samplings_propensity_of_two_arms_is_known() -> None:
    """P(x₁ᵀθ̃ > x₂ᵀθ̃) = Φ((x₁ − x₂)ᵀθ̂ / α‖x₁ − x₂‖_{V⁻¹})."""
    model, arms = trained()
    policy, gap = LinTS(alpha=0.4), arms[0] - arms[1]
    score = float(gap @ model.theta) / (0.4 * math.sqrt(float(gap @ model.inverse @ gap)))
    p = policy.propensities(model, arms[:2], Draw(policy_key(0), 0, 0))
    assert abs(p[0] - (1 + math.erf(score / math.sqrt(2))) / 2) < 0.08
    assert p.min() > 0.02, "the case says something"


def test_propensities_of_perturbed_histories_are_those_of_choices() -> None:
    model, arms = trained(2)
    policy = LinPHE(alpha=0.5)
    p = policy.propensities(model, arms, Draw(policy_key(0), 0, 0))
    seen = np.bincount([policy.choose(model, arms, Draw(policy_key(0), i, 1)) for i in range(2000)], minlength=5) / 2000
    np.testing.assert_allclose(p, seen, atol=0.08)
