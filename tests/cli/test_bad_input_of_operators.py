"""Commands of networks on bad input: one sentence that names the value, exit status 2, and no file made or changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fedbandit.cli.main import main
from fedbandit.network.certificates import init_keys
from fedbandit.network.coordinator.host import Host
from fedbandit.network.credentials import add_credential, list_tokens, renew_credential
from tests.cli.command_line import refusal
from tests.network.servers import CONFIG, make_host, served


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[str, Host]]:
    """A coordinator, and its address."""
    host = make_host()
    with served(host) as url:
        yield url, host


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where all that is named lies: a folder, files that are none of what is asked for, a configuration."""
    (tmp_path / "dir").mkdir()
    (tmp_path / "text").write_text("hello you\n")
    (tmp_path / "bytes").write_bytes(b"fb-\xff\xfe" * 400)
    (tmp_path / "empty").touch()
    (tmp_path / "f.toml").write_text(CONFIG.format(port=0, store="f.db"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder: Path) -> dict[str, bytes | None]:
    """All files and folders, and what is in them."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def told(folder: Path, capsys: pytest.CaptureFixture[str], words: str) -> str:
    """The sentence; nothing has been written."""
    before = contents(folder)
    sentence = refusal(capsys, *(word.strip("'") for word in words.split()))
    assert contents(folder) == before
    return sentence


PEER = "peer --member 0 --peers 2 --listen 127.0.0.1:0 --neighbours 1=127.0.0.1:1 --dim 2"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--json keys list", "--json stands before the command; flags go after it: fedbandit keys … --json."),
        ("--keys k keys list", "--keys stands before the command; flags go after it: fedbandit COMMAND … --keys."),
        ("serve --config f.toml more", "'more' is one argument too many; see fedbandit serve --help."),
        ("serve --config dir", "'dir' cannot be read"),
        ("serve --config bytes", "'bytes' cannot be read"),
        ("keys init --keys text", "--keys is 'text', which is a file, but must be a folder."),
        ("keys list --keys text", "--keys is 'text', which is a file, but must be a folder."),
        ("keys list --keys dir", "There are no keys in 'dir'"),
        ("keys init --keys k --host ''", "The host is '', but must be a name like coordinator.example.org"),
        ("keys init --keys k --host http://x", "The host is 'http://x', but must be a name"),
        ("keys peers --keys k --host a,b_c!", "The host is 'b_c!', but must be a name"),
        ("keys init --keys k --days 3", "fedbandit keys init takes no --days; it is for add-client, renew NAME."),
        ("keys list x --keys dir", "fedbandit keys list takes no NAME"),
        ("keys list --keys dir --overlap -1", "fedbandit keys list takes no --overlap; it is for renew NAME."),
        ("keys renew --keys dir --days 9", "fedbandit keys renew takes no --days; it is for add-client, renew NAME."),
        ("keys renew --keys nowhere", "There are no keys in 'nowhere'"),
        ("keys add-client x --names text", "takes a NAME or --names, not both"),
        ("keys add-client --names bytes --keys dir", "'bytes' is not a text file"),
        ("keys add-client --names dir --keys dir", "'dir' cannot be read: Is a directory."),
        ("keys add-client --names empty --keys dir", "--names is 'empty', which has no names, one a line."),
        ("keys sum-key --state dir", "--state is 'dir', which is a folder, but must be the client's file."),
        ("backup b.db --config f.toml", "There is no store 'f.db'."),
        ("backup nowhere/b.db --url http://127.0.0.1:1", "'nowhere/b.db' cannot be written: there is no folder"),
        ("restore text --config f.toml", "The file 'text' is no backup: file is not a database."),
        ("restore bytes --config f.toml", "The file 'bytes' is no backup: file is not a database."),
        ("restore empty --config f.toml", "The file 'empty' is no backup: there is no journal in it."),
        ("migrate shops --config f.toml --backup b", "There is no store 'f.db'."),
        ("migrate malls --config f.toml --backup b", "There is no federation 'malls'; there are: shops."),
        ("migrate shops --config f.toml --backup dir", "There is a file 'dir' already."),
        ("migrate shops --config f.toml --backup nowhere/b", "'nowhere/b' cannot be written: there is no folder"),
        ("migrate shops --client bytes --backup b --name a", "The store 'bytes' cannot be opened"),
        ("migrate shops --client empty --backup b --token-file bytes", "'bytes' is not a text file"),
        ("migrate shops --client empty --backup b --name a --features -,x", "--features is '-,x', but must be like"),
        ("gateway --dim 2 --port -1", "port is -1, but must be a number from 0 to 65535."),
        ("gateway --dim 2 --port 65536", "port is 65536, but must be a number from 0 to 65535."),
        ("gateway --dim 2 --port 0 --access-token-file empty", "'empty' holds no token: one line, as fedbandit keys"),
        ("gateway --dim 2 --port 0 --access-token-file bytes", "'bytes' is not a text file"),
        ("replay linucb --log nofile", "There is no file 'nofile'."),
        ("demo --seconds nan", "--seconds is nan, but must be a finite number > 0."),
        ("demo --seconds inf", "--seconds is inf, but must be a finite number > 0."),
        ("demo --port -1", "port is -1, but must be a number from 0 to 65535."),
        ("demo --out text", "The folder 'text/demo-state' cannot be made"),
        ("audit dp-linucb --clients -1", "n_clients is -1, but must be a whole number ≥ 1."),
        ("audit dp-linucb --dim 0", "dim is 0, but must be a whole number ≥ 1."),
        ("audit dp-linucb --seed -1", "seed is -1, but must be a whole number ≥ 0."),
        (f"{PEER} --pace nan", "--pace is nan, but must be a finite number a second ≥ 0"),
        (f"{PEER} --arms -2", "--arms is -2, but must be a whole number ≥ 1."),
        (f"{PEER} --seed -2", "--seed is -2, but must be a whole number ≥ 0."),
        (f"{PEER} --spread inf", "--spread is inf, but must be a finite number ≥ 0."),
        ("client http://127.0.0.1:1 --federation f --first -1", "--first is -1, but must be a whole number ≥ 0."),
        ("client http://127.0.0.1:1 --federation f --pace -1", "--pace is -1.0, but must be a finite number a second"),
        ("client http://127.0.0.1:1 --federation f --name Łódź", "The name is 'Łódź-0', but must have at most 100"),
        ("client http://127.0.0.1:1 --federation f --state text", "The folder 'text' cannot be made: File exists."),
        ("client http://127.0.0.1:1 --federation ''", "A client needs the name of its federation"),
        ("local-server http://127.0.0.1:1 --federation f --arms 0", "--arms is 0, but must be a whole number ≥ 1."),
        ("local-server http://127.0.0.1:1 --federation f --state dir", "The state 'dir' is a folder, but must be a"),
        (
            "relay --upstream http://127.0.0.1:1 --federation f --store s --rate 0",
            "--rate is 0.0, but must be a number",
        ),
        ("relay --upstream http://127.0.0.1:1 --federation f --store s --port -1", "port is -1, but must be a number"),
    ],
)
def test_bad_input_is_one_sentence(words: str, sentence: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sentence in told(folder, capsys, words)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("client URL --federation malls", "There is no federation 'malls' here."),
        ("client URL --federation sh/ops", "URL/v1/sh%2Fops/invitation is answered with status 404, and not by a"),
        ("client URL/x --federation shops", "URL/x/v1/shops/invitation is answered with status 404, and not by a"),
        ("relay --upstream URL --federation shops --store dir", "The store 'dir' cannot be opened: Is a directory."),
        ("relay --upstream URL --federation shops --store bytes", "The store 'bytes' cannot be opened"),
        ("relay --upstream URL --federation shops --store nowhere/s", "The store 'nowhere/s' cannot be opened"),
        ("members list shops x --url URL", "'x' is one argument too many; members list takes --search TEXT."),
        ("members list shops --url URL --token-file bytes", "'bytes' is not a text file"),
        ("members free shops x --url URL --token-file text", "'text' holds no token: one line, as fedbandit keys"),
        ("members free sh/ops x --url URL", "URL/v1/sh%2Fops/free is answered with status 404, and not by a"),
        ("erase shops x --url URL --token-file empty", "'empty' holds no token: one line, as fedbandit keys"),
        ("erase shops x --url URL --token-file dir", "'dir' cannot be read: Is a directory."),
        (
            "erase shops x --url https://127.0.0.1:1 --ca dir",
            "The authority 'dir', the file of",
        ),
        (
            "erase shops x --url https://127.0.0.1:1 --ca nofile",
            "The authority 'nofile', the file of",
        ),
    ],
)
def test_bad_input_at_a_coordinator_is_one_sentence(
    words: str, sentence: str, folder: Path, running: tuple[str, Host], capsys: pytest.CaptureFixture[str]
) -> None:
    url, host = running
    assert sentence.replace("URL", url) in told(folder, capsys, words.replace("URL", url))
    assert not host.federations["shops"].federation.register.by_name, "no place was taken"


@pytest.mark.parametrize("overlap", ["-1", "-1e-9", "nan", "inf", "1e300"])
def test_a_renewal_with_a_wrong_overlap_ends_no_token(
    overlap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = tmp_path / "keys"
    init_keys(keys, ["localhost"])
    add_credential(keys, "bob")
    renew_credential(keys, "bob")
    before = list_tokens(keys)
    said = refusal(capsys, "keys", "renew", "bob", "--keys", str(keys), "--overlap", overlap)
    assert f"overlap is {float(overlap)}, but must be a number of days from 0 to 1,000,000." in said
    assert list_tokens(keys) == before


def test_tokens_that_last_longer_than_calendars_are_refused_and_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys"
    init_keys(keys, ["localhost"])
    words = ["keys", "add-client", "bob", "--keys", str(keys), "--days"]
    assert "days is 1e+08, but must be > 0, as" in refusal(capsys, *words, "1e8")
    monkeypatch.setattr("fedbandit.network.credentials.MOST_DAYS", 1e9)  # as it was
    assert main([*words, "1e8"]) == 0
    capsys.readouterr()
    assert main(["keys", "list", "--keys", str(keys)]) == 0
    assert capsys.readouterr().out.split() == ["bob", "client", "all", "valid"]
