"""What commands share: a parser whose complaints are one sentence, numbers, and a flag for every keyword.

Nothing here imports NumPy or Numba until the keywords of a command are asked for.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from fedbandit.errors import FedbanditError, number, require, unknown

if TYPE_CHECKING:
    from fedbandit.privacy.guarantee import Require

DEFAULTS = """
Unless said otherwise an environment has 100 clients, 25 dimensions and 25 arms, and runs for 30,000
rounds (recorded data: to their end). Every keyword of the systems and of the environment is a flag:
--clients 1000, --pool 500, --arrivals skewed, --drift 10000,20000, --delay 1,10, --gamma-upload 2,
--warm-join, --policy lints; lists have commas, and there are inf and none. A keyword that both know
goes to the environment; one that several systems know goes to each of them.

SYSTEM is a name (see: fedbandit list), a name with keywords of its own,
async-linucb:gamma_upload=2,gamma_download=inf, or a function of yours that returns a System,
path/to/my.py:my_system. Parts are named likewise (see: fedbandit list policies):
--policy "igw(gamma=10)", --policy "my.py:MyPolicy(c=10)". Recorded data are read from a file:
--env recorded --path my.npz; data sets from a folder: --env lastfm --data folder, or the one that
FEDBANDIT_DATA names.
"""
SYSTEM_HELP = "name, name:keyword=value,… or file.py:function"
_KEYWORD = "keyword:"  # marks what argparse found out about keywords
_PART_FLAGS = ("--policy", "--protocol", "--structure", "--privacy")  # file.py:Class after one is no system
_SHORT_FLAGS = {"n_clients": "--clients", "n_arms": "--arms", "path": "--data"}


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are errors like all others, and which learns flags for keywords when it is used."""

    _add_keywords: Callable[[Sequence[str]], None] | None = None

    def error(self, message: str) -> NoReturn:
        """Refuse the command line."""
        raise FedbanditError(f"{message[0].upper()}{message[1:].rstrip('.')}; see {self.prog} --help.")

    def take_keywords(self, *, systems: bool = True, environments: Sequence[str] | None = None) -> None:
        """Make a flag of every keyword of all systems and of these environments (None: all)."""
        self._add_keywords = lambda words: _add_keyword_flags(self, words, systems, environments)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, after flags for keywords have been added: systems are imported only if this command is called.

        A list of numbers is a value, also where it begins with - for a new one (`--features -,0`) or a negative number.
        """
        if self._add_keywords is not None:
            self._add_keywords(args)
            self._add_keywords = None
        return super().parse_known_args(None if args is None else _with_values(args), namespace)


def _with_values(words: Sequence[str]) -> list[str]:
    """The words, each flag in one with a value that looks like a flag."""
    joined: list[str] = []
    for word in words:
        before = joined[-1] if joined else ""
        if re.match(r"-[\d.,]", word) and before.startswith("--") and len(before) > 2 and "=" not in before:
            joined[-1] = f"{before}={word}"
        else:
            joined.append(word)
    return joined


def add_world_flags(command: Parser, usage: str) -> None:
    """The environment and the horizon, of commands that simulate."""
    command.usage, command.epilog = usage, DEFAULTS
    command.add_argument("--env", default="homogeneous", metavar="NAME", help="default: homogeneous")
    command.add_argument("--horizon", type=whole_number, metavar="T", help="rounds (default: 30000)")
    command.take_keywords()


def add_seed(command: argparse.ArgumentParser) -> None:
    """One seed."""
    command.add_argument("--seed", type=whole_number, default=0, metavar="S", help="default: 0")


def add_jobs(command: argparse.ArgumentParser) -> None:
    """The number of processes."""
    command.add_argument("--jobs", type=whole_number, metavar="J", help="processes (default: all processors)")


def whole_number(text: str) -> int:
    """A number such as 30000, 30_000 or 3e4."""
    try:
        return int(text)
    except ValueError:
        with suppress(ValueError, OverflowError):  # not a number, or inf
            if float(text) == int(float(text)):
                return int(float(text))
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")


def seeds(text: str) -> Sequence[int]:
    """How many seeds, or which."""
    if "," in text:
        chosen = [whole_number(part) for part in text.split(",") if part]
    else:
        chosen = list(range(whole_number(text)))
    if not chosen or len(set(chosen)) < len(chosen):
        raise argparse.ArgumentTypeError(f"{text!r} does not name at least one seed, each once")
    return chosen


def _add_keyword_flags(
    command: Parser, words: Sequence[str], systems: bool, environments: Sequence[str] | None
) -> None:
    """Add them, those of systems in users' files included."""
    from fedbandit.keywords import meaning
    from fedbandit.presets.compose import Keyword, keywords_of
    from fedbandit.studies.specs import ENVIRONMENTS_BY_TEXT, SYSTEMS, SystemSpec, hyphenated, is_in_file

    makers: list[tuple[str, Callable[..., object], bool]]
    makers = [(name, maker, False) for name, maker in SYSTEMS.items()] if systems else []
    known = tuple(ENVIRONMENTS_BY_TEXT) if environments is None else environments
    makers += [(name, ENVIRONMENTS_BY_TEXT[name], True) for name in known]
    for before, word in zip(["", *words], words, strict=False):
        if is_in_file(word) and not word.startswith("-") and before not in _PART_FLAGS:
            spec = SystemSpec.parse(word)
            makers.append((spec.name, spec.maker, False))
    asked = {word.partition(":")[0].replace("-", "_") for word in words if not word.startswith("-")}
    if {"-h", "--help"} & set(words) and any(name in asked for name, _, _ in makers):
        makers = [entry for entry in makers if entry[0] in asked]  # help about these, not about everything
    found: dict[str, Keyword] = {}
    takers: dict[tuple[str, bool], list[str]] = {}
    for name, maker, is_world in makers:
        for keyword in keywords_of(maker).values():
            found.setdefault(keyword.name, keyword)
            takers.setdefault((keyword.name, is_world), []).append(hyphenated(name))
    group = command.add_argument_group("keywords")
    for name, keyword in found.items():
        flags = [_SHORT_FLAGS[name]] if name in _SHORT_FLAGS else []
        flags.append(f"--{hyphenated(name)}")
        if any(flag in command._option_string_actions for flag in flags):
            continue  # the command's own flag has precedence
        worlds, named = takers.get((name, True), []), takers.get((name, False), [])
        if len(named) > 3:
            named = ["most systems" if len(named) > len(SYSTEMS) / 2 else f"{named[0]} and {len(named) - 1} more"]
        form: dict[str, Any] = {"action": argparse.BooleanOptionalAction} if keyword.is_switch else {"metavar": "VALUE"}
        first = next(entry for entry in makers if name in keywords_of(entry[1]))
        said = meaning(first[0], name, "environment" if first[2] else "system", first[1]).replace("%", "%%")
        who = "; ".join(filter(None, (", ".join(worlds), ", ".join(named))))
        about = f"{said} [{who}]" if said else who
        group.add_argument(*flags, dest=_KEYWORD + name, default=argparse.SUPPRESS, help=about, **form)


