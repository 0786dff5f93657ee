"""Tokens for one federation, that expire, overlap and survive many writers; certificates that are renewed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fedbandit as fb
from fedbandit.network import credentials
from fedbandit.network.certificates import AUTHORITY_KEY, CERTIFICATE, expiry, init_keys, renew_certificate
from fedbandit.network.credentials import Credentials, add_credential, list_tokens, renew_credential
from fedbandit.network.refusal import Refusal
from tests.cli.command_line import refusal, report


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    init_keys(tmp_path / "keys", ["localhost", "127.0.0.1"])
    return tmp_path / "keys"


def bearer(token: str) -> str:
    return f"Bearer {token}"


def test_a_token_is_for_one_federation(keys: Path) -> None:
    token = add_credential(keys, "shop-1", "client", "shops")
    identity = Credentials(keys).identify(bearer(token), None)
    identity.require("client", "shops")
    for other in ("hospitals", ""):
        with pytest.raises(Refusal, match="is for federation 'shops'"):
            identity.require("client", other)


def test_tokens_expire_and_overlap(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = credentials.add_credentials(keys, ["shop-1"], days=30)["shop-1"]
    with pytest.raises(fb.FedbanditError, match="revoke it first, or renew it"):
        add_credential(keys, "shop-1")
    new = renew_credential(keys, "shop-1", overlap=7)
    assert [round((one.expires - one.made) / 86_400) for one in list_tokens(keys)] == [7, 30], "as long as the old one"
    known = Credentials(keys)
    assert known.identify(bearer(old), None).name == known.identify(bearer(new), None).name == "shop-1"
    later = time.time() + 8 * 86_400
    monkeypatch.setattr(time, "time", lambda: later)
    known.identify(bearer(new), None)
    with pytest.raises(Refusal, match="has expired"):
        known.identify(bearer(old), None)
    with pytest.raises(fb.FedbanditError, match="no valid token for 'nobody'"):
        renew_credential(keys, "nobody")


def test_a_token_of_one_federation_is_renewed_and_those_of_others_stay(keys: Path) -> None:
    """The others had ended with the old one's overlap, without another in their place."""
    for federation in ("shops", "hospitals"):
        add_credential(keys, "shop-1", federation=federation)
    with pytest.raises(fb.FedbanditError, match=r"several federations \(hospitals, shops\).*--federation"):
        renew_credential(keys, "shop-1")
    with pytest.raises(fb.FedbanditError, match="no valid token for 'shop-1' for federation 'others'"):
        renew_credential(keys, "shop-1", federation="others")
    with pytest.raises(fb.FedbanditError, match="no valid token for 'shop-1' for all federations"):
        renew_credential(keys, "shop-1", federation="")
    assert len(list_tokens(keys)) == 2, "nothing was changed"
    new = renew_credential(keys, "shop-1", federation="shops")
    assert Credentials(keys).identify(f"Bearer {new}", None).federation == "shops"
    lasts = {(token.federation, token.expires == 9e99) for token in list_tokens(keys)}
    assert lasts == {("shops", False), ("shops", True), ("hospitals", True)}
    renew_credential(keys, "shop-1", federation="shops")
    assert sum(token.federation == "shops" for token in list_tokens(keys)) == 3


def test_the_command_renews_the_tokens_of_a_federation(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for federation in ("shops", "hospitals"):
        add_credential(keys, "boss", "admin", federation)
    said = ["keys", "renew", "boss", "--keys", str(keys), "--json"]
    assert "--federation" in refusal(capsys, *said)
    assert report(capsys, *said, "--federation", "shops")["role"] == "admin"


@pytest.mark.parametrize("days", [0.0, -1.0, float("nan"), float("inf")])
def test_no_token_is_made_that_has_expired_already(keys: Path, days: float) -> None:
    with pytest.raises(fb.FedbanditError, match=r"days is .*, but must be > 0"):
        credentials.add_credentials(keys, ["shop-1"], days=days)
    assert list_tokens(keys) == []
    add_credential(keys, "shop-1")
    with pytest.raises(fb.FedbanditError, match=r"days is .*, but must be > 0"):
        renew_credential(keys, "shop-1", days=days)
    assert [one.expires for one in list_tokens(keys)] == [9e99]


def test_twelve_writers_at_once_lose_nothing(keys: Path) -> None:
    code = "import sys, pathlib; from fedbandit.network.credentials import add_credential as a; " \
           "print(a(pathlib.Path(sys.argv[1]), sys.argv[2]))"  # fmt: skip
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(keys), f"c-{i}"], stdout=subprocess.PIPE, text=True)
        for i in range(12)
    ]
    tokens = [writer.communicate()[0].strip() for writer in writers]
    known = Credentials(keys)
    assert [known.identify(bearer(token), None).name for token in tokens] == [f"c-{i}" for i in range(12)]


