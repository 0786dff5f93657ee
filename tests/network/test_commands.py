"""Configurations and commands: what works, and one sentence for whatever is wrong."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fedbandit.cli.main import main
from fedbandit.network.coordinator.activity import POINTS, Activity
from fedbandit.network.coordinator.config import load_config
from tests.cli.command_line import refusal, report
from tests.network.servers import CONFIG, make_hall, served

GOOD = CONFIG.format(port=0, store="s.db")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("port = 0", "prot = 0", "There is no key of [server] 'prot'; did you mean 'port'?"),
        ("clients = 4", "cleints = 4", "no key of [federations.shops] 'cleints'; did you mean 'clients'?"),
        ("[server]", "[sever]", "did you mean 'server'?"),
        ("clients = 4", "", "[federations.shops] needs clients."),
        ("clients = 4", "clients = 0", "clients is 0"),
        ("clients = 4", "clients = 1.5", "clients is 1.5"),
        ("async-linucb", "async-linubc", "did you mean 'async-linucb'?"),
        ("async-linucb", "linucb", "There is no keyword of linucb 'gamma_upload'"),
        ("gamma_upload = 1.3", "gamma_uplaod = 1.3", "did you mean 'gamma_upload'?"),
        ("gamma_upload = 1.3", "gamma_upload = 0.3", "gamma_upload is 0.3"),
        ("gamma_upload = 1.3", 'gamma_upload = "x"', "rule for gamma_upload"),
        ("{gamma_upload = 1.3, gamma_download = 1.3}", "3", "must be a table"),
        ("port = 0", "port = 99999", "port is 99999"),
        ("port = 0", 'port = "x"', "port of [server] is 'x'"),
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


def test_a_port_in_use_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "f.toml"
    path.write_text(GOOD)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"Port {port} on 127.0.0.1 cannot be used" in refusal(
            capsys, "serve", "--config", str(path), "--port", port
        )
    (tmp_path / "s.db").write_bytes(b"no database at all" * 100)
    assert "not a database" in refusal(capsys, "serve", "--config", str(path))


def test_paths_are_relative_to_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text(GOOD)
    config = load_config(path)
    assert config.store == str(tmp_path / "s.db")
    assert config.federations["shops"].terms.keywords == {"gamma_upload": 1.3, "gamma_download": 1.3}
    path.write_text(GOOD.replace("s.db", "postgresql://x/y"))
    assert load_config(path).store == "postgresql://x/y"


def test_fedbandit_client_drives_users(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    hall = make_hall()
    with served(hall) as url:
        words = ["client", url, "--federation", "shops", "--clients", "2", "--interactions", "30"]
        printed = report(capsys, *words, "--state", str(tmp_path))
        assert printed["interactions"] == 60
        assert printed["delivered"]
        assert printed["problems"] == []
        assert printed["uploads"] == sum(hall.rooms["shops"].federation.machine.applied.values())
        assert sorted(path.name for path in tmp_path.glob("*.db")) == ["user-0.db", "user-1.db"]
        assert main([*words, "--name", "other", "--report"]) == 0
        assert "60 interactions: regret" in capsys.readouterr().out
        assert "all 4 are taken" in refusal(capsys, *words, "--first", "7")
        assert "no federation 'none'" in refusal(capsys, "client", url, "--federation", "none")
    assert "no answer from" in refusal(capsys, *words, "--first", "9")
    assert "is for one client" in refusal(capsys, *words, "--token-file", "x")
    assert "must be like https://" in refusal(capsys, "client", "localhost:3", "--federation", "f")


def test_the_demo_is_a_real_federation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["demo", "--out", str(tmp_path), "--clients", "2", "--seconds", "2", "--json"]
    done = subprocess.run([sys.executable, "-m", "fedbandit", *words], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    printed = json.loads(done.stdout)
    assert printed["interactions"] == 2 * 24
    assert printed["uploads"] > 0
    assert printed["guarantee"].startswith("none")
    assert Path(printed["picture"]).read_bytes().startswith(b"\x89PNG")
    assert "--seconds is 0" in refusal(capsys, "demo", "--seconds", "0", "--out", str(tmp_path))


def test_activity_is_bounded_however_long_and_however_the_clock_jumps() -> None:
    activity = Activity()
    for second in range(10_000):
        activity.add(1e9 + second, uploads=1, bytes=10)
    activity.add(5.0, uploads=1)
    activity.add(2e9, downloads=3)
    assert len(activity.slices) <= POINTS
    totals = [sum(column) for column in zip(*activity.slices, strict=True)]
    assert totals == [10_001, 3, 100_000]
    again = Activity()
    again.restore(activity.state())
    assert again.state() == activity.state()
