"""A certificate authority of one's own, for a coordinator that is not on loopback."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedbandit.errors import FedbanditError, needs
from fedbandit.network.credentials import FILE, write_entries

AUTHORITY, CERTIFICATE, KEY = "ca.pem", "server.pem", "server-key.pem"
_DAYS = 825


def init_keys(folder: Path, hosts: Sequence[str]) -> None:
    """Make an authority, a certificate of the coordinator for these host names or addresses, and no tokens yet.

    The authority's private key is used once and thrown away: nobody can sign another certificate with it.
    """
    if (folder / FILE).exists():
        raise FedbanditError(f"There are keys in {str(folder)!r} already.")
    needs("cryptography", "server", "A certificate")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())

    def name(text: str) -> Any:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.datetime.now(datetime.UTC)

    def begin(subject: str, key: Any) -> Any:
        return (
            x509.CertificateBuilder()
            .subject_name(name(subject))
            .issuer_name(name("fedbandit authority"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=_DAYS))
        )

    authority_id = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    may_sign = dict.fromkeys(
        ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False
    )
    authority = (
        begin("fedbandit authority", authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(authority_id, critical=False)
        .add_extension(
            x509.KeyUsage(**may_sign, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False),
            critical=True,
        )
        .sign(authority_key, hashes.SHA256())
    )
    server = (
        begin(hosts[0], server_key)
        .add_extension(x509.SubjectAlternativeName([_host(x509, host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(server_key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority_id), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / AUTHORITY).write_bytes(authority.public_bytes(pem))
    (folder / CERTIFICATE).write_bytes(server.public_bytes(pem))
    (folder / KEY).touch(mode=0o600)
    (folder / KEY).write_bytes(
        server_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    write_entries(folder / FILE, [])


def _host(x509: Any, host: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
