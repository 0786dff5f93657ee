"""Journals that survive a crash: each is a snapshot and the entries since.

Owners. A store in a file is one process's. A store that several processes share (PostgreSQL) has one *owner* for each
journal, and each ownership has a *term*, a number that only grows: every write checks, in its own transaction, that
its term is still the last one. A process that was stopped, cut off or overtaken can change nothing, whatever it
believes.

Both sides of a federation are kept in this form. A client's entries are its choices and rewards, a coordinator's are
the messages it accepted; to recover, restore the snapshot and apply the entries in order. `fedbandit.state` says what
is in the bytes.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence

from fedbandit.errors import FedbanditError

FIRST_VERSION, VERSION = 1, 3
"""Of the tables of a file; what they hold has format numbers of its own. A file is of the first as long as no snapshot
in it was so long that it is in blocks; in 2 their beginnings had no mark (`blocks.py`)."""


class StoreError(FedbanditError):
    """The store cannot be read or written now; nothing of what was written before is lost."""


class InUse(StoreError):
    """Another process has the store open."""


class Damaged(StoreError):
    """What is stored is not what was written: `why`, and of which journal, where that is known."""

    def __init__(self, sentence: str, why: str, journal: str | None = None) -> None:
        self.why, self.journal = why, journal
        super().__init__(sentence)


class Owner(typing.NamedTuple):
    """Which process a journal belongs to: where it answers, what it is configured with, and its term."""

    address: str
    configuration: str
    term: int


class NotOwner(StoreError):
    """The journal is another process's, which is `owner` as far as that is known; nothing was changed."""

    def __init__(self, journal: str, owner: Owner | None = None) -> None:
        self.owner = owner
        self.address = "" if owner is None else owner.address
        at = f" at {self.address}" if self.address else ""
        super().__init__(f"Federation {journal!r} is another coordinator's{at}, and not this one's.")


class NotAllowed(StoreError):
    """The store does not let this process do that; it says who may."""


class StoredJournal(typing.NamedTuple):
    """A journal as a store has it."""

    name: str
    snapshot: bytes | None
    entries: list[bytes]


def require_snapshot(journal: StoredJournal) -> bytes:
    """The snapshot of a journal; without one it is none that could be put anywhere."""
    if journal.snapshot is None:
        raise StoreError(f"The journal {journal.name!r} has no snapshot to begin with.")
    return journal.snapshot


class Store(typing.Protocol):
    """A place for journals. `durable=False` survives the process being killed, but not the power being cut."""

    where: str
    """Which store it is, for sentences: 'client.db', PostgreSQL, memory."""

    def read(self, journal: str) -> tuple[bytes | None, list[bytes]]:
        """The snapshot of a journal, None if there is none, and the entries since."""
        ...

    def append(self, journal: str, entries: Sequence[bytes], *, durable: bool = True) -> None:
        """Add entries, all or none."""
        ...

    def replace(self, journal: str, snapshot: bytes, *, durable: bool = True) -> None:
        """Put a snapshot in the place of the old one and of all entries."""
        ...

    def put(self, journals: Sequence[StoredJournal]) -> None:
        """Put whole journals in the place of those of their names, all or none; nothing that was there is believed."""
        ...

    def claim(self, journal: str, address: str = "", configuration: str = "") -> None:
        """Become the owner of a journal, under a new term; NotOwner if another process is alive that is."""
        ...

    def release(self, journal: str) -> None:
        """Be its owner no longer; any write of this process to it is refused until it is claimed again."""
        ...

    def holds(self, journal: str) -> bool:
        """Whether it was this process's a moment ago; asks nobody."""
        ...

    def confirm(self, journal: str) -> None:
        """Ask whether it is this process's now; NotOwner if it is not."""
        ...

    def owner(self, journal: str) -> Owner | None:
        """Whose it is, or was last; None if nobody ever said so."""
        ...

    def compact(self) -> None:
        """Rewrite the files, so that nothing is left in them of what was deleted or replaced."""
        ...

    def files(self) -> str:
        """In which files it is, as words: all others once it has been rewritten, whoever did. Empty if only `compact`
        rewrites it.
        """
        ...

    def names(self) -> list[str]:
        """Of the journals there are."""
        ...

    def delete(self, journal: str) -> None:
        """Leave nothing of a journal but what `compact` removes."""
        ...

    def check(self) -> None:
        """Raise a StoreError unless it can be read now, and is still this process's alone."""
        ...

    def dump(self) -> list[StoredJournal]:
        """All journals there are, as they are at one time."""
        ...

    def close(self) -> None:
        """Let others open it."""
        ...

    def remove(self) -> None:
        """Close it, if it is open, and leave nothing of it."""
        ...

    def abandon(self) -> None:
        """Never touch it again, not even to close it: this process is a fork of the one that opened it."""
        ...


class OneProcess:
    """What a store is that one process has to itself: owner of everything, with nobody to ask."""

    def claim(self, journal: str, address: str = "", configuration: str = "") -> None:
        """It is."""

    def release(self, journal: str) -> None:
        """It stays."""

    def holds(self, journal: str) -> bool:  # noqa: ARG002
        """Always."""
        return True

    def confirm(self, journal: str) -> None:
        """Nobody else can be."""

    def owner(self, journal: str) -> Owner | None:  # noqa: ARG002
        """Nobody needs to know."""
        return None

    def files(self) -> str:
        """Nobody else rewrites them."""
        return ""


class MemoryStore(OneProcess):
    """A store in memory, for clients without a file and for tests."""

    where = "memory"

    def __init__(self) -> None:
        self.journals: dict[str, tuple[bytes | None, list[bytes]]] = {}

    def read(self, journal: str) -> tuple[bytes | None, list[bytes]]:
        """The snapshot and the entries since."""
        snapshot, entries = self.journals.get(journal, (None, []))
        return snapshot, list(entries)

    def append(self, journal: str, entries: Sequence[bytes], *, durable: bool = True) -> None:  # noqa: ARG002
        """Add entries."""
        self.journals.setdefault(journal, (None, []))[1].extend(entries)

    def replace(self, journal: str, snapshot: bytes, *, durable: bool = True) -> None:  # noqa: ARG002
        """Put a snapshot in the place of everything."""
        self.journals[journal] = (snapshot, [])

    def put(self, journals: Sequence[StoredJournal]) -> None:
        """Put whole journals in the place of those of their names."""
        self.journals |= {name: (snapshot, list(entries)) for name, snapshot, entries in journals}

    def compact(self) -> None:
        """There are no files."""

    def names(self) -> list[str]:
        """Of the journals there are."""
        return sorted(self.journals)

    def delete(self, journal: str) -> None:
        """Forget a journal."""
        self.journals.pop(journal, None)

    def check(self) -> None:
        """Nothing can be wrong."""

    def dump(self) -> list[StoredJournal]:
        """All journals."""
        return [StoredJournal(name, snapshot, list(entries)) for name, (snapshot, entries) in self.journals.items()]

    def close(self) -> None:
        """Nothing to do."""

    def remove(self) -> None:
        """Forget everything."""
        self.journals.clear()

    def abandon(self) -> None:
        """Nothing to do."""

    def copy(self) -> MemoryStore:
        """A copy, as someone might make of a file."""
        other = MemoryStore()
        other.journals = {name: (snapshot, list(entries)) for name, (snapshot, entries) in self.journals.items()}
        return other
