"""The dispatcher: help without anything heavy, exit statuses, and `fedbandit list`."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

import fedbandit as fb
from fedbandit.cli.main import COMMANDS, main
from tests.cli.command_line import report


def test_help_answers_without_loading_anything_heavy() -> None:
    code = (
        "import sys; from fedbandit.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit(bool({'numba', 'numpy', 'tqdm', 'matplotlib', 'yaml'} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert told.returncode == 0
    assert all(f"\n    {command}" in told.stdout for command in COMMANDS)


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "simulate" in capsys.readouterr().out
    for words, expected in ((["--version"], fb.__version__), (["--help"], "30,000"), (["compare", "-h"], "--gamma-up")):
        with pytest.raises(SystemExit) as exit_:
            main(words)
        assert exit_.value.code == 0
        assert expected in capsys.readouterr().out


def test_list_names_every_system_and_environment(capsys: pytest.CaptureFixture[str]) -> None:
    names = report(capsys, "list")
    assert {entry["name"] for entry in names["systems"]} >= {"linucb-central", "async-linucb", "dislinucb"}
    assert {entry["name"] for entry in names["environments"]} >= {"homogeneous", "recorded"}
    assert {entry["name"] for entry in names["experiments"]} >= {"async-linucb/fig2a", "hetofedbandit/table1"}
    assert all(entry["summary"] for entries in names.values() for entry in entries)
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "dislinucb Another name of sync-linucb." in [" ".join(line.split()) for line in lines]
    assert len(lines) == len(names) + sum(map(len, names.values())) + 1  # how to see parts


def test_interruption_has_its_own_status(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_arguments: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedbandit.cli.main.run_command", interrupted)
    assert main(["list"]) == 130


def test_a_reader_that_leaves_early_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", "from fedbandit.cli.main import main; raise SystemExit(main(['list']))"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait() == 141


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_completion_is_a_script_that_bash_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert all(command in script for command in COMMANDS)
