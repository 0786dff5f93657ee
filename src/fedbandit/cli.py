"""The command line: `fedbandit list`, `simulate`, `compare` and `demo`.

What is heavy (NumPy, Numba, the systems) is imported by the command that needs it, so that `fedbandit --help` answers
at once. Every keyword of a system or an environment is a flag; the flags are read off the functions' signatures.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from fedbandit._version import __version__
from fedbandit.errors import FedbanditError, unknown

if TYPE_CHECKING:
    from fedbandit.experiments.specs import Spec

DEFAULT_HORIZON = 30_000
DEFAULTS = """
Unless said otherwise an environment has 100 clients, 25 dimensions and 25 arms, and runs for 30,000 rounds (recorded
data: to their end). Any keyword of the systems and of the environment is a flag, such as --clients 1000, --pool 500,
--arrivals skewed, --drift 10000,20000, --delay 1,10, --gamma-upload 2, --warm-join, --policy lints; lists have commas,
and there are inf and none. A keyword that both know goes to the environment.

SYSTEM is a name (see: fedbandit list), a name with keywords, async-linucb:gamma_upload=2,gamma_download=inf, or a
function that returns a System in a file of yours, path/to/my.py:my_system.
"""
DEMO = (
    ["linucb", "sync-linucb", "async-linucb:gamma_upload=5,gamma_download=5", "linucb-central"],
    ["--env", "homogeneous", "--clients", "100", "--dim", "25", "--arms", "25", "--horizon", "30000", "--seeds", "3"],
)
_KEYWORD = "keyword:"  # marks what argparse found out about keywords
_SHORT_FLAGS = {"n_clients": "--clients", "n_arms": "--arms"}
_OWN_FLAGS = {"env", "horizon", "seed", "seeds", "json", "save", "checkpoint", "plot", "out", "jobs", "format", "help"}


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are errors like all others: one sentence."""

    def error(self, message: str) -> NoReturn:
        """Refuse the command line."""
        raise FedbanditError(f"{message[0].upper()}{message[1:].rstrip('.')}; see {self.prog} --help.")


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
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever was reading has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return status


def run_command(arguments: list[str]) -> int:
    """Parse the arguments and do what they say."""
    command = next((word for word in arguments if not word.startswith("-")), None)
    parser, commands = build_parser()
    if command is not None and command not in commands:
        raise unknown("command", command, commands)
    if command in ("simulate", "compare"):
        add_keyword_flags(commands[command], arguments)
    options, rest = parser.parse_known_args(arguments)
    if rest:
        raise _unexpected(rest[0], commands.get(command or "", parser))
    if command is None:
        parser.print_help()
        return 0
    if command == "list":
        return list_names(options)
    if command == "demo":
        systems, flags = DEMO
        outputs = ["--out", str(options.out), *(["--json"] if options.json else [])]
        processes = [] if options.jobs is None else ["--jobs", str(options.jobs)]
        return run_command(["compare", *systems, *flags, *outputs, *processes])
    options.command_line = shlex.join(["fedbandit", *arguments])
    return simulate(options) if command == "simulate" else compare(options)


