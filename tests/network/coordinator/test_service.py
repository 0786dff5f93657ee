"""The service refuses whatever it should, with a reason, and nothing has changed afterwards."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient, WebSocketDenialResponse

from fedbandit.messages import Download, Join, Message, Receipt, Upload, decode, encode
from fedbandit.network.certificates import init_keys
from fedbandit.network.coordinator.host import Host
from fedbandit.network.coordinator.service import make_app
from fedbandit.network.credentials import Role, add_credential, revoke_credential
from fedbandit.network.envelope import SIZE, Envelope, extend, seal, unseal
from fedbandit.state import pack
from fedbandit.sums import Sums, zero_sums
from tests.network.servers import act, known, make_client, make_host


@pytest.fixture
def host() -> Host:
    return make_host()


@pytest.fixture
def http(host: Host) -> Iterator[TestClient]:
    with TestClient(make_app(host), base_url="http://127.0.0.1") as client:
        yield client


BYTES = {"content-type": "application/octet-stream"}


def post(http: TestClient, frame: bytes, name: str = "a") -> Any:
    return http.post("/v1/shops/messages", content=frame, headers={"x-fedbandit-name": name, **BYTES})


def answers(response: Any) -> list[Message]:
    assert response.status_code == 200, response.text
    data, messages = response.content, []
    while data:
        (length,) = struct.unpack_from("<I", data)
        messages.append(decode(data[4 : 4 + length]))
        data = data[4 + length :]
    return messages


def invite(http: TestClient, name: str = "a") -> int:
    invitation = http.get("/v1/shops/invitation", headers={"x-fedbandit-name": name}).json()
    return int(invitation["member"])


def test_uploads_by_request_and_what_was_missed_on_rejoining(http: TestClient, host: Host) -> None:
    one, two = make_client(invite(http, "a"), 5), make_client(invite(http, "b"), 6)
    for name, member in (("a", one), ("b", two)):
        greeting = member.greeting()
        assert greeting is not None
        assert answers(post(http, greeting, name)) == [Receipt(member.machine.member, 0)]
    act(one, 20)
    while frames := one.outgoing():
        for message in answers(post(http, frames[0].data, "a")):
            one.receive(message)
    applied = host.federations["shops"].federation.machine.applied
    assert applied == {0: one.machine.sequence}
    greeting = two.greeting()
    assert greeting is not None
    missed = answers(post(http, greeting, "b"))
    assert [type(message) for message in missed] == [Receipt, Download]
    for message in missed:
        two.receive(message)
    records = host.federations["shops"].federation.register.by_number
    assert known(two) == sum(record.observations for record in records)


def test_pushed_to_whoever_is_connected(http: TestClient) -> None:
    one, two = make_client(invite(http, "a"), 5), make_client(invite(http, "b"), 6)
    with http.websocket_connect("ws://127.0.0.1/v1/shops/stream", headers={"x-fedbandit-name": "b"}) as stream:
        greeting = two.greeting()
        assert greeting is not None
        stream.send_bytes(greeting)
        assert decode(stream.receive_bytes()) == Receipt(1, 0)
        mine = one.greeting()
        assert mine is not None
        post(http, mine, "a")
        act(one, 5)
        post(http, one.outgoing()[0].data, "a")
        pushed = decode(stream.receive_bytes())
        assert isinstance(pushed, Download)
        two.receive(pushed)
        assert known(two) == pushed.sums.n > 0
        stream.send_text(json.dumps({"report": {"reward": 3.5, "secret": "no", "observed": 4}}))
        act(two, 3)
        stream.send_bytes(two.outgoing()[0].data)
        assert isinstance(decode(stream.receive_bytes()), Receipt)
        assert http.get("/api/overview").json()["federations"][0]["reward"] == 3.5
        seen = http.get("/v1/shops/clients?search=b").json()["clients"][0]
        assert seen["report"] == {"observed": 4.0, "reward": 3.5}
        assert seen["connected"]
    assert not http.get("/v1/shops/clients?search=b").json()["clients"][0]["connected"]


def upload_frame(member: Any, sums: Sums, sequence: int = 1, known: float = 0.0, chain: int = 0, who: int = 0) -> bytes:
    envelope = Envelope(member.incarnation, member.epoch, member.nonce, sequence, chain)
    return seal(envelope, encode(Upload(who, sequence, sums, known)))


def changed(frame: bytes, at: int, value: bytes) -> bytes:
    return frame[:at] + value + frame[at + len(value) :]


def attacks(member: Any) -> dict[str, tuple[bytes, int, str]]:
    """Frames of an attacker who has a client's credentials, the status each must get, and a word of the reason."""
    x = np.array([0.6, 0.0, 0.0])
    good = Sums(np.outer(x, x), 0.5 * x, 1)
    frame = upload_frame(member, good)
    skew = good.V.copy()
    skew[0, 1] = 0.3
    nan = struct.pack("<d", float("nan"))
    statistics = SIZE + 40 + 8
    envelope = Envelope(member.incarnation, member.epoch, member.nonce, 0, 0)
    return {
        "truncated": (frame[:-3], 400, "bytes"),
        "empty": (b"", 400, "bytes"),
        "oversized": (frame + b"\0" * 5000, 413, "bytes"),
        "not ours": (b"GET / HTTP/1.1" * 5, 400, "starts with"),
        "NaN": (changed(frame, statistics, nan), 400, "finite"),
        "known is NaN": (changed(frame, SIZE + 32, nan), 400, "finite"),
        "asymmetric": (upload_frame(member, good._replace(V=skew.T)), 422, "semi-definite"),
        "not PSD": (upload_frame(member, good._replace(V=-good.V)), 422, "semi-definite"),
        "too long contexts": (upload_frame(member, good._replace(V=4 * good.V)), 422, "trace"),
        "too large rewards": (upload_frame(member, good._replace(b=100 * x)), 422, "rewards"),
        "b without V": (upload_frame(member, good._replace(b=np.array([0, 1.0, 0]))), 422, "rewards"),
        "something of nothing": (upload_frame(member, good._replace(n=0)), 422, "no observation"),
        "more than can be": (upload_frame(member, good._replace(n=10_001)), 422, "horizon = 10000"),
        "more than can be encoded": (upload_frame(member, good._replace(n=2**53 - 1)), 422, "horizon = 10000"),
        "a version that nobody sent": (seal(envelope, encode(Join(0, 2**63))), 400, "says that it has version"),
        "wrong dimension": (upload_frame(member, zero_sums(2)), 422, "dimension"),
        "larger dimension": (upload_frame(member, zero_sums(40)), 413, "bytes"),
        "wrong version": (changed(frame, SIZE + 2, b"\x63"), 400, "format 99"),
        "wrong envelope": (changed(frame, 2, b"\x63"), 400, "version 99"),
        "unknown kind": (changed(frame, SIZE + 3, b"\x63"), 400, "kind 99"),
        "future": (upload_frame(member, good, sequence=5), 409, "out of order"),
        "number zero": (upload_frame(member, good, sequence=0), 409, ""),
        "other history": (upload_frame(member, good, chain=99), 409, "differs"),
        "another's name": (upload_frame(member, good, who=1), 403, "cannot speak for"),
        "a message of the coordinator": (seal(envelope, encode(Receipt(0, 1))), 400, "does not take a Receipt"),
        "no request is expected": (seal(envelope, encode(Download(0, 1, 0, zero_sums(1)))), 400, "does not take"),
        "another session": (seal(Envelope(1, 1, 1, 0, 0), unseal(frame)[1]), 409, "has not joined"),
        "an older copy": (seal(Envelope(member.incarnation, 0, 1, 0, 0), encode(Join(0))), 409, "copy"),
    }


