"""The cryptography of secure sums, all of it from `cryptography`: keys, agreements, masks, encryption, signatures."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import FedbanditError, needs

KEY, SIGNATURE, SEED = 32, 64, 16
"""Bytes."""


@cache
def _module(name: str) -> Any:
    return needs(f"cryptography.hazmat.primitives.{name}", "secure", "Secure sums")


def derive(material: bytes, purpose: bytes, size: int = KEY) -> bytes:
    """A key for one purpose (HKDF-SHA256)."""
    hkdf = _module("kdf.hkdf").HKDF(_module("hashes").SHA256(), size, salt=None, info=b"fedbandit sums 1 " + purpose)
    return bytes(hkdf.derive(material))


class Pair:
    """An X25519 key pair."""

    def __init__(self, private: bytes) -> None:
        self._private = _module("asymmetric.x25519").X25519PrivateKey.from_private_bytes(private)
        self.public: bytes = self._private.public_key().public_bytes_raw()

    def agree(self, other: bytes, purpose: bytes) -> bytes:
        """A key that this pair and the other's owner have in common, for one purpose."""
        try:
            public = _module("asymmetric.x25519").X25519PublicKey.from_public_bytes(other)
            return derive(self._private.exchange(public), purpose)
        except ValueError:
            raise FedbanditError("A key of a client in a secure sum is no key.") from None


def mask_pair(seed: int) -> Pair:
    """The pair behind the masks that cancel, from the 128-bit secret that is shared."""
    return Pair(derive(seed.to_bytes(SEED, "little"), b"mask key"))


def stream(key: bytes, words: int) -> NDArray[np.uint64]:
    """Pseudo-random numbers modulo 2⁶⁴ (ChaCha20). A key is used once."""
    ciphers = _module("ciphers")
    cipher = ciphers.Cipher(_module("ciphers.algorithms").ChaCha20(key, bytes(16)), mode=None)
    return np.frombuffer(cipher.encryptor().update(bytes(8 * words)), dtype="<u8").astype(np.uint64)


def own_mask(seed: int, words: int) -> NDArray[np.uint64]:
    """PRG(b)."""
    return stream(derive(seed.to_bytes(SEED, "little"), b"own mask"), words)


def commitment(seed: int) -> bytes:
    """What tells whether a secret is the one that was shared, and nothing else about it."""
    return derive(seed.to_bytes(SEED, "little"), b"commitment")


def encrypt(key: bytes, plain: bytes, bound_to: bytes) -> bytes:
    """Authenticated encryption (ChaCha20-Poly1305) under a key that encrypts nothing else."""
    return bytes(_module("ciphers.aead").ChaCha20Poly1305(key).encrypt(bytes(12), plain, bound_to))


def decrypt(key: bytes, cipher: bytes, bound_to: bytes) -> bytes:
    """The inverse of `encrypt`; what was altered is refused."""
    invalid = needs("cryptography.exceptions", "secure", "Secure sums").InvalidTag
    try:
        return bytes(_module("ciphers.aead").ChaCha20Poly1305(key).decrypt(bytes(12), cipher, bound_to))
    except invalid:
        raise FedbanditError("A share of a secure sum does not decrypt: it is not the one that was sent.") from None


def new_seed() -> int:
    """A fresh 128-bit secret."""
    return secrets.randbits(8 * SEED)


@dataclass(frozen=True)
class Identity:
    """A client's signing key (Ed25519), by which others know it in every sum."""

    private: bytes

    @staticmethod
    def new() -> Identity:
        """A fresh one."""
        return Identity(secrets.token_bytes(KEY))

    @property
    def _key(self) -> Any:
        return _module("asymmetric.ed25519").Ed25519PrivateKey.from_private_bytes(self.private)

    @property
    def public(self) -> bytes:
        """The key that others verify with."""
        return bytes(self._key.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """A signature."""
        return bytes(self._key.sign(message))


def verifies(public: bytes, signature: bytes, message: bytes) -> bool:
    """Whether a signature is one of this key's owner under this message."""
    invalid = needs("cryptography.exceptions", "secure", "Secure sums").InvalidSignature
    try:
        _module("asymmetric.ed25519").Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (invalid, ValueError):
        return False
    return True


def verifies_ecdsa(public: bytes, signature: bytes, message: bytes) -> bool:
    """Whether a signature, r and s of 32 bytes each, is one of this P-256 key's (DER) owner under this message."""
    invalid = needs("cryptography.exceptions", "secure", "Secure sums").InvalidSignature
    r, s = (int.from_bytes(half, "big") for half in (signature[:KEY], signature[KEY:]))
    try:
        key = _module("serialization").load_der_public_key(public)
        encoded = _module("asymmetric.utils").encode_dss_signature(r, s)
        key.verify(encoded, message, _module("asymmetric.ec").ECDSA(_module("hashes").SHA256()))
    except (invalid, ValueError):
        return False
    return True
