"""How long things take, as histograms that Prometheus understands and as spans of OpenTelemetry."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from typing import Any

from fedbandit.network.stores import Owner, Store, StoredJournal

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds."""


class Histogram:
    """Counts of durations up to each bound, and their sum.

    >>> durations = Histogram(); durations.add(0.002); durations.add(60.0)
    >>> durations.buckets()[2:4], durations.buckets()[-1], durations.total
    ([('0.0025', 1.0), ('0.005', 1.0)], ('+Inf', 2.0), 60.002)
    """

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts by upper bound, as Prometheus has them."""
        so_far, found = 0, []
        for bound, count in zip((*BOUNDS, float("inf")), self.counts, strict=True):
            so_far += count
            found.append(("+Inf" if bound == float("inf") else f"{bound:g}", float(so_far)))
        return found


class Timings:
    """Of one federation."""

    def __init__(self) -> None:
        self.work = Histogram()  # what its worker does at a time, the store included
        self.frames = Histogram()  # from a frame to its answer


class TimedStore:
    """A store, and how long its writes take."""

    def __init__(self, store: Store) -> None:
        self.store, self.where = store, store.where
        self.writes = Histogram()
        self.failures = 0

    def read(self, journal: str) -> tuple[bytes | None, list[bytes]]:
        """The snapshot and the entries since."""
        return self.store.read(journal)

    def append(self, journal: str, entries: Sequence[bytes], *, durable: bool = True) -> None:
        """Add entries, all or none."""
        with self._timed(), span("store.append", federation=journal, entries=len(entries)):
            self.store.append(journal, entries, durable=durable)

    def replace(self, journal: str, snapshot: bytes, *, durable: bool = True) -> None:
        """Put a snapshot in the place of everything."""
        with self._timed(), span("store.replace", federation=journal, bytes=len(snapshot)):
            self.store.replace(journal, snapshot, durable=durable)

    def put(self, journals: Sequence[StoredJournal]) -> None:
        """Put whole journals in the place of those of their names."""
        with self._timed(), span("store.put", federations=len(journals)):
            self.store.put(journals)

    def claim(self, journal: str, address: str = "", configuration: str = "") -> None:
        """Become the owner."""
        self.store.claim(journal, address, configuration)

    def release(self, journal: str) -> None:
        """Be the owner no longer."""
        self.store.release(journal)

    def holds(self, journal: str) -> bool:
        """Whether this process was the owner a moment ago."""
        return self.store.holds(journal)

    def confirm(self, journal: str) -> None:
        """Whether it is now."""
        self.store.confirm(journal)

    def owner(self, journal: str) -> Owner | None:
        """Whose it is."""
        return self.store.owner(journal)

    def compact(self) -> None:
        """Leave nothing of what was deleted."""
        self.store.compact()

    def files(self) -> str:
        """In which files it is."""
        return self.store.files()

    def names(self) -> list[str]:
        """Of the journals there are."""
        return self.store.names()

    def delete(self, journal: str) -> None:
        """Leave nothing of a journal."""
        self.store.delete(journal)

    def check(self) -> None:
        """Whether it can be used."""
        self.store.check()

    def dump(self) -> list[StoredJournal]:
        """All journals."""
        return self.store.dump()

    def close(self) -> None:
        """Let others open it."""
        self.store.close()

    def remove(self) -> None:
        """Leave nothing of it."""
        self.store.remove()

    def abandon(self) -> None:
        """Never touch it again."""
        self.store.abandon()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        except BaseException:
            self.failures += 1
            raise
        finally:
            self.writes.add(time.perf_counter() - begun)


def timed(store: Store) -> TimedStore:
    """A store whose writes are timed."""
    return store if isinstance(store, TimedStore) else TimedStore(store)


INSTALLED = find_spec("opentelemetry") is not None


def span(name: str, **attributes: str | int) -> AbstractContextManager[Any]:
    """What is done inside is a span `fedbandit.name` with these attributes: names of federations, counts.

    Where they go is OpenTelemetry's business: `opentelemetry-instrument fedbandit serve …`, or a tracer provider of the
    process. Without one, or without `fedbandit[telemetry]`, they cost next to nothing.
    """
    if not INSTALLED:
        return nullcontext()
    from opentelemetry import trace

    told = {f"fedbandit.{key}": value for key, value in attributes.items()}
    return trace.get_tracer("fedbandit").start_as_current_span(
        f"fedbandit.{name}",
        attributes=told,
        record_exception=False,  # its sentence may quote data
        set_status_on_exception=False,
    )
