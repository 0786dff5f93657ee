"""`fedbandit audit`: attack what systems claim about privacy, and report."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from fedbandit.cli.numbers import whole_number
from fedbandit.errors import FedbanditError


def add_flags(command: argparse.ArgumentParser) -> None:
    """Which systems, and how hard to try."""
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
    command.add_argument("--out", type=Path, metavar="FILE.png", help="draw the scores of one system in both worlds")


def run(options: argparse.Namespace) -> int:
    """Audit the named systems, or every private preset; the exit status is 1 if a claim fails."""
    from fedbandit.audit import audit_system
    from fedbandit.audit.picture import draw_scores
    from fedbandit.studies.plots import require_image_name, save_figure
    from fedbandit.studies.tables import require_writable

    systems = _systems(options)
    if options.out is not None:
        if len(systems) != 1:
            raise FedbanditError(f"--out draws one system, but {len(systems)} are audited; name one.")
        require_writable(options.out)
        require_image_name(options.out)
    reports = []
    for system in systems:
        report = audit_system(
            system,
            n_clients=options.clients,
            dim=options.dim,
            rounds=options.horizon,
            trials=options.trials,
            seed=options.seed,
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


def _systems(options: argparse.Namespace) -> list[Any]:
    """The systems with the keywords that were given as flags; each flag must be known to one of them at least."""
    from fedbandit.audit import private_systems
    from fedbandit.studies.keywords import keywords_of
    from fedbandit.studies.specs import SYSTEMS, Spec, build_system, hyphenated, system_maker

    flags = options.keywords
    specs = [Spec.parse(text) for text in options.systems or (name for name, _ in private_systems(SYSTEMS))]
    takes = [keywords_of(system_maker(spec.name)) for spec in specs]
    for name in flags:
        if not any(name in taken for taken in takes):
            named = ", ".join(dict.fromkeys(hyphenated(spec.name) for spec in specs))
            raise FedbanditError(f"--{hyphenated(name)} is not a keyword of {named}.")
    return [
        build_system(spec.over({key: text for key, text in flags.items() if key in taken}))
        for spec, taken in zip(specs, takes, strict=True)
    ]
