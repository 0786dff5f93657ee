"""What an upload costs of processor, and whom: the coordinators, PostgreSQL, the processes that send.

`python -m benchmarks processor`: one federation and two, in one database and in two, in turns, and one front. On a busy
machine uploads a second say little, and processor time says what two cores could do at the most. FEDBANDIT_SECONDS is
how long each load lasts, FEDBANDIT_TURNS how often each is measured, FEDBANDIT_CLIENTS how many are connected besides,
at the end; 0: none.
"""

from __future__ import annotations

import contextlib
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.coordinators import DIM, connected
from benchmarks.network import LOADS, SECONDS, SENDERS, coordinator, started, uploads_of
from benchmarks.postgres import postgres
from benchmarks.timing import table

TURNS = int(os.environ.get("FEDBANDIT_TURNS", "5"))
CLIENTS = int(os.environ.get("FEDBANDIT_CLIENTS", "0"))


class Cost(NamedTuple):
    """Uploads a second, and microseconds of processor an upload."""

    rate: float
    coordinators: float
    database: float
    load: float

    @property
    def all(self) -> float:
        """Of everybody."""
        return self.coordinators + self.database + self.load


def family(process: int) -> list[int]:
    """A process and all that it has started."""
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        children = []
    return [process, *(found for child in children for found in family(int(child)))]


def seconds_of(processes: list[int]) -> float:
    """Processor time so far of these, of what they have started, and of what of that has ended."""
    ticks = 0
    for process in {found for each in processes for found in family(each)}:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def servers_of_postgresql() -> list[int]:
    """The database server that this process has started; none if FEDBANDIT_POSTGRES names another."""
    mine = family(os.getpid())[1:]
    return [one for one in mine if "postgres" in Path(f"/proc/{one}/comm").read_text()][:1]


def cost(processes: list[int], urls: list[tuple[str, str]], first: int = 0) -> Cost:
    """Let senders upload to these coordinators, each to its federation."""
    database = servers_of_postgresql()
    before = seconds_of(processes), seconds_of(database), own()
    loads = [load for url, name in urls for load in started(url, DIM, first=first, federation=name)]
    rate = uploads_of(loads)
    spent = seconds_of(processes) - before[0], seconds_of(database) - before[1], own() - before[2]
    return Cost(rate, *(1e6 * seconds / (rate * SECONDS) for seconds in spent))


def own() -> float:
    """Processor time of the senders that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@contextlib.contextmanager
def servers(names: list[str], database: Callable[[], str], *, apart: bool, more: str) -> Iterator[Callable[[], Cost]]:
    """A coordinator for each federation; what measures them."""
    with contextlib.ExitStack() as stack:
        store, processes, urls = database(), [], []
        for name in names:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            where: dict[str, Any] = {"federation": name, "more": more}
            url, process = stack.enter_context(coordinator(folder, DIM, database() if apart else store, **where))
            urls.append((url, name))
            processes.append(process)
        yield lambda: cost(processes, urls)


def in_turns(database: Callable[[], str]) -> str:
    """Medians, and rates in units of those of the turn's first."""
    kinds: dict[str, tuple[list[str], bool, str]] = {
        "one federation": (["one"], False, ""),
        "one front": (["one"], False, "fronts = 1"),
        "two federations": (["one", "two"], False, ""),
        "two, a database each": (["one", "two"], True, ""),
    }
    found: dict[str, list[Cost]] = {kind: [] for kind in kinds}
    for _ in range(TURNS):
        for kind, (names, apart, more) in kinds.items():
            with servers(names, database, apart=apart, more=more) as measure:
                found[kind].append(measure())
    lines = []
    for kind, costs in found.items():
        ratios = [one.rate / of.rate for one, of in zip(costs, found["one federation"], strict=True)]
        cells = [statistics.median(column) for column in zip(*costs, strict=True)]
        whole = statistics.median(one.all for one in costs)
        ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
        lines.append([kind, f"{cells[0]:,.0f}", ratio, *(f"{cell:.0f}" for cell in (*cells[1:], whole)),
                      f"{2e6 / whole:,.0f}"])  # fmt: skip
    head = ["", "uploads/s", "of one", "µs: coordinators", "PostgreSQL", "load", "all", "at most on two cores"]
    return table(head, lines)


def beside(database: Callable[[], str], count: int) -> str:
    """Uploads alone, beside so many clients that are only connected, and alone again."""
    settings: dict[str, Any] = {"more": "fronts = 2", "clients": count + 1000, "gamma": 1e300}
    with (
        tempfile.TemporaryDirectory() as folder,
        coordinator(Path(folder), DIM, database(), **settings) as (url, process),
    ):
        firsts = iter(range(0, 10**6, SENDERS * LOADS))
        told = [("alone", cost([process], [(url, "load")], next(firsts)))]
        with connected(url, count) as crowds:
            before = seconds_of([process]), seconds_of(crowds)
            time.sleep(10.0)
            idle = (seconds_of([process]) - before[0]) / 10, (seconds_of(crowds) - before[1]) / 10
            told += [("beside them", cost([process], [(url, "load")], next(firsts))) for _ in range(2)]
        time.sleep(5.0)
        told += [("alone again", cost([process], [(url, "load")], next(firsts))) for _ in range(2)]
    head = f"{count:,} idle clients take {idle[0]:.3f} cores of coordinator and fronts, {idle[1]:.3f} of their own."
    lines = [[what, f"{one.rate:,.0f}", f"{one.coordinators:.0f}", f"{one.all:.0f}"] for what, one in told]
    return f"{head}\n{table(['', 'uploads/s', 'µs: coordinators', 'all'], lines)}"


def main() -> None:
    """Print the tables."""
    with postgres() as database:
        if database is None:
            print("PostgreSQL is not installed: there is no initdb, and FEDBANDIT_POSTGRES is not set.")
            return
        if TURNS:
            print(in_turns(database), flush=True)
        if CLIENTS:
            print(f"\n{beside(database, CLIENTS)}")
