"""An experiment on paper: tables as Markdown, LaTeX and HTML, its page, and the page that shows all experiments."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from fedbandit.studies.claims import show
from fedbandit.studies.experiment import Experiment
from fedbandit.studies.measured import MEASURES, Measured, capitalised
from fedbandit.studies.trials import Label, format_value

_NAMES = "alpha beta gamma delta varepsilon kappa lambda mu rho sigma theta tau varphi psi omega"
_GREEK = {letter: f"$\\{name}$" for letter, name in zip("αβγδεκλμρσθτφψω", _NAMES.split(" "), strict=True)}
_LATEX = {
    "\\": r"\textbackslash{}",
    **{mark: "\\" + mark for mark in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "∞": r"$\infty$",
    "→": r"$\to$",
    "−": "$-$",
    "‖": r"$\|$",
    **_GREEK,
    "²": "$^2$",
    "³": "$^3$",
    "√": r"$\surd$",
    "χ": r"$\chi$",
}


@dataclass(frozen=True)
class Table:
    """Text in cells; the first `words` columns are words and stand left, the others are numbers and stand right."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1
    title: str = ""

    def markdown(self) -> str:
        """As Markdown."""
        lines = [self.header, *self.rows]
        cells = [[cell.replace("|", r"\|") for cell in line] for line in lines]
        dashes = ["---" if column < self.words else "---:" for column in range(len(self.header))]
        text = [f"| {' | '.join(line)} |" for line in (cells[0], dashes, *cells[1:])]
        return "\n".join([f"**{self.title}**\n", *text] if self.title else text) + "\n"

    def latex(self) -> str:
        """As a LaTeX tabular that needs no package."""
        columns = "l" * self.words + "r" * (len(self.header) - self.words)
        lines = [" & ".join(map(escape_latex, line)) + r" \\" for line in (self.header, *self.rows)]
        comment = [f"% {self.title}"] if self.title else []
        body = [rf"\begin{{tabular}}{{{columns}}}", r"\hline", lines[0], r"\hline", *lines[1:], r"\hline"]
        return "\n".join([*comment, *body, r"\end{tabular}"]) + "\n"

    def html(self) -> str:
        """As HTML."""

        def line(cells: Sequence[str], tag: str) -> str:
            parts = [
                f"<{tag}{'' if column < self.words else ' class=number'}>{escape(cell)}</{tag}>"
                for column, cell in enumerate(cells)
            ]
            return f"<tr>{''.join(parts)}</tr>"

        caption = f"<caption>{escape(self.title)}</caption>" if self.title else ""
        body = "\n".join(line(row, "td") for row in self.rows)
        return f"<table>{caption}<thead>{line(self.header, 'th')}</thead>\n<tbody>{body}</tbody></table>"


def escape_latex(text: str) -> str:
    r"""Text as LaTeX shows it.

    >>> escape_latex("50 % of γ_U ± 1")
    '50 \\% of $\\gamma$\\_U $\\pm$ 1'
    """
    return "".join(_LATEX.get(character, character) for character in text.replace("θ̂", "θ"))


def tables_of(experiment: Experiment, measured: Measured) -> list[Table]:
    """The table of an experiment, and that of groups of clients where they were measured."""
    if experiment.pivot:
        main = [_pivoted(experiment, measured, facet) for facet in measured.facets()]
    else:
        main = [_tidy(experiment, measured)]
    groups = _groups(measured)
    return main if groups is None else [*main, groups]


def _tidy(experiment: Experiment, measured: Measured) -> Table:
    """A line for each point, a column for each measure, and what the paper prints."""
    facets, values = measured.facets() != [""], any(label.value != "" for label in measured.runs)
    printed = any((label.series, label.value) in experiment.printed for label in measured.runs)
    header = [*([""] if facets else []), "system", *([experiment.value_name] if values else [])]
    words = len(header)
    header += [*(MEASURES[measure] for measure in experiment.measures), *(["printed"] if printed else [])]
    rows = []
    for label in measured.runs:
        row = [*([label.facet] if facets else []), label.series, *([format_value(label.value)] if values else [])]
        row += [_entry(measured, label, measure) for measure in experiment.measures]
        if printed:
            number = experiment.printed.get((label.series, label.value))
            row.append("" if number is None else show(number))
        rows.append(tuple(row))
    return Table(tuple(header), tuple(rows), words)


def _pivoted(experiment: Experiment, measured: Measured, facet: str) -> Table:
    """A line for each value, a column for each series of a facet; the printed number in brackets."""
    measure, series = experiment.measures[0], measured.series(facet)
    rows = []
    for value in dict.fromkeys(label.value for label in measured.runs if label.facet == facet):
        row = [format_value(value)]
        for name in series:
            label = Label(name, value, facet)
            text = _entry(measured, label, measure) if label in measured.runs else ""
            printed = experiment.printed.get((name, value))
            row.append(text + ("" if printed is None else f" ({show(printed)})"))
        rows.append(tuple(row))
    brackets = "; in brackets what the paper prints" if experiment.printed else ""
    title = (f"{facet}: " if facet else "") + MEASURES[measure] + brackets
    return Table((experiment.value_name, *series), tuple(rows), 1, title)


def _groups(measured: Measured) -> Table | None:
    """Uploads and rewards by activity, one pair of columns for each point; of the first seed, as counts are of one."""
    found = {label: runs[0].extra["groups"] for label, runs in measured.runs.items() if "groups" in runs[0].extra}
    if not found:
        return None
    header = ["interactions", "users", "data"]
    for label in found:
        header += [f"{label.series} {format_value(label.value)}: uploads".replace(" :", ":"), "reward"]
    rows = []
    for position, group in enumerate(next(iter(found.values()))):
        row = [f"{group['above']}–{group['up_to']}", f"{group['users']:,}", f"{group['interactions']:,}"]
        for groups in found.values():
            row += [f"{groups[position]['uploads']:,}", f"{groups[position]['reward']:,.0f}"]
        rows.append(tuple(row))
    return Table(tuple(header), tuple(rows), 1, "by activity of clients, seed 0")


def _entry(measured: Measured, label: Label, measure: str) -> str:
    """Mean and standard error, or a dash where a system has no such measure."""
    if not measured.has(label, measure):
        return "–"
    return show(measured.mean(label, measure), measured.error(label, measure))


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
