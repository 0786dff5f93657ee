"""What others send as JSON is read one way only, and what is stored is shown whatever it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from fedbandit.network.coordinator.service import make_app
from fedbandit.network.jsonable import MOST_NESTED, read_json, to_json
from tests.cli.command_line import refusal
from tests.network.servers import make_host

NESTED = '{"client":' * 900
WRONG = {
    "a list": "[" * 9999,
    "objects": NESTED,
    "deep": '{"client":"a","reason":' + "[" * MOST_NESTED + "]" * MOST_NESTED + "}",
    "NaN": '{"client":"a","reason":"","x":NaN}',
    "infinity": '{"client":"a","reason":"","x":-Infinity}',
    "too large": '{"client":"a","reason":"","x":1e400}',
    "too long": '{"client":"a","reason":"","x":' + "9" * 5000 + "}",
    "twice": '{"client":"b","client":"a","reason":""}',
    "twice inside": '{"client":"a","reason":"","x":[{"y":1,"y":2}]}',
    "half a character": '{"client":"a","reason":"\\ud800"}',
    "half in a key": '{"client":"a","reason":"","\\udfff":1}',
    "half in a list": '{"client":"a","reason":"","x":["\\udfff"]}',
    "a number": '{"client":7,"reason":""}',
    "nothing": "",
}
BYTES = {"UTF-16": '{"client":"a","reason":"x"}'.encode("utf-16"), "no UTF-8": b'{"client":"a","reason":"\xff"}'}


@pytest.mark.parametrize("body", [*(text.encode() for text in WRONG.values()), *BYTES.values()], ids=[*WRONG, *BYTES])
def test_a_wish_that_can_be_read_in_two_ways_is_refused(body: bytes) -> None:
    host = make_host()
    with TestClient(make_app(host), base_url="http://127.0.0.1") as http:
        http.get("/v1/shops/invitation", headers={"x-fedbandit-name": "a"})
        for where in ("quarantine", "free"):
            answer = http.post(f"/v1/shops/{where}", content=body, headers={"content-type": "application/json"})
            assert answer.status_code == 400
            assert answer.json()["kind"] == "malformed"
        assert not host.federations["shops"].federation.register.record("a").quarantined


def test_half_a_character_that_is_stored_does_no_harm() -> None:
    """Earlier versions took it."""
    host = make_host()
    with TestClient(make_app(host), base_url="http://127.0.0.1") as http:
        http.get("/v1/shops/invitation", headers={"x-fedbandit-name": "a"})
        host.federations["shops"].federation.register.record("a").quarantined = "\ud800"
        for path in ("/api/overview", "/v1/shops/clients", "/metrics"):
            assert http.get(path).status_code == 200
        assert http.get("/v1/shops/clients").json()["clients"][0]["quarantined"] == "\\ud800"
    assert to_json({"\ud800": ["\udfff", "Zoë"]}) == {"\\ud800": ["\\udfff", "Zoë"]}


@pytest.mark.parametrize("text", ['{"report":{"reward":1,"reward":2}}', '{"report":{"reward":NaN}}', "[" * 9999])
def test_a_report_is_read_the_same_way(text: str) -> None:
    host = make_host()
    with (
        TestClient(make_app(host), base_url="http://127.0.0.1") as http,
        http.websocket_connect("ws://127.0.0.1/v1/shops/stream", headers={"x-fedbandit-name": "a"}) as ws,
    ):
        ws.send_text(text)
        assert ws.receive_json()["kind"] == "malformed"
        assert host.federations["shops"].reports == {}


def test_what_is_nested_less_is_read() -> None:
    assert read_json("[" * MOST_NESTED + "1" + "]" * MOST_NESTED)
    with pytest.raises(ValueError, match="more than 50 deep"):
        read_json("[" * (MOST_NESTED + 1) + "]" * (MOST_NESTED + 1))


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"origin": "http://["}, 403), ({"host": "[::1"}, 400), ({"host": "[::1", "origin": "http://[::1"}, 400)],
)
def test_hosts_and_origins_that_are_none_are_refused(tmp_path: Path, headers: dict[str, str], status: int) -> None:
    from fedbandit.network.certificates import init_keys

    init_keys(tmp_path / "keys", ["127.0.0.1"])
    for host in (make_host(), make_host(tmp_path / "keys")):
        with TestClient(make_app(host), base_url="http://127.0.0.1") as http:
            for path in ("/metrics", "/v1/shops/terms"):
                assert http.get(path, headers={"x-fedbandit-name": "a", **headers}).status_code in (status, 403)
        assert host.unauthenticated == 2


def test_an_authority_that_is_no_file_is_said_to_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "none.pem")
    said = refusal(capsys, "members", "list", "shops", "--url", "https://127.0.0.1:9", "--ca", missing)
    assert "the file of ca= or --ca, cannot be read" in said
    assert "none.pem" in said
