"""Front processes: the same service; one that dies loses nothing, and they end with the writer."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import struct
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.network.certificates import AUTHORITY, init_keys
from fedbandit.network.coordinator.link import FRAME, SEND, FrontLink
from fedbandit.network.credentials import add_credential
from tests.network.servers import Coordinator
from tests.waiting import eventually


def children(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def replace_fronts(writer: int, count: int) -> None:
    victims = children(writer)
    for pid in victims[:count]:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: set(children(writer)) - set(victims))


def is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_federation_behind_fronts_with_tls_loses_nothing_when_they_die(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    init_keys(keys, ["127.0.0.1"])
    token, admin = add_credential(keys, "shop-1"), add_credential(keys, "boss", "admin")
    coordinator = Coordinator(tmp_path, "store.db", 'keys = "keys"\nfronts = 2')
    url = coordinator.start()
    assert coordinator.process is not None
    writer = coordinator.process.pid
    ca = str(keys / AUTHORITY)
    context = ssl.create_default_context(cafile=ca)

    def ask(path: str, body: bytes | None = None, bearer: str = admin) -> bytes:
        headers = {"authorization": f"Bearer {bearer}", "content-type": "application/json"}
        request = urllib.request.Request(url + path, body, headers)
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:
            return bytes(answer.read())

    def applied() -> int:
        return int(json.loads(ask("/v1/shops/clients"))["clients"][0]["observations"])

    try:
        assert json.loads(ask("/healthz"))["status"] == "ok"
        with pytest.raises(urllib.error.HTTPError) as stranger:
            ask("/api/overview", bearer="fb-stranger")
        assert stranger.value.code == 401
        stranger.value.close()
        rng = np.random.default_rng(0)
        with fb.Client(url, federation="shops", token=token, ca=ca, state=tmp_path / "client.db") as client:
            for rounds in range(3):
                for _ in range(40):
                    client.observe(float(rng.uniform(-1, 1)), client.select(rng.uniform(-0.5, 0.5, (4, 3))))
                if rounds < 2:
                    replace_fronts(writer, rounds + 1)  # one of them, then all
            assert client.flush(120.0)
            uploads = client.status()["uploads"]
        listed = json.loads(ask("/v1/shops/clients"))["clients"][0]
        assert (listed["name"], listed["uploads"]) == ("shop-1", uploads)
        assert applied() <= 120
        assert b'fedbandit_connected_clients{federation="shops"}' in ask("/metrics")
        answer = json.loads(ask("/v1/shops/quarantine", json.dumps({"client": "shop-1", "reason": "test"}).encode()))
        assert answer == {"client": "shop-1", "quarantined": True}
        fronts = children(writer)
    finally:
        coordinator.kill()
    eventually(lambda: not any(map(is_running, fronts)))
    assert "fb-" not in coordinator.log.read_text()


def test_records_arrive_whole_however_they_are_cut() -> None:
    async def cut(sizes: list[int]) -> list[tuple[int, int, bytes]]:
        found: list[tuple[int, int, bytes]] = []
        link = FrontLink(lambda *record: found.append(record), lambda: None)
        records = [(FRAME, 7, b"x" * 300), (SEND, 2**32 - 1, b""), (FRAME, 8, b"abc")]
        data = b"".join(struct.pack("<BII", op, stream, len(body)) + body for op, stream, body in records)
        for size in sizes:
            link.data_received(data[:size])
            data = data[size:]
        link.data_received(data)
        assert found == records
        return found

    for sizes in ([], [1] * 320, [8, 2, 299, 3], [327]):
        asyncio.run(cut(sizes))