NAMES = list(attacks(make_client(0)))


@pytest.mark.parametrize("attack", NAMES)
def test_attackers_with_credentials(attack: str, http: TestClient, host: Host) -> None:
    member = make_client(invite(http, "b"))
    invite(http, "a")
    federation = host.federations["shops"].federation
    greeting = member.greeting()
    assert greeting is not None
    post(http, greeting, "b")
    frame, status, word = attacks(member)[attack]
    before = state_of(host)
    response = post(http, frame, "b")
    assert response.status_code == status, response.text
    assert word in response.json()["error"]
    assert state_of(host) == before
    assert http.get("/healthz").json() == {"status": "ok", "federations": {"shops": "owner"}}
    assert sum(federation.refusals.values()) == 1
    x = np.array([0.6, 0.0, 0.0])
    assert answers(post(http, upload_frame(member, Sums(np.outer(x, x), 0.5 * x, 1)), "b"))[0] == Receipt(0, 1)


def state_of(host: Host) -> bytes:
    """All that must not change, without the count of refusals."""
    federation = host.federations["shops"].federation
    state = federation.state()
    state.header["rounds"] = 0  # time goes on
    for record in state.header["members"]:
        record["refusals"] = record["last_heard"] = 0
    return pack("coordinator", state)


def test_a_replayed_upload_changes_nothing(http: TestClient, host: Host) -> None:
    member = make_client(invite(http))
    greeting = member.greeting()
    assert greeting is not None
    post(http, greeting)
    act(member, 10)
    frames = [frame.data for frame in member.outgoing(3)]
    for frame in frames:
        answers(post(http, frame))
    before = state_of(host)
    for frame in frames * 2:
        assert answers(post(http, frame)) == [Receipt(0, unseal_sequence(frame))]
    assert state_of(host) == before
    envelope, data = unseal(frames[-1])
    forged = data[:-1] + bytes([data[-1] ^ 1])
    assert extend(0, forged) != extend(0, data)
    assert post(http, seal(envelope, forged)).status_code == 409
    assert state_of(host) == before


