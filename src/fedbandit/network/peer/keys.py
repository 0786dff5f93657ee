"""A key and a certificate for each peer, signed by an authority of their own; a certificate says which peer it is.

`make_peer_keys` makes all of them at once, a folder for each peer to be copied to its host. The authority's private key
is used for that and thrown away. To shut a peer out, make new keys for the others.
"""

from __future__ import annotations

import datetime
import os
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedbandit.errors import FedbanditError, needs

AUTHORITY, CERTIFICATE, KEY = "ca.pem", "peer.pem", "peer-key.pem"
_DAYS = 825


class PeerKeys(NamedTuple):
    """What a peer listens with, and what it connects with; both sides show a certificate."""

    listen: ssl.SSLContext
    connect: ssl.SSLContext

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> PeerKeys:
        """The keys in a peer's folder."""
        path = Path(folder)
        try:
            listen = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(path / AUTHORITY))
            listen.verify_mode = ssl.CERT_REQUIRED
            connect = ssl.create_default_context(cafile=str(path / AUTHORITY))
            for context in (listen, connect):
                context.load_cert_chain(path / CERTIFICATE, path / KEY)
        except (OSError, ssl.SSLError) as error:
            raise FedbanditError(f"The keys in {str(path)!r} cannot be used: {error}.") from None
        return cls(listen, connect)


def peer_name(member: int) -> str:
    """What the certificate of a peer is called."""
    return f"peer-{member}"


def shown_name(connection: Any) -> str | None:
    """The name in the certificate that the other side has shown; None without TLS."""
    certificate = connection.transport.get_extra_info("peercert")
    if not certificate:
        return None
    names = [value for entry in certificate["subject"] for key, value in entry if key == "commonName"]
    return str(names[0]) if names else None


def make_peer_keys(folder: Path, hosts: Sequence[str]) -> list[Path]:
    """A folder for each peer, peer-0, peer-1, …, whose hosts these are, in this order."""
    if folder.exists() and any(folder.iterdir()):
        raise FedbanditError(f"There is something in {str(folder)!r} already.")
    needs("cryptography", "server", "A certificate")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    from fedbandit.network.certificates import _host

    signer = ec.generate_private_key(ec.SECP256R1())
    signer_id = x509.SubjectKeyIdentifier.from_public_key(signer.public_key())
    now = datetime.datetime.now(datetime.UTC)

    def begin(name: str, key: Any) -> Any:
        def called(text: str) -> Any:
            return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

        return (
            x509.CertificateBuilder()
            .subject_name(called(name))
            .issuer_name(called("fedbandit peers"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=_DAYS))
        )

    usage = dict.fromkeys(
        ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False
    )
    authority = (
        begin("fedbandit peers", signer)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(signer_id, critical=False)
        .add_extension(
            x509.KeyUsage(**usage, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False),
            critical=True,
        )
        .sign(signer, hashes.SHA256())
    )
    pem, made = serialization.Encoding.PEM, []
    for i, host in enumerate(hosts):
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            begin(peer_name(i), key)
            .add_extension(x509.SubjectAlternativeName([_host(x509, host)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(signer_id), critical=False)
            .sign(signer, hashes.SHA256())
        )
        mine = folder / peer_name(i)
        mine.mkdir(parents=True, mode=0o700)
        (mine / AUTHORITY).write_bytes(authority.public_bytes(pem))
        (mine / CERTIFICATE).write_bytes(certificate.public_bytes(pem))
        (mine / KEY).touch(mode=0o600)
        (mine / KEY).write_bytes(
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )
        made.append(mine)
    return made
