"""Configurations: what works, and one sentence for whatever is wrong."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import fedbandit as fb
from fedbandit.network.coordinator.config import load_config, on_a_network
from fedbandit.network.invitation import Agreement
from tests.cli.command_line import refusal
from tests.network.servers import CONFIG

GOOD = CONFIG.format(port=0, store="s.db")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("port = 0", "prot = 0", "There is no key of [server] 'prot'; did you mean 'port'?"),
        ("clients = 4", "cleints = 4", "no key of [federations.shops] 'cleints'; did you mean 'clients'?"),
        ("[server]", "[sever]", "did you mean 'server'?"),
        ("clients = 4", "", "[federations.shops]: clients is missing."),
        ("clients = 4", "clients = 0", "clients is 0"),
        ("clients = 4", "clients = 1.5", "clients is 1.5"),
        ("async-linucb", "async-linubc", "did you mean 'async-linucb'?"),
        ("async-linucb", "linucb", "There is no keyword of linucb 'gamma_upload'"),
        ("gamma_upload = 1.3", "gamma_uplaod = 1.3", "did you mean 'gamma_upload'?"),
        ("gamma_upload = 1.3", "gamma_upload = 0.3", "gamma_upload is 0.3"),
        ("gamma_upload = 1.3", 'gamma_upload = "x"', "rule for gamma_upload"),
        ("{gamma_upload = 1.3, gamma_download = 1.3}", "3", "must be a table"),
        ("port = 0", "port = 99999", "port is 99999"),
        ("port = 0", 'port = "x"', "port of [server] is 'x', but must be a whole number."),
        ("port = 0", "port = true", "port of [server] is True, but must be a whole number."),
        ("port = 0", "hosts = [3]", "one of hosts of [server] is 3, but must be a text."),
        ("port = 0", 'host = "0.0.0.0"', "keys are required"),
        ("port = 0", 'keys = "nowhere"', "There are no keys"),
        ("[server]", "[server", "cannot be read"),
        ("[federations.shops]", '[federations."a b"]', "name of a federation"),
        ('system = "async-linucb"\n', 'system = "linucb"\nseed = -1\n', "seed is -1"),
        ("clients = 4", "clients = 4\nround_seconds = 0", "round_seconds is 0"),
        ("clients = 4", "clients = 4\nround_seconds = 1e9", "round_seconds is"),
        ("clients = 4", "clients = 4\npatience = 0", "patience is 0"),
        ("clients = 4", "clients = 4\nslack = 1.0", "no key of [federations.shops] 'slack'"),
        ("gamma_upload = 1.3", 'privacy = "yes"', "privacy is 'yes', but must be a table"),
        ("gamma_upload = 1.3", 'privacy = {noises = "statistics", epsilom = 1.0}', "did you mean 'epsilon'?"),
    ],
)
def test_a_bad_configuration_is_one_sentence(
    old: str, new: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "f.toml"
    assert old in GOOD
    path.write_text(GOOD.replace(old, new))
    assert sentence in refusal(capsys, "serve", "--config", str(path))


def test_a_system_without_coordinator_cannot_be_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "f.toml"
    path.write_text(GOOD.partition("keywords")[0].replace("async-linucb", "linucb"))
    assert "linucb has no coordinator" in refusal(capsys, "serve", "--config", str(path))
    assert "There is no file" in refusal(capsys, "serve", "--config", str(tmp_path / "none.toml"))


def test_paths_are_relative_to_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text(GOOD)
    config = load_config(path)
    assert config.store == str(tmp_path / "s.db")
    assert config.federations["shops"].agreement.keywords == {"gamma_upload": 1.3, "gamma_download": 1.3}
    path.write_text(GOOD.replace("s.db", "postgresql://x/y"))
    assert load_config(path).store == "postgresql://x/y"


WORLD = fb.World(n_clients=3, dim=3, horizon=600)
FEDERATED = {
    "graph": [[0.75, 0.25, 0.0], [0.25, 0.5, 0.25], [0.0, 0.25, 0.75]],
    "gamma_upload": 1.5,
    "gamma_download": 1.5,
}


def test_one_model_for_all_users_of_a_graph_is_refused() -> None:
    with pytest.raises(fb.FedbanditError, match="gamma_upload"):
        on_a_network(Agreement("goblin", {"graph": FEDERATED["graph"]}, WORLD))


def test_noise_of_a_trusted_coordinator_is_refused() -> None:
    with pytest.raises(fb.FedbanditError, match="draw the noise"):
        on_a_network(Agreement("dp-colin", {**FEDERATED, "delta": 1e-5}, WORLD))


def test_peers_have_no_coordinator() -> None:
    world = dataclasses.replace(WORLD, per_round=3)
    with pytest.raises(fb.FedbanditError, match="fedbandit peer"):
        on_a_network(Agreement("feducb", {"topology": "ring", "ttl": 1}, world))
