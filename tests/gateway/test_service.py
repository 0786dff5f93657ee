"""The gateway over HTTP: statuses, OpenAPI document, metrics, tokens, `kill -9`, examples of docs/gateway.md."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from fedbandit.cli.main import main
from fedbandit.environments import read_decision_log
from fedbandit.gateway.openapi import openapi
from fedbandit.gateway.service import make_app
from tests.gateway.application import FEATURES, open_alone, visit

HOST = {"host": "127.0.0.1"}


@contextmanager
def web(token: str | None = None, **options: Any) -> Iterator[TestClient]:
    with TestClient(make_app(open_alone(**options), token=token), base_url="http://127.0.0.1") as client:
        yield client


def test_statuses() -> None:
    with web() as client:
        assert client.post("/rank", json=visit(0.5, "e")).status_code == 200
        assert client.post("/rank", json=visit(0.6, "e")).status_code == 409
        assert client.post("/rank", json={"actions": 3}).status_code == 400
        answer = client.post("/reward", json={"event_id": "nobody", "reward": 1})
        assert answer.status_code == 404
        assert answer.json() == {
            "error": "There is no event 'nobody': it was not ranked here, or long ago.",
            "kind": "unknown",
        }
        assert client.post("/reward", json={"event_id": "e", "reward": 1}).json()["repeated"] is False
        assert client.post("/reward", json={"event_id": "e", "reward": 0}).status_code == 409
        nonsense = client.post("/rank", content=b"{", headers={"content-type": "application/json"})
        assert (nonsense.status_code, nonsense.json()["error"]) == (400, "The body is not JSON.")
        deep = client.post("/rank", content=b"[" * 100_000, headers={"content-type": "application/json"})
        assert deep.status_code == 400
        assert client.post("/rank", content=b"{}", headers={"content-type": "text/plain"}).status_code == 400
        assert client.post("/rank", json=visit(0.5), headers={"origin": "https://elsewhere.example"}).status_code == 403
        assert client.post("/rank", json=visit(0.5), headers={"host": "rebound.example"}).status_code == 403
        assert client.get("/rank").status_code == 405
        assert client.get("/healthz").json() == {"status": "ok"}
        text = client.get("/metrics").text
        assert 'fedbandit_gateway_events_total{what="ranked"} 1.0' in text
        assert 'fedbandit_gateway_refusals_total{kind="conflict"} 2.0' in text
        assert 'fedbandit_gateway_seconds_count{what="rank"} 1.0' in text
        assert client.get("/report").json()["events"] == 1


def test_expired_events_are_gone() -> None:
    now = [0.0]
    with web(deadline=60.0, default_reward=0.0, clock=lambda: now[0]) as client:
        client.post("/rank", json=visit(0.5, "e"))
        now[0] = 61.0
        assert client.post("/reward", json={"event_id": "e", "reward": 1}).status_code == 410


def test_a_token_is_asked_for() -> None:
    with web(token="secret") as client:
        for headers in ({}, {"authorization": "Bearer other"}):
            for path in ("/report", "/metrics", "/openapi.json"):
                assert client.get(path, headers=headers).status_code == 401
            assert client.post("/rank", json=visit(0.5), headers=headers).status_code == 401
        headers = {"authorization": "Bearer secret", "host": "gateway.example"}
        assert client.post("/rank", json=visit(0.5), headers=headers).status_code == 200


def resolved(document: dict[str, Any], schema: Any) -> Any:
    while "$ref" in schema:
        where = document
        for key in schema["$ref"].removeprefix("#/").split("/"):
            where = where[key]
        schema = where
    return schema


KINDS: dict[str, Any] = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None),
                         "array": list, "object": dict}  # fmt: skip


def fits(document: dict[str, Any], schema: Any, value: Any) -> bool:
    """Whether a value is what a schema says: the words of JSON Schema that the document uses, and no others."""
    schema = resolved(document, schema)
    known = {"type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "description",
             "minLength", "maxLength", "minItems", "maxItems", "maximum", "minimum"}  # fmt: skip
    assert set(schema) <= known
    if "anyOf" in schema:
        return any(fits(document, one, value) for one in schema["anyOf"])
    if "enum" in schema:
        return value in schema["enum"]
    names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    if not any(isinstance(value, KINDS[name]) and (name == "boolean" or value is not True) for name in names):
        return False
    if isinstance(value, dict):
        inner = schema["properties"]
        return set(schema["required"]) <= set(value) <= set(inner) and all(
            fits(document, inner[key], one) for key, one in value.items()
        )
    if isinstance(value, list):
        return len(value) >= schema.get("minItems", 0) and all(fits(document, schema["items"], one) for one in value)
    return not isinstance(value, str) or len(value) >= schema.get("minLength", 0)


@pytest.mark.parametrize("mode", ["online", "shadow"])
def test_the_document_is_true(mode: str) -> None:
    own = {"choice": "film", "propensity": 0.5} if mode == "shadow" else {}
    gateway = open_alone(mode=mode)
    app = make_app(gateway)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        document = client.get("/openapi.json").json()
        assert document == json.loads(json.dumps(openapi(gateway)))
        paths = {(route.path, method.lower()) for route in app.routes for method in route.methods - {"HEAD"}}  # type: ignore[attr-defined]
        assert paths == {(path, method) for path, methods in document["paths"].items() for method in methods}
        rank, reward = visit(0.5, "e", **own), {"event_id": "e", "reward": 1}
        for path, body in (("/rank", rank), ("/reward", reward), ("/rank", {"actions": []}), ("/reward", {"a": 1})):
            described = document["paths"][path]["post"]
            asked = described["requestBody"]["content"]["application/json"]["schema"]
            answer = client.post(path, json=body)
            assert fits(document, asked, body) == (answer.status_code == 200), body
            told = described["responses"][str(answer.status_code)]["content"]["application/json"]["schema"]
            assert fits(document, told, answer.json()), answer.json()
        report = document["paths"]["/report"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        assert fits(document, report, client.get("/report").json())
        client.post("/rank", json=visit(0.5, "f", **own))
        client.post("/reward", json={"event_id": "f", "reward": 0})
        assert fits(document, report, client.get("/report").json())


class Process:
    """`fedbandit gateway` in a process of its own."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder, self.flags = folder, flags

    def start(self) -> str:
        words = [sys.executable, "-m", "fedbandit", "gateway", "--port", "0", "--json", *self.flags]
        with (self.folder / "errors").open("ab") as errors:
            self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, cwd=self.folder)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, (self.folder / "errors").read_text()
        return str(json.loads(line)["address"])

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.process.pid, how)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def post(url: str, body: Any) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def test_killed_it_loses_nothing_and_counts_nothing_twice(tmp_path: Path) -> None:
    (tmp_path / "features.json").write_text(json.dumps(FEATURES.as_json()))
    process = Process(tmp_path, "--features", "features.json", "--state", "gateway.db", "--decisions", "log")
    answers: dict[str, Any] = {}
    for k in range(3):
        url = process.start()
        try:
            for id, answer in answers.items():
                assert post(f"{url}/rank", visit(0.5, id)) == answer, "asked again, the same answer"
            if k > 0:
                for t in range(10):  # ranked before the kill, rewarded after it; some for the second time
                    post(f"{url}/reward", {"event_id": f"e{k - 1}-{t}", "reward": t % 2})
            for t in range(10):
                answers[f"e{k}-{t}"] = post(f"{url}/rank", visit(0.5, f"e{k}-{t}"))
            for t in range(5):
                post(f"{url}/reward", {"event_id": f"e{k}-{t}", "reward": t % 2})
        finally:
            process.end()
    url = process.start()
    try:
        with urllib.request.urlopen(f"{url}/metrics", timeout=20) as page:
            numbers = dict(line.rsplit(" ", 1) for line in page.read().decode().splitlines() if line[0] != "#")
    finally:
        process.end(signal.SIGTERM)
    assert float(numbers["fedbandit_gateway_observed"]) == 25
    assert float(numbers["fedbandit_gateway_waiting_events"]) == 5
    log = read_decision_log(tmp_path / "log")
    assert log.n_decisions == 25
    assert log.notes == ("5 of 30 decisions have no reward and were left out.",)


