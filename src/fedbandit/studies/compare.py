"""Several systems on the same data: means over seeds with standard errors, as text, JSON, files and a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbandit.environments import Environment, LikedItems
from fedbandit.environments.block import world_of
from fedbandit.errors import FedbanditError, checked_call, needs, unknown, whole_number
from fedbandit.files import write_json, write_table, write_text
from fedbandit.presets import uniform
from fedbandit.progress import reporting
from fedbandit.studies.figures import Band, Overlay, draw_comparison, save_figure
from fedbandit.studies.measured import Measured, curve_rows
from fedbandit.studies.report import Table
from fedbandit.studies.specs import hyphenated
from fedbandit.studies.trials import Label, MakesEnvironment, MakesSystem, Point, Run, Trial
from fedbandit.studies.workers import Workers, run_trials
from fedbandit.system import System, check_systems
from fedbandit.types import Array, Ints

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = ("regret", "reward", "uploads", "downloads", "scalars", "bytes", "seconds")
RANDOM_ARMS = Label("random arms on the same stream")

Line = dict[str, Any]
"""One system, under the names of the command line's contract: means over seeds, and their standard errors."""

COLUMNS = {
    "regret": ("regret", 1, 1),
    "reward": ("reward", 1, 1),
    "uploads": ("uploads", 1, 0),
    "downloads": ("downloads", 1, 0),
    "bytes": ("MB", 1e6, 2),
    "seconds": ("seconds", 1, 2),
}
"""Of the table: title, divisor and digits of each measure."""


def trials_of(
    systems: Sequence[tuple[str, System | MakesSystem]],
    env: Environment | MakesEnvironment,
    horizon: int,
    seeds: Sequence[int],
) -> list[Trial]:
    """Every labelled system with every seed; on data sets of likes also random arms, to normalise rewards by."""
    labels = [label for label, _ in systems]
    for label in labels:
        if labels.count(label) > 1:
            raise FedbanditError(f"{label} is given twice; give each one keywords of its own, as in {label}:ridge=1.")
    points = [Point(label, spec, env) for label, spec in systems]
    trials = [Trial(point, horizon, seed) for seed in seeds for point in points]
    if isinstance(points[0].make_environment(), LikedItems):
        trials += [Trial(Point(RANDOM_ARMS.series, uniform, env), horizon, seed) for seed in seeds]
    return trials


def compared(runs: Sequence[Run]) -> list[Run]:
    """The runs of the systems that were named, without those of random arms."""
    return [run for run in runs if run.label != RANDOM_ARMS]


def lines_of(runs: Sequence[Run]) -> list[Line]:
    """One line for each system."""
    measured, lines = Measured.of(runs), []
    for label, group in Measured.of(compared(runs)).runs.items():
        first = group[0].report
        line: Line = {"label": label.text, "system": first["system"], "runs": len(group)}
        line |= {measure: measured.mean(label, measure) for measure in MEASURES}
        line |= {f"{measure}_standard_error": measured.error(label, measure) for measure in MEASURES}
        line["guarantee"] = first["guarantee"]
        if RANDOM_ARMS in measured.runs and measured.numbers(RANDOM_ARMS, "reward").min() > 0:
            line["normalised_reward"] = measured.mean(label, "normalised_reward")
            line["normalised_reward_standard_error"] = measured.error(label, "normalised_reward")
        lines.append(line)
    return lines


def format_table(lines: Sequence[Line]) -> str:
    """The lines as aligned text, with the full guarantees and normalised rewards below."""
    columns = [["system", *(line["label"] for line in lines)]]
    for measure, (title, scale, digits) in COLUMNS.items():
        columns.append([title, *_with_errors(lines, measure, scale, digits)])
    columns.append(["guarantee", *(line["guarantee"].partition(":")[0] for line in lines)])
    rows = list(zip(*columns, strict=True))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    text = []
    for first, *numbers, last in rows:
        padded = [number.rjust(width) for number, width in zip(numbers, widths[1:-1], strict=True)]
        text.append("  ".join([first.ljust(widths[0]), *padded, last]))
    guarantees = dict.fromkeys(line["guarantee"] for line in lines)
    text += ["", *(f"guarantee {guarantee}" for guarantee in guarantees)]
    if "normalised_reward" in lines[0]:
        text += ["", f"reward over that of {RANDOM_ARMS.text}:"]
        for line in lines:
            error = line["normalised_reward_standard_error"]
            number = f"{line['normalised_reward']:7.3f}" + ("" if error is None else f" ± {error:.3f}")
            text.append(f"  {line['label'].ljust(widths[0])}  {number}")
    return "\n".join(text)


