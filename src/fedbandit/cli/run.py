"""`fedbandit run`: an experiment of one's own, from one file."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedbandit.cli.reproduce import add_experiment_flags, carry_out

SUMMARY = "Run an experiment of your own, written down in one YAML or Python file."


def add_flags(command: argparse.ArgumentParser) -> None:
    """Which file."""
    command.add_argument("file", type=Path, metavar="FILE", help="an experiment of yours, .yaml or .py")
    command.add_argument("--scale", metavar="NAME", help="of a Python file that has several (default: its first)")
    add_experiment_flags(command)


def run(options: argparse.Namespace) -> int:
    """Run an experiment that a user wrote down."""
    from fedbandit.studies.user_file import read_experiment

    experiment = read_experiment(options.file)
    scale = options.scale or next(iter(experiment.scales))
    experiment.scale(scale)  # must be there
    return carry_out([experiment], scale, options, strict=True)
