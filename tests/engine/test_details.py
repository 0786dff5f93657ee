"""Per-client results and estimates over time: they add up, and both engines agree on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.engine.simulation import Engine

ENGINES: tuple[Engine, Engine] = ("fast", "plain")
ENV = fb.environments.homogeneous(n_clients=5, dim=3, n_arms=4, arrivals="skewed")
ALL = fb.environments.clustered(n_clients=4, dim=3, n_arms=4, n_clusters=2, rounds="all")


@pytest.mark.parametrize("env", [ENV, ALL], ids=["one", "all"])
@pytest.mark.parametrize(
    "system", [fb.async_linucb(gamma_upload=2.0, gamma_download=2.0), fb.sync_linucb(threshold=1.0)]
)
@pytest.mark.parametrize("engine", ENGINES)
def test_what_clients_have_adds_up_to_what_all_have(env: Any, system: fb.System, engine: Any) -> None:
    result = fb.simulate(system, env, 90, seed=1, engine=engine, per_client=True)
    mine = result.by_client
    assert mine is not None
    assert mine.uploads is not None
    assert mine.downloads is not None
    N = env.n_clients
    assert mine.interactions.sum() == result.arms.size
    assert mine.regret.sum() == pytest.approx(result.regret[-1])
    assert mine.reward.sum() == pytest.approx(result.reward[-1])
    assert mine.uploads.sum() == result.communication.uploads > 0
    assert mine.downloads.sum() == result.communication.downloads > 0
    for i in range(N):
        curve = mine.curve(i)
        assert curve.size == mine.interactions[i]
        assert curve[-1] == pytest.approx(mine.regret[i])
        assert mine.curve(i, "reward")[-1] == pytest.approx(mine.reward[i])
    frame = result.to_frame(by="client")
    assert frame["regret"].tolist() == mine.regret.tolist()
    assert frame.shape[0] == N


@pytest.mark.parametrize(
    ("system", "env"),
    [
        (fb.linucb(), ENV),
        (fb.async_linucb(gamma_upload=2.0, gamma_download=2.0, warm_join=True), ENV),
        (fb.sync_linucb(threshold=1.0), ENV),
        (fb.hetofedbandit_e(), ALL),
        (fb.feducb(topology="line", epsilon=float("inf")), fb.environments.feducb(n_clients=4, dim=3)),
    ],
)
def test_what_each_client_has_does_not_depend_on_the_engine(system: fb.System, env: Any) -> None:
    runs = [fb.simulate(system, env, 120, engine=engine, per_client=True) for engine in ENGINES]
    fast, plain = (run.by_client for run in runs)
    assert fast is not None
    assert plain is not None
    np.testing.assert_array_equal(fast.clients, plain.clients)
    np.testing.assert_allclose(fast.regret, plain.regret)
    np.testing.assert_array_equal(fast.uploads, plain.uploads)
    np.testing.assert_array_equal(fast.downloads, plain.downloads)


def test_servers_speak_for_their_users() -> None:
    """FCLUB's messages are those of local servers: they are counted by default, and not under clients' numbers."""
    env = fb.environments.fclub(n_clients=12, n_servers=3, n_clusters=3, dim=4)
    result = fb.simulate(fb.fclub_dc(), env, 2_000, per_client=True)
    mine = result.by_client
    assert mine is not None
    assert mine.uploads is mine.downloads is None
    assert mine.server_uploads is not None
    assert mine.server_downloads is not None
    assert mine.server_uploads.shape == mine.server_downloads.shape == (3,)
    assert mine.server_uploads.min() > 0
    assert mine.server_uploads.sum() == result.communication.uploads
    assert mine.server_downloads.sum() == result.communication.downloads > 0
    frame = result.to_frame(by="client")
    assert frame["server"].tolist() == env.server_of.tolist()
    assert "uploads" not in frame
    servers = result.to_frame(by="server")
    assert servers["uploads"].tolist() == mine.server_uploads.tolist()
    assert servers["users"].tolist() == [4, 4, 4]
    assert servers["regret"].sum() == pytest.approx(result.regret[-1])
    assert servers["interactions"].sum() == 2_000
    assert result.to_xarray().server_uploads.values.tolist() == mine.server_uploads.tolist()


def test_what_servers_sent_is_kept_and_what_nobody_counted_is_refused(tmp_path: Path) -> None:
    env = fb.environments.fclub(n_clients=12, n_servers=3, n_clusters=3, dim=4)
    result = fb.simulate(fb.fclub_dc(), env, 300, per_client=True)
    again = fb.Result.load(result.save(tmp_path / "result.npz")).to_frame(by="server")
    assert again["downloads"].tolist() == result.to_frame(by="server")["downloads"].tolist()
    fast = fb.simulate(fb.fclub_dc(), env, 300, engine="fast", per_client=True)
    assert fast.to_frame(by="client")["regret"].sum() == pytest.approx(fast.regret[-1])
    with pytest.raises(fb.FedbanditError, match="does not count messages of servers; use engine='plain' or 'auto'"):
        fast.to_frame(by="server")
    with pytest.raises(fb.FedbanditError, match="clients speak for themselves"):
        fb.simulate(fb.linucb(), ENV, 20, per_client=True).to_frame(by="server")


def test_peers_send_as_much_as_is_counted() -> None:
    env = fb.environments.feducb(n_clients=4, dim=3)
    result = fb.simulate(fb.feducb(topology="line", epsilon=float("inf")), env, 60, per_client=True, engine="plain")
    assert result.by_client is not None
    assert result.by_client.uploads is not None
    assert result.by_client.uploads.sum() == result.communication.uploads
    assert result.by_client.uploads[1] > result.by_client.uploads[0], "the end of a line has one neighbour"


@pytest.mark.parametrize(
    "system", [fb.linucb(), fb.linucb_central(), fb.colin(), fb.async_linucb_am(d_global=2), fb.club()]
)
def test_estimates_come_closer_to_the_truth(system: fb.System) -> None:
    """Whatever the model's structure is; what is noted does not change what happens."""
    N = 3
    env: Any = fb.environments.homogeneous(n_clients=N, dim=3, n_arms=4, arrivals="round-robin")
    if system.name == "colin":
        env = fb.environments.collaborative(n_clients=N, dim=3, n_arms=4, arrivals="round-robin")
    result = fb.simulate(system, env, 300, seed=2, watch=[300, 1, 30, 30])
    assert result.estimates is not None
    assert result.engine == "plain"
    assert result.estimates.rounds.tolist() == [1, 30, 300]
    assert result.estimates.theta.shape == (3, N, 3)
    plain = fb.simulate(system, env, 300, seed=2, engine="plain")
    np.testing.assert_array_equal(result.arms, plain.arms)
    if system.name != "colin":  # whose users' rewards follow from mixed parameters
        error = result.estimates.error(env.parameters_of(2))
        assert error[2].max() < 0.5 < np.nanmax(error[0])


