"""Private clustered federations: nothing but releases leaves, each record once, whatever becomes of the clusters."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.audit import audit_system
from fedbandit.checks import bytes_agree, engines_agree, repeats_itself
from fedbandit.engine.checkpoint import read_checkpoint, write_checkpoint
from fedbandit.engine.plain import PlainLearner
from fedbandit.engine.simulation import Simulation
from fedbandit.machines.link import Link
from fedbandit.machines.mixing import mix
from fedbandit.model import Width
from fedbandit.policies import UCB
from fedbandit.privacy import NoisyRewards, PrivateStatistics, PublishedClusters
from fedbandit.privacy.noise import draw_symmetric
from fedbandit.privacy.pool_noise import PoolNoise
from fedbandit.privacy.private_statistics import Calibration
from fedbandit.privacy.published import fclub_depth
from fedbandit.privacy.release_stream import ReleaseStream
from fedbandit.protocols import CountTriggered, EventTriggered, MessageProtocol, Scheduled, ServerQueue, Synchronous
from fedbandit.sharing import Members
from fedbandit.structures import (
    EvidenceClusters,
    HomogeneityCliques,
    PhasedClusters,
    PrunedGraph,
    ReleasedPhases,
    Servers,
    Structure,
)
from fedbandit.sums import EXACT, Sums
from fedbandit.types import Array, Ints
from tests.audit.test_audit import failed
from tests.audit.test_planted import Faulty, scaled
from tests.oracles.naive_clusters import components, radius

INF = math.inf


def world(**options: Any) -> fb.environments.Fclub:
    """Two clusters on three servers."""
    return fb.environments.fclub(
        **({"n_clients": 12, "dim": 4, "n_arms": 6, "n_clusters": 2, "n_servers": 3, "gap": 1.0} | options)
    )


def finished(system: fb.System, env: Any, horizon: int, seed: int = 0) -> Simulation:
    """A simulation that is over."""
    simulation = Simulation(system, env, horizon, seed, engine="plain")
    while not simulation.finished:
        simulation.advance()
    return simulation


# ------------------------------------------------------------------------------------------------- FCLUB on releases


def test_zero_noise_is_no_privacy() -> None:
    """Arm for arm, message for message and cluster for cluster; nothing is claimed and there are no books."""
    calibrations: tuple[Calibration, ...] = ("proven", "published")
    for calibration in calibrations:
        silent = fb.cdp_fclub_dc(epsilon=INF, calibration=calibration)
        plain = dataclasses.replace(silent, privacy=fb.privacy.NoPrivacy())
        results = [fb.simulate(system, world(), 3_000, 1) for system in (silent, plain)]
        np.testing.assert_array_equal(results[0].arms, results[1].arms)
        curves = [result.communication.message_curve for result in results]
        np.testing.assert_array_equal(curves[0], curves[1])
        assert results[0].clusters == results[1].clusters
        assert len(results[0].clusters) > 1
        assert (results[0].guarantee.basis, results[0].privacy) == ("none", None)


def test_published_without_noise_is_fclub_dc() -> None:
    """With U = D = 1.01 and models that wait for what is shared (Alg. 1 line 12)."""
    silent = fb.cdp_fclub_dc(epsilon=INF, calibration="published", upload=1.2, download=1.3)
    plain = fb.fclub_dc(fresh=False, upload=1.2, download=1.3)
    first, second = (fb.simulate(system, world(), 3_000, 1) for system in (silent, plain))
    np.testing.assert_array_equal(first.arms, second.arms)
    np.testing.assert_array_equal(first.communication.message_curve, second.communication.message_curve)


@pytest.mark.parametrize("epsilon", [30.0, INF])
def test_machines_agree_and_runs_repeat(epsilon: float) -> None:
    system = fb.cdp_fclub_dc(epsilon=epsilon, upload=1.2)
    for check in (repeats_itself, engines_agree, bytes_agree):
        check(system)


def test_a_regrouping_releases_nothing_again() -> None:
    """However often clusters change: one stream a user for ever, every record released once or still pending."""
    simulation = finished(fb.cdp_fclub_dc(epsilon=60.0, delta=0.1), world(), 12_000)
    result, learner = simulation.result(), simulation.learner
    assert len(result.clusters) >= 3
    assert result.rand_index(simulation.env.partition)[-1] > 0.5  # type: ignore[attr-defined]
    assert isinstance(learner, PlainLearner)
    link = learner.machines
    assert isinstance(link, Link)
    assert link.coordinator is not None
    assert result.privacy is not None
    known = link.coordinator.members
    observed = np.bincount(simulation.env.open(simulation.seed).block(0, 12_000).clients, minlength=12)
    for i, client in link.clients.items():
        stream = client.stream
        assert isinstance(stream, ReleaseStream)
        assert stream.contributed + client.pending == observed[i]
        assert stream.spent == known.releases[i] <= stream.mechanism.n_max
        exact, pending = stream.own, client.model.pending()
        assert np.trace(exact.V + pending.V) == pytest.approx(observed[i])  # contexts of norm 1: each once
        noisy = stream.state()["noisy"]
        np.testing.assert_allclose(known.V[i], noisy[:4, :4], atol=1e-8)  # all that anybody has of this user
    assert result.privacy.releases.max() == known.releases.max()
    assert result.privacy.epsilon.max() <= 60.0


def test_when_users_release_tells_nothing() -> None:
    """Other data, the same times."""
    curves = [
        fb.simulate(fb.cdp_fclub_dc(), world(n_clusters=m), 3_000, 1).communication.upload_curve for m in (1, 2, 4)
    ]
    for curve in curves[1:]:
        np.testing.assert_array_equal(curves[0], curve)


@pytest.mark.parametrize(
    "system",
    [
        fb.cdp_fclub_dc(epsilon=40.0, delta=0.1),
        fb.cdp_fclub_dc(epsilon=40.0, delta=0.1, calibration="published", upload=1.2, download=1.2),
        fb.fclub_dc(privacy=NoisyRewards(2.0, 0.0, 0.8)),
    ],
    ids=["proven", "published", "noised rewards"],
)
def test_checkpoints_keep_noise_clusters_and_books(system: fb.System, tmp_path: Path) -> None:
    """The second half is run by a simulation that has never seen the first."""
    env, horizon = world(n_arms=40), 5_000  # blocks of 3,276
    whole, half, resumed = finished(system, env, horizon), *(Simulation(system, env, horizon, 0) for _ in range(2))
    half.advance()
    write_checkpoint(tmp_path / "half.npz", half, "half")
    read_checkpoint(tmp_path / "half.npz", resumed, "half")
    assert 0 < resumed.round < horizon
    while not resumed.finished:
        resumed.advance()
    first, second = whole.result(), resumed.result()
    np.testing.assert_array_equal(first.arms, second.arms)
    np.testing.assert_array_equal(first.communication.message_curve, second.communication.message_curve)
    assert first.clusters == second.clusters
    assert first.privacy is not None
    assert second.privacy is not None
    assert first.privacy.summary() == second.privacy.summary()


def naive_phase(V: Array, b: Array, n: Ints, server: Ints, split: float, merge: float, ridge: float) -> list[int]:
    """Eqs. 3 and 4, pair by pair."""
    d, users = b.shape[1], range(len(n))

    def estimate(members: list[int]) -> tuple[Array, float]:
        total = sum((V[i] for i in members), np.zeros((d, d)))
        return np.linalg.inv(total + ridge * np.eye(d)) @ sum((b[i] for i in members), np.zeros(d)), radius(
            float(sum(n[i] for i in members))
        )

    def near(p: list[int], q: list[int], alpha: float) -> bool:
        (x, f), (y, g) = estimate(p), estimate(q)
        return bool(np.linalg.norm(x - y) < alpha * (f + g))

    edges = [frozenset((i, j)) for i in users for j in range(i) if server[i] == server[j] and near([i], [j], split)]
    local = components(users, edges)
    pairs = [
        frozenset((p, q))
        for p in range(len(local))
        for q in range(p)
        if server[local[p][0]] != server[local[q][0]] and near(local[p], local[q], merge)
    ]
    label = [0] * len(n)
    for k, joined in enumerate(components(range(len(local)), pairs)):
        for p in joined:
            for i in local[p]:
                label[i] = k
    return label


@pytest.mark.parametrize("seed", range(6))
def test_without_noise_a_phase_is_fclubs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    users, d = 9, 3
    theta = rng.standard_normal((3, d))
    n = rng.integers(5, 120, size=users)
    X = [rng.standard_normal((k, d)) / 2 for k in n]
    V = np.stack([x.T @ x for x in X])
    b = np.stack([x.T @ (x @ theta[i % 3] + 0.1 * rng.standard_normal(len(x))) for i, x in enumerate(X)])
    structure = ReleasedPhases(alpha_split=0.8, alpha_merge=0.9, n_servers=3)
    phases = structure.sharing(fb.World(users, d, 1000), 1.0)
    assert phases.groups() == [[i] for i in range(users)]
    phases.regroup(Members(V, b, n, n), 100)
    label = naive_phase(V, b, n, np.arange(users) * 3 // users, 0.8, 0.9, 1.0)
    found = {tuple(group) for group in phases.groups()}
    assert found == {tuple(i for i in range(users) if label[i] == k) for k in set(label)}
    again = structure.sharing(fb.World(users, d, 1000), 1.0)
    again.restore(phases.state())
    assert again.groups() == phases.groups()
    np.testing.assert_array_equal(again.edges, phases.edges)


def test_noise_that_hides_everything_leaves_users_alone_and_tears_nobody_apart() -> None:
    """And once there is little of it, like users are found: what was not seen is not deleted."""
    alone = fb.simulate(fb.cdp_fclub_dc(epsilon=0.05), world(), 4_000)
    assert alone.clusters[-1] == [[i] for i in range(12)]
    assert np.array_equal(alone.arms, fb.simulate(fb.linucb(alpha=1.5, ridge=1.0), world(), 4_000).arms)
    noise = PoolNoise((np.array([20.0]),), 0.7, looks=10, dim=4)
    rng = np.random.default_rng(0)
    n = np.full(12, 500)
    H = np.stack([20.0 * draw_symmetric(rng, (4, 4)) for _ in n])
    h = 20 / 0.7 * rng.standard_normal((12, 4))
    V, b, once = 125 * np.eye(4), 125 * np.ones(4) / 2, np.ones(12, dtype=np.int64)
    phases = ReleasedPhases(n_servers=3).sharing(fb.World(12, 4, 1000), 1.0)
    phases.regroup(Members(V + H, b + h, n, once), 100, noise)
    assert phases.groups() == [[i] for i in range(12)]
    assert phases.edges.sum() == 3 * 16
    phases.regroup(Members(100 * V + H, 100 * b + h, 100 * n, once), 200, noise)
    assert phases.groups() == [list(range(12))]


# -------------------------------------------------------------------------------- the audit, and wrong noise


PHASES = ReleasedPhases(first=16)
COUNTS = CountTriggered(1.5, 1.5, batch=16)
COMBINATIONS: dict[str, tuple[MessageProtocol, Structure]] = {
    "phases, counts": (COUNTS, PHASES),
    "phases, all at once": (Synchronous(growth=1.5, batch=16), PHASES),
    "evidence, clock": (Scheduled(1.5, 16), EvidenceClusters(-6.0)),
    "evidence, counts": (COUNTS, EvidenceClusters(-6.0, recluster=2.0)),
    "cliques, clock": (Scheduled(1.5, 16), HomogeneityCliques(recluster=2.0)),
    "cliques, counts": (COUNTS, HomogeneityCliques(recluster=2.0)),
}


@pytest.mark.parametrize("name", COMBINATIONS)
def test_every_sound_combination_passes_the_audit(name: str) -> None:
    system = fb.System(UCB(), *COMBINATIONS[name], PrivateStatistics(2.0, 1e-5))
    found = audit_system(system, trials=1_000, rounds=80)
    assert found.passed, str(found)
    assert found.lower_bound > 1.0
    result = fb.simulate(system, world(), 2_000)
    assert (result.guarantee.basis, result.guarantee.epsilon) == ("proven", 2.0)
    assert result.privacy is not None
    assert 0 < result.privacy.epsilon.max() <= 2.0


@pytest.mark.parametrize("name", ["phases, counts", "evidence, clock"])
def test_too_little_noise_fails_the_audit(name: str) -> None:
    system = fb.System(UCB(), *COMBINATIONS[name], Faulty(change=scaled(0.9)))
    assert {"mechanism, exact", "client, contents"} <= failed(audit_system(system, trials=12_000))


def test_the_published_system_is_labelled_and_fails_the_audit() -> None:
    system = fb.cdp_fclub_dc(calibration="published", upload=2.0)
    assert (system.guarantee.basis, system.guarantee.true_epsilon) == ("as published", INF)
    assert "no finite ε holds; clusters and triggers read raw data" in str(system.guarantee)
    assert failed(audit_system(system, trials=1_000, rounds=50)) == {"client"}


def test_rewards_noised_locally_suit_every_clustering() -> None:
    """Clusters, triggers and arms are post-processing; books count what was clipped."""
    private = NoisyRewards(4.0, 0.0, 0.9)
    for system in (fb.fclub_dc(privacy=private), fb.clustered_linucb(privacy=private)):
        result = fb.simulate(system, world(), 500)
        assert (result.guarantee.basis, result.guarantee.protects) == ("proven", "rewards")
        assert result.privacy is not None
        assert result.privacy.clipped > 0
        assert audit_system(system, trials=1_000, rounds=50).passed


def test_published_noise_is_the_papers() -> None:
    """σ² = 64 ν log(2/δ)²/ε² at every node, a shift of 2ρ and 3ρ for each upload; and it drowns everything."""
    told = fb.cdp_fclub_dc(epsilon=2.0, delta=0.1, calibration="published").told(fb.World(12, 4, 3_000))
    private = told.privacy
    assert isinstance(private, PublishedClusters)
    assert private.releases is not None
    depth = fclub_depth(private.releases)
    assert private.mechanism.scale**2 == pytest.approx(64 * depth * math.log(20) ** 2 / 4)
    noise = private.pool_noise(together=False)
    assert noise is not None
    rho = 8 * math.sqrt(2) * depth * math.log(40) * (4 * 2 + 2 * math.log(2 * 12 * 12 / 0.1)) / 2
    assert noise.rho == pytest.approx(rho)
    V, slack = noise.repair(np.zeros((4, 4)), {0: 1, 5: 3}, 1.0)
    np.testing.assert_allclose(V, (2 + 2 + 6) * rho * np.eye(4))
    assert slack.bias > math.sqrt(rho)
    loud, silent = (
        fb.simulate(fb.cdp_fclub_dc(epsilon=epsilon, calibration="published"), world(), 3_000) for epsilon in (1.0, INF)
    )
    assert loud.regret[-1] > 2 * silent.regret[-1]
    assert loud.privacy is not None


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: fb.System(UCB(), COUNTS, PhasedClusters(), PrivateStatistics()), "would release old records again"),
        (lambda: fb.System(UCB(), COUNTS, Servers(), PrivateStatistics()), "clustered by raw statistics"),
        (
            lambda: fb.System(UCB(), COUNTS, PhasedClusters(), PrivateStatistics(calibration="published")),
            "nobody knows how to noise those but PublishedClusters",
        ),
        (lambda: fb.System(UCB(), COUNTS, PHASES, PublishedClusters()), "local servers which cluster their users"),
        (lambda: fb.System(UCB(), fb.protocols.Never(), PrunedGraph(), PublishedClusters()), "PublishedClusters"),
        (lambda: fb.System(UCB(), EventTriggered(), PHASES, PrivateStatistics()), "its trigger reads raw data"),
        (lambda: fb.System(UCB(), ServerQueue(), PHASES, PrivateStatistics()), "its trigger reads raw data"),
        (lambda: fb.cdp_fclub_dc(calibration="tight"), "calibration"),  # type: ignore[arg-type]
        (lambda: fb.cdp_fclub_dc(epsilon=0.0), "epsilon is 0.0"),
        (lambda: fb.cdp_fclub_dc(upload=0.5), "factor_upload is 0.5"),
        (lambda: fb.cdp_fclub_dc(alpha_split=INF), "alpha_split is inf"),
        (lambda: ReleasedPhases(first=0), "first is 0"),
        (lambda: PublishedClusters(failure=2.0), "failure is 2.0"),
        (lambda: fb.simulate(fb.cdp_fclub_dc(n_servers=13), world(), 10), "n_servers is 13, but must be at most 12"),
    ],
)
def test_unsound_and_bad_systems_are_refused(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(fb.FedbanditError) as caught:
        make()
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


# ------------------------------------------------------------------------------------ weights by precision


def test_a_fixed_width_takes_the_estimate_with_the_smallest_variance() -> None:
    """Least squares with the covariance σ²G + τ²I of others' b̂ − Ĝθ, which is known; own data count fully."""
    rng = np.random.default_rng(0)
    d, sigma, s, kappa = 4, 0.5, 3.0, 0.7
    theta = np.array([0.5, -0.3, 0.2, 0.6])
    noise = PoolNoise((np.array([s]),), kappa, looks=1, dim=d, failure=0.5)
    errors: dict[str, list[float]] = {"alone": [], "mixed": [], "trusting": []}
    for _ in range(300):
        own, others = (_observed(rng, n, theta, sigma) for n in (60, 600))
        noisy = Sums(others.V + s * draw_symmetric(rng, (d, d)), others.b + s / kappa * rng.standard_normal(d), 600)
        mixed, slack = mix(own, noisy, noise.slack_of(s * s), 1.0, Width(0.3, sigma, fixed=True))
        assert slack == EXACT
        for name, sums in (
            ("alone", own),
            ("mixed", mixed),
            ("trusting", Sums(own.V + noisy.V, own.b + noisy.b, 660)),
        ):
            errors[name].append(float(np.sum((np.linalg.solve(sums.V + np.eye(d), sums.b) - theta) ** 2)))
    means = {name: float(np.mean(values)) for name, values in errors.items()}
    assert means["mixed"] < 0.7 * means["alone"]
    assert means["mixed"] <= means["trusting"]


def _observed(rng: np.random.Generator, n: int, theta: Array, sigma: float) -> Sums:
    X = rng.standard_normal((n, theta.size))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return Sums(X.T @ X, X.T @ (X @ theta + sigma * rng.standard_normal(n)), n)


def test_clusters_help_private_users_and_never_hurt_much() -> None:
    """Fixed width, FCLUB's world with a pure cluster on each server: between learning alone and no noise."""
    env = world(n_clients=20, n_clusters=2, n_servers=2, placement="blocks")
    regret = {
        epsilon: fb.simulate(fb.cdp_fclub_dc(epsilon=epsilon, delta=0.1, alpha=0.3), env, 40_000).regret[-1]
        for epsilon in (0.1, 20.0, INF)
    }
    alone = fb.simulate(fb.linucb(alpha=0.3, ridge=1.0), env, 40_000).regret[-1]
    assert regret[0.1] == alone
    assert regret[INF] < regret[20.0] < 0.9 * alone
