"""`fedbandit simulate`: one system on one environment."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from fedbandit.cli.arguments import SYSTEM_HELP, Parser, add_seed, add_world_flags, whole_number

SUMMARY = "Run one system on one environment."
DEFAULT_HORIZON = 30_000


def add_flags(command: Parser) -> None:
    """The system, its world, and what is kept."""
    command.add_argument("system", metavar="SYSTEM", help=SYSTEM_HELP)
    add_world_flags(command, "fedbandit simulate SYSTEM [flags]")
    command.add_argument("--save", type=Path, metavar="FILE.npz", help="keep the whole result, for fb.Result.load")
    command.add_argument(
        "--checkpoint", type=Path, metavar="FILE", help="save the state now and then, and go on from it"
    )
    command.add_argument(
        "--checkpoint-every",
        type=whole_number,
        default=100_000,
        metavar="ROUNDS",
        help="how often (default: 100000 rounds; a shorter run saves nothing)",
    )
    command.add_argument("--plot", type=Path, metavar="FILE.png", help="draw regret and messages over rounds")
    command.add_argument(
        "--engine",
        choices=("auto", "plain", "fast"),
        default="auto",
        help="plain: NumPy, runs everything; fast: compiled; auto: the fast one where it pays (default)",
    )
    add_seed(command)


def run(options: argparse.Namespace) -> int:
    """Run one system and report."""
    from fedbandit.engine import simulate
    from fedbandit.engine.fast import compiling_seconds
    from fedbandit.environments.recorded import Recorded
    from fedbandit.evaluation.likes import format_likes, likes_report
    from fedbandit.files import require_writable, writing
    from fedbandit.progress import bar
    from fedbandit.studies.figures import new_figure, require_image_name, save_figure
    from fedbandit.studies.specs import EnvironmentSpec, SystemSpec, distribute
    from fedbandit.studies.trials import report_of

    specs = distribute(options.keywords, [SystemSpec.parse(options.system)], [EnvironmentSpec.parse(options.env)])
    (spec,), (env_spec,) = specs
    system, env = spec(), env_spec()
    horizon = horizon_of(options, env.longest)
    for path in filter(None, (options.save, options.checkpoint, options.plot)):
        require_writable(path)
    if options.plot is not None:
        require_image_name(options.plot)
    start = time.perf_counter() - compiling_seconds()
    with bar(horizon, "rounds", scaled=True) as shown:
        result = simulate(
            system,
            env,
            horizon,
            options.seed,
            engine=options.engine,
            progress=shown.update,
            checkpoint=options.checkpoint,
            checkpoint_every=options.checkpoint_every,
        )
    notes = env.notes if isinstance(env, Recorded) else ()
    for note in notes if not options.json else ():
        print(f"fedbandit: {note}", file=sys.stderr)
    report = report_of(result, time.perf_counter() - compiling_seconds() - start)
    likes = likes_report(result, env)
    if options.save is not None:
        with writing(options.save) as partial:
            result.save(partial)
    if options.plot is not None:
        figure = new_figure(7, 4.2)
        result.plot(figure.subplots())
        save_figure(figure, options.plot)
    if options.json:
        print(json.dumps({**report, **likes, **({"notes": notes} if notes else {})}, allow_nan=False))
    else:
        print(f"{report['system']} on {report['environment']}: {horizon:,} rounds, seed {options.seed}")
        for name in ("regret", "reward", "uploads", "downloads", "scalars", "bytes", "seconds"):
            digits = 0 if isinstance(report[name], int) else 2
            print(f"  {name:9}  {report[name]:>15,.{digits}f}")
        print(f"  engine     {result.engine:>15}")
        print(f"  guarantee  {report['guarantee']}")
        if result.privacy is not None:
            print(f"  privacy    {result.privacy}")
        print(format_likes(likes), end="")
    return 0


def horizon_of(options: argparse.Namespace, longest: int | None) -> int:
    """The rounds that were asked for; by default all recorded ones, or 30,000."""
    if options.horizon is not None:
        return int(options.horizon)
    return DEFAULT_HORIZON if longest is None else longest
