"""`fedbandit compare`: several systems with several seeds, on the same data."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from fedbandit._version import __version__
from fedbandit.cli.arguments import SYSTEM_HELP, Parser, add_jobs, add_world_flags, seeds
from fedbandit.cli.simulate import horizon_of

BANDS = ("error", "interval", "quantiles", "runs")
SUMMARY = "Run several systems with several seeds, on the same data."


def add_flags(command: Parser) -> None:
    """The systems, their world, seeds, and what is written."""
    command.add_argument("systems", metavar="SYSTEM", nargs="+", help=SYSTEM_HELP)
    add_world_flags(command, "fedbandit compare SYSTEM … [flags]")
    command.add_argument(
        "--seeds", type=seeds, default=range(10), metavar="N", help="N for seeds 0, …, N-1, or a list (default: 10)"
    )
    command.add_argument("--out", type=Path, metavar="FOLDER", help="write runs, curves, summary.json and regret.png")
    command.add_argument("--band", choices=tuple(BANDS), default="error", help="around means, in the picture")
    command.add_argument(
        "--log", action=argparse.BooleanOptionalAction, help="a logarithmic axis (default: where curves differ widely)"
    )
    command.add_argument("--format", choices=("csv", "parquet"), default="csv", help="of runs and curves")
    add_jobs(command)


def run(options: argparse.Namespace) -> int:
    """Run all systems with all seeds; print a table, and write tables and a plot."""
    from fedbandit.environments.block import world_of
    from fedbandit.files import make_folder, require_format
    from fedbandit.progress import bar
    from fedbandit.studies.compare import format_table, lines_of, trials_of, write_comparison
    from fedbandit.studies.specs import EnvironmentSpec, SystemSpec, distribute
    from fedbandit.studies.trials import made_environment
    from fedbandit.studies.workers import Workers, run_trials

    workers = Workers(jobs=options.jobs)
    named = [SystemSpec.parse(text) for text in options.systems]
    specs, (env_spec,) = distribute(options.keywords, named, [EnvironmentSpec.parse(options.env)])
    env = made_environment(env_spec)
    horizon = horizon_of(options, env.longest)
    world = world_of(env, horizon)
    for spec in specs:
        spec().told(world)  # whatever is wrong with one is said before any is run
    titles = [spec.title for spec in named]
    labelled = [
        (spec.title if titles.count(spec.title) == 1 else spec.label, told)
        for spec, told in zip(named, specs, strict=True)
    ]
    trials = trials_of(labelled, env_spec, horizon, options.seeds)
    if options.out is not None:
        require_format(options.format)
        make_folder(options.out)
    with bar(len(trials), "runs") as shown:
        runs = run_trials(trials, workers, lambda _: shown.update())
    lines = lines_of(runs)
    summary = {
        "command": options.command_line,
        "version": __version__,
        "environment": env.name,
        "horizon": horizon,
        "seeds": list(options.seeds),
        "systems": lines,
    }
    if options.json:
        print(json.dumps(summary, allow_nan=False))
    else:
        several = len(options.seeds) > 1
        how = f"{len(options.seeds)} seeds; means ± one standard error" if several else f"seed {options.seeds[0]}"
        print(f"{env.name}: {horizon:,} rounds, {how}\n")
        print(format_table(lines))
    if options.out is not None:
        written = write_comparison(options.out, options.format, runs, summary, env, log=options.log, band=options.band)
        if not options.json:
            print(f"\nwritten: {', '.join(map(str, written))}")
        if not any(path.suffix == ".png" for path in written):
            print("There is no plot, as that needs matplotlib: pip install 'fedbandit[plots]'.", file=sys.stderr)
    return 0