def build_parser() -> tuple[Parser, dict[str, Parser]]:
    """The parser and those of its commands, still without the flags for keywords."""
    parser = Parser(
        prog="fedbandit",
        description="Federated, private, collaborative linear contextual bandits.",
        epilog=DEFAULTS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"fedbandit {__version__}")
    actions = parser.add_subparsers(title="commands", metavar="COMMAND")
    commands: dict[str, Parser] = {}

    def command(name: str, summary: str) -> Parser:
        commands[name] = actions.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=DEFAULTS if name in ("simulate", "compare") else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        commands[name].add_argument("--json", action="store_true", help="print one JSON object instead of text")
        return commands[name]

    command("list", "Show all systems and environments, with one line each.")

    one = command("simulate", "Run one system on one environment.")
    one.add_argument("system", metavar="SYSTEM", help="name, name:keyword=value,… or file.py:function")
    _add_world_flags(one)
    one.add_argument("--seed", type=whole_number, default=0, metavar="S", help="default: 0")
    one.add_argument("--save", type=Path, metavar="FILE.npz", help="keep the whole result, for fedbandit.Result.load")
    one.add_argument("--checkpoint", type=Path, metavar="FILE", help="save the state now and then, and go on from it")
    one.add_argument("--plot", type=Path, metavar="FILE.png", help="draw regret and messages over rounds")

    several = command("compare", "Run several systems with several seeds, in parallel, on the same data.")
    several.add_argument("systems", metavar="SYSTEM", nargs="+", help="name, name:keyword=value,… or file.py:function")
    _add_world_flags(several)
    several.add_argument(
        "--seeds", type=seeds, default=range(10), metavar="N", help="N for seeds 0, …, N-1, or a list (default: 10)"
    )
    several.add_argument("--out", type=Path, metavar="FOLDER", help="write runs, curves, summary.json and regret.png")
    several.add_argument("--format", choices=("csv", "parquet"), default="csv", help="of runs and curves")

    demo = command("demo", "Compare four systems on a small world: about a minute.")
    demo.add_argument("--out", type=Path, metavar="FOLDER", default=Path("results/demo"), help="default: results/demo")
    for parallel in (several, demo):
        parallel.add_argument("--jobs", type=whole_number, metavar="J", help="processes (default: all processors)")
    return parser, commands


def _add_world_flags(command: Parser) -> None:
    command.add_argument("--env", default="homogeneous", metavar="NAME", help="default: homogeneous")
    command.add_argument("--horizon", type=whole_number, metavar="T", help="rounds (default: 30000)")


def add_keyword_flags(command: Parser, arguments: Sequence[str]) -> None:
    """Make a flag of every keyword of every system and environment, those in the user's files included."""
    from fedbandit.experiments.keywords import Keyword, keywords_of
    from fedbandit.experiments.specs import ENVIRONMENTS_BY_TEXT, SYSTEMS, Spec, hyphenated, system_maker

    makers = {**SYSTEMS, **ENVIRONMENTS_BY_TEXT}
    for word in arguments:
        if ".py:" in word and not word.startswith("-"):
            name = Spec.parse(word).name
            makers[name] = system_maker(name)
    found: dict[str, Keyword] = {}
    takers: dict[str, list[str]] = {}
    for name, maker in makers.items():
        for keyword in keywords_of(maker).values():
            found.setdefault(keyword.name, keyword)
            takers.setdefault(keyword.name, []).append(hyphenated(name))
    group = command.add_argument_group("keywords")
    for name, keyword in found.items():
        if name in _OWN_FLAGS:
            continue
        flags = [_SHORT_FLAGS[name]] if name in _SHORT_FLAGS else []
        flags.append(f"--{hyphenated(name)}")
        who = ", ".join(takers[name]) if len(takers[name]) <= 3 else "most systems"
        if keyword.is_switch:
            group.add_argument(
                *flags, action=argparse.BooleanOptionalAction, dest=_KEYWORD + name, default=argparse.SUPPRESS, help=who
            )
        else:
            group.add_argument(*flags, dest=_KEYWORD + name, default=argparse.SUPPRESS, metavar="VALUE", help=who)


def whole_number(text: str) -> int:
    """A number such as 30000, 30_000 or 3e4."""
    try:
        number = float(text)
        if number != int(number):
            raise ValueError
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    return int(number)


def seeds(text: str) -> Sequence[int]:
    """How many seeds, or which."""
    if "," in text:
        chosen = [whole_number(part) for part in text.split(",") if part]
    else:
        chosen = list(range(whole_number(text)))
    if not chosen or len(set(chosen)) < len(chosen):
        raise argparse.ArgumentTypeError(f"{text!r} does not name at least one seed, each once")
    return chosen