def keyword_flags(options: argparse.Namespace) -> dict[str, str]:
    """The keywords that were given as flags, with their values as text."""
    return {
        name.removeprefix(_KEYWORD): str(value).lower() if isinstance(value, bool) else value
        for name, value in vars(options).items()
        if name.startswith(_KEYWORD)
    }


def unexpected(word: str, command: argparse.ArgumentParser) -> FedbanditError:
    """The error for an argument that a command does not take."""
    if not word.startswith("-"):
        systems = any(action.dest == "systems" for action in command._actions)
        hint = "; name all systems together, before the flags." if systems else f"; see {command.prog} --help."
        return FedbanditError(f"{word!r} is one argument too many{hint}")
    known = [flag for action in command._actions for flag in action.option_strings]
    flag, _, value = word.partition("=")
    if any(action.dest == "systems" for action in command._actions):
        from fedbandit.presets import PRESETS
        from fedbandit.presets.compose import keywords_of

        keyword = flag.removeprefix("--").replace("-", "_")
        taker = next((name for name in ("linucb", *PRESETS) if keyword in keywords_of(PRESETS[name])), None)
        if taker is not None:
            example = f"{taker.replace('_', '-')}:{keyword}={value or '…'}"
            return FedbanditError(f"{flag} is no flag of this command; it is a system's keyword: write {example}.")
    return unknown("flag", flag, known)


_REQUIRED = ("epsilon", "delta", "trust", "unit", "definition")


def add_require_flags(command: argparse.ArgumentParser) -> None:
    """What a member insists on where privacy is claimed."""
    command.add_argument(
        "--require-epsilon", type=float, metavar="ε", help="refuse a federation that claims a larger ε"
    )
    command.add_argument("--require-delta", type=float, metavar="δ", help="refuse a federation that claims a larger δ")
    command.add_argument(
        "--require-trust",
        choices=("nobody", "sums", "coordinator"),
        help="refuse a federation that trusts more than nobody, than sums, than the coordinator",
    )
    command.add_argument(
        "--require-unit",
        choices=("one interaction", "a client"),
        help="refuse a federation that protects a smaller unit",
    )
    command.add_argument(
        "--require-definition",
        choices=("given later records", "joint", "local"),
        help="refuse a federation that claims a weaker definition",
    )


def required(options: argparse.Namespace) -> Require | None:
    """What a member insists on; None for what it does by itself, where privacy is claimed."""
    from fedbandit.privacy.guarantee import Require

    given = {name: getattr(options, f"require_{name}") for name in _REQUIRED}
    given = {name: value for name, value in given.items() if value is not None}
    return Require(**given) if given else None


def text_in(path: Path) -> str:
    """The text of a file."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise FedbanditError(f"{str(path)!r} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise FedbanditError(f"{str(path)!r} is not a text file: {error.reason} at byte {error.start}.") from None


def token_in(path: Path | None) -> str | None:
    """The token that a file holds, None without a file."""
    if path is None:
        return None
    token = text_in(path).strip()
    if not (token and token.isascii() and token.isprintable()) or " " in token:
        raise FedbanditError(f"{str(path)!r} holds no token: one line, as fedbandit keys prints it.")
    return token


def check_users(options: argparse.Namespace) -> None:
    """Refuse simulated users that cannot be."""
    require(options.arms >= 1, "--arms", options.arms, "a whole number ≥ 1")
    require(options.seed >= 0, "--seed", options.seed, "a whole number ≥ 0")
    number(options.spread, "--spread", "a finite number ≥ 0", 0.0)
    number(options.pace, "--pace", "a finite number a second ≥ 0 (0: as fast as they can)", 0.0)
