"""Tables of results as Markdown, LaTeX and HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from fedbandit.studies.claims import show
from fedbandit.studies.declaration import Experiment
from fedbandit.studies.measured import MEASURES, Key, Measured, format_value

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
    "θ̂": r"$\hat\theta$",
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
    facets, values = measured.facets() != [""], any(key.value != "" for key in measured.runs)
    printed = any((key.series, key.value) in experiment.printed for key in measured.runs)
    header = [*([""] if facets else []), "system", *([experiment.value_name] if values else [])]
    words = len(header)
    header += [*(MEASURES[measure] for measure in experiment.measures), *(["printed"] if printed else [])]
    rows = []
    for key in measured.runs:
        row = [*([key.facet] if facets else []), key.series, *([format_value(key.value)] if values else [])]
        row += [entry(measured, key, measure) for measure in experiment.measures]
        if printed:
            number = experiment.printed.get((key.series, key.value))
            row.append("" if number is None else show(number))
        rows.append(tuple(row))
    return Table(tuple(header), tuple(rows), words)


def _pivoted(experiment: Experiment, measured: Measured, facet: str) -> Table:
    """A line for each value, a column for each series of a facet; the printed number in brackets."""
    measure, series = experiment.measures[0], measured.series(facet)
    values = list(dict.fromkeys(key.value for key in measured.runs if key.facet == facet))
    rows = []
    for value in values:
        row = [format_value(value)]
        for name in series:
            key = Key(facet, name, value)
            text = entry(measured, key, measure) if key in measured.runs else ""
            printed = experiment.printed.get((name, value))
            row.append(text + ("" if printed is None else f" ({show(printed)})"))
        rows.append(tuple(row))
    title = (
        (f"{facet}: " if facet else "")
        + MEASURES[measure]
        + ("; in brackets what the paper prints" if experiment.printed else "")
    )
    return Table((experiment.value_name, *series), tuple(rows), 1, title)


def _groups(measured: Measured) -> Table | None:
    """Uploads and rewards by activity, one pair of columns for each point; of the first seed, as counts are of one."""
    found = {key: runs[0].extra["groups"] for key, runs in measured.runs.items() if "groups" in runs[0].extra}
    if not found:
        return None
    first = next(iter(found.values()))
    header = ["interactions", "users", "data"]
    for key in found:
        header += [f"{key.series} {format_value(key.value)}: uploads".replace(" :", ":"), "reward"]
    rows = []
    for position, group in enumerate(first):
        row = [f"{group['above']}–{group['up_to']}", f"{group['users']:,}", f"{group['interactions']:,}"]
        for groups in found.values():
            row += [f"{groups[position]['uploads']:,}", f"{groups[position]['reward']:,.0f}"]
        rows.append(tuple(row))
    return Table(tuple(header), tuple(rows), 1, "by activity of clients, seed 0")


def entry(measured: Measured, key: Key, measure: str) -> str:
    """Mean and standard error, or a dash where a system has no such measure."""
    if not measured.has(key, measure):
        return "–"
    return show(measured.mean(key, measure), measured.error(key, measure))
