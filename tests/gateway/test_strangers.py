"""Strangers get nothing of a gateway that they can reach: neither descriptors, nor time, nor log lines."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import socket
import time

import pytest

from fedbandit.cli.gateway import add_flags, guard_of
from fedbandit.cli.main import main
from fedbandit.gateway.service import make_app
from fedbandit.network.coordinator import listener
from fedbandit.network.coordinator.listener import Guard
from fedbandit.network.coordinator.serving import uvicorn_config
from tests.gateway.application import open_alone, visit
from tests.gateway.test_faults import until
from tests.network.servers import serving


def on_a_port(guard: Guard, token: str | None) -> contextlib.AbstractContextManager[int]:
    """A gateway behind a guard, as the command serves it; the port."""
    return serving(uvicorn_config(make_app(open_alone(), token=token, guard=guard), 2**20, {}), guard)


def test_strangers_take_nothing_from_applications(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "QUIET_SECONDS", 0.5)
    guard = Guard(most=40)
    beginnings = (b"", b"P", b"POST /rank HTTP/1.1\r\nX: ", b"POST /rank HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n")
    with on_a_port(guard, "secret") as port, contextlib.ExitStack() as stack:

        def ask(status: int = 200, **headers: str) -> None:
            asked = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            said = {"content-type": "application/json", "authorization": "Bearer secret", **headers}
            asked.request("POST", "/rank", json.dumps(visit(0.5)), said)
            assert asked.getresponse().status == status
            asked.close()

        for k in range(200):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.2", 0)))
            with contextlib.suppress(OSError):
                one.send(beginnings[k % 4])
            if k % 20 == 0:
                ask()
                ask(401, authorization="Bearer other")
        until(lambda: guard.ended >= 10 and not guard.per_address["127.0.0.2"])
        ask()
        assert guard.refused >= 150
    assert not guard.open
    assert "connections refused" in caplog.text


@pytest.mark.parametrize("token", ["secret", None])
def test_an_application_keeps_its_connection(monkeypatch: pytest.MonkeyPatch, token: str | None) -> None:
    """With the token, or on this machine, where there is none; asking again and again."""
    monkeypatch.setattr(listener, "QUIET_SECONDS", 0.5)
    monkeypatch.setattr(listener, "STRANGERS_SECONDS", 1.0)
    guard = Guard(most=40)
    headers = {"content-type": "application/json"} | ({} if token is None else {"authorization": f"Bearer {token}"})
    with on_a_port(guard, token) as port:
        asked = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        asked.connect()
        connection = asked.sock
        for k in range(60):
            if k % 2:
                asked.request("GET", "/report", headers=headers)
            else:
                asked.request("POST", "/rank", json.dumps(visit(0.5)), headers)
            answer = asked.getresponse()
            answer.read()
            assert answer.status == 200
            assert asked.sock is connection
            time.sleep(0.05)
        assert not guard.ended
        asked.close()


def test_an_address_has_half_of_the_connections_unless_it_is_said() -> None:
    command = argparse.ArgumentParser()
    add_flags(command)
    for flags, most in ((["--connections", "40"], 20), (["--connections", "1"], 1),
                        (["--connections", "40", "--connections-per-address", "7"], 7)):  # fmt: skip
        assert guard_of(command.parse_args(flags)).most_per_address == most


def test_limits_that_cannot_be_kept_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for flags, sentence in (
        (["--connections", "0"], "--connections is 0, but must be a whole number ≥ 1."),
        (["--connections-per-address", "-3"], "--connections-per-address is -3, but must be a whole number ≥ 1."),
        (["--connections", "100000000"], "connections is 100000000, but the limit of open files allows"),
    ):
        assert main(["gateway", "--dim", "3", "--port", "0", *flags]) == 2
        assert sentence in capsys.readouterr().err