def _with_errors(lines: Sequence[Line], measure: str, scale: float, digits: int) -> list[str]:
    """One entry a line, ± one below the other."""
    errors = [line[f"{measure}_standard_error"] for line in lines]
    texts = ["" if not error else f"{error / scale:,.{digits}f}" for error in errors]  # none, or all runs are equal
    widest = max(map(len, texts))
    ends = [f" ± {text:>{widest}}" if text else "" for text in texts]
    return [f"{line[measure] / scale:,.{digits}f}{end}" for line, end in zip(lines, ends, strict=True)]


def write_comparison(
    folder: Path,
    form: str,
    runs: Sequence[Run],
    summary: dict[str, Any],
    env: Environment,
    *,
    log: bool | None = None,
    band: Band = "error",
) -> list[Path]:
    """Write runs and curves ("csv" or "parquet"), the table, the summary, and the picture if matplotlib is there."""
    runs = compared(runs)
    # Ledgers, which only private systems have, are left to summaries.
    rows = [{"label": run.label.text} | {k: v for k, v in run.report.items() if k != "privacy"} for run in runs]
    written = [
        write_table(folder / f"runs.{form}", rows),
        write_table(folder / f"curves.{form}", curve_rows(_labels(runs), runs)),
        write_json(folder / "summary.json", summary),
        write_text(folder / "table.md", table_of(lines_of(runs)).markdown()),
        write_text(folder / "table.tex", table_of(lines_of(runs)).latex()),
    ]
    if find_spec("matplotlib") is not None:
        figure = draw_comparison(Measured.of(runs), title_of(env), log=log, band=band)
        written.append(save_figure(figure, folder / "regret.png"))
    return written


