"""One θ for each action on a network: clients, a coordinator, restarts, tokens, decision logs; what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.environments.decision_log import read_decision_log
from fedbandit.errors import FedbanditError
from fedbandit.evaluation import evaluate_frozen
from fedbandit.network.client.client import Client
from fedbandit.network.coordinator.config import FederationConfig, ServerConfig, load_config
from fedbandit.network.coordinator.host import Host
from fedbandit.network.invitation import Agreement
from fedbandit.network.resolved import client_terms
from tests.network.servers import served

A, F = 7, 3
WORLD = fb.World(n_clients=3, dim=F, horizon=2000, actions=A)
AGREEMENT = Agreement("async-linucb", {"gamma_upload": 2.0, "gamma_download": 2.0}, WORLD)


def host(agreement: Agreement = AGREEMENT) -> Host:
    return Host(ServerConfig({"shops": FederationConfig(agreement)}, port=0, store=None))


def visit(client: Client, rng: np.random.Generator, visits: int) -> None:
    for k in range(visits):
        if k % 2:
            arm = client.select(rng.uniform(-0.5, 0.5, F))  # one situation, all actions
        else:
            arm = client.select(rng.uniform(-0.5, 0.5, (3, F)), actions=rng.permutation(A)[:3])
        client.observe(float(rng.uniform(-1, 1)), arm)


def test_clients_of_a_federation_with_actions(tmp_path: Path) -> None:
    serving, rng = host(), np.random.default_rng(0)
    with served(serving) as url:
        with (
            Client(url, federation="shops", name="a", state=tmp_path / "a.db", choice_key="k" * 16) as a,
            Client(url, federation="shops", name="b", decisions=tmp_path / "log", choice_key="k" * 16) as b,
        ):
            visit(a, rng, 60)
            for _ in range(40):
                b.observe(1.0, b.select(rng.uniform(-0.5, 0.5, F), explore=0.2))
            a.learn(np.full((2, F), 0.1), np.ones(2), actions=[6, 5])
            token = a.export(a.select(np.full(F, 0.2)))
            b.observe(0.5, token)
            assert a.flush()
            assert b.flush()
            assert a.theta.shape == (A, F)
        with Client(url, federation="shops", name="a", state=tmp_path / "a.db") as again:
            assert again.status()["observed"] == 62
            visit(again, rng, 10)
            assert again.flush()
        federation = serving.federations["shops"].federation
        assert federation.refusals == {}
        gathered = federation.machine.gathered()
        assert gathered.V.shape == (A, F, F)
        assert gathered.n == sum(record.observations for record in federation.register.by_number)
    log = read_decision_log(tmp_path / "log")
    assert (log.n_actions, log.dim, log.n_decisions) == (A, F, 40)
    assert evaluate_frozen(fb.uniform(), log).decisions == 20


def test_what_is_refused() -> None:
    with served(host()) as url, Client(url, federation="shops", name="a") as client:
        for arms, actions, sentence in (
            (np.full((2, F), 0.1), [0, A], f"There is no action {A}: the terms have actions 0, …, {A - 1}."),
            (np.full((2, F), 0.1), None, "There are 2 rows of features, but 7 actions; say which ones"),
            (np.full((2, F), 0.1), [1], "There are 2 rows of features, but 1 actions"),
            (np.full((2, F + 1), 0.1), [0, 1], "the shape of arms"),
            ("red", [0], "arms is 'red', but must be a"),
            ([["a", "b", "c"]], [0], "but must be a"),
        ):
            with pytest.raises(FedbanditError, match=sentence):
                client.select(arms, actions=actions)
        arm = client.select(np.full(F, 0.1))
        with pytest.raises(FedbanditError, match="reward is None, but must be a finite number"):
            client.observe(None, arm)  # type: ignore[arg-type]
        client.observe(1.0, arm)
        assert client.status()["observed"] == 1
    with pytest.raises(FedbanditError, match="The client has been closed"):
        client.select(np.full(F, 0.1))
    with pytest.raises(FedbanditError, match="The client has been closed"):
        client.observe(1.0, arm)
    one = Agreement("async-linucb", {}, fb.World(3, F, 100))
    with (
        served(host(one)) as url,
        Client(url, federation="shops", name="a") as client,
        pytest.raises(FedbanditError, match="actions was given, but all arms of this federation share one θ"),
    ):
        client.select(np.full((2, F), 0.1), actions=[0, 1])


def test_the_terms_say_it(tmp_path: Path) -> None:
    terms = client_terms(AGREEMENT, 0)
    assert "per-action" in terms["capabilities"]
    assert terms["model"]["actions"] == A
    assert terms["policy"]["confidence"] == pytest.approx(0.1 / A)
    assert Agreement.of_json(AGREEMENT.as_json()) == AGREEMENT
    config = tmp_path / "federation.toml"
    text = '[federations.shops]\nsystem = "async-linucb"\nclients = 3\ndim = 3\nhorizon = 100\nactions = {}\n'
    config.write_text(text.format(5))
    assert load_config(config).federations["shops"].agreement.world.actions == 5
    config.write_text(text.format(1))
    with pytest.raises(FedbanditError, match="actions is 1, but must be a whole number ≥ 2, or 0"):
        load_config(config)
    config.write_text(text.format(5) + "robust = true\n")
    with pytest.raises(FedbanditError, match="robust is refused: members are compared by one θ"):
        load_config(config)