def test_bad_flags_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "none.json"
    for flags, sentence in (
        ([], "To learn alone a gateway needs --features FILE, or --dim for plain vectors."),
        (["--coordinator", "http://127.0.0.1:1"], "name one by --federation."),
        (["--coordinator", "http://127.0.0.1:1", "--federation", "x"], "There is no answer from http://127.0.0.1:1"),
        (["--features", str(missing)], "none.json' cannot be read"),
        (["--dim", "3", "--host", "0.0.0.0"], "--access-token-file is required"),
        (["--dim", "3", "--explore", "2"], "explore is 2.0, but must be a probability."),
        (["--dim", "3", "--policy", "ucbb"], "There is no policy 'ucbb'"),
    ):
        assert main(["gateway", "--port", "0", *flags]) == 2
        assert sentence in capsys.readouterr().err


def test_the_examples_of_the_document_run(tmp_path: Path) -> None:
    """Every `curl` of docs/gateway.md, against the gateway that it starts; the answers are those that it shows."""
    text = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text()
    toml = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    assert toml is not None
    (tmp_path / "features.toml").write_text(toml.group(1))
    process = Process(tmp_path, "--features", "features.toml", "--state", "gateway.db", "--decisions", "log")
    url = process.start()
    shown = re.findall(r"^\$ (curl .*?)\n(\{.*?\})$", text, re.DOTALL | re.MULTILINE)
    assert len(shown) >= 3
    try:
        for command, expected in shown:
            words = shlex.split(command.replace("\\\n", " ").replace("http://127.0.0.1:8770", url))
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            got, wanted = json.loads(done.stdout), json.loads(expected)
            assert set(got) == set(wanted), command
            assert {k: v for k, v in got.items() if k not in ("deadline", "chosen", "ranking")} == {
                k: v for k, v in wanted.items() if k not in ("deadline", "chosen", "ranking")
            }
    finally:
        process.end()