def _labels(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Whose each run is: its name in the comparison, its preset, its seed."""
    return [{"label": run.label.text, "system": run.report["system"], "seed": run.report["seed"]} for run in runs]


def title_of(env: Environment) -> str:
    """Of the picture."""
    return f"{env.name}: N = {env.n_clients:,}, d = {env.dim}, K = {env.n_arms}"


def table_of(lines: Sequence[Line], measures: Sequence[str] = tuple(COLUMNS)) -> Table:
    """The lines as a table for papers and pages, with a column for each of these measures."""
    for measure in measures:
        if measure not in COLUMNS:
            raise unknown("measure", measure, COLUMNS)
    columns = [_with_errors(lines, measure, *COLUMNS[measure][1:]) for measure in measures]
    titles = [COLUMNS[measure][0] for measure in measures]
    rows = zip((line["label"] for line in lines), *columns, strict=True)
    return Table(("system", *titles), tuple(rows))


@dataclass(frozen=True)
class Comparison:
    """Several systems with several seeds on one environment: what `compare` gives.

    runs: one for each system and seed. Printed it is the table of `fedbandit compare`; a notebook shows it as one.
    """

    env: Environment
    horizon: int
    seeds: tuple[int, ...]
    runs: list[Run] = field(repr=False)

    @property
    def lines(self) -> list[Line]:
        """One line for each system: means over seeds, and their standard errors."""
        return lines_of(self.runs)

    def __str__(self) -> str:
        """The table."""
        return format_table(self.lines)

    def _repr_html_(self) -> str:
        return table_of(self.lines).html()

    def to_markdown(self, measures: Sequence[str] = tuple(COLUMNS)) -> str:
        """The table, for a page: all measures, or such as ("regret", "bytes")."""
        return table_of(self.lines, measures).markdown()

    def to_latex(self, measures: Sequence[str] = tuple(COLUMNS)) -> str:
        """The table, for a paper: all measures, or such as ("regret", "bytes"); it needs no package."""
        return table_of(self.lines, measures).latex()

    def to_frame(self) -> Any:
        """A pandas data frame with one row for each system, seed and kept round: curves.csv of `fedbandit compare`."""
        runs = compared(self.runs)
        return needs("pandas", "frames", "A data frame").DataFrame(curve_rows(_labels(runs), runs))

    def to_mlflow(self, experiment: str = "fedbandit", points: int = 200) -> list[str]:
        """One MLflow run for each system and seed: parameters, totals, and curves of `points` points; the runs' ids.

        Where runs go is MLflow's business (`MLFLOW_TRACKING_URI`). Needs `fedbandit[mlflow]`.
        """
        from fedbandit.studies.mlflow import write_runs

        return write_runs(compared(self.runs), experiment, points)

    def plot(
        self,
        *,
        log: bool | None = None,
        band: Band = "error",
        bounds: Mapping[str, Mapping[str, Callable[[Ints], Array]]] | None = None,
        message_bounds: Mapping[str, Mapping[str, Callable[[Ints], Array]]] | None = None,
    ) -> Figure:
        """Regret over rounds, and against messages; log: a logarithmic axis (None: where curves differ widely).

        bounds: for a system's name, functions of rounds by name, such as those of `fb.bounds`:
        {"async-linucb": {"Thm 3.2": lambda T: …}}. Each is scaled to meet the mean regret at the horizon.
        message_bounds: the same of communication; there is then a third panel, messages over rounds.
        """
        measured = Measured.of(compared(self.runs))
        known = [label.series for label in measured.runs]
        for name in (*(bounds or ()), *(message_bounds or ())):
            if name not in known:
                raise unknown("system in this comparison", name, known)
        overlays, of_messages = (
            [Overlay(name, said, f) for name, of in (given or {}).items() for said, f in of.items()]
            for given in (bounds, message_bounds)
        )
        return draw_comparison(
            measured, title_of(self.env), log=log, band=band, bounds=overlays, message_bounds=of_messages
        )


@checked_call
def compare(
    systems: Sequence[System] | Mapping[str, System],
    env: Environment,
    horizon: int | None = None,
    seeds: int | Sequence[int] = 10,
    *,
    jobs: int = 1,
    progress: Callable[[int], object] | None = None,
) -> Comparison:
    """Run each system with each seed on the same data.

    systems: a list, or a dict that gives them names. horizon: rounds, or None for recorded data to their end. seeds:
    how many (0, 1, …), or which. jobs: processes; a script that asks for several needs `if __name__ == "__main__":`.
    progress: called with 1 after each run; a notebook shows a bar without it.

    >>> import fedbandit as fb
    >>> env = fb.environments.homogeneous(n_clients=5, dim=3, n_arms=4)
    >>> found = fb.compare([fb.linucb(), fb.async_linucb()], env, horizon=200, seeds=2)
    >>> [(line["label"], line["runs"]) for line in found.lines]
    [('linucb', 2), ('async-linucb', 2)]
    """
    check_systems(systems)
    if not isinstance(systems, Mapping):
        systems = {hyphenated(system.name): system for system in _distinct(systems)}
    if horizon is None and env.longest is None:
        raise FedbanditError(f"horizon is None, but {env.name} has no end; say how many rounds.")
    rounds = whole_number("horizon", horizon if horizon is not None else env.longest)
    chosen = range(whole_number("seeds", seeds)) if isinstance(seeds, int) else seeds
    for system in systems.values():
        system.told(world_of(env, rounds))  # whatever is wrong with one is said before any is run
    trials = trials_of(list(systems.items()), env, rounds, chosen)
    with reporting(progress, len(trials), "runs") as tell:
        return Comparison(env, rounds, tuple(chosen), run_trials(trials, Workers(jobs=jobs), lambda _: tell(1)))


def _distinct(systems: Sequence[System]) -> Sequence[System]:
    names = [system.name for system in systems]
    for name in names:
        if names.count(name) > 1:
            raise FedbanditError(f"Two of the systems are called {name}; give them names: {{'mine': …, 'other': …}}.")
    return systems
