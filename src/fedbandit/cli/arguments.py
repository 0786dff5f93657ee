"""What the command line accepts: commands, their flags, and a flag for every keyword.

Nothing here imports NumPy or Numba until a command's keywords are asked for.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, cast

from fedbandit._version import __version__
from fedbandit.cli import add_commands, audit, data, replay, reproduce, run
from fedbandit.cli.numbers import seeds, whole_number
from fedbandit.errors import FedbanditError, unknown

DEFAULTS = """
Unless said otherwise an environment has 100 clients, 25 dimensions and 25 arms, and runs for 30,000
rounds (recorded data: to their end). Every keyword of the systems and of the environment is a flag:
--clients 1000, --pool 500, --arrivals skewed, --drift 10000,20000, --delay 1,10, --gamma-upload 2,
--warm-join, --policy lints; lists have commas, and there are inf and none. A keyword that both know
goes to the environment; one that several systems know goes to each of them.

SYSTEM is a name (see: fedbandit list), a name with keywords of its own,
async-linucb:gamma_upload=2,gamma_download=inf, or a function of yours that returns a System,
path/to/my.py:my_system. Recorded data are read from a file: --env recorded --path my.npz; data sets
from a folder: --env lastfm --data folder, or the one that FEDBANDIT_DATA names.
"""
_KEYWORD = "keyword:"  # marks what argparse found out about keywords
_SHORT_FLAGS = {"n_clients": "--clients", "n_arms": "--arms", "path": "--data"}
_OWN_FLAGS = {
    "env",
    "horizon",
    "seed",
    "seeds",
    "json",
    "save",
    "checkpoint",
    "plot",
    "out",
    "jobs",
    "format",
    "help",
    "trials",
}


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are errors like all others: one sentence."""

    def error(self, message: str) -> NoReturn:
        """Refuse the command line."""
        raise FedbanditError(f"{message[0].upper()}{message[1:].rstrip('.')}; see {self.prog} --help.")


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

    def command(name: str, summary: str, usage: str | None = None) -> Parser:
        commands[name] = actions.add_parser(
            name,
            help=summary,
            description=summary,
            usage=usage,
            epilog=DEFAULTS if usage else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        commands[name].add_argument("--json", action="store_true", help="print one JSON object instead of text")
        return commands[name]

    command("list", "Show all systems, environments and experiments, with one line each.")

    one = command("simulate", "Run one system on one environment.", "fedbandit simulate SYSTEM [flags]")
    one.add_argument("system", metavar="SYSTEM", help="name, name:keyword=value,… or file.py:function")
    _add_world_flags(one)
    one.add_argument("--save", type=Path, metavar="FILE.npz", help="keep the whole result, for fedbandit.Result.load")
    one.add_argument("--checkpoint", type=Path, metavar="FILE", help="save the state now and then, and go on from it")
    one.add_argument(
        "--checkpoint-every",
        type=whole_number,
        default=100_000,
        metavar="ROUNDS",
        help="how often (default: 100000 rounds; a shorter run saves nothing)",
    )
    one.add_argument("--plot", type=Path, metavar="FILE.png", help="draw regret and messages over rounds")

    several = command(
        "compare",
        "Run several systems with several seeds, on the same data.",
        "fedbandit compare SYSTEM … [flags]",
    )
    several.add_argument("systems", metavar="SYSTEM", nargs="+", help="name, name:keyword=value,… or file.py:function")
    _add_world_flags(several)
    several.add_argument(
        "--seeds",
        type=seeds,
        default=range(10),
        metavar="N",
        help="N for seeds 0, …, N-1, or a list (default: 10)",
    )
    several.add_argument("--out", type=Path, metavar="FOLDER", help="write runs, curves, summary.json and regret.png")
    several.add_argument("--format", choices=("csv", "parquet"), default="csv", help="of runs and curves")

    prepare = data.add_flags(command("data", "Check or prepare a data set: Last.FM, Delicious or MovieLens."))
    commands["data prepare"] = cast(Parser, prepare)
    logs = command("replay", "Estimate from logged decisions what a system would have earned.")
    replay.add_flags(logs)
    for seeded in (one, logs):
        seeded.add_argument("--seed", type=whole_number, default=0, metavar="S", help="default: 0")
    claims = command(
        "audit",
        "Attack what private systems claim: prints measured lower bounds on ε; exit status 1 if a claim fails.",
        "fedbandit audit [SYSTEM …] [flags]",
    )
    audit.add_flags(claims)
    papers = command("reproduce", "Regenerate figures and tables of the papers, and check what they claim.")
    reproduce.add_flags(papers)
    own = command("run", "Run an experiment of your own, written down in one YAML or Python file.")
    run.add_flags(own)
    for parallel in (several, papers, own):
        parallel.add_argument("--jobs", type=whole_number, metavar="J", help="processes (default: all processors)")
    add_commands(command)
    return parser, commands


def _add_world_flags(command: Parser) -> None:
    command.add_argument("--env", default="homogeneous", metavar="NAME", help="default: homogeneous")
    command.add_argument("--horizon", type=whole_number, metavar="T", help="rounds (default: 30000)")


def add_keyword_flags(command: Parser, called: str, arguments: Sequence[str]) -> None:
    """Make a flag of every keyword of every system and environment that a command takes, those in files included."""
    from fedbandit.studies.keywords import Keyword, keywords_of
    from fedbandit.studies.specs import ENVIRONMENTS_BY_TEXT, SYSTEMS, Spec, hyphenated, system_maker

    worlds_taken = {"data prepare": data.NAMES, "audit": ()}.get(called, tuple(ENVIRONMENTS_BY_TEXT))
    makers: list[tuple[str, Callable[..., object], bool]]
    makers = [(name, maker, False) for name, maker in (SYSTEMS if called != "data prepare" else {}).items()]
    makers += [(name, ENVIRONMENTS_BY_TEXT[name], True) for name in worlds_taken]
    for word in arguments:
        if ".py:" in word and not word.startswith("-"):
            name = Spec.parse(word).name
            makers.append((name, system_maker(name), False))
    found: dict[str, Keyword] = {}
    takers: dict[tuple[str, bool], list[str]] = {}
    for name, maker, is_world in makers:
        for keyword in keywords_of(maker).values():
            found.setdefault(keyword.name, keyword)
            takers.setdefault((keyword.name, is_world), []).append(hyphenated(name))
    group = command.add_argument_group("keywords")
    for name, keyword in found.items():
        if name in _OWN_FLAGS:
            continue
        flags = [_SHORT_FLAGS[name]] if name in _SHORT_FLAGS else []
        flags.append(f"--{hyphenated(name)}")
        worlds, systems = takers.get((name, True), []), takers.get((name, False), [])
        if len(systems) > 3:
            systems = [
                "most systems" if len(systems) > len(SYSTEMS) / 2 else f"{systems[0]} and {len(systems) - 1} more"
            ]
        who = "; ".join(filter(None, (", ".join(worlds), ", ".join(systems))))
        if keyword.is_switch:
            group.add_argument(
                *flags,
                action=argparse.BooleanOptionalAction,
                dest=_KEYWORD + name,
                default=argparse.SUPPRESS,
                help=who,
            )
        else:
            group.add_argument(*flags, dest=_KEYWORD + name, default=argparse.SUPPRESS, metavar="VALUE", help=who)


def keyword_flags(options: argparse.Namespace) -> dict[str, str]:
    """The keywords that were given as flags, with their values as text."""
    return {
        name.removeprefix(_KEYWORD): str(value).lower() if isinstance(value, bool) else value
        for name, value in vars(options).items()
        if name.startswith(_KEYWORD)
    }


def unexpected(word: str, command: Parser) -> FedbanditError:
    """The error for an argument that a command does not take."""
    if not word.startswith("-"):
        return FedbanditError(f"{word!r} is one argument too many; name all systems together, before the flags.")
    known = [flag for action in command._actions for flag in action.option_strings]
    return unknown("flag", word.partition("=")[0], known)