def test_details_are_saved_and_refused_where_they_would_be_lost(tmp_path: Path) -> None:
    result = fb.simulate(fb.linucb(), ENV, 20, per_client=True, watch=[20])
    again = fb.Result.load(result.save(tmp_path / "result.npz"))
    assert again.by_client is not None
    assert result.by_client is not None
    np.testing.assert_array_equal(again.by_client.regret, result.by_client.regret)
    assert again.estimates is not None
    np.testing.assert_array_equal(again.estimates.theta, result.estimates.theta)  # type: ignore[union-attr]
    with pytest.raises(fb.FedbanditError, match="per_client or watch cannot go on from a checkpoint"):
        fb.simulate(fb.linucb(), ENV, 20, per_client=True, checkpoint=tmp_path / "c.npz")
    with pytest.raises(fb.FedbanditError, match="cannot watch estimates; use engine='plain'"):
        fb.simulate(fb.linucb(), ENV, 20, watch=[5], engine="fast")
    with pytest.raises(fb.FedbanditError, match="watch is 21, but must be a whole number ≤ 20"):
        fb.simulate(fb.linucb(), ENV, 20, watch=[21])
    with pytest.raises(fb.FedbanditError, match="knows no clients"):
        fb.simulate(fb.linucb(), ENV, 20).to_frame(by="client")