def unseal_sequence(frame: bytes) -> int:
    message = decode(unseal(frame)[1])
    assert isinstance(message, Upload)
    return message.sequence


PEOPLE: dict[str, Role] = {"a": "client", "eve": "client", "watch": "observer", "boss": "admin"}


def test_keys_and_roles(tmp_path: Path) -> None:
    init_keys(tmp_path, ["localhost"])
    tokens = {name: add_credential(tmp_path, name, role) for name, role in PEOPLE.items()}

    def bearer(name: str) -> dict[str, str]:
        return {"authorization": f"Bearer {tokens[name]}"}

    host = make_host(keys=tmp_path)
    with TestClient(make_app(host), base_url="http://127.0.0.1") as http:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic x"}, {"x-fedbandit-name": "a"}):
            for method, path in (("GET", "/v1/shops/invitation"), ("POST", "/v1/shops/messages"), ("GET", "/metrics"),
                                 ("GET", "/api/overview"), ("POST", "/v1/shops/quarantine")):  # fmt: skip
                response = http.request(method, path, headers=headers)
                assert response.status_code == 401, (method, path)
                assert response.json()["kind"] == "credentials"
            with pytest.raises(WebSocketDenialResponse) as denied:
                http.websocket_connect("ws://127.0.0.1/v1/shops/stream", headers=headers).__enter__()
            assert denied.value.status_code == 401
        assert http.get("/v1/shops/invitation", headers=bearer("watch")).status_code == 403
        assert http.get("/metrics", headers=bearer("a")).status_code == 403
        assert http.get("/metrics", headers=bearer("watch")).status_code == 200
        assert http.get("/healthz").status_code == 200
        assert http.get("/v1/shops/invitation", headers=bearer("a")).json()["member"] == 0
        member = make_client(0)
        greeting = member.greeting()
        stolen = http.post("/v1/shops/messages", content=greeting, headers=bearer("eve") | BYTES)
        assert stolen.status_code == 403  # eve has no record yet
        assert http.get("/v1/shops/invitation", headers=bearer("eve")).json()["member"] == 1
        assert (
            "cannot speak for member 0; its state is another's"
            in http.post("/v1/shops/messages", content=greeting, headers=bearer("eve") | BYTES).json()["error"]
        )
        assert http.post("/v1/shops/messages", content=greeting, headers=bearer("a") | BYTES).status_code == 200
        wish = {"client": "a", "reason": "it sends nonsense"}
        assert http.post("/v1/shops/quarantine", json=wish, headers=bearer("a")).status_code == 403
        assert http.post("/v1/shops/quarantine", json=wish, headers=bearer("boss")).status_code == 200
        refused = http.post("/v1/shops/messages", content=greeting, headers=bearer("a") | BYTES)
        assert (refused.status_code, "nonsense" in refused.text) == (403, True)
        http.post("/v1/shops/quarantine", json={**wish, "reason": ""}, headers=bearer("boss"))
        assert http.post("/v1/shops/messages", content=greeting, headers=bearer("a") | BYTES).status_code == 200
        with http.websocket_connect("ws://127.0.0.1/v1/shops/stream", headers=bearer("a")) as stream:
            revoke_credential(tmp_path, "a")
            host.credentials._looked = -1.0
            stream.send_bytes(greeting or b"")
            assert "revoked" in stream.receive_json()["error"]
        assert http.post("/v1/shops/messages", content=greeting, headers=bearer("a") | BYTES).status_code == 401


