"""A certificate authority of one's own, for a coordinator that is not on loopback.

Clients trust the authority (`ca.pem`), which signs the coordinator's certificate. Its private key is kept beside it, or
in a folder of its own that can be taken away (`authority`): it is needed again only to renew the certificate, which no
client notices. A running coordinator takes a renewed certificate by itself.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedbandit.errors import FedbanditError, needs
from fedbandit.machines.sums.terms import certified
from fedbandit.network.addresses import check_host
from fedbandit.network.certified import Certificate
from fedbandit.network.credentials import FILE, make_table

AUTHORITY, AUTHORITY_KEY, CERTIFICATE, KEY = "ca.pem", "ca-key.pem", "server.pem", "server-key.pem"
YEARS_OF_AUTHORITY, DAYS = 10, 397


def init_keys(folder: Path, hosts: Sequence[str], authority: Path | None = None) -> None:
    """Make an authority, a certificate of the coordinator for these host names or addresses, and no tokens yet.

    The authority's private key is kept in the folder `authority`, by default in `folder`.
    """
    if (folder / FILE).exists():
        raise FedbanditError(f"There are keys in {str(folder)!r} already; fedbandit keys renew renews the certificate.")
    needs("cryptography", "server", "A certificate")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    for host in hosts:
        check_host(host)
    for path in (folder, authority or folder):
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = ec.generate_private_key(ec.SECP256R1())
    others = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    usage = {**dict.fromkeys(others, False), "key_cert_sign": True, "crl_sign": True}
    certificate = (
        _begin("fedbandit authority", key.public_key(), 365 * YEARS_OF_AUTHORITY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.KeyUsage(**usage, encipher_only=False, decipher_only=False), critical=True)
        .sign(key, hashes.SHA256())
    )
    _write(folder / AUTHORITY, _pem(certificate), 0o644)
    _write((authority or folder) / AUTHORITY_KEY, _pem_of_key(key), 0o600)
    renew_certificate(folder, hosts, authority)
    make_table(folder)


def renew_certificate(folder: Path, hosts: Sequence[str] = (), authority: Path | None = None) -> datetime.datetime:
    """Sign a new certificate of the coordinator, with a new key; until when it is good.

    For the same hosts as the one there is, unless others are given.
    """
    needs("cryptography", "server", "A certificate")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    signer = _signer(folder, authority)
    names = [_host(x509, host) for host in hosts or certificate_hosts(folder)]
    key = ec.generate_private_key(ec.SECP256R1())
    issuer_id = x509.SubjectKeyIdentifier.from_public_key(signer.public_key())
    certificate = (
        _begin(str(names[0].value)[:64], key.public_key(), DAYS)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_id), critical=False)
        .sign(signer, hashes.SHA256())
    )
    _write(folder / KEY, _pem_of_key(key), 0o600)
    _write(folder / CERTIFICATE, _pem(certificate), 0o644)  # last: a coordinator looks at this one
    until: datetime.datetime = certificate.not_valid_after_utc
    return until


def certify(folder: Path, name: str, federation: str, key: bytes, authority: Path | None = None) -> Certificate:
    """Say that a signing key for secure sums is that of this client of this federation (ECDSA; r and s as 64 bytes)."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

    signer = _signer(folder, authority)
    r, s = decode_dss_signature(signer.sign(certified(key, federation), ec.ECDSA(hashes.SHA256())))
    return Certificate(name, federation, key, r.to_bytes(32, "big") + s.to_bytes(32, "big"))


def _signer(folder: Path, authority: Path | None) -> Any:
    """The authority's private key, which `folder` has the certificate of."""
    needs("cryptography", "server", "A certificate")
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    kept = (authority or folder) / AUTHORITY_KEY
    try:
        signer: Any = serialization.load_pem_private_key(kept.read_bytes(), None)
        issuer = x509.load_pem_x509_certificate((folder / AUTHORITY).read_bytes())
    except (OSError, ValueError) as error:
        raise FedbanditError(
            f"The authority's key {str(kept)!r} cannot be used ({error}); say where it is with --authority, or make "
            "new keys in another folder and give their ca.pem to every client."
        ) from None
    if issuer.public_key() != signer.public_key():
        raise FedbanditError(f"{str(kept)!r} is not the key of {str(folder / AUTHORITY)!r}.")
    return signer


def certificate_hosts(folder: Path) -> list[str]:
    """The host names and addresses that the coordinator's certificate is for."""
    from cryptography import x509

    names = _current(folder).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def expiry(folder: Path) -> float:
    """Until when the coordinator's certificate is good, in seconds since 1970."""
    return float(_current(folder).not_valid_after_utc.timestamp())


def _current(folder: Path) -> Any:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate((folder / CERTIFICATE).read_bytes())
    except (OSError, ValueError) as error:
        raise FedbanditError(f"The certificate {str(folder / CERTIFICATE)!r} cannot be read: {error}.") from None


def _begin(subject: str, key: Any, days: int) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    def name(text: str) -> Any:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name(subject))
        .issuer_name(name("fedbandit authority"))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _pem(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    data: bytes = certificate.public_bytes(serialization.Encoding.PEM)
    return data


def _pem_of_key(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    data: bytes = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    return data


def _write(path: Path, data: bytes, mode: int) -> None:
    """Write a file, whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    with os.fdopen(os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode), "wb") as file:
        file.write(data)
    os.replace(partial, path)


def _host(x509: Any, host: str) -> Any:
    check_host(host)
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
