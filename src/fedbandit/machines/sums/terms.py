"""What the members of a secure sum agree on, and how they know one another."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from fedbandit.errors import FedbanditError, require
from fedbandit.machines.sums.masks import KEY, SIGNATURE, verifies_ecdsa


@dataclass(frozen=True)
class MaskTerms:
    """The federation, the length of a contribution, and who must answer.

    A sum is opened over at least `quorum` of the `members`; `threshold` of them open it. With at most `colluding` of
    them on the coordinator's side, threshold > (members + colluding)/2 makes a second sum of an epoch impossible.
    With as many members in a sum as levels[k] they take back k portions of their noise (`privacy.sum_terms`).
    """

    federation: bytes
    words: int
    members: int
    quorum: int
    colluding: int = 0
    levels: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse sums that would hide nobody."""
        require(self.members >= 3, "the number of clients", self.members, "3 or more for secure sums")
        within = f"between {self.threshold} and {self.members}, the number of clients"
        require(self.threshold <= self.quorum <= self.members, "the quorum of a secure sum", self.quorum, within)

    @property
    def threshold(self) -> int:
        """T of Shamir's shares, and of signatures under the list of survivors."""
        return (self.members + self.colluding) // 2 + 1

    def bound(self, epoch: int, purpose: bytes) -> bytes:
        """What signatures and keys are bound to: this federation, this epoch, this purpose, and nothing else."""
        return hashlib.sha256(self.federation).digest() + epoch.to_bytes(8, "little") + purpose


class Authority(NamedTuple):
    """Whoever says which keys are those of a federation's clients: a key for signatures (ECDSA, P-256), as DER."""

    public: bytes
    federation: str

    def has_certified(self, key: bytes, certificate: bytes) -> bool:
        """Whether a certificate is one of this authority's, for this signing key and this federation."""
        return verifies_ecdsa(self.public, certificate, certified(key, self.federation))


@dataclass
class Acquaintances:
    """Whose signing key is whose: certified by an authority, or pinned at first contact and shown.

    With an `authority` every key must be certified by it: a coordinator cannot invent clients. One that is certified
    may change, as that of a client that has lost its file. Without one the first key that is seen of a member is kept
    in `known`, and another is refused from then on: a coordinator that lies at first contact is not noticed by
    software, but `fingerprints` can be compared by people.
    """

    authority: Authority | None = None
    known: dict[int, bytes] = field(default_factory=dict)

    def check(self, member: int, public: bytes, certificate: bytes) -> None:
        """Refuse a key that is not this member's."""
        if len(public) != KEY:
            raise FedbanditError(f"The key of client {member} has {len(public)} bytes, expected {KEY}.")
        if self.authority is not None:
            if not self.authority.has_certified(public, certificate):
                raise FedbanditError(f"The key of client {member} is not certified by the federation's authority.")
        elif self.known.get(member, public) != public:
            raise FedbanditError(f"The key of client {member} is another one than at first contact; it is refused.")

    def pin(self, keys: Mapping[int, bytes]) -> None:
        """Keep the keys of a sum that has begun; certified ones may change later."""
        self.known = {**keys, **self.known} if self.authority is None else {**self.known, **keys}

    def fingerprints(self) -> dict[int, str]:
        """What people can compare: 16 hexadecimal digits a key."""
        return {member: fingerprint(public) for member, public in sorted(self.known.items())}


def fingerprint(public: bytes) -> str:
    """Of a signing key."""
    return hashlib.sha256(public).hexdigest()[:16]


def certified(key: bytes, federation: str) -> bytes:
    """What an authority signs: this signing key is that of a client of the federation of this name.

    Not which member: a client signs its number itself, and no two members of a sum may have one key.
    """
    return b"fedbandit sums 2 client" + hashlib.sha256(federation.encode()).digest() + key


NO_CERTIFICATE = bytes(SIGNATURE)