def test_contexts_by_a_function_that_knows_the_truth() -> None:
    """An adversary that offers nothing but the truth's opposite and two near ties; and contexts that turn with time."""

    def adversary(rng: Any, rounds: Any, clients: Any, parameters: Any) -> Any:
        near = np.stack([parameters, parameters, -parameters], axis=1)
        near[:, 1] = 0.99 * near[:, 1]
        assert rounds.shape == clients.shape
        return near * (0.5 + 0.1 * rng.random())

    env = fb.environments.clustered(n_clients=4, dim=3, n_arms=3, n_clusters=2, contexts=adversary)
    one, two = (fb.simulate(fb.linucb(), env, 60, seed=3, engine=engine) for engine in ENGINES)
    np.testing.assert_array_equal(one.arms, two.arms)
    block = env.open(3).block(0, 60)
    assert (block.means[:, 0] > block.means[:, 1]).all()
    assert (block.means[:, 2] < 0).all()

    def turning(rng: Any, rounds: Any, clients: Any, parameters: Any) -> Any:  # noqa: ARG001
        angle = rounds[:, None] / 50 + np.arange(3)
        return np.stack([np.cos(angle), np.sin(angle), 0 * angle], axis=2)

    world = fb.environments.homogeneous(n_clients=2, dim=3, n_arms=3, contexts=turning, rounds="all")
    block = world.open(0).block(0, 8)
    np.testing.assert_allclose(block.X[block.arms[0]], block.X[block.arms[1]])  # one round, two clients
    with pytest.raises(fb.FedbanditError, match="shape of what contexts returned"):
        fb.environments.homogeneous(n_clients=2, dim=3, n_arms=4, contexts=turning).open(0).block(0, 8)
    with pytest.raises(fb.FedbanditError, match="norm of a context that contexts returned"):
        fb.environments.homogeneous(n_clients=2, dim=3, n_arms=3, contexts=lambda *a: 2 * turning(*a)).open(0).block(
            0, 8
        )
    with pytest.raises(fb.FedbanditError, match="only with fresh arms"):
        fb.environments.homogeneous(n_clients=2, dim=3, n_arms=3, contexts=turning, pool=9)


def test_recorded_servers_and_clusters_are_told() -> None:
    X, y = np.ones((8, 2, 2)) / 2, np.tile([0.2, 0.8], (8, 1))
    env = fb.environments.recorded(np.arange(8) % 4, X, y, y, server_of=[0, 1, 0, 1], partition=[0, 0, 1, 1])
    assert env.server_of is not None
    assert env.server_of.tolist() == [0, 1, 0, 1]
    result = fb.simulate(fb.club(), env, 8)
    assert env.partition is not None
    assert len(result.rand_index(env.partition)) == len(result.clusters)
    for wrong, sentence in (([0, 1], "the shape of server_of"), ([0, 2, 0, 2], "without a gap")):
        with pytest.raises(fb.FedbanditError, match=sentence):
            fb.environments.recorded(np.arange(8) % 4, X, y, y, server_of=wrong)


def test_what_a_notebook_shows() -> None:
    env = fb.environments.homogeneous(n_clients=5, dim=3, n_arms=4)
    result = fb.simulate(fb.async_linucb(), env, 200, per_client=True, engine="plain")
    assert f"regret {result.regret[-1]:,.4g}" in repr(result)
    assert f"<td>{result.communication.uploads}</td>" in result._repr_html_()
    labelled = result.to_xarray()
    assert float(labelled.regret.sel(round=200)) == result.regret[-1]
    assert labelled.sizes == {"round": 200, "client": 5}
    assert result.by_client is not None
    assert labelled.client_regret.values.tolist() == result.by_client.regret.tolist()


def test_labelled_arms_where_all_act_in_every_round() -> None:
    env = fb.environments.homogeneous(n_clients=3, dim=2, n_arms=2, rounds="all")
    assert fb.simulate(fb.linucb(), env, 20).to_xarray().arm.dims == ("round", "client")


def test_a_notebook_shows_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    env = fb.environments.homogeneous(n_clients=3, dim=2, n_arms=2)
    fb.simulate(fb.linucb(), env, 20)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("fedbandit.progress.in_notebook", lambda: True)
    monkeypatch.setattr("fedbandit.progress.DELAY", 0.0)
    fb.simulate(fb.linucb(), env, 20)
    assert "rounds/s" in capsys.readouterr().err
