"""What the members of a secure sum agree on, and how they know one another."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from fedbandit.errors import FedbanditError, require
from fedbandit.machines.sums.masks import KEY, SIGNATURE, Identity, verifies


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


@dataclass
class Acquaintances:
    """Whose signing key is whose: certified by an authority, or pinned at first contact and shown.

    With an `authority` (a public key) every key must be certified by it: a coordinator cannot invent clients. Without
    one the first key that is seen of a member is kept in `known`, and another is refused from then on: a coordinator
    that lies at first contact is not noticed by software, but `fingerprints` can be compared by people.
    """

    authority: bytes | None = None
    known: dict[int, bytes] = field(default_factory=dict)

    def check(self, member: int, public: bytes, certificate: bytes, federation: bytes) -> None:
        """Refuse a key that is not this member's."""
        if len(public) != KEY:
            raise FedbanditError(f"The key of client {member} has {len(public)} bytes, expected {KEY}.")
        if self.authority is not None:
            if not verifies(self.authority, certificate, certified(member, public, federation)):
                raise FedbanditError(f"The key of client {member} is not certified by the federation's authority.")
            return
        if self.known.get(member, public) != public:
            raise FedbanditError(f"The key of client {member} is another one than at first contact; it is refused.")

    def pin(self, keys: Mapping[int, bytes]) -> None:
        """Keep the keys of a sum that has begun."""
        if self.authority is None:
            self.known = {**keys, **self.known}

    def fingerprints(self) -> dict[int, str]:
        """What people can compare: 16 hexadecimal digits a key."""
        return {member: hashlib.sha256(public).hexdigest()[:16] for member, public in sorted(self.known.items())}


def certified(member: int, public: bytes, federation: bytes) -> bytes:
    """What an authority signs: this key is that of this member of this federation."""
    return b"fedbandit sums 1 member" + hashlib.sha256(federation).digest() + member.to_bytes(8, "little") + public


def certify(authority: Identity, member: int, public: bytes, federation: bytes) -> bytes:
    """An authority's certificate."""
    return authority.sign(certified(member, public, federation))


NO_CERTIFICATE = bytes(SIGNATURE)
