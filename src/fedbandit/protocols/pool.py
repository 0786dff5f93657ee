"""One noisy total of everybody's statistics, at the coordinator: of secure sums, or noised by itself.

| it is      | members send  | when a call is answered                                                             |
|------------|---------------|-------------------------------------------------------------------------------------|
| Opening    | Contributions | the sum is opened, if a quorum is in it, and decoded into the running total         |
| Publishing | Uploads       | the running total is noised, once, and published                                    |

What members say that they have seen may be of a state of this coordinator that was lost, or a lie. Of secure sums an
epoch is believed to be over that a quorum has seen: no sum is opened with fewer. Publications have versions with a seal
that only this coordinator can make, so that one member can prove that there was one that the store does not know: then
no more is published, because the same records would be noised a second time. A version is

    epoch · 2⁴⁸ + mark · 2³² + seal,    mark: 16 bits of a digest of what was published, seal: 32 bits of a keyed digest

What belongs to one state of a member – in which sum or publication it was last – is forgotten when that state is lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import FedbanditError
from fedbandit.messages import Contribution, decode, encode
from fedbandit.sharing import Members
from fedbandit.state import StateError, require_arrays_like
from fedbandit.sums import Sums
from fedbandit.types import Array

_MARK, _SEAL = 16, 32
"""Bits of each. Of 2³² guesses one is right; those that are not are refused, and counted."""
MOST_SEALED = 2**14
"""With so many epochs or more versions would be too long to be sealed."""


class Noisy(Protocol):
    """A noisy total, and the variance of an entry of its V."""

    @property
    def V(self) -> Array:
        """Σ x xᵀ."""
        ...

    @property
    def b(self) -> Array:
        """Σ x y."""
        ...

    @property
    def variance(self) -> float:
        """Off the diagonal."""
        ...


class Privatiser(Protocol):
    """What noises one member's statistics, each increment exactly once."""

    def release(self, sums: Sums) -> Sums:
        """What may be used in place of `sums`."""
        ...

    def state(self) -> dict[str, Any]:
        """What must survive a crash."""
        ...

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        ...


class Total(Protocol):
    """One noisy total of everybody's statistics, in at most `epochs` releases."""

    @property
    def epochs(self) -> int:
        """The most releases there will be."""
        ...

    @property
    def epoch(self) -> int:
        """The last one."""
        ...

    @property
    def variance(self) -> float | None:
        """Of an entry of V in the last one; None before the first."""
        ...

    def state(self) -> dict[str, Any]:
        """What must survive a crash."""
        ...

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        ...


@runtime_checkable
class Opening(Total, Protocol):
    """A total of which this coordinator sees opened sums only (secure sums)."""

    @property
    def quorum(self) -> int:
        """The fewest members in a sum that is opened."""
        ...

    def taken_back(self, members: int) -> int:
        """How many portions of their noise members take back in a sum over so many."""
        ...

    def opened(self, epoch: int, total: NDArray[np.uint64], members: int, returned: int) -> Noisy:
        """The running total after the sum of this epoch over so many members, of whom so many took noise back."""
        ...


@runtime_checkable
class Publishing(Total, Protocol):
    """A total that this coordinator noises itself, being trusted with everybody's statistics."""

    def add(self, sums: Sums) -> None:
        """A member has uploaded this."""
        ...

    def publish(self) -> Noisy | None:
        """The running total, noised; None if there is nothing to publish."""
        ...


