"""Hosts and ports: what is loopback, what is an address, whom not to trust, and listening sockets."""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
from urllib.parse import urlsplit

from fedbandit.errors import FedbanditError, shown


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def parse_address(text: str) -> tuple[str, int]:
    """The host and the port in HOST:PORT.

    >>> parse_address("[::1]:9000")
    ('::1', 9000)
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535 or not host:
        raise FedbanditError(f"{text!r} is not an address like 127.0.0.1:9000.")
    return host.strip("[]"), int(port)


def check_url(url: str, *, token: bool) -> None:
    """Refuse what is no coordinator's address, and with a token one to which it would go in the clear."""
    try:
        parts = urlsplit(str(url))
        scheme, host = parts.scheme, parts.hostname if parts.port != 0 else None
    except ValueError:  # of brackets and ports
        scheme, host = "", None
    if scheme not in ("http", "https") or not host:
        raise FedbanditError(f"The coordinator's URL is {url!r}, but must be like https://host:port.")
    if token and scheme == "http" and not is_loopback(host):
        raise FedbanditError(f"A token is not sent to {url!r} in the clear: use https.")


_UNSIGNED = (18, 19, 20, 21)
"""OpenSSL's codes for a certificate that no authority which is trusted here has signed."""


def distrust(url: str, error: ssl.SSLCertVerificationError, ca: str | None, flag: str) -> str:
    """Why a coordinator's certificate is not believed, and what to do: `flag` is how a user says `ca`."""
    hint = f"; pass {flag}, the coordinator's keys/ca.pem" if ca is None else f"; {ca!r} has not signed its certificate"
    return f"The coordinator at {url} cannot be trusted: {error.verify_message.removesuffix('.')}" + (
        f"{hint}." if error.verify_code in _UNSIGNED else "."
    )


def trusted(ca: str | None) -> ssl.SSLContext:
    """Whom to trust: who is signed by this authority, or by those of the system."""
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise FedbanditError(f"The authority {ca!r}, the file of ca= or --ca, cannot be read: {error}.") from None


def not_by_a_coordinator(url: str, status: int) -> str:
    """What to say of an answer that is none of a coordinator."""
    return f"{url} is answered with status {status}, and not by a coordinator: is that its URL, and the name right?"


def check_host(host: str) -> str:
    """Refuse what is neither a name nor an address of a machine.

    >>> check_host("coordinator.example.org"), check_host("::1")
    ('coordinator.example.org', '::1')
    """
    if not re.fullmatch(r"[A-Za-z0-9_*][A-Za-z0-9_*.-]{0,252}|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*", host):
        raise FedbanditError(
            f"The host is {shown(host)}, but must be a name like coordinator.example.org, or an address."
        )
    return host


def check_port(port: int) -> int:
    """Refuse what is no port; 0 is any that is free."""
    if not 0 <= port <= 65535:
        raise FedbanditError(f"port is {port}, but must be a number from 0 to 65535.")
    return port


def bind(host: str, port: int) -> socket.socket:
    """A listening socket, or one sentence about why there is none."""
    check_port(port)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol said, asyncio sets TCP_NODELAY on what is accepted; else an answer of two writes waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise FedbanditError(f"Port {port} on {host} cannot be used: {error.strerror or error}.") from None
    listener.set_inheritable(True)
    return listener
