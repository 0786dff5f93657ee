"""Relays that pass secure sums on: one sum over all clients, wherever they are, and a relay that knows nothing."""

from __future__ import annotations

import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

from fedbandit.network.refusal import Refusal
from tests.network.relay.passed import client_at, federation_of, passing, root_of
from tests.network.servers import get_json, served
from tests.network.test_sums import serve_users
from tests.waiting import eventually


def test_one_sum_over_all_clients_wherever_they_are(tmp_path: Path) -> None:
    """Below two relays, below a relay of a relay, and directly: what is claimed is what it is without relays."""
    host = root_of(6)
    federation = federation_of(host)
    with ExitStack() as stack:
        above = stack.enter_context(served(host))
        north, relay = stack.enter_context(passing(above))
        south, _ = stack.enter_context(passing(above))
        village, _ = stack.enter_context(passing(south))
        urls = [north, north, south, south, village, above]
        clients = [stack.enter_context(client_at(url, f"c{i}", tmp_path)) for i, url in enumerate(urls)]
        eventually(lambda: all(client.connected for client in clients))
        assert relay.streams == 2
        assert get_json(f"{north}/healthz") == {"status": "ok", "upstream": above, "streams": 2}
        serve_users(clients, 4)
        eventually(lambda: all(client._durable.machine.version >= 1 for client in clients))
        pool = federation.machine.pool
        assert pool is not None

        def counted() -> bool:
            """Whether what the sum has of each is what each has contributed."""
            said = {client._durable.machine.member: client.status() for client in clients}
            found = federation.machine.members.n
            return all(found[i] == one["observed"] - one["pending"] > 0 for i, one in said.items())

        eventually(counted)
        assert sorted(pool.included) == list(range(6))
        assert [client.problem for client in clients] == [None] * 6
        assert len({client.guarantee for client in clients}) == 1
        assert len(federation.register.by_name) == 6, "relays are no members"
        assert relay.streams == 2


def status_of(url: str, method: str = "GET", headers: dict[str, str] | None = None, body: bytes | None = None) -> int:
    """The status that a request is answered with."""
    request = urllib.request.Request(url, headers=headers or {}, method=method, data=body)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_only_what_clients_ask_is_passed_on() -> None:
    """Also with an operator's token, and not for pages of other origins, which are not named above."""
    with served(root_of(3)) as above, passing(above) as (url, _):
        name = {"X-Fedbandit-Name": "c0"}
        assert status_of(f"{url}/v1/shops/terms", headers=name) == 200
        for method, path in (
            ("GET", "/api/backup"),
            ("GET", "/api/overview"),
            ("GET", "/metrics"),
            ("GET", "/"),
            ("GET", "/v1/shops/clients"),
            ("DELETE", "/v1/shops/clients/c0"),
            ("POST", "/v1/shops/quarantine"),
            ("POST", "/v1/shops/free"),
            ("GET", "/v1/others/terms"),
        ):
            assert status_of(url + path, method, name) == 404, path
        for wrong in ({"Origin": "https://elsewhere.example"}, {"Host": "rebound.example"}):
            assert status_of(f"{url}/v1/shops/terms", headers=name | wrong) == 403
        assert status_of(f"{url}/v1/shops/messages", "POST", name, b"x") == 400, "no bytes, by its content type"
        octets = name | {"Content-Type": "application/octet-stream"}
        assert status_of(f"{url}/v1/shops/messages", "POST", octets, bytes(2**20 + 1)) == 413
