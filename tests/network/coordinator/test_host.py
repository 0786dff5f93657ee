"""What waits at a host: frames for a federation, and messages for a connection, each with a limit of its own."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fedbandit.messages import Download, Receipt, decode
from fedbandit.network.coordinator.host import MOST_FRAMES, Host, HostedFederation
from fedbandit.network.coordinator.streams import MOST_UNSENT, ClientStream, SendQueue
from fedbandit.network.credentials import Identity
from fedbandit.network.refusal import Refusal
from fedbandit.sums import zero_sums
from tests.network.servers import make_client, make_host


def test_a_federation_takes_as_many_frames_as_it_may() -> None:
    """The limit of a connection, which is smaller, does not count here."""
    assert MOST_UNSENT < MOST_FRAMES

    async def fill(hosted: HostedFederation) -> tuple[int, str]:
        identity = Identity("a", "client")
        waiting = [asyncio.create_task(hosted.submit(identity, b"")) for _ in range(MOST_FRAMES)]
        await asyncio.sleep(0)
        try:
            await hosted.submit(identity, b"")
        except Refusal as refusal:
            return hosted.queue.qsize(), refusal.kind
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        return hosted.queue.qsize(), ""

    assert asyncio.run(fill(make_host().federations["shops"])) == (MOST_FRAMES, "unavailable")


def test_a_connection_that_does_not_read_is_closed() -> None:
    sending = SendQueue()
    for k in range(MOST_UNSENT):
        sending.put(Receipt(0, k))
    assert sending.closing is None
    sending.put(Receipt(0, MOST_UNSENT))
    assert "does not read" in str(sending.closing)
    assert len(sending.waiting) == MOST_UNSENT


def test_a_newer_download_replaces_an_older_one() -> None:
    sending = SendQueue()
    for version in range(1, 2 * MOST_UNSENT):
        sending.put(Download(0, version, 0, zero_sums(1)))
    (message,) = asyncio.run(sending.next())
    assert isinstance(message, bytes)
    newest = decode(message)
    assert isinstance(newest, Download)
    assert newest.version == 2 * MOST_UNSENT - 1
    assert sending.closing is None


def test_an_unknown_federation_is_refused() -> None:
    with pytest.raises(Refusal, match="no federation 'none' here"):
        make_host().hosted("none")


def test_while_the_store_hangs_clients_are_asked_to_try_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedbandit.network.coordinator.host.HANGING_SECONDS", 0.0)
    hanging = threading.Event()

    async def ask(host: Host) -> tuple[str, str, list[object]]:
        hosted, said = host.federations["shops"], list[object]()
        await host.open()
        monkeypatch.setattr(
            hosted.federation, "receive", lambda frames, _: [[] for _ in frames] if hanging.wait() else []
        )
        hosted.federation.invite("a", 0.0)
        hosted.post("a", b"", said.append)
        while not hosted.hangs:
            await asyncio.sleep(0)
        with pytest.raises(Refusal, match="try again later") as refusal:
            await hosted.submit(Identity("a", "client"), b"")
        trouble = await host.trouble()
        hanging.set()
        while not said:
            await asyncio.sleep(0)
        await host.close()
        return refusal.value.kind, trouble, said

    assert asyncio.run(ask(make_host())) == ("unavailable", "the store does not answer", [[]])


def test_a_client_that_has_gone_before_its_join_is_answered_is_not_connected() -> None:
    async def come_and_go(host: Host) -> tuple[dict[int, SendQueue], int]:
        hosted = host.federations["shops"]
        hosted.federation.invite("a", 0.0)
        answered = asyncio.Event()
        stream = ClientStream(hosted, "a", SendQueue(), "", "")
        stream.take(make_client(0).greeting() or b"")
        stream.end()
        await host.open()
        hosted.post("a", b"", lambda _: answered.set())  # is answered after the first
        await answered.wait()
        connections, streams = dict(hosted.connections), hosted.streams["a"]
        await host.close()
        return connections, streams

    assert asyncio.run(come_and_go(make_host())) == ({}, 0)
