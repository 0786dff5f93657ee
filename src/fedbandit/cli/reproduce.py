"""`fedbandit reproduce`: experiments of the papers."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbandit.cli.arguments import add_jobs
from fedbandit.errors import FedbanditError

if TYPE_CHECKING:
    from fedbandit.studies import Experiment

SUMMARY = "Regenerate figures and tables of the papers, and check what they claim."
MARKS = {True: "✔", False: "✘", None: "–"}


def add_experiment_flags(command: argparse.ArgumentParser) -> None:
    """Where results go, and on what they are computed."""
    command.add_argument("--out", type=Path, default=Path("results"), metavar="FOLDER", help="default: results")
    command.add_argument("--workers", choices=("processes", "ray"), default="processes", help="default: processes")
    command.add_argument("--address", metavar="ADDRESS", help="of a Ray cluster (default: one is started here)")
    command.add_argument(
        "--shard",
        metavar="I/N",
        help="run the I-th of N shares: one for each job of a batch system, on one folder",
    )
    add_jobs(command)


def add_flags(command: argparse.ArgumentParser) -> None:
    """Which experiments, and how large."""
    command.add_argument(
        "names", metavar="NAME", nargs="*", help="such as async-linucb/fig2a, or a paper: async-linucb"
    )
    command.add_argument("--all", action="store_true", help="all experiments of all papers")
    command.add_argument("--scale", choices=("quick", "paper"), default="quick", help="default: quick")
    add_experiment_flags(command)


def run(options: argparse.Namespace) -> int:
    """Regenerate figures and tables of the papers."""
    from fedbandit.studies.experiment import choose

    return carry_out(choose(options.names, options.all), options.scale, options, strict=False)


def carry_out(experiments: Sequence[Experiment], scale: str, options: argparse.Namespace, *, strict: bool) -> int:
    """Run experiments, tell what came of each, and say where the report is."""
    from fedbandit.progress import bar
    from fedbandit.studies.reproduce import Shard, reproduce
    from fedbandit.studies.workers import Workers

    if options.address is not None and options.workers != "ray":
        raise FedbanditError("--address is that of a Ray cluster; it needs --workers ray.")
    start = time.perf_counter()
    with bar(None, "interactions", scaled=True) as shown:

        def begin(total: int, done: int) -> None:
            shown.reset(total=total)
            shown.initial = shown.n = shown.last_print_n = done  # earlier runs say nothing about the time left
            shown.refresh()
            if shown.disable and not options.json:  # no terminal to draw a bar on, and this may take hours
                print(f"{total - done:,} interactions to run.", file=sys.stderr, flush=True)

        def finished(summary: dict[str, Any]) -> None:
            if not options.json:
                with shown.external_write_mode(file=sys.stdout):
                    print(_told(summary), flush=True)

        try:
            summaries = reproduce(
                experiments,
                scale,
                options.out,
                workers=Workers(options.workers, options.jobs, options.address),
                shard=None if options.shard is None else Shard.parse(options.shard),
                strict=strict,
                command=options.command_line,
                begin=begin,
                progress=shown.update,
                finished=finished,
            )
        except KeyboardInterrupt:
            print("\nInterrupted; runs that are done are kept: the same command goes on from here.", file=sys.stderr)
            raise
    seconds = time.perf_counter() - start
    index = options.out / "index.html"
    waiting = len(experiments) - len(summaries)
    if waiting and not options.json:
        print(f"{waiting} waiting for other shards: the last one to end writes the report.")
    if options.json:
        print(json.dumps({"experiments": summaries, "seconds": round(seconds, 2), "index": str(index)}))
    else:
        held = [claim["holds"] for summary in summaries for claim in summary["claims"]]
        print(
            f"\n{len(summaries)} experiment{'s' if len(summaries) != 1 else ''} in {seconds:,.0f} s: "
            f"{held.count(True)} claims hold, "
            f"{held.count(False)} do not, {held.count(None)} are open; see {index}"
        )
    return 0


def _told(summary: dict[str, Any]) -> str:
    """An experiment in a few lines: its claims, and what was not run."""
    lines = [f"{summary['name']} ({summary['scale']}): {summary['title']}"]
    lines += [f"  {MARKS[claim['holds']]} {claim['text']}  [{claim['numbers']}]" for claim in summary["claims"]]
    for reason in dict.fromkeys(summary["skipped"].values()):
        which = [what for what, why in summary["skipped"].items() if why == reason]
        named = ", ".join(which[:3]) + (f" and {len(which) - 3} more" if len(which) > 3 else "")
        lines.append(f"  not run: {named}: {reason}")
    return "\n".join(lines)
