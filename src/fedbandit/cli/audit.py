"""`fedbandit audit`: attack what systems claim about privacy, and report."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedbandit.cli.arguments import DEFAULTS, Parser, whole_number
from fedbandit.errors import FedbanditError

SUMMARY = "Attack what private systems claim: prints measured lower bounds on ε; exit status 1 if a claim fails."


def add_flags(command: Parser) -> None:
    """Which systems, and how hard to try."""
    command.usage, command.epilog = "fedbandit audit [SYSTEM …] [flags]", DEFAULTS
    command.take_keywords(environments=())
    command.add_argument(
        "systems", metavar="SYSTEM", nargs="*", help="name, name:keyword=value,… (default: every private preset)"
    )
    for flag, default, meaning in (
        ("--clients", 3, "clients"),
        ("--dim", 2, "dimensions"),
        ("--horizon", 200, "rounds, in each of which all clients act"),
        ("--trials", 20_000, "streams in each of two worlds; a 200th as many paired runs of a client"),
        ("--seed", 0, "of the attack"),
    ):
        command.add_argument(
            flag, type=whole_number, default=default, metavar="N", help=f"{meaning} (default: {default})"
        )
    command.add_argument(
        "--config", type=Path, metavar="FILE.toml", help="audit the federations of a coordinator, each in its own world"
    )
    command.add_argument("--out", type=Path, metavar="FILE.png", help="draw the scores of one system in both worlds")


def run(options: argparse.Namespace) -> int:
    """Audit the named systems, or every private preset; the exit status is 1 if a claim fails."""
    from fedbandit.audit import audit_system
    from fedbandit.audit.report import draw_scores
    from fedbandit.files import require_writable
    from fedbandit.studies.figures import require_image_name, save_figure

    systems = _systems(options)
    if options.out is not None:
        if len(systems) != 1:
            raise FedbanditError(f"--out draws one system, but {len(systems)} are audited; name one.")
        require_writable(options.out)
        require_image_name(options.out)
    reports = []
    for system, world in systems:
        report = audit_system(
            system,
            n_clients=options.clients,
            dim=options.dim,
            rounds=options.horizon,
            trials=options.trials,
            seed=options.seed,
            world=world,
        )
        reports.append(report)
        if not options.json:
            print(report, flush=True)
    if options.json:
        objects = [report.as_json() for report in reports]
        alone: Any = objects[0] if options.systems and len(objects) == 1 else {"audits": objects}
        print(json.dumps(alone, allow_nan=False))
    if options.out is not None:
        save_figure(draw_scores(reports[0]), options.out)
    return 0 if all(report.passed for report in reports) else 1


def _systems(options: argparse.Namespace) -> list[tuple[Any, Any]]:
    """The systems with the keywords that were given as flags, or those of a configuration with their worlds."""
    from fedbandit.audit import private_systems
    from fedbandit.studies.specs import SYSTEMS, SystemSpec, distribute

    if options.config is not None:
        return _configured(options)
    texts = options.systems or [name for name, _ in private_systems(SYSTEMS)]
    specs, _ = distribute(options.keywords, [SystemSpec.parse(text) for text in texts])
    return [(spec(), None) for spec in specs]


def _configured(options: argparse.Namespace) -> list[tuple[Any, Any]]:
    from fedbandit.network.coordinator.config import load_config

    if options.systems or options.keywords:
        raise FedbanditError("--config says which systems are audited, with which keywords; name no others.")
    agreements = {name: one.agreement for name, one in load_config(options.config).federations.items()}
    built = {name: (replace(agreement.build(), name=name), agreement.world) for name, agreement in agreements.items()}
    private = [(system, world) for system, world in built.values() if system.guarantee.private]
    if not private:
        raise FedbanditError(f"No federation of {str(options.config)!r} claims privacy, so there is nothing to audit.")
    return private
