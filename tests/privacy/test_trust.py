"""Who is trusted, and what clients choose by: claims, refusals, and attacks on running federations."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.errors import FedbanditError
from fedbandit.machines.link import Link
from fedbandit.policies import UCB
from fedbandit.privacy import PrivateStatistics
from fedbandit.privacy.calibration import gaussian_epsilon
from fedbandit.privacy.factorisation import decoder
from fedbandit.privacy.mechanism import gram_mechanism, stack
from fedbandit.privacy.published_total import PublishedTotal
from fedbandit.privacy.release_stream import ReleaseStream
from fedbandit.protocols import Scheduled, Synchronous
from fedbandit.structures import Everyone, FixedGroups
from fedbandit.sums import Sums
from fedbandit.system import System

N, D, ROUNDS = 4, 3, 60
WORLD = fb.World(n_clients=N, dim=D, horizon=N * ROUNDS, per_round=N)
TRUSTS = ("nobody", "sums", "coordinator")


def system_of(batch: int = 6, **keywords: Any) -> System:
    private = PrivateStatistics(keywords.pop("epsilon", 1.0), 1e-5, **keywords)
    return System(UCB(alpha=0.6), Synchronous(growth=1.5, batch=batch), Everyone(), private)


def live(system: System, flipped: bool, rounds: int = ROUNDS, *, encoded: bool = False) -> tuple[list[int], Link]:
    """All choices of a federation in one and the same world, in which one reward may be another."""
    link, rng, choices = Link(system, WORLD, seed=0, encoded=encoded), np.random.default_rng(1), []
    for t in range(rounds):
        for i in range(N):
            arms = rng.standard_normal((5, D))
            arms /= np.linalg.norm(arms, axis=1, keepdims=True)
            potential = np.clip(arms[:, 0] + 0.1 * rng.standard_normal(5), -1, 1)
            choice = link.select(i, arms)
            choices.append(choice.arm)
            reward = potential[choice.arm]
            link.observe(i, choice.number, -1.0 if flipped and (t, i) == (0, 0) else float(reward))
        link.end_round(t + 1) if link.next_wake(t) == t + 1 else None
    return choices, link


# What choices tell


def changed(system: System, rounds: int) -> int:
    """The attack: how many choices one flipped reward changes before anything was released."""
    one, other = (live(system, flipped, rounds)[0] for flipped in (False, True))
    return sum(a != b for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("trust", TRUSTS)
def test_under_released_no_choice_tells_what_was_not_released(trust: str) -> None:
    assert changed(system_of(batch=ROUNDS, trust=trust, own="released"), ROUNDS - 1) == 0


@pytest.mark.parametrize("trust", TRUSTS)
def test_choices_by_exact_data_fail_that_attack(trust: str) -> None:
    """What "exact" leaves open, and what a client under "released" would do wrong."""
    assert changed(system_of(batch=ROUNDS, trust=trust, own="exact"), ROUNDS - 1) > 0


# What a trusted coordinator publishes


class Half(PublishedTotal):
    """Planted: half of the noise."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        mechanism = self.stream.mechanism
        self.stream = ReleaseStream(replace(mechanism, scale=mechanism.scale / 2), self.stream.source)


