"""How operators' commands reach a coordinator: where a token goes, and what comes back broken."""

from __future__ import annotations

import io
import json
import urllib.error
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import refusal
from tests.network.servers import cut_off


def owned_by(owners: dict[str, str], asked: list[str]) -> Any:
    """In the place of urlopen: each address names its owner, as coordinators do that do not own a federation."""

    def urlopen(request: Any, **_: Any) -> None:
        asked.append(request.full_url.rpartition("/v1/")[0])
        body = json.dumps({"error": f"{asked[-1]} is not the owner.", "owner": owners[asked[-1]]}).encode()
        raise urllib.error.HTTPError(request.full_url, 421, "", Message(), io.BytesIO(body))

    return urlopen


@pytest.mark.parametrize(
    ("owners", "sentence", "most"),
    [
        ({"https://a": "http://b"}, "https://a names 'http://b' as the owner, which has no TLS", 1),
        ({"http://localhost:1": "http://b"}, "A token is not sent to 'http://b' in the clear", 1),
        ({"https://a": "https://b", "https://b": "https://a"}, "is not the owner", 5),
        ({"https://a": ""}, "https://a is not the owner", 1),
        ({"https://a": "https://["}, "The coordinator's URL is 'https://['", 1),
    ],
)
def test_a_token_follows_owners_with_tls_and_not_for_ever(
    owners: dict[str, str],
    sentence: str,
    most: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("urllib.request.urlopen", owned_by(owners, asked))
    (tmp_path / "token").write_text("fb-secret")
    words = ["--url", next(iter(owners)), "--token-file", str(tmp_path / "token")]
    assert sentence in refusal(capsys, "erase", "shops", "c0", *words)
    assert len(asked) == most


def test_a_token_is_not_sent_in_the_clear(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "token").write_text("fb-secret")
    words = ["--url", "http://a.example:8765", "--token-file", str(tmp_path / "token")]
    assert "A token is not sent to 'http://a.example:8765' in the clear" in refusal(capsys, "erase", "s", "c0", *words)


def test_an_answer_that_is_cut_off_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with cut_off() as url:
        assert "There is no answer from http" in refusal(capsys, "members", "list", "shops", "--url", url)