class Pool:
    """The total, who is in it, and what has come for the sum that is under way."""

    def __init__(self, total: Total) -> None:
        self.total = total
        self.secure = isinstance(total, Opening)
        self.included: dict[int, int] = {}
        """The last epoch whose sum a member is in; of a trusted coordinator, its last upload that was published."""
        self.unopened = ""
        """Why the last sum was not opened, if it was not."""
        self._failures = 0  # sums not opened since the last one that was
        self.quiet = 0
        """Requests to ignore after those, less one."""
        self.key = b""
        """Of a trusted coordinator on a network: what it seals versions with."""
        self.lost = 0
        """A publication that a member has, and this coordinator has lost; 0 if there is none."""
        self._marks: dict[int, int] = {}  # epoch → of what was published in it
        self._seen: dict[int, int] = {}  # member → the last epoch that it has seen, if there was no such one here
        self._parts: dict[int, Contribution] = {}
        self._new: dict[int, tuple[int, int]] = {}  # member → upload and observations that are not published yet

    def is_over(self, calls: int) -> bool:
        """Whether there will be no more totals after so many calls: the budget is spent, or a publication was lost."""
        return self.lost > 0 or (calls if self.secure else self.total.epoch) >= self.total.epochs

    @property
    def version(self) -> int:
        """That of downloads of the last total: its epoch, sealed if there is a key."""
        epoch = self.total.epoch
        if not self.key or epoch == 0:
            return epoch
        return self._sealed(epoch, self._marks.get(epoch, 0))

    def later(self, version: int) -> int:
        """The number of a publication of this version that this coordinator has made and lost; 0 if it has not."""
        epoch, mark = version >> _MARK + _SEAL, version >> _SEAL & (1 << _MARK) - 1
        if not self.key or epoch == 0 or version != self._sealed(epoch, mark):
            return 0
        return epoch if epoch > self.total.epoch or mark != self._marks.get(epoch, 0) else 0

    def _sealed(self, epoch: int, mark: int) -> int:
        said = epoch << _MARK | mark
        seal = hashlib.blake2b(said.to_bytes(16, "little"), key=self.key, digest_size=_SEAL // 8).digest()
        return said << _SEAL | int.from_bytes(seal, "little")

    @property
    def quorum(self) -> int:
        """The fewest members in a total."""
        return self.total.quorum if isinstance(self.total, Opening) else 1

    @property
    def failing(self) -> bool:
        """Whether the last sum was not opened."""
        return self._failures > 0

    def believed(self, member: int, epoch: int, here: int) -> int:
        """The last epoch of secure sums, now that this member has said which one it has seen: what a quorum has."""
        assert isinstance(self.total, Opening)
        self._seen = {i: seen for i, seen in {**self._seen, member: epoch}.items() if seen > here}
        said = sorted(self._seen.values(), reverse=True)
        return said[self.total.quorum - 1] if len(said) >= self.total.quorum else here

    def seen_by(self, member: int) -> int:
        """The last epoch that a member says it has seen, if there was no such one here; 0 otherwise."""
        return self._seen.get(member, 0)

    def forget(self, member: int) -> None:
        """A member is gone, or has lost its state: what it has said, and in what it was last, was of that state."""
        self._seen.pop(member, None)
        self.included.pop(member, None)
        if member in self._new:  # what it has uploaded stays
            self._new[member] = 0, self._new[member][1]

    def add(self, member: int, sequence: int, sums: Sums) -> None:
        """A member has uploaded this to a coordinator that it trusts."""
        if not isinstance(self.total, Publishing):
            raise FedbanditError(f"Client {member} sent an upload, but secure sums take contributions only.")
        self.total.add(sums)
        self._new[member] = sequence, self._new.get(member, (0, 0))[1] + sums.n

    def contribute(self, message: Contribution, *, member: bool) -> bool:
        """Take a member's part of the sum that is under way; False if it is there already, to the bit."""
        who, epoch, before = message.member, message.epoch, self._parts.get(message.member)
        if not self.secure or not member:
            raise FedbanditError(f"Client {who} contributed to the sum of epoch {epoch}, but is not in it.")
        if before is not None and encode(before) != encode(message):
            raise FedbanditError(f"Client {who} contributed to the sum of epoch {epoch} twice, differently.")
        self._parts[who] = message
        return before is None

    def ignores_request(self) -> bool:
        """Whether it is too early for another sum: after one that could not be opened, and longer after the next."""
        self.quiet -= self.quiet > 0
        return self.quiet > 0

    def close(self, epoch: int, members: Members) -> bool:
        """A call is answered by all who could: make a new total of what came, if it may be told."""
        return self._open(epoch, members) if isinstance(self.total, Opening) else self._publish(members)

    def _open(self, epoch: int, members: Members) -> bool:
        """Open a sum, if enough are in it; nobody's part outlives that."""
        assert isinstance(self.total, Opening)
        parts, self._parts, self.unopened = list(self._parts.values()), {}, ""
        if len(parts) < self.total.quorum:
            self.unopened = f"{len(parts)} clients answered in epoch {epoch}, {self.total.quorum} are needed for a sum"
            self._failures += 1
            self.quiet = self.total.quorum * 2 ** min(self._failures, 10)
            return False
        back = self.total.taken_back(len(parts))
        words = np.add.reduce([part.words - part.excess[:back].sum(axis=0, dtype=np.uint64) for part in parts])
        returned = sum(len(part.excess) >= back for part in parts)
        self.take_sum(epoch, words, {part.member: part.n for part in parts}, returned, members)
        return True

    def take_sum(
        self, epoch: int, words: NDArray[np.uint64], counts: Mapping[int, int], returned: int, members: Members
    ) -> None:
        """A sum modulo 2⁶⁴ over these clients, who have observed so much, has been opened; so many took noise back."""
        assert isinstance(self.total, Opening)
        _use(self.total.opened(epoch, words, len(counts), returned), members)
        self._failures, self.unopened = 0, ""
        for i, n in counts.items():
            members.n[i], self.included[i] = n, epoch

    def _publish(self, members: Members) -> bool:
        """Noise what was uploaded, once, for everybody."""
        assert isinstance(self.total, Publishing)
        noisy = self.total.publish()
        if noisy is None:
            return False
        _use(noisy, members)
        digest = hashlib.blake2b(noisy.V.tobytes(), digest_size=_MARK // 8).digest()
        self._marks[self.total.epoch] = int.from_bytes(digest, "little")
        for i, (sequence, n) in self._new.items():
            self.included[i] = sequence
            members.n[i] += n
        self._new = {}
        return True

    def state(self) -> dict[str, NDArray[Any]]:
        """What must survive a crash."""
        kept = {f"total.{key}": np.asarray(value) for key, value in self.total.state().items()}
        kept["included"] = np.array(list(self.included.items()), dtype=np.int64).reshape(-1, 2)
        kept["new"] = np.array([(i, *new) for i, new in self._new.items()], dtype=np.int64).reshape(-1, 3)
        if self._failures or self.quiet:
            kept["failures"] = np.array([self._failures, self.quiet], dtype=np.int64)
        if self._seen:
            kept["seen"] = np.array(list(self._seen.items()), dtype=np.int64)
        if self.key:
            kept["key"], kept["lost"] = np.frombuffer(self.key, dtype=np.uint8), np.array(self.lost)
            kept["marks"] = np.array(list(self._marks.items()), dtype=np.int64).reshape(-1, 2)
        for i, part in self._parts.items():
            kept[f"part.{i}"] = np.frombuffer(encode(part), dtype=np.uint8)
        return kept

    def restore(self, saved: Mapping[str, Any], members: Members) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        of_total = {name.removeprefix("total."): value for name, value in saved.items() if name.startswith("total.")}
        require_arrays_like(of_total, self.total.state())
        self.total.restore(of_total)
        members.variance = self.total.variance
        self.included = {int(i): int(epoch) for i, epoch in saved["included"]}
        self._new = {int(i): (int(sequence), int(n)) for i, sequence, n in saved["new"]}
        self._failures, self.quiet = (int(value) for value in saved.get("failures", (0, 0)))
        self._seen = {int(i): int(epoch) for i, epoch in saved.get("seen", ())}
        if "key" in saved:
            self.key, self.lost = saved["key"].tobytes(), int(saved["lost"])
            self._marks = {int(epoch): int(mark) for epoch, mark in saved["marks"]}
        self._parts = {}
        for name, value in saved.items():
            if name.startswith("part."):
                part = decode(value.tobytes())
                if not isinstance(part, Contribution):
                    raise StateError(f"The state has a {type(part).__name__} where a Contribution is expected.")
                self._parts[part.member] = part


def _use(noisy: Noisy, members: Members) -> None:
    members.V[0], members.b[0], members.variance = noisy.V, noisy.b, noisy.variance
    members.forget_shares()
