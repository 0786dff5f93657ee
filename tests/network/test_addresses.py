"""Listening sockets: answers do not wait for one another. Addresses that are none, and whom no token is sent to."""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest

from fedbandit.errors import FedbanditError
from fedbandit.network.addresses import bind, check_url, distrust


def test_what_is_accepted_sends_at_once() -> None:
    async def accepted() -> int:
        options: asyncio.Queue[int] = asyncio.Queue()

        async def welcome(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = writer.get_extra_info("socket")
            options.put_nowait(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listener = bind("127.0.0.1", 0)
        async with await asyncio.start_server(welcome, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            found = await options.get()
            writer.close()
        return found

    assert asyncio.run(accepted()) == 1


@pytest.mark.parametrize("url", ["", "shop:8765", "ftp://a", "http://", "http://[::1", "http://a:99999", "https://a:x"])
def test_what_is_no_address_is_said(url: str) -> None:
    with pytest.raises(FedbanditError, match=r"The coordinator's URL is .*, but must be like https://host:port"):
        check_url(url, token=False)


def test_a_token_goes_nowhere_in_the_clear() -> None:
    check_url("http://a.example:8765", token=False)
    check_url("http://127.0.0.1:8765", token=True)
    check_url("https://a.example:8765", token=True)
    with pytest.raises(FedbanditError, match=r"A token is not sent to 'http://a\.example:8765' in the clear"):
        check_url("http://a.example:8765", token=True)


def test_a_certificate_of_another_name_is_one_sentence() -> None:
    error = ssl.SSLCertVerificationError()
    error.verify_code, error.verify_message = 64, "IP address mismatch, certificate is not valid for '127.0.0.1'."
    said = distrust("https://127.0.0.1:8765", error, "ca.pem", "--ca")
    assert said.endswith("not valid for '127.0.0.1'.")
