"""`fedbandit replay`: what a log of decisions tells about systems that did not make them."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fedbandit.cli.arguments import SYSTEM_HELP, add_seed
from fedbandit.errors import FedbanditError

if TYPE_CHECKING:
    from fedbandit.environments import LoggedDecisions
    from fedbandit.evaluation import LogComparison

SUMMARY = "Estimate from logged decisions what systems would have earned, and which of them is better."


def add_flags(command: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    command.add_argument(
        "systems", nargs="+", metavar="SYSTEM", help=f"{SYSTEM_HELP}; several are compared with the first"
    )
    command.add_argument(
        "--log",
        type=Path,
        required=True,
        metavar="FILE",
        help="a .csv, .parquet or .jsonl table, in the order of time, or a client's decision log",
    )
    command.add_argument("--client", metavar="COLUMN", help="who decided")
    command.add_argument("--features", metavar="COLUMN,…", help="of the situation, or of each arm")
    command.add_argument("--reward", metavar="COLUMN", help="of the arm that was chosen")
    command.add_argument("--action", metavar="COLUMN", help="a row is a decision: which action was chosen")
    command.add_argument("--decision", metavar="COLUMN", help="a row is an offered arm: which decision it belongs to")
    command.add_argument("--chosen", metavar="COLUMN", help="a row is an offered arm: whether it was chosen")
    command.add_argument("--propensity", metavar="COLUMN", help="probability with which the chosen arm was chosen")
    command.add_argument("--segment", metavar="COLUMN", help="what the report is broken down by (default: who decided)")
    command.add_argument(
        "--logged",
        choices=("unknown", "uniform"),
        default="unknown",
        help="uniform: all offered arms were equally likely",
    )
    command.add_argument(
        "--default-reward", type=float, metavar="R", help="of a decision log's decisions whose reward never came"
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
    command.add_argument(
        "--greedy", action="store_true", help="for frozen: take the largest estimated mean instead of exploring"
    )
    command.add_argument("--out", type=Path, metavar="FOLDER", help="write report.html and report.json there")
    add_seed(command)


def run(options: argparse.Namespace) -> int:
    """Evaluate, and say what is estimated."""
    from fedbandit.evaluation import compare
    from fedbandit.evaluation.comparison import distinct
    from fedbandit.files import make_folder
    from fedbandit.progress import bar
    from fedbandit.studies.specs import SystemSpec

    specs = [SystemSpec.parse(text) for text in options.systems]
    systems = dict(zip(distinct([spec.title for spec in specs]), [spec() for spec in specs], strict=True))
    if options.out is not None:
        make_folder(options.out)
    log = _read(options)
    with bar(len(systems) * log.n_decisions, "decisions") as shown:
        found = compare(
            systems,
            log,
            method=options.method,
            seed=options.seed,
            train=options.train,
            greedy=options.greedy,
            progress=shown.update,
        )
    if options.out is not None:
        _report(found, log, options)
    if options.json:
        single = len(systems) == 1
        print(json.dumps(found.as_json()["systems"][0] if single else found.as_json(), allow_nan=False))
        return 0
    for evaluation in found.evaluations:
        print(evaluation.summary(f"the log {str(options.log)!r}"))
    print(found.told_differences())
    for warning in (*log.notes, *found.doubts()):
        print(f"fedbandit: {warning}", file=sys.stderr)
    return 0


def _read(options: argparse.Namespace) -> LoggedDecisions:
    from fedbandit.environments import read_decision_log
    from fedbandit.environments.log_file import log_file

    named = any(getattr(options, name) is not None for name in ("client", "features", "reward"))
    if options.log.is_dir() or (options.log.suffix == ".jsonl" and not named):
        return read_decision_log(options.log, default_reward=options.default_reward)
    if not options.log.is_file():
        raise FedbanditError(f"There is no file {str(options.log)!r}.")
    missing = [f"--{name}" for name in ("client", "features", "reward") if getattr(options, name) is None]
    if missing:
        raise FedbanditError(f"A table needs {', '.join(missing)}, to say what its columns are.")
    columns = ("client", "reward", "action", "decision", "chosen", "propensity", "logged", "segment")
    features = [name.strip() for name in options.features.split(",") if name.strip()]
    return log_file(options.log, features=features, **{name: getattr(options, name) for name in columns})


def _report(found: LogComparison, log: LoggedDecisions, options: argparse.Namespace) -> None:
    """A page with the numbers and the picture, and the numbers as JSON."""
    import base64
    import io
    from html import escape

    from fedbandit.evaluation.comparison import verdict
    from fedbandit.evaluation.picture import draw
    from fedbandit.files import write_json, write_text
    from fedbandit.studies.figures import new_figure
    from fedbandit.studies.report import Table, page

    figure = new_figure(13, 4)
    draw(found, log, figure)
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    rows = [
        (one.system.replace("_", "-"), e.name, f"{e.value:.4f}", f"{e.interval[0]:.4f} … {e.interval[1]:.4f}")
        for one in found.evaluations
        for e in one.estimates
    ]
    own = found.evaluations[0].logged
    rows.append(("the log's own policy", "mean", f"{own.value:.4f}", f"{own.interval[0]:.4f} … {own.interval[1]:.4f}"))
    gaps = [
        (g.name.replace("_", "-"), f"{g.value:+.4f}", f"{g.interval[0]:+.4f} … {g.interval[1]:+.4f}", verdict(g))
        for g in (*found.from_logged, *filter(None, found.differences))
    ]
    notes = [*log.notes, *found.doubts()]
    title = f"What {escape(options.log.name)} tells"
    body = [
        f"<h1>{title}</h1><p>Estimates, not a simulation; seed {options.seed}.</p>",
        f"<p><code>{escape(options.command_line)}</code></p>",
        "<ul>" + "".join(f"<li>{escape(f'{one.system}: {one.question}')}</li>" for one in found.evaluations) + "</ul>",
        f'<img alt="estimates" src="data:image/png;base64,{base64.b64encode(picture.getvalue()).decode()}">',
        f"<h2>Mean reward per decision</h2>{Table(('system', 'estimator', 'value', '95 %'), tuple(rows), 2).html()}",
    ]
    body.append(f"<h2>Paired differences</h2>{Table(('difference', 'value', '95 %', ''), tuple(gaps), 1).html()}")
    if notes:
        body.append("<h2>What to doubt</h2><ul>" + "".join(f"<li>{escape(note)}</li>" for note in notes) + "</ul>")
    write_text(options.out / "report.html", page(title, "\n".join(body)))
    write_json(options.out / "report.json", found.as_json())