def published(kind: type[PublishedTotal], record: Sums, seed: int, n: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """What is published of a total with one more record in its first increment: totals (n, d+1, d+1), and exactly."""
    mechanism = gram_mechanism(1.0, 1e-5, n, D)
    total = kind(mechanism, lambda k: np.random.default_rng((seed, k)))
    seen, exact, sums = [], [], Sums(np.zeros((D, D)), np.zeros(D), 0)
    for k in range(n):
        new = record if k == 0 else Sums(np.eye(D), np.ones(D), 3)
        sums = Sums(sums.V + new.V, sums.b + new.b, sums.n + new.n)
        total.add(new)
        noisy = total.publish()
        assert noisy is not None
        assert total.publish() is None, "the same total is noised twice"
        seen.append(stack(noisy.V, noisy.b, mechanism.reward_weight))
        exact.append(stack(sums.V, sums.b, mechanism.reward_weight))
    return np.array(seen), np.array(exact)


def measured_epsilon(kind: type[PublishedTotal], runs: int = 300) -> float:
    """The attack: the shift of all that is published is exact, the scale of its noise is measured, whitened by B."""
    mechanism = gram_mechanism(1.0, 1e-5, 8, D)
    a, b = fb.privacy.noise.gram_neighbours(1.0, 1.0, mechanism.reward_weight, D)
    one, other = (Sums(M[:D, :D], M[:D, D] / mechanism.reward_weight, 1) for M in (a, b))
    white = np.linalg.inv(decoder(mechanism.factorisation))
    shift = np.tensordot(white, published(kind, one, 0)[0] - published(kind, other, 0)[0], axes=1)
    upper = np.triu_indices(D, 1)
    squares = 0.0
    for seed in range(runs):
        seen, exact = published(kind, one, seed)
        squares += float((np.tensordot(white, seen - exact, axes=1)[:, upper[0], upper[1]] ** 2).sum())
    scale = math.sqrt(squares / (runs * 8 * len(upper[0])))
    return gaussian_epsilon(float(np.linalg.norm(shift)) / (math.sqrt(2) * scale), 1e-5)


def test_a_trusted_coordinator_publishes_what_it_claims_and_no_more() -> None:
    assert measured_epsilon(PublishedTotal) == pytest.approx(1.0, rel=0.05)
    assert measured_epsilon(Half) > 1.8, "planted: half of the noise"


# Whole federations


@pytest.mark.parametrize("own", ["exact", "released"])
@pytest.mark.parametrize("trust", TRUSTS)
def test_federations_learn_through_totals(trust: str, own: str) -> None:
    """With hardly any noise, everybody ends up with everybody's statistics."""
    _, link = live(system_of(epsilon=1e7, trust=trust, own=own), False)
    for client in link.clients.values():
        assert client.model.n >= 0.5 * N * ROUNDS
        assert np.linalg.norm(client.model.theta / np.linalg.norm(client.model.theta) - np.eye(D)[0]) < 0.25


@pytest.mark.parametrize("trust", ["sums", "coordinator"])
def test_messages_as_bytes_and_a_restart_change_nothing(trust: str) -> None:
    system = system_of(trust=trust, own="exact")
    plain, link = live(system, False)
    assert live(system, False, encoded=True)[0] == plain
    again = Link(system, WORLD, seed=0)
    again.restore(link.state())
    arms = np.eye(D)
    assert [again.select(i, arms).arm for i in range(N)] == [link.select(i, arms).arm for i in range(N)]
    assert again.coordinator is not None
    assert again.coordinator.pool is not None
    assert link.coordinator is not None
    assert again.coordinator.share(0).slack == link.coordinator.share(0).slack


def test_without_noise_trust_does_not_matter() -> None:
    arms = [live(system_of(epsilon=math.inf, trust=trust, own="exact"), False)[0] for trust in TRUSTS]
    assert arms[0] == arms[1] == arms[2]


def test_absent_clients_come_back_and_too_few_open_nothing() -> None:
    env = fb.environments.homogeneous(n_clients=10, dim=3, n_arms=4, rounds="all", absent=0.1)
    result = fb.simulate(fb.feducb(trust="sums", own="released"), env, horizon=60, seed=0)
    assert result.engine == "plain"
    assert 0 < result.communication.uploads < 10 * result.communication.uploads
    link = Link(fb.feducb(trust="sums"), fb.World(n_clients=5, dim=2, horizon=100, per_round=5))
    link.absent = 0.999
    for t in range(10):
        for i in range(5):
            link.observe(i, link.select(i, np.eye(2)).number, 0.5)
        link.end_round(t + 1)
    assert link.coordinator is not None
    assert link.coordinator.pool is not None
    assert "are needed for a sum" in link.coordinator.pool.unopened
    assert link.downloads == 0
    with pytest.raises(FedbanditError, match="out of reach"):
        fb.simulate(fb.feducb(), env, horizon=10, seed=0, engine="fast")


def test_scheduled_sums_reach_everybody() -> None:
    env = fb.environments.homogeneous(n_clients=8, dim=2, n_arms=3)
    private = PrivateStatistics(1.0, trust="sums")
    result = fb.simulate(fb.count_linucb(factor_upload=1.5, batch=4, privacy=private), env, horizon=400, seed=0)
    assert result.communication.downloads > 0
    assert result.communication.uploads % 8 == 0
    assert result.privacy is not None
    assert result.privacy.epsilon.max() <= 1.0 + 1e-9


# What is claimed, and what is refused


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize(("own", "definition"), [("exact", "given later records"), ("released", "joint")])
def test_every_choice_has_its_claim(trust: Any, own: Any, definition: str) -> None:
    claim = fb.feducb(trust=trust, own=own).told(WORLD).guarantee
    assert (claim.trust, claim.own, claim.definition, claim.basis) == (trust, own, definition, "proven")
    assert claim.proof in ("Noise on statistics", "Secure sums", "A trusted coordinator")
    subject = {
        "nobody": "Whoever sees everything that leaves the client can tell one interaction",
        "sums": "Whoever sees all that is opened, also the coordinator with no other client, while each sum has "
        "4 honest clients or more, can tell one interaction",
        "coordinator": "Everybody but the coordinator, which sees exact statistics, can tell one interaction",
    }[trust]
    assert claim.sentence().startswith(subject)
    assert ("leaves the client" in claim.sentence()) == (trust == "nobody")
    assert ("own='released' covers it" in claim.sentence()) == (own == "exact")
    assert claim.mu == pytest.approx(0.268, rel=0.01)


def test_the_page_compares_with_what_synchronises_as_early() -> None:
    """What the page says below its table of costs: without noise, on the schedule and with the width that sums have."""
    docs = (Path(__file__).parents[2] / "docs" / "privacy.md").read_text(encoding="utf-8")
    said = re.search(r"without noise, M = 200 has (\S+) and M = 1,000 \S+ \(T = 150 and 100\)", docs)
    assert said, "the page no longer says what sums without noise would have"
    early = replace(fb.feducb(trust="sums"), privacy=fb.feducb(epsilon=math.inf).privacy)
    result = fb.simulate(early, fb.environments.feducb(n_clients=200, dim=10), horizon=150, seed=0)
    assert float(said[1]) == pytest.approx(result.regret[-1] / 200, rel=0.2)


def test_released_is_the_default_where_it_is_cheap() -> None:
    many = fb.World(n_clients=200, dim=3, horizon=2000, per_round=200)
    assert fb.feducb(trust="sums").told(many).guarantee.own == "released"
    assert fb.feducb(trust="sums", epsilon=0.1).told(many).guarantee.own == "exact"
    few = fb.World(n_clients=10, dim=3, horizon=2000, per_round=10)
    owns = [fb.feducb(trust="coordinator", epsilon=epsilon).told(few).guarantee.own for epsilon in (1.0, 2.0, 4.0)]
    assert owns == ["exact", "exact", "released"]
    assert fb.feducb(trust="sums").told(WORLD).guarantee.own == "exact"
    assert fb.feducb().told(many).guarantee.own == "exact"


STATISTICS = PrivateStatistics(1.0)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: fb.cdp_fclub_dc(trust="sums"), "use trust='nobody'"),
        (lambda: fb.cdp_fclub_dc(calibration="published", trust="sums"), "trust is 'sums'"),
        (lambda: fb.clustered_linucb(privacy=STATISTICS, trust="coordinator"), "use trust='nobody'"),
        (lambda: fb.feducb(topology="ring", trust="sums"), "needs everybody at once"),
        (lambda: fb.feducb(topology="ring", own="released"), "own='exact'"),
        (lambda: fb.feducb(trust="sums", threshold=1.0), "raw data"),
        (lambda: fb.count_linucb(trust="sums"), "nothing noises statistics"),
        (lambda: fb.async_linucb(own="released"), "nothing noises statistics"),
        (lambda: fb.count_linucb(factor_upload=[2.0, 3.0], privacy=STATISTICS, trust="sums"), "must be one number"),
        (
            lambda: System(UCB(), Scheduled(), FixedGroups([0, 0, 1, 1]), PrivateStatistics(trust="sums")).told(WORLD),
            "groups are kept apart",
        ),
        (lambda: fb.feducb(trust="sums").told(fb.World(n_clients=2, dim=2, horizon=9)), "3 or more for secure sums"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, sentence: str) -> None:
    with pytest.raises(FedbanditError, match=sentence):
        make()
