"""Secure noise: on a grid, of the right distribution, with a claim that includes rounding; and clients that use it."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from scipy import stats

import fedbandit as fb
from fedbandit.audit.likelihood import scale_interval, whiten
from fedbandit.audit.neighbours import RecordLimits, some_history
from fedbandit.audit.observer import noised_rewards, observe_client
from fedbandit.errors import FedbanditError
from fedbandit.privacy import secure
from fedbandit.privacy.mechanism import gram_mechanism, reward_mechanism
from fedbandit.privacy.noise import FloatSafe, label_of, perturb
from fedbandit.privacy.release_stream import ReleaseStream
from fedbandit.sums import Sums

WORLD = fb.World(n_clients=2, dim=3, horizon=200, per_round=2)


@pytest.fixture
def source() -> secure.SecureSource:
    """OpenDP is part of the development environment; without it there is nothing to test."""
    pytest.importorskip("opendp", reason="secure noise needs fedbandit[secure]")
    return secure.SecureSource()


def test_noise_is_on_a_grid_that_does_not_depend_on_the_data(source: secure.SecureSource) -> None:
    """So that last bits tell nothing; NumPy's sums are not."""
    grid = 2.0 ** (math.floor(math.log2(3.0)) - 40)
    for values in (np.full(50, 0.1), np.full(50, 1 / 3), np.zeros(50)):
        noisy = source.perturb("vector", values, 3.0)
        assert (noisy / grid == np.round(noisy / grid)).all()
        simulated = values + 3.0 * np.random.default_rng(0).standard_normal(50)
        assert (simulated / grid != np.round(simulated / grid)).any()


def test_noise_has_its_distribution(source: secure.SecureSource) -> None:
    """At a level that the right noise misses once in 10⁵ runs, as these numbers differ in every run."""
    level = 1e-5
    assert stats.kstest(source.standard_normal((4_000,)), stats.norm.cdf).pvalue > level
    laplace = source.laplace(1.0, 2.0, (4_000,))
    assert stats.kstest(laplace, stats.laplace(1.0, 2.0).cdf).pvalue > level
    assert stats.kstest(laplace, stats.laplace(1.0, 2.6).cdf).pvalue < level
    assert stats.kstest(source.standard_gamma(3.0, (1_000,)), stats.gamma(3).cdf).pvalue > level
    M = source.perturb("symmetric", np.zeros((300, 4, 4)), 2.0)
    np.testing.assert_array_equal(M, M.swapaxes(1, 2))
    rows, columns = np.triu_indices(4)
    normals = M[:, rows, columns] / np.where(rows == columns, math.sqrt(8), 2.0)
    assert stats.kstest(normals.ravel(), stats.norm.cdf).pvalue > level
    with pytest.raises(FedbanditError, match=r"shape of secure gamma noise is 1\.5"):
        source.standard_gamma(1.5, (1,))


@pytest.mark.parametrize("scale", [0.01, 3.0, 1e5])
@pytest.mark.parametrize("numbers", [1, 351])
def test_the_claim_includes_rounding(scale: float, numbers: int, source: secure.SecureSource) -> None:
    """OpenDP's own map, which adds rounding to the grid, gives no more than the claim for real numbers."""
    assert source.label == "secure"
    moved = scale / 100  # ε of about 0.04 at δ = 10⁻⁵
    rho = secure._measurement("vector", scale, numbers).map(moved)
    assert rho <= (moved / scale) ** 2 / 2
    assert secure._measurement("laplace", scale, numbers).map(moved) <= moved / scale


@pytest.mark.parametrize("kind", ["blt", "tree"])
def test_streams_use_it(kind: str, source: secure.SecureSource) -> None:
    """The same mechanism with the same scale, and never the same numbers twice."""
    mechanism = gram_mechanism(1.0, 1e-5, 6, 3, kind=kind)  # type: ignore[arg-type]
    releases = []
    for _ in range(40):
        stream = ReleaseStream(mechanism, lambda _: source)
        sent = [stream.release(Sums(np.eye(3), np.ones(3), 1)) for _ in range(6)]
        releases.append(np.cumsum([sums.b for sums in sent], axis=0) * mechanism.reward_weight)
    assert np.unique(releases).size == np.size(releases)
    increments = np.full((6, 3), mechanism.reward_weight)
    vectors = reward_mechanism(1.0, 1e-5, 6, 3, kind=kind)  # type: ignore[arg-type]
    same_noise = vectors.__class__(**{**vars(vectors), "scale": mechanism.scale})
    low, high = scale_interval(same_noise, whiten(same_noise, increments, np.stack(releases, axis=1)), 1 - 1e-5)
    assert low < 1 < high


def test_clients_use_it(source: secure.SecureSource) -> None:
    """For statistics and for rewards; they say so, and two clients of one seed differ."""
    history = some_history(RecordLimits(1.0, 3, -1.0, 1.0, True), 60, np.random.default_rng(0))
    clients = [fb.ClientMachine(0, fb.feducb(), WORLD, 0, source=source) for _ in range(2)]
    simulated = fb.ClientMachine(0, fb.feducb(), WORLD, 0)
    seen = [observe_client(client, history) for client in (*clients, simulated)]
    assert seen[0].plain == seen[1].plain == seen[2].plain
    assert not np.isclose(seen[0].b, seen[1].b).any()
    assert [client.guarantee.noise for client in (*clients, simulated)] == ["secure", "secure", "simulation"]
    assert "secure noise" in str(clients[0].guarantee)
    rewards = [noised_rewards(fb.ClientMachine(0, fb.dp_linucb(), WORLD, 0, source=source), history) for _ in range(2)]
    assert not np.isclose(rewards[0], rewards[1]).any()
    spread = np.abs(rewards[0] - np.clip([record.y for record in history], 0, 1)).mean()
    assert 0.4 < spread < 2.0  # the mean of |Laplace(1)| is 1, its standard error here 0.13


def test_float_safe_sources_are_asked_first(source: secure.SecureSource) -> None:
    """And a NumPy generator is none."""
    rng = np.random.default_rng(0)
    assert isinstance(source, FloatSafe)
    assert not isinstance(rng, FloatSafe)
    assert (label_of(source), label_of(rng)) == ("secure", "simulation")
    np.testing.assert_array_equal(
        perturb(rng, "laplace", np.ones(3), 2.0), 1 + 2 * np.random.default_rng(0).laplace(0.0, 1.0, 3)
    )


def test_without_opendp_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """That says how to get it."""
    monkeypatch.setitem(sys.modules, "opendp", None)
    with pytest.raises(FedbanditError, match=r"pip install 'fedbandit\[secure\]'"):
        secure.SecureSource()
