"""Certificates of the keys by which clients know one another in secure sums.

A client makes its signing key (`fedbandit keys sum-key`), the authority of `fedbandit keys` signs it (`certify`), and
whoever has a certificate takes part only with clients that have one. So a coordinator that has not the authority's
private key cannot invent clients. The file holds nothing secret.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from fedbandit.errors import FedbanditError, needs, require
from fedbandit.machines.sums.masks import KEY
from fedbandit.machines.sums.terms import Authority, fingerprint

KIND, FORMAT = "certificate for secure sums", 1


@dataclass(frozen=True)
class Certificate:
    """This signing key is that of the client of this name in this federation; signed by an authority."""

    name: str
    federation: str
    key: bytes
    signature: bytes

    def write(self, path: Path) -> None:
        """As a file, which must be a new one."""
        held = {**asdict(self), "key": self.key.hex(), "signature": self.signature.hex()}
        try:
            with path.open("x") as file:
                file.write(json.dumps({"kind": KIND, "format": FORMAT, **held}) + "\n")
        except OSError as error:
            raise FedbanditError(f"The certificate {str(path)!r} cannot be written: {error.strerror}.") from None

    @staticmethod
    def read(path: Path) -> Certificate:
        """From a file."""
        try:
            held = json.loads(path.read_text())
            require(
                (held["kind"], held["format"]) == (KIND, FORMAT), "its kind", held["kind"], f"a {KIND}, format {FORMAT}"
            )
            names = str(held["name"]), str(held["federation"])
            return Certificate(*names, bytes.fromhex(held["key"]), bytes.fromhex(held["signature"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise FedbanditError(f"The certificate {str(path)!r} cannot be read: {error}.") from None

    def check(self, key: bytes, authority: Authority) -> None:
        """Refuse one that others would refuse: of another key, for another federation, by another authority."""
        if self.key != key:
            raise FedbanditError(
                f"The certificate is for the key {fingerprint(self.key)}, but this client has {fingerprint(key)}: "
                "have that one certified (fedbandit keys sum-key shows it)."
            )
        if self.federation != authority.federation:
            raise FedbanditError(f"The certificate is for {self.federation!r}, not for {authority.federation!r}.")
        if not authority.has_certified(key, self.signature):
            raise FedbanditError(f"The certificate of {self.name!r} is not signed by the authority in ca.")


def read_authority(path: Path, federation: str) -> Authority:
    """The authority of a `ca.pem`, as one for this federation."""
    needs("cryptography", "secure", "Secure sums")
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        key = x509.load_pem_x509_certificate(path.read_bytes()).public_key()
    except (OSError, ValueError) as error:
        raise FedbanditError(f"The authority {str(path)!r} cannot be read: {error}.") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise FedbanditError(f"The authority {str(path)!r} was not made by fedbandit keys: its key is not of P-256.")
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return Authority(key.public_bytes(serialization.Encoding.DER, form), federation)


def read_key(text: str) -> bytes:
    """A client's signing key, as `fedbandit keys sum-key` shows it."""
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY:
        raise FedbanditError(f"--key is {text!r}, but must be the {2 * KEY} digits that fedbandit keys sum-key shows.")
    return key
