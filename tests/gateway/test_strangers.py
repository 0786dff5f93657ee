"""Strangers get nothing of a gateway that they can reach: neither descriptors, nor time, nor log lines."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator

import pytest

from fedbandit.cli.main import main
from fedbandit.gateway.gateway import Gateway
from fedbandit.gateway.service import make_app
from fedbandit.network.addresses import bind
from fedbandit.network.coordinator import listener
from fedbandit.network.coordinator.listener import Guard, Listener
from fedbandit.network.coordinator.serving import Patient, uvicorn_config
from tests.gateway.application import open_alone, visit
from tests.gateway.test_faults import until


@contextlib.contextmanager
def on_a_port(gateway: Gateway, guard: Guard, token: str) -> Iterator[int]:
    """The gateway behind a guard, as the command serves it; the port."""
    guarding = Listener.around(bind("127.0.0.1", 0), guard)
    port = int(guarding.getsockname()[1])
    server = Patient(uvicorn_config(make_app(gateway, token=token, guard=guard), 2**20, {}))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([guarding])), daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield port
    finally:
        server.should_exit = True
        thread.join(20)
        guarding.close()


def test_strangers_take_nothing_from_applications(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "QUIET_SECONDS", 0.5)
    guard = Guard(most=40)
    beginnings = (b"", b"P", b"POST /rank HTTP/1.1\r\nX: ", b"POST /rank HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n")
    with on_a_port(open_alone(), guard, "secret") as port, contextlib.ExitStack() as stack:

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


def test_limits_that_cannot_be_kept_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for flags, sentence in (
        (["--connections", "0"], "--connections is 0, but must be a whole number ≥ 1."),
        (["--connections-per-address", "-3"], "--connections-per-address is -3, but must be a whole number ≥ 1."),
        (["--connections", "100000000"], "connections is 100000000, but the limit of open files allows"),
    ):
        assert main(["gateway", "--dim", "3", "--port", "0", *flags]) == 2
        assert sentence in capsys.readouterr().err
