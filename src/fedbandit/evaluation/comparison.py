"""Several systems on one log: what each would earn, and by how much one is better, with paired differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as altered
from typing import Any, Literal

from fedbandit.environments.logged import LoggedDecisions
from fedbandit.errors import FedbanditError
from fedbandit.evaluation.estimators import Estimate, difference
from fedbandit.evaluation.logs import LogEvaluation, Progress, evaluate_frozen, replay
from fedbandit.system import System, check_systems

Method = Literal["replay", "frozen"]


@dataclass(frozen=True)
class LogComparison:
    """Evaluations of several systems on one log, best first, and how each differs from the first that was named.

    differences: of the first estimates, system − baseline, paired decision by decision; None for the baseline.
    from_logged: system − the policy that wrote the log, paired likewise.
    """

    baseline: str
    evaluations: tuple[LogEvaluation, ...]
    differences: tuple[Estimate | None, ...]
    from_logged: tuple[Estimate, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The systems, best first."""
        return tuple(evaluation.system for evaluation in self.evaluations)

    def __str__(self) -> str:
        """For people: each system, and in pairs."""
        return "\n".join([*map(str, self.evaluations), self.told_differences()]).rstrip()

    def told_differences(self) -> str:
        """One line for each system: against the log's own policy, then against the baseline."""
        lines = []
        for gap in (*self.from_logged, *filter(None, self.differences)):
            low, high = gap.interval
            name = gap.name.replace("_", "-")
            lines.append(f"{name}: {gap.value:+.4f}   95 %, paired: {low:+.4f} … {high:+.4f}   {verdict(gap)}")
        return "\n".join(lines)

    def doubts(self) -> list[str]:
        """What to doubt, each with the systems that it is about, unless it is all of them."""
        about: dict[str, list[str]] = {}
        for one in self.evaluations:
            for warning in one.warnings:
                about.setdefault(warning, []).append(one.system.replace("_", "-"))
        everyone = len(self.evaluations)
        return [text if len(who) == everyone else f"{', '.join(who)}: {text}" for text, who in about.items()]

    def as_json(self) -> dict[str, Any]:
        """All of it as a JSON-ready object."""
        return {
            "baseline": self.baseline,
            "systems": [
                {
                    **found.as_json(),
                    "difference": None if gap is None else {**gap.as_json(), "verdict": verdict(gap)},
                    "difference_from_logged": {**own.as_json(), "verdict": verdict(own)},
                }
                for found, gap, own in zip(self.evaluations, self.differences, self.from_logged, strict=True)
            ],
        }


def verdict(gap: Estimate) -> Literal["better", "worse", "undecided"]:
    """What a difference's interval says."""
    return "better" if gap.interval[0] > 0 else "worse" if gap.interval[1] < 0 else "undecided"


def evaluate(
    system: System,
    log: LoggedDecisions,
    method: Method | None = None,
    seed: int = 0,
    *,
    train: float = 0.5,
    greedy: bool = False,
    progress: Progress = None,
) -> LogEvaluation:
    """What a log says of a system: `replay` if it is uniform and nothing else is asked, else `evaluate_frozen`."""
    if (method or ("replay" if log.uniform and not greedy else "frozen")) == "frozen":
        return evaluate_frozen(system, log, seed, train=train, greedy=greedy, progress=progress)
    if greedy:
        raise FedbanditError(
            "Replay evaluates a system while it learns, as it explores; greedy is for method='frozen'."
        )
    return replay(system, log, seed, progress=progress)


def distinct(names: Sequence[str]) -> list[str]:
    """The names; one that has been there before is numbered.

    >>> distinct(["linucb", "uniform", "linucb"])
    ['linucb', 'uniform', 'linucb (2)']
    """
    return [name if (n := names[: i + 1].count(name)) == 1 else f"{name} ({n})" for i, name in enumerate(names)]


def compare(systems: Sequence[System] | Mapping[str, System], log: LoggedDecisions, **options: Any) -> LogComparison:
    """Evaluate each system on the log, with the options of `evaluate`; differences are from the first one, and from
    the policy that wrote the log. A dict gives the systems names; those of a list that have one name are numbered.

    Both estimates of a pair rest on the same decisions, so that what these have in common cancels: the interval of the
    difference is the one to decide by, not whether two intervals overlap.
    """
    check_systems(systems)
    if not isinstance(systems, Mapping):
        names = distinct([system.name for system in systems])
        systems = dict(zip(names, systems, strict=True))
    found = [altered(evaluate(system, log, **options), system=name) for name, system in systems.items()]
    best_first = sorted(found, key=lambda one: -one.estimates[0].value)
    gaps = tuple(
        None
        if one is found[0]
        else difference(f"{one.system} − {found[0].system}", one.estimates[0], found[0].estimates[0])
        for one in best_first
    )
    from_logged = tuple(
        difference(f"{one.system} − the log's own policy", one.estimates[0], one.logged) for one in best_first
    )
    return LogComparison(found[0].system, tuple(best_first), gaps, from_logged)