def list_names(options: argparse.Namespace) -> int:
    """Print what there is, with the first line of its docstring."""
    from fedbandit.experiments.keywords import keywords_of
    from fedbandit.experiments.specs import ENVIRONMENTS_BY_TEXT, SYSTEMS, hyphenated

    sections: dict[str, list[dict[str, object]]] = {}
    for kind, makers in (("systems", SYSTEMS), ("environments", ENVIRONMENTS_BY_TEXT)):
        sections[kind] = []
        for name, maker in makers.items():
            summary = (maker.__doc__ or "").strip().partition("\n")[0]
            if kind == "systems" and maker.__name__ != name:
                summary = f"Another name of {hyphenated(maker.__name__)}."
            entry = {"name": hyphenated(name), "summary": summary, "keywords": list(keywords_of(maker))}
            sections[kind].append(entry)
    if options.json:
        print(json.dumps(sections))
        return 0
    width = max(len(str(entry["name"])) for entries in sections.values() for entry in entries)
    for kind, entries in sections.items():
        print(f"{kind}:")
        for entry in entries:
            print(f"  {entry['name']!s:{width}}  {entry['summary']}")
    return 0


def simulate(options: argparse.Namespace) -> int:
    """Run one system and report."""
    from tqdm import tqdm

    from fedbandit.engine import simulate as run
    from fedbandit.experiments.plots import draw_result, require_image_name, save_figure
    from fedbandit.experiments.runner import report_of
    from fedbandit.experiments.specs import build_environment, build_system
    from fedbandit.experiments.tables import require_writable, writing

    (spec,), env_spec = _specs(options, [options.system])
    system, env = build_system(spec), build_environment(env_spec)
    horizon = _horizon(options, env.longest)
    for path in filter(None, (options.save, options.checkpoint, options.plot)):
        require_writable(path)
    if options.plot is not None:
        require_image_name(options.plot)
    start = time.perf_counter()
    with tqdm(total=horizon, unit=" rounds", unit_scale=True, disable=None, leave=False) as bar:
        result = run(system, env, horizon, options.seed, progress=bar.update, checkpoint=options.checkpoint)
    report = report_of(result, time.perf_counter() - start)
    if options.save is not None:
        with writing(options.save) as partial:
            result.save(partial)
    if options.plot is not None:
        save_figure(draw_result(result), options.plot)
    if options.json:
        print(json.dumps(report, allow_nan=False))
    else:
        print(f"{report['system']} on {report['environment']}: {horizon:,} rounds, seed {options.seed}")
        for name in ("regret", "reward", "uploads", "downloads", "scalars", "bytes", "seconds"):
            digits = 0 if isinstance(report[name], int) else 2
            print(f"  {name:9}  {report[name]:>15,.{digits}f}")
        print(f"  guarantee  {report['guarantee']}")
    return 0


def compare(options: argparse.Namespace) -> int:
    """Run several systems with several seeds; print a table, and write tables and a plot."""
    from tqdm import tqdm

    from fedbandit.experiments.compare import aggregate, format_table, trials_of
    from fedbandit.experiments.runner import run_trials
    from fedbandit.experiments.specs import Spec, build_environment, build_system
    from fedbandit.experiments.tables import make_folder, require_format

    if options.jobs is not None and options.jobs < 1:
        raise FedbanditError(f"--jobs is {options.jobs}, but must be at least 1.")
    specs, env_spec = _specs(options, options.systems)
    env = build_environment(env_spec)
    for spec in specs:
        build_system(spec)  # whatever is wrong with one is said before any is run
    horizon = _horizon(options, env.longest)
    labels = [Spec.parse(text).label for text in options.systems]
    trials = trials_of(list(zip(labels, specs, strict=True)), env_spec, horizon, options.seeds)
    if options.out is not None:
        require_format(options.format)
        make_folder(options.out)
    with tqdm(total=len(trials), unit=" runs", disable=None, leave=False) as bar:
        runs = run_trials(trials, processes=options.jobs, progress=lambda run: bar.update(run is not None))
    lines = aggregate(runs)
    summary = {
        "command": options.command_line,
        "version": __version__,
        "environment": env.name,
        "horizon": horizon,
        "seeds": list(options.seeds),
        "systems": [line.as_json() for line in lines],
    }
    if options.json:
        print(json.dumps(summary, allow_nan=False))
    else:
        print(f"{env.name}: {horizon:,} rounds, {len(options.seeds)} seeds; means ± one standard error\n")
        print(format_table(lines))
    if options.out is not None:
        sys.stdout.flush()
        _write_comparison(options, runs, summary)
    return 0
