"""`fedbandit completion`: what a shell needs to complete commands and flags."""

from __future__ import annotations

import argparse

SUMMARY = "Print a completion script: eval it, or keep it where your shell looks for such files."


def add_flags(command: argparse.ArgumentParser) -> None:
    """Which shell."""
    command.add_argument("shell", choices=("bash", "zsh", "tcsh"), help='such as: eval "$(fedbandit completion bash)"')


def run(options: argparse.Namespace) -> int:
    """Print it."""
    from fedbandit.cli.main import build_parser
    from fedbandit.errors import needs

    print(needs("shtab", "completion", "Completion of shells").complete(build_parser(), options.shell))
    return 0
