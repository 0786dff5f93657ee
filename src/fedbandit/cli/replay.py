"""`fedbandit replay`: what a log of somebody else's decisions tells about a system."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from fedbandit.cli.arguments import SYSTEM_HELP, add_seed

SUMMARY = "Estimate from logged decisions what a system would have earned."


def add_flags(command: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    command.add_argument("system", metavar="SYSTEM", help=SYSTEM_HELP)
    command.add_argument("--log", type=Path, required=True, metavar="FILE", help="a .csv or .parquet file")
    command.add_argument("--client", required=True, metavar="COLUMN", help="who decided")
    command.add_argument("--features", required=True, metavar="COLUMN,…", help="of the situation, or of each arm")
    command.add_argument("--reward", required=True, metavar="COLUMN", help="of the arm that was chosen")
    command.add_argument("--action", metavar="COLUMN", help="a row is a decision: which action was chosen")
    command.add_argument("--decision", metavar="COLUMN", help="a row is an offered arm: which decision it belongs to")
    command.add_argument("--chosen", metavar="COLUMN", help="a row is an offered arm: whether it was chosen")
    command.add_argument("--propensity", metavar="COLUMN", help="probability with which the chosen arm was chosen")
    command.add_argument(
        "--logged",
        choices=("unknown", "uniform"),
        default="unknown",
        help="uniform: all offered arms were equally likely",
    )
    command.add_argument(
        "--method",
        choices=("replay", "frozen"),
        help="while learning, by rejection (uniform logs only), or with models learned from a first part "
        "(default: replay if the log is uniform, otherwise frozen)",
    )
    command.add_argument(
        "--train", type=float, default=0.5, metavar="SHARE", help="of the log, for frozen (default: 0.5)"
    )
    add_seed(command)


def run(options: argparse.Namespace) -> int:
    """Evaluate, and say what is estimated."""
    from fedbandit.environments.log_file import log_file
    from fedbandit.evaluation import evaluate_frozen, replay
    from fedbandit.studies.specs import SystemSpec

    system = SystemSpec.parse(options.system)()
    log = log_file(
        options.log,
        client=options.client,
        features=[name for name in options.features.split(",") if name],
        reward=options.reward,
        action=options.action,
        decision=options.decision,
        chosen=options.chosen,
        propensity=options.propensity,
        logged=options.logged,
    )
    method = options.method or ("replay" if log.uniform else "frozen")
    if method == "replay":
        found = replay(system, log, options.seed)
    else:
        found = evaluate_frozen(system, log, options.seed, train=options.train)
    if options.json:
        print(json.dumps(found.as_json(), allow_nan=False))
        return 0
    print(f"{found.system.replace('_', '-')} on the log {str(options.log)!r}: an estimate, not a simulation")
    print(f"  {found.question}; seed {found.seed}")
    print(f"  decisions {found.decisions:,}; of use {found.used:,}; effective {found.effective_sample_size:,.0f}")
    for estimate in (*found.estimates, found.logged):
        low, high = estimate.interval
        name = "the log's own policy" if estimate is found.logged else estimate.name
        print(f"  {name:20}  {estimate.value:9.4f} ± {estimate.standard_error:.4f}   95 %: {low:.4f} … {high:.4f}")
    if found.normalised is not None:
        print(f"  {'over random arms':20}  {found.normalised:9.4f}")
    print(f"  uploads {found.uploads:,}, downloads {found.downloads:,}, bytes {found.bytes:,}")
    print(f"  guarantee  {found.guarantee}")
    for warning in found.warnings:
        print(f"fedbandit: {warning}", file=sys.stderr)
    return 0
