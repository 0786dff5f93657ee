"""The command line: `fedbandit list`, `simulate`, `compare`, and the commands of `fedbandit.cli`.

What is heavy (NumPy, Numba, the systems) is imported by the command that needs it, so that `fedbandit --help`
answers at once.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedbandit._version import __version__
from fedbandit.cli import run_in_its_module
from fedbandit.cli.arguments import add_keyword_flags, build_parser, keyword_flags, unexpected
from fedbandit.errors import FedbanditError, unknown

if TYPE_CHECKING:
    from fedbandit.studies.specs import Spec

DEFAULT_HORIZON = 30_000


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status: 0, or 2 after one sentence on standard error."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no ± must not end a day of computing
    try:
        status = run_command(arguments)
        sys.stdout.flush()
    except FedbanditError as error:
        print(f"fedbandit: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except MemoryError as error:
        print(f"fedbandit: There is not enough memory for this: {error or 'try fewer rounds'}.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever was reading has seen enough
        _drop_output()
        return 141
    except OSError as error:
        try:
            sys.stdout.flush()
        except OSError:
            _drop_output()
        where = "" if error.filename is None else f"{error.filename!r}: "
        print(f"fedbandit: {where}{error.strerror or str(error) or type(error).__name__}.", file=sys.stderr)
        return 2
    return status


def _drop_output() -> None:
    """What has not been written by now cannot be: Python must not try again when it ends."""
    with contextlib.suppress(OSError):  # it is no file
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def run_command(arguments: list[str]) -> int:
    """Parse the arguments and do what they say."""
    command = next((word for word in arguments if not word.startswith("-")), None)
    parser, commands = build_parser()
    if command is not None and command not in commands:
        raise unknown("command", command, commands)
    called = " ".join([word for word in arguments if not word.startswith("-")][: 2 if command == "data" else 1])
    if called in ("simulate", "compare", "audit", "data prepare"):
        add_keyword_flags(commands[called], called, arguments)
    options, rest = parser.parse_known_args(arguments)
    if rest:
        raise unexpected(rest[0], commands.get(called) or commands.get(command or "", parser))
    if command is None:
        parser.print_help()
        return 0
    options.command_line = shlex.join(["fedbandit", *arguments])
    options.keywords = keyword_flags(options)
    here = {"list": list_names, "simulate": simulate, "compare": compare}
    return here[command](options) if command in here else run_in_its_module(command, options)


def list_names(options: argparse.Namespace) -> int:
    """Print what there is, with the first line of its docstring."""
    from fedbandit.studies.catalogue import catalogue
    from fedbandit.studies.keywords import keywords_of
    from fedbandit.studies.measured import capitalised
    from fedbandit.studies.specs import ENVIRONMENTS_BY_TEXT, SYSTEMS, hyphenated

    sections: dict[str, list[dict[str, Any]]] = {}
    for kind, makers in (("systems", SYSTEMS), ("environments", ENVIRONMENTS_BY_TEXT)):
        sections[kind] = []
        for name, maker in makers.items():
            summary = (maker.__doc__ or "").strip().partition("\n")[0]
            if kind == "systems" and maker.__name__ != name:
                summary = f"Another name of {hyphenated(maker.__name__)}."
            sections[kind].append({"name": hyphenated(name), "summary": summary, "keywords": list(keywords_of(maker))})
    sections["experiments"] = [
        {
            "name": name,
            "summary": f"{capitalised(experiment.title)}.",
            "scales": list(experiment.scales),
        }
        for name, experiment in catalogue().items()
    ]
    if options.json:
        print(json.dumps(sections))
        return 0
    for kind, entries in sections.items():
        width = max(len(entry["name"]) for entry in entries)
        print(f"{kind}:")
        for entry in entries:
            print(f"  {entry['name']:{width}}  {entry['summary']}")
    return 0


def simulate(options: argparse.Namespace) -> int:
    """Run one system and report."""
    from tqdm import tqdm

    from fedbandit.engine import simulate as run
    from fedbandit.evaluation.likes import format_likes, likes_report
    from fedbandit.studies.plots import draw_result, require_image_name, save_figure
    from fedbandit.studies.runner import report_of
    from fedbandit.studies.specs import build_environment, build_system
    from fedbandit.studies.tables import require_writable, writing

    (spec,), env_spec = _specs(options, [options.system])
    system, env = build_system(spec), build_environment(env_spec)
    horizon = _horizon(options, env.longest)
    for path in filter(None, (options.save, options.checkpoint, options.plot)):
        require_writable(path)
    if options.plot is not None:
        require_image_name(options.plot)
    start = time.perf_counter()
    with tqdm(total=horizon, unit=" rounds", unit_scale=True, disable=None, leave=False) as bar:
        result = run(
            system,
            env,
            horizon,
            options.seed,
            progress=bar.update,
            checkpoint=options.checkpoint,
            checkpoint_every=options.checkpoint_every,
        )
    report = report_of(result, time.perf_counter() - start)
    likes = likes_report(result, env)
    if options.save is not None:
        with writing(options.save) as partial:
            result.save(partial)
    if options.plot is not None:
        save_figure(draw_result(result), options.plot)
    if options.json:
        print(json.dumps({**report, **likes}, allow_nan=False))
    else:
        print(f"{report['system']} on {report['environment']}: {horizon:,} rounds, seed {options.seed}")
        for name in ("regret", "reward", "uploads", "downloads", "scalars", "bytes", "seconds"):
            digits = 0 if isinstance(report[name], int) else 2
            print(f"  {name:9}  {report[name]:>15,.{digits}f}")
        print(f"  guarantee  {report['guarantee']}")
        if result.privacy is not None:
            print(f"  privacy    {result.privacy}")
        print(format_likes(likes), end="")
    return 0


def compare(options: argparse.Namespace) -> int:
    """Run several systems with several seeds; print a table, and write tables and a plot."""
    from tqdm import tqdm

    from fedbandit.environments.block import world_of
    from fedbandit.studies.compare import aggregate, format_table, trials_of
    from fedbandit.studies.normalised import format_normalised, normalised_rewards, yardstick_trials
    from fedbandit.studies.report import write_comparison
    from fedbandit.studies.runner import run_trials
    from fedbandit.studies.specs import Spec, build_environment, build_system
    from fedbandit.studies.tables import make_folder, require_format

    if options.jobs is not None and options.jobs < 1:
        raise FedbanditError(f"--jobs is {options.jobs}, but must be at least 1.")
    specs, env_spec = _specs(options, options.systems)
    env = build_environment(env_spec)
    horizon = _horizon(options, env.longest)
    world = world_of(env, horizon)
    for spec in specs:
        build_system(spec).told(world)  # whatever is wrong with one is said before any is run
    labels = [Spec.parse(text).label for text in options.systems]
    trials = trials_of(list(zip(labels, specs, strict=True)), env_spec, horizon, options.seeds)
    if options.out is not None:
        require_format(options.format)
        make_folder(options.out)
    yardstick = yardstick_trials(env, env_spec, horizon, options.seeds)
    with tqdm(total=len(trials) + len(yardstick), unit=" runs", disable=None, leave=False) as bar:
        runs = run_trials([*trials, *yardstick], processes=options.jobs, progress=lambda _: bar.update())
    runs, random = runs[: len(trials)], runs[len(trials) :]
    lines, normalised = aggregate(runs), normalised_rewards(runs, random)
    summary = {
        "command": options.command_line,
        "version": __version__,
        "environment": env.name,
        "horizon": horizon,
        "seeds": list(options.seeds),
        "systems": [line.as_json() | normalised.get(line.label, {}) for line in lines],
    }
    if options.json:
        print(json.dumps(summary, allow_nan=False))
    else:
        several = len(options.seeds) > 1
        seeds = f"{len(options.seeds)} seeds; means ± one standard error" if several else f"seed {options.seeds[0]}"
        print(f"{env.name}: {horizon:,} rounds, {seeds}\n")
        print(format_table(lines))
        if normalised:
            print(f"\n{format_normalised(normalised)}")
    if options.out is not None:
        written = write_comparison(options.out, options.format, runs, summary, env)
        if not options.json:
            print(f"\nwritten: {', '.join(map(str, written))}")
        if not any(path.suffix == ".png" for path in written):
            print("There is no plot, as that needs matplotlib: pip install 'fedbandit[plots]'.", file=sys.stderr)
    return 0


def _horizon(options: argparse.Namespace, longest: int | None) -> int:
    if options.horizon is not None:
        return int(options.horizon)
    return DEFAULT_HORIZON if longest is None else longest


def _specs(options: argparse.Namespace, texts: Sequence[str]) -> tuple[list[Spec], Spec]:
    """The systems and the environment with the keywords that were given as flags."""
    from fedbandit.studies.specs import Spec, distribute

    return distribute(options.keywords, [Spec.parse(text) for text in texts], Spec.parse(options.env))