def test_there_are_only_so_many_places_and_federations(http: TestClient) -> None:
    assert [invite(http, name) for name in "abcd"] == [0, 1, 2, 3]
    assert invite(http, "b") == 1
    full = http.get("/v1/shops/invitation", headers={"x-fedbandit-name": "e"})
    assert (full.status_code, "all 4 are taken" in full.text) == (403, True)
    assert http.get("/v1/none/invitation", headers={"x-fedbandit-name": "a"}).status_code == 404
    assert http.get("/v1/shops/invitation").status_code == 401
    assert http.get("/v1/shops/invitation", headers={"x-fedbandit-name": "x" * 200}).status_code == 401


def test_too_many_messages_are_too_many() -> None:
    host = make_host(rate=5.0)
    with TestClient(make_app(host), base_url="http://127.0.0.1") as http:
        invite(http)
        statuses = [post(http, b"x").status_code for _ in range(12)]
    assert statuses.count(429) >= 3
    assert set(statuses) == {400, 429}


def test_logs_and_page_have_nothing_of_the_data(http: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    member = make_client(invite(http))
    greeting = member.greeting()
    assert greeting is not None
    post(http, greeting)
    bad = zero_sums(3)._replace(V=np.eye(3) * 123.456, n=1)
    with caplog.at_level("INFO", "fedbandit"):
        assert "370.368" in post(http, upload_frame(member, bad)).json()["error"]
    assert "370.368" not in caplog.text
    assert caplog.records[-1].kind == "statistics"  # type: ignore[attr-defined]
    assert "370.368" not in http.get("/api/overview").text
    assert 'refusals_total{federation="shops",kind="statistics"} 1.0' in http.get("/metrics").text


fuzzed = st.one_of(
    st.binary(max_size=300),
    st.builds(lambda head, tail: b"FE\x01" + head + b"FB\x01" + tail, st.binary(min_size=37, max_size=37),
              st.binary(max_size=150)),
    st.builds(lambda which, at, value: changed(attacks(make_client(0))[which][0], at % 120, value),
              st.sampled_from(NAMES), st.integers(0, 119), st.binary(min_size=1, max_size=8)),
)  # fmt: skip


def test_a_fuzzer_gets_clean_refusals() -> None:
    host = make_host()
    with TestClient(make_app(host), base_url="http://127.0.0.1") as http:
        member = make_client(invite(http, "a"))
        greeting = member.greeting()
        assert greeting is not None
        post(http, greeting)
        before = state_of(host)

        @settings(max_examples=150)
        @given(
            fuzzed, st.sampled_from(["messages", "quarantine", "invitation", "stream", "nothing", "%00"]), st.booleans()
        )
        def attack(frame: bytes, path: str, right_method: bool) -> None:
            method = "POST" if right_method else "PUT"
            response = http.request(method, f"/v1/shops/{path}", content=frame, headers={"x-fedbandit-name": "a"})
            if response.status_code == 200:  # what happens to be well-formed changes nothing but sessions
                assert path == "messages"
                return
            assert 400 <= response.status_code < 500
            if response.headers["content-type"] == "application/json":
                assert response.json()["error"].endswith((".", "…"))
                assert "\n" not in response.json()["error"]

        @settings(max_examples=60)
        @given(st.lists(st.one_of(st.text(max_size=50), fuzzed), max_size=3))
        def attack_stream(messages: list[str | bytes]) -> None:
            with http.websocket_connect("ws://127.0.0.1/v1/shops/stream", headers={"x-fedbandit-name": "a"}) as stream:
                for message in messages:
                    if isinstance(message, str):
                        stream.send_text(message)
                    else:
                        stream.send_bytes(message)

        attack()
        attack_stream()
        after = state_of(host)
        assert len(before) > 0
        federation = host.federations["shops"].federation
        assert (federation.machine.applied, federation.machine.gathered().n) == ({}, 0), "statistics got in"
        assert len(after) > 0
        assert http.get("/healthz").status_code == 200
