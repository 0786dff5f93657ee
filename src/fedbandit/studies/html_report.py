"""An experiment as one HTML page that needs nothing else, and the page that shows all of them."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from fedbandit.studies.markup import Table
from fedbandit.studies.measured import capitalised

MARKS = {True: "✔", False: "✘", None: "–"}
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a;
  background: #fff; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
img { max-width: 100%; height: auto; border: 1px solid #ddd; }
table { border-collapse: collapse; margin: .5rem 0; font-size: .9rem; } caption { text-align: left; color: #555; }
th, td { border-bottom: 1px solid #ddd; padding: .25rem .7rem; text-align: left; vertical-align: top; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.side { display: grid; grid-template-columns: minmax(0, 2fr) minmax(14rem, 1fr); gap: 1.5rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(20rem, 1fr)); gap: 1.2rem; }
.card { border: 1px solid #ddd; padding: .8rem; } .card h3 { margin: 0 0 .3rem; font-size: 1rem; }
.yes { color: #00674d; font-weight: bold; } .no { color: #a33b00; font-weight: bold; } .open { color: #555; }
.small { color: #555; font-size: .88rem; } code { overflow-wrap: anywhere; }
@media (max-width: 50rem) { .side { grid-template-columns: 1fr; } }
"""
_CLASS = {True: "yes", False: "no", None: "open"}


def page(title: str, body: str) -> str:
    """A whole page; its style is inside."""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def report_page(summary: Mapping[str, Any], tables: Sequence[Table], picture: bytes | None) -> str:
    """Everything about one experiment; `summary` is what `summary.json` has."""
    title = f"{summary['name']}: {summary['title']}"
    parts = [f"<h1>{escape(title)}</h1>", f"<p class=small>{escape(_facts(summary))}</p>"]
    shown = "<p>Nothing was run.</p>"
    if picture is not None:
        shown = f'<img alt="{escape(title)}" src="data:image/png;base64,{base64.b64encode(picture).decode()}">'
    paper = ""
    if summary["reports"] or summary["reference"]:
        reference = escape(summary["reference"])
        paper = f"<h2>What the paper reports</h2><p>{escape(summary['reports'])}</p><p class=small>{reference}</p>"
    remarks = "".join(f"<li>{escape(remark)}</li>" for remark in summary["remarks"])
    paper += f"<h2>What to know</h2><ul>{remarks}</ul>" if remarks else ""
    parts.append(f"<div class=side><div>{shown}</div><div>{paper}</div></div>")
    if summary["claims"]:
        parts.append(f"<h2>Claims</h2>{_claims(summary['claims'])}")
    if summary["skipped"]:
        lines = "".join(f"<li>{escape(what)}: {escape(why)}</li>" for what, why in summary["skipped"].items())
        parts.append(f"<h2>Not run</h2><ul>{lines}</ul>")
    parts += [f"<h2>Numbers</h2><p class=small>Means ± one standard error.</p>{tables[0].html()}"] if tables else []
    parts += [table.html() for table in tables[1:]]
    if summary["guarantees"]:
        rows = tuple(summary["guarantees"].items())
        parts.append(f"<h2>Privacy</h2>{Table(('system', 'guarantee'), rows, 2).html()}")
    parts.append(f"<h2>What was run</h2>{_runs(summary['points'])}")
    versions = ", ".join(f"{name} {number}" for name, number in summary["versions"].items())
    parts.append(f"<p class=small>{escape(versions)}; code {summary['code'][:12]}. {escape(summary['command'])}</p>")
    return page(title, "\n".join(parts))


def index_page(summaries: Iterable[Mapping[str, Any]]) -> str:
    """All experiments with their pictures, and how many of their claims hold."""
    cards, counts = [], {True: 0, False: 0, None: 0}
    for summary in summaries:
        folder = f"{summary['name']}/{summary['scale']}"
        for claim in summary["claims"]:
            counts[claim["holds"]] += 1
        marks = " ".join(
            f'<span class={_CLASS[claim["holds"]]} title="{escape(claim["text"])}">{MARKS[claim["holds"]]}</span>'
            for claim in summary["claims"]
        )
        picture = f'<img loading=lazy alt="" src="{folder}/figure.png">' if summary["points"] else ""
        why = "".join(f"<p class=small>Not run: {escape(reason)}</p>" for reason in _reasons(summary))
        cards.append(
            f'<div class=card><h3><a href="{folder}/report.html">{escape(summary["name"])}</a></h3>'
            f"<p>{escape(capitalised(summary['title']))}</p>{picture}<p>{marks}</p>{why}"
            f"<p class=small>{escape(_facts(summary))}</p></div>"
        )
    open_ones = f"{counts[None]} are open (–): within noise, or about something that was not run"
    told = f"{counts[True]} claims hold ✔, {counts[False]} do not ✘, {open_ones}."
    return page("fedbandit: gallery", f"<h1>Gallery</h1><p>{told}</p><div class=cards>{''.join(cards)}</div>")


def _reasons(summary: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(summary["skipped"].values()))


def _facts(summary: Mapping[str, Any]) -> str:
    runs = f"{summary['runs']:,} runs with {summary['seeds']} seed{'s' if summary['seeds'] > 1 else ''} each"
    return f"scale {summary['scale']}; {runs}; {summary['seconds']:,.1f} s of computing"


def _claims(claims: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for claim in claims:
        holds = claim["holds"]
        why = f"<br><span class=small>{escape(claim['otherwise'])}</span>" if claim["otherwise"] and not holds else ""
        whose = "<br><span class=small>(our claim, not the paper's)</span>" if claim["ours"] else ""
        rows.append(
            f"<tr><td class={_CLASS[holds]}>{MARKS[holds]}</td><td>{escape(claim['text'])}{why}{whose}</td>"
            f"<td>{escape(claim['numbers'])}</td></tr>"
        )
    return f"<table><tbody>{''.join(rows)}</tbody></table>"


def _runs(points: Sequence[Mapping[str, Any]]) -> str:
    rows = tuple((point["point"], point["system"], point["environment"], f"{point['horizon']:,}") for point in points)
    return Table(("", "system", "environment", "rounds"), rows, 3).html()
