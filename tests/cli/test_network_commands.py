"""`fedbandit serve`, `client`, `peer` and `demo`: what works, and one sentence for whatever is wrong."""

from __future__ import annotations

import argparse
import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedbandit.cli.demo import STATE, _client_options, _run_client, _watch, log_of
from fedbandit.cli.main import main
from tests.cli.command_line import refusal, report
from tests.network.servers import CONFIG, make_host, served

GOOD = CONFIG.format(port=0, store="s.db")


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


def test_the_line_that_serve_begins_with(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text(GOOD.replace("s.db", str(tmp_path / "s.db")))
    words = [sys.executable, "-m", "fedbandit", "serve", "--config", str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
    assert re.fullmatch(r"Serving shops on http://127\.0\.0\.1:\d+\n", line)


@pytest.mark.parametrize("command", ["serve", "gateway"])
def test_who_is_told_twice_to_end_ends_in_order(command: str, tmp_path: Path) -> None:
    path, where = tmp_path / "f.toml", str(tmp_path / "s.db")
    path.write_text(GOOD.replace("s.db", where))
    own = ["--config", str(path)] if command == "serve" else ["--port", "0", "--dim", "2", "--state", where]
    as_in_a_terminal = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{as_in_a_terminal}; from fedbandit.cli.main import main; main({[command, '--json', *own]})"
    words = [sys.executable, "-c", program]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["address"]
        with urllib.request.urlopen(f"{address}/healthz", timeout=10) as answer:
            assert answer.status == 200
        for _ in range(3):
            process.send_signal(signal.SIGINT)
            time.sleep(0.01)  # signals that are still pending are one
        assert process.stderr is not None
        said = process.stderr.read()
    assert "Traceback" not in said
    assert not Path(f"{where}-wal").exists(), "its store is closed"
    if command == "serve":
        assert json.loads(said.splitlines()[-1])["event"] == "stop"


def test_missing_keys_are_found_before_the_port_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "f.toml"
    path.write_text(GOOD.replace("port = 0", 'keys = "nowhere"'))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert "There are no keys" in refusal(capsys, "serve", "--config", str(path), "--port", port)
    assert not (tmp_path / "s.db").exists()


def test_fedbandit_client_drives_users(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    host = make_host()
    with served(host) as url:
        words = ["client", url, "--federation", "shops", "--clients", "2", "--interactions", "30"]
        printed = report(capsys, *words, "--state", str(tmp_path))
        assert printed["interactions"] == 60
        assert printed["delivered"]
        assert printed["problems"] == []
        assert printed["uploads"] == sum(host.federations["shops"].federation.machine.applied.values())
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


def test_the_demo_names_the_folder_of_its_logs(tmp_path: Path) -> None:
    """If clients fail, what is said leads to their logs."""
    options = argparse.Namespace(out=tmp_path, json=False)
    (tmp_path / STATE).mkdir()
    with pytest.raises(SystemExit, match="2"):
        _run_client(_client_options("http://127.0.0.1:1", 0, 1, tmp_path), log_of(tmp_path, 0))
    said: list[str] = []
    _watch("http://127.0.0.1:1", [SimpleNamespace(is_alive=lambda: False, exitcode=2)], options, said.append)
    (folder,) = re.findall(r"1 clients ended with status 2; see the logs in (.*)\.$", said[0])
    assert [path.name for path in Path(folder).glob("*.log")] == ["client-0.log"]
    assert "no answer from" in (Path(folder) / "client-0.log").read_text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--neighbours", "one=127.0.0.1:1"], "must be like 1=127.0.0.1:9001"),
        (["--neighbours", "1=127.0.0.1"], "not an address"),
        (["--neighbours", "9=127.0.0.1:9"], "a neighbour is 9"),
        (["--neighbours", "1=10.0.0.1:9"], "not loopback"),
        (["--neighbours", "1=127.0.0.1:9", "--member", "4"], "member is 4"),
        (["--neighbours", "1=127.0.0.1:9", "--keys", "nowhere"], "keys in 'nowhere' cannot be used"),
    ],
)
def test_a_peer_says_what_is_wrong(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["peer", "--member", "0", "--peers", "4", "--dim", "3", "--listen", "127.0.0.1:0", "--epsilon", "inf"]
    assert main([*given, *words]) == 2
    assert sentence in capsys.readouterr().err
