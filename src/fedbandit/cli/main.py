"""The command line: finds the command, parses its flags, runs it, and turns errors into one sentence."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module

from fedbandit._version import __version__
from fedbandit.cli.arguments import DEFAULTS, Parser, keyword_flags, unexpected
from fedbandit.errors import FedbanditError, unknown

COMMANDS = (
    *("list", "simulate", "compare", "data", "replay", "audit", "reproduce", "run"),
    *("serve", "client", "relay", "local-server", "gateway", "peer", "keys", "demo", "warm-up", "completion"),
    *("quarantine", "members", "erase", "remove", "backup", "restore", "migrate"),
)
ALIASES = {"seats": "members"}
"""What commands were called before: scripts of operators go on."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status: 0, or 2 after one sentence on standard error."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no ± must not end a day of computing
    try:
        if sys.stdout is None or sys.stderr is None:  # closed by whoever called: fedbandit list >&-
            nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the end
            sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
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
    except BrokenPipeError:  # the reader has closed the pipe
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
    if command in ALIASES:
        at, command = arguments.index(command), ALIASES[command]
        arguments = [*arguments[:at], command, *arguments[at + 1 :]]
    first = arguments[0] if arguments else ""
    if command is not None and first.startswith("-") and first not in ("-h", "--help", "--version"):
        name = command if command in COMMANDS else "COMMAND"
        raise FedbanditError(f"{first} stands before the command; flags go after it: fedbandit {name} … {first}.")
    if command is not None and command not in COMMANDS:
        raise unknown("command", command, COMMANDS)
    parser = build_parser(COMMANDS if command is None or arguments[0] != command else [command])
    options, rest = parser.parse_known_args(arguments)
    if rest:
        raise unexpected(rest[0], options.parser)
    if command is None:
        parser.print_help()
        return 0
    options.command_line = shlex.join(["fedbandit", *arguments])
    options.keywords = keyword_flags(options)
    status: int = options.run(options)
    return status


def build_parser(commands: Sequence[str] = COMMANDS) -> Parser:
    """The parser with these commands; `options.run` and `options.parser` are those of the one that was given."""
    parser = Parser(
        prog="fedbandit",
        description="Federated, private, collaborative linear contextual bandits.",
        epilog=DEFAULTS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"fedbandit {__version__}")
    parser.set_defaults(parser=parser)
    actions = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name in commands:
        module = import_module(f"fedbandit.cli.{name.replace('-', '_')}")
        command = actions.add_parser(
            name,
            help=module.SUMMARY,
            description=module.SUMMARY,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_argument("--json", action="store_true", help="print one JSON object instead of text")
        command.set_defaults(run=module.run, parser=command)
        module.add_flags(command)
    return parser