def test_credentials_of_earlier_versions_are_taken_over(tmp_path: Path) -> None:
    token = "fb-old"
    entries = [
        {"name": "a", "role": "client", "hash": credentials.hash_token(token), "revoked": False},
        {"name": "b", "role": "admin", "hash": "00", "revoked": True},
    ]
    (tmp_path / "credentials.json").write_text(json.dumps(entries))
    assert Credentials(tmp_path).identify(bearer(token), None).name == "a"
    assert [(one.name, one.state(time.time())) for one in list_tokens(tmp_path)] == [("a", "valid"), ("b", "revoked")]
    assert not (tmp_path / "credentials.json").exists()


def test_the_command_makes_lists_and_renews(keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = tmp_path / "names"
    names.write_text("".join(f"shop-{i}\n" for i in range(500)))
    out = tmp_path / "tokens"
    words = ["keys", "add-client", "--keys", str(keys), "--names", str(names), "--federation", "shops", "--days", "90"]
    assert report(capsys, *words, "--out", str(out))["tokens"] == 500
    assert out.stat().st_mode & 0o077 == 0
    assert len(out.read_text().splitlines()) == 500
    assert "There is a token for 'shop-0' already" in refusal(capsys, *words)
    assert len(list_tokens(keys)) == 500, "all or none"
    listed = report(capsys, "keys", "list", "--keys", str(keys))["tokens"]
    assert listed[0] | {"made": None, "expires": None} == {
        "name": "shop-0", "role": "client", "federation": "shops", "made": None, "expires": None, "state": "valid",
    }  # fmt: skip
    renewed = report(capsys, "keys", "renew", "shop-7", "--keys", str(keys), "--overlap", "1")
    assert Credentials(keys).identify(bearer(renewed["token"]), None).federation == "shops"
    assert "needs a NAME" in refusal(capsys, "keys", "revoke", "--keys", str(keys))
    assert "There are keys" in refusal(capsys, "keys", "init", "--keys", str(keys))
    assert "There are no keys" in refusal(capsys, "keys", "list", "--keys", str(tmp_path / "none"))


def test_no_token_is_made_that_cannot_be_handed_out(
    keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there, names = tmp_path / "there", tmp_path / "names"
    there.write_text("mine")
    names.write_text("shop-1\nshop-2\n")
    one = ["keys", "add-client", "shop-1", "--keys", str(keys)]
    many = ["keys", "add-client", "--names", str(names), "--keys", str(keys)]
    for words in (one, many):
        assert "exists already; no token was made" in refusal(capsys, *words, "--out", str(there))
        assert "no token was made" in refusal(capsys, *words, "--out", str(tmp_path / "no" / "where"))
        assert list_tokens(keys) == []
    assert there.read_text() == "mine"
    token = report(capsys, *one)["token"]
    renew = ["keys", "renew", "shop-1", "--overlap", "0", "--keys", str(keys), "--out"]
    assert "exists already" in refusal(capsys, *renew, str(there))
    Credentials(keys).identify(bearer(token), None)
    assert "already" in refusal(capsys, *many, "--out", str(tmp_path / "new"))
    assert not (tmp_path / "new").exists(), "nothing is left behind"


def test_a_renewed_certificate_keeps_its_hosts_and_says_them(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    renew = ["keys", "renew", "--keys", str(keys)]
    assert report(capsys, *renew)["hosts"] == ["localhost", "127.0.0.1"]
    assert report(capsys, *renew, "--host", "a.example.org,::1")["hosts"] == ["a.example.org", "::1"]


def test_a_certificate_is_renewed_by_a_kept_or_an_offline_authority(tmp_path: Path) -> None:
    folder, offline = tmp_path / "keys", tmp_path / "safe"
    init_keys(folder, ["localhost"], offline)
    assert not (folder / AUTHORITY_KEY).exists()
    before = (folder / CERTIFICATE).read_bytes()
    with pytest.raises(fb.FedbanditError, match="--authority"):
        renew_certificate(folder)
    assert (folder / CERTIFICATE).read_bytes() == before
    renew_certificate(folder, authority=offline)
    assert (folder / CERTIFICATE).read_bytes() != before
    assert 390 * 86_400 < expiry(folder) - time.time() < 400 * 86_400
    init_keys(tmp_path / "other", ["localhost"])
    with pytest.raises(fb.FedbanditError, match="is not the key of"):
        renew_certificate(folder, authority=tmp_path / "other")


def test_when_a_holder_is_left_without_a_token_is_known(keys: Path) -> None:
    """A renewed token has no end before the new one; what was revoked is not missed."""
    credentials.add_credentials(keys, ["shop-1", "shop-2"], days=10)
    credentials.add_credentials(keys, ["shop-3"], days=5)
    add_credential(keys, "boss", "admin")
    renew_credential(keys, "shop-1", days=30, overlap=1)
    credentials.revoke_credential(keys, "shop-3")
    made, known = time.time(), Credentials(keys)
    first, without = known.ends(made)["client"]
    assert first == pytest.approx(made + 10 * 86_400, abs=60)
    assert without == 0
    assert known.ends(made)["admin"] == (9e99, 0)
    first, without = known.ends(made + 11 * 86_400)["client"]
    assert first == pytest.approx(made + 30 * 86_400, abs=60)
    assert without == 1
    assert Credentials(None).ends(made) == {}
