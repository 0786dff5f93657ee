"""No request makes a gateway fail: bad input is refused with a sentence, and nothing of it stays."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import fedbandit as fb
from fedbandit.features import Features
from fedbandit.gateway.events import Event, Events
from fedbandit.gateway.gateway import Gateway
from fedbandit.gateway.requests import EventRefusal, parsed
from fedbandit.gateway.service import make_app
from fedbandit.network.client.client import Client
from fedbandit.network.invitation import Agreement, Schema
from tests.gateway.application import open_alone, visit

HALF = "\ud800"
"""Half of a surrogate pair, as JSON has it and UTF-8 has not."""
TAKEN = "The body is not JSON as it is taken here: "
JSON = {"content-type": "application/json"}


def with_models(folder: Path | None = None, *, actions: int = 4, **options: Any) -> Gateway:
    """A gateway with a model for each action, vectors of two numbers, kept in a folder or in memory."""
    world = fb.World(n_clients=1, dim=2, horizon=1000, actions=actions)
    state = None if folder is None else folder / "c.db"
    client = Client(None, agreement=Agreement("linucb", {}, world), state=state)
    return Gateway(client, Events(None if folder is None else folder / "g.db"), **options)


def event(name: str) -> Event:
    return Event(name, 0.0, None, b"", "{}", "ff", np.zeros(2), True, None)


def test_what_goes_wrong_leaves_no_transaction_open(tmp_path: Path) -> None:
    """Once, a name that SQLite could not take did, and all that was written after it was gone at a kill."""
    events = Events(tmp_path / "g.db")
    with pytest.raises(UnicodeEncodeError):
        events.name({"a": 0, HALF: 1})
    with pytest.raises(UnicodeEncodeError):
        events.add(event(HALF))
    assert not events._db.in_transaction
    assert events.models == {}
    events.check()
    events.name({"b": 0})
    events.add(event("e"))
    events.close()  # which rolls back what is open
    again = Events(tmp_path / "g.db")
    assert again.find("e") is not None
    assert again.models == {"b": 0}
    again.close()


def test_a_transaction_that_is_open_is_no_health(tmp_path: Path) -> None:
    gateway = with_models(tmp_path)
    with TestClient(make_app(gateway), base_url="http://127.0.0.1") as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        gateway.events._db.execute("BEGIN IMMEDIATE")
        answer = client.get("/healthz")
        assert (answer.status_code, answer.json()) == (503, {"status": "failing"})
        assert "fedbandit_gateway_failing 1.0" in client.get("/metrics").text
        rank = {"event_id": "e", "actions": [{"id": "a", "features": [0.1, 0.2]}]}
        assert client.post("/rank", json=rank).status_code == 200, "and the next write puts it right"
        assert client.get("/healthz").status_code == 200
    again = Events(tmp_path / "g.db")
    assert again.find("e") is not None
    again.close()


@pytest.mark.parametrize("actions", [0, 4])
def test_texts_that_no_file_can_have_are_refused(actions: int) -> None:
    with TestClient(make_app(with_models(actions=actions)), base_url="http://127.0.0.1") as client:
        row = [0.1, 0.2]
        for path, body in (
            ("/rank", {"event_id": "e", "actions": [{"id": HALF, "features": row}]}),
            ("/rank", {"event_id": HALF, "actions": [{"id": "a", "features": row}]}),
            ("/reward", {"event_id": HALF, "reward": 1}),
        ):
            answer = client.post(path, content=json.dumps(body), headers=JSON)
            assert answer.status_code == 400
            assert answer.json()["error"] == "The body is not JSON."
        ok = {"event_id": "e", "actions": [{"id": "a", "features": row}]}
        assert client.post("/rank", json=ok).json()["chosen"] == "a"


def test_in_shadow_mode_too() -> None:
    gateway = open_alone(mode="shadow")
    with pytest.raises(EventRefusal, match=r"choice is .* but must be a text that UTF-8 has"):
        gateway.rank(visit(0.5, choice=HALF))
    with pytest.raises(EventRefusal, match=r"propensity is 5e-324, but must be a number in \(0, 1\], of at least"):
        gateway.rank(visit(0.5, choice="film", propensity=5e-324))
    gateway.close()


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (
            '{"event_id": "e", "reward": 0, "reward": 1}',
            TAKEN + "The key 'reward' is there twice.",
        ),
        (
            '{"event_id": "e", "reward": {"a": 1, "b": 2, "a": 1}}',
            TAKEN + "The key 'a' is there twice.",
        ),
        ('{"event_id": "e", "reward": NaN}', TAKEN + "NaN is no number in JSON."),
        (
            '{"event_id": "e", "reward": -Infinity}',
            TAKEN + "-Infinity is no number in JSON.",
        ),
        ('{"event_id": "e", "reward": 1e400}', TAKEN + "1e400 is no number in JSON."),
        ('{"event_id": "e", "reward": 1' + "0" * 5000 + "}", "The body is not JSON."),
        ("", "The body is not JSON."),
        ("null", "the request is None, but must be an object with event_id, reward."),
    ],
)
def test_json_that_says_two_things_or_none(body: str, sentence: str) -> None:
    with TestClient(make_app(open_alone()), base_url="http://127.0.0.1") as client:
        client.post("/rank", json=visit(0.5, "e"))
        answer = client.post("/reward", content=body, headers=JSON)
        assert (answer.status_code, answer.json()) == (400, {"error": sentence, "kind": "malformed"})
        assert client.post("/reward", json={"event_id": "e", "reward": 1}).json()["repeated"] is False


def test_many_keys_take_no_longer_than_they_are() -> None:
    """Each key looked for among all of them would take hours."""
    keys = ", ".join(f'"{k}": 0' for k in range(200_000))
    with pytest.raises(EventRefusal, match="The key '199999' is there twice"):
        parsed(f'{{{keys}, "199999": 1}}'.encode())


def test_depth_is_bad_input_wherever_it_is() -> None:
    with TestClient(make_app(open_alone()), base_url="http://127.0.0.1") as client:
        client.post("/rank", json=visit(0.5, "e"))
        for n in (20, 900, 950, 980, 990, 1000, 30_000):
            for deep in ("[" * n + "]" * n, '{"a":' * n + "1" + "}" * n, "[" * n):
                for path, body in (
                    ("/rank", deep),
                    ("/rank", '{"actions": ' + deep + "}"),
                    ("/rank", '{"actions": [' + deep + "]}"),
                    ("/rank", '{"actions": [{"id": "a", "features": ' + deep + "}]}"),
                    ("/rank", '{"actions": [{"id": ' + deep + ', "features": {"kind": "film"}}]}'),
                    ("/rank", '{"context": ' + deep + ', "actions": [{"id": "a", "features": {"kind": "film"}}]}'),
                    ("/rank", '{"context": {"age": ' + deep + '}, "actions": [{"id": "a"}]}'),
                    ("/reward", '{"event_id": ' + deep + "}"),
                    ("/reward", '{"event_id": "e", "reward": ' + deep + "}"),
                ):
                    assert client.post(path, content=body, headers=JSON).status_code == 400, (path, n)
        assert client.post("/reward", json={"event_id": "e", "reward": 1}).json()["repeated"] is False


@pytest.mark.parametrize("host", ["[::1", "http://[", "[", "]", "[v1.x]", "[fe80::1%25eth0]", "127.0.0.1:99999999", ""])
def test_hosts_and_origins_that_are_none(host: str) -> None:
    with TestClient(make_app(open_alone()), base_url="http://127.0.0.1") as client:
        expected = 200 if host.startswith("127.0.0.1:") else 403
        assert client.get("/report", headers={"host": host}).status_code == expected
        assert client.get("/report", headers={"origin": host}).status_code == 403
        assert client.get("/healthz", headers={"host": host, "origin": host}).status_code == 200


RICH = Features(
    context={"age": {"number": [0, 100]}, "vip": "boolean", "country": {"category": ["de"], "other": True}},
    action={"kind": {"category": ["book", "film"]}, "tags": {"hash": 8}},
    interactions=[("country", "kind")],
)
ODD: list[Any] = [
    None, True, False, 0, -1, 0.5, 1e308, 1e-320, 10**30, 10**400, float("nan"), float("inf"), "", "a", HALF, "\0",
    "x" * 201, "é", "2" * 300, [], {}, [[]], [{}], {"a": 1}, {HALF: 1}, [0.1, 0.2], ["0.1", "0.2"], [1e308, 1e308],
    [True, False], [None], {"age": "x"}, {"kind": "book"}, {"kind": HALF, "tags": 1}, {"kind": "book", "tags": [HALF]},
    {"age": 3, "vip": True, "country": HALF}, {"kind": "book", "tags": 2**64}, {"kind": ["book"], "tags": {}},
]  # fmt: skip


def changed(value: Any, rng: random.Random, rate: float) -> Any:
    """The value with some of its parts replaced, left out, doubled or added to."""
    if rng.random() < rate:
        return rng.choice(ODD)
    if isinstance(value, dict):
        made = {key: changed(one, rng, rate) for key, one in value.items() if rng.random() > rate / 4}
        return made | (
            {rng.choice(["x", HALF, "choice", "reward"]): rng.choice(ODD)} if rng.random() < rate / 4 else {}
        )
    if isinstance(value, list):
        return [changed(one, rng, rate) for one in value] * rng.choice([1] * 8 + [0, 2])
    return value


@pytest.mark.parametrize("kind", ["columns", "vectors", "models", "shadow"])
def test_odd_requests_never_fail(kind: str, tmp_path: Path) -> None:
    """Whatever is answered can be rewarded, and is there after a restart."""
    rng = random.Random(kind)
    agreement = Agreement("linucb", {}, fb.World(1, RICH.dim, 10**5), schema=Schema.of(RICH))
    state = tmp_path / "g.db"
    if kind == "columns":
        gateway = Gateway(Client(None, agreement=agreement), Events(state))
    else:
        mode: Any = "shadow" if kind == "shadow" else "online"
        gateway = with_models(tmp_path, actions=30 if kind == "models" else 0, mode=mode)
    rows: list[Any] = [[0.1, 0.2], [0.3, -0.2]]
    if kind == "columns":
        rows = [{"kind": "book", "tags": ["new", 3]}, {"kind": "film", "tags": "old"}]
    answered = []
    with TestClient(make_app(gateway), base_url="http://127.0.0.1") as client:
        for t in range(400):
            asked: dict[str, Any] = {
                "actions": [{"id": id, "features": row} for id, row in zip(("a", 7), rows, strict=True)]
            }
            asked |= {"context": {"age": 31, "vip": True, "country": "de"}} if kind == "columns" else {}
            asked |= {"choice": "a", "propensity": 0.5} if kind == "shadow" else {}
            asked = changed({"event_id": f"e{t}", **asked}, rng, rng.choice([0.0, 0.02, 0.1, 0.3]))
            answer = client.post("/rank", content=json.dumps(asked), headers=JSON)
            assert answer.status_code in (200, 400, 409), (asked, answer.text)
            answered += [answer.json()["event_id"]] if answer.status_code == 200 else []
            told = changed({"event_id": rng.choice(answered or ["none"]), "reward": 1}, rng, 0.1)
            answer = client.post("/reward", content=json.dumps(told), headers=JSON)
            assert answer.status_code in (200, 400, 404, 409), (told, answer.text)
        assert len(answered) > 50
        for id in answered:
            assert client.post("/reward", json={"event_id": id, "reward": 1}).status_code in (200, 409)
        assert client.get("/report").json()["events"] == len(set(answered))
        assert client.get("/healthz").status_code == 200
    again = Events(state)
    assert again.counts() == {"rewarded": len(set(answered))}
    again.close()
