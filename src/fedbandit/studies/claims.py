"""What a paper says about its figures, as checks: orders, trends, factors, growth, fronts, printed numbers.

Each claim is checked seed by seed (`verdicts`) and says the numbers that it found. What is within noise is neither
confirmed nor refuted: the claim is left open. A claim that does not hold, or is open, carries an explanation
(`otherwise`), which the report prints beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from fedbandit.errors import FedbanditError, require
from fedbandit.studies.measured import MEASURES, Measured, check_measure
from fedbandit.studies.trials import Label, Value, format_value
from fedbandit.studies.verdicts import Margin, compare_fronts, margin, telling, together
from fedbandit.types import Array


class Finding(NamedTuple):
    """Whether a claim holds (None: open, or could not be checked), and the numbers."""

    holds: bool | None
    numbers: str


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence that runs confirm or refute.

    measure, facet: what it is about. text: the sentence, if the usual one does not do. otherwise: an explanation for
    the case that it does not hold. ours: it is our claim, not the paper's. scales: where it is checked (None: all).
    """

    measure: str = "regret"
    facet: str = ""
    text: str = ""
    otherwise: str = ""
    ours: bool = False
    scales: tuple[str, ...] | None = None
    about: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        """Refuse a measure that does not exist; say the usual sentence if there is no other."""
        check_measure(self.measure)
        object.__setattr__(self, "text", self.text or self.usual_text())

    def usual_text(self) -> str:
        """The sentence from the parameters."""
        raise NotImplementedError

    @property
    def needs(self) -> tuple[str, ...]:
        """The series it is about: the values of the fields in `about`."""
        given = [getattr(self, field) for field in self.about]
        return tuple(name for one in given for name in ((one,) if isinstance(one, str) else one) if name)

    def check(self, measured: Measured) -> Finding:
        """Check it; what it needs was run."""
        raise NotImplementedError

    def find(self, measured: Measured, scale: str) -> Finding:
        """Check it on what was measured."""
        if self.scales is not None and scale not in self.scales:
            return Finding(None, f"checked at the scale {' or '.join(self.scales)} only")
        missing = [series for series in self.needs if series not in measured.series()]
        if missing:
            return Finding(None, f"{', '.join(missing)} was not run")
        try:
            return self.check(measured)
        except FedbanditError as error:
            return Finding(None, str(error))

    @property
    def name(self) -> str:
        """The measure in words."""
        return MEASURES[self.measure].partition(" (")[0].removeprefix("cumulative ")

    def shown(self, measured: Measured, label: Label) -> str:
        """The mean at a point, with its error."""
        return show(measured.mean(label, self.measure), measured.error(label, self.measure))


@dataclass(frozen=True)
class Below(Claim):
    """`lower` × `factor` < `upper`, at one value, or at every value that both have."""

    about = ("lower", "upper")
    lower: str
    upper: str
    _: KW_ONLY
    factor: float = 1.0
    at: Value | None = None

    def usual_text(self) -> str:
        by = "" if self.factor == 1.0 else f", by a factor of at least {self.factor:g}"
        return f"{self.lower} has less {self.name} than {self.upper}{by}."

    def check(self, measured: Measured) -> Finding:
        pairs = self._pairs(measured)
        if not pairs:
            return Finding(None, "they have no value in common")
        numbers, mean = measured.numbers, measured.mean
        margins = [margin(numbers(b, self.measure) - self.factor * numbers(a, self.measure)) for a, b in pairs]
        ratios = [_ratio(mean(b, self.measure), mean(a, self.measure)) for a, b in pairs]
        closest = telling(margins, ratios)
        low, high = pairs[closest]
        place = low.value if low.value != "" else high.value
        where = "" if len(pairs) == 1 else f" at {format_value(place)}, the least of {len(pairs)}"
        means = f"{self.shown(measured, low)} against {self.shown(measured, high)}: {ratios[closest]:.2f}×{where}"
        over = "" if self.factor == 1.0 else f" over {self.factor:g}×"
        return Finding(together(margins), f"{means}; difference{over} {_said(margins[closest])}")

    def _pairs(self, measured: Measured) -> list[tuple[Label, Label]]:
        """Points of both at the same value; a series with one point only is compared with all of the other's."""
        if self.at is not None:
            return [(measured.at(self.lower, self.at, self.facet), measured.at(self.upper, self.at, self.facet))]
        first, second = measured.line(self.lower, self.facet), measured.line(self.upper, self.facet)
        alone = len(first) == 1 or len(second) == 1
        return [(a, b) for a in first for b in second if alone or a.value == b.value]


@dataclass(frozen=True)
class Ordered(Claim):
    """The means of these series rise in this order; a step down by a part `slack` is let pass."""

    about = ("series",)
    series: tuple[str, ...]
    _: KW_ONLY
    slack: float = 0.0
    at: Value | None = None

    def __post_init__(self) -> None:
        enough = isinstance(self.series, tuple) and len(self.series) >= 2
        require(enough, "series", self.series, "a list of at least two")
        super().__post_init__()

    def usual_text(self) -> str:
        return f"In order of {self.name}: {', '.join(self.series)}."

    def check(self, measured: Measured) -> Finding:
        labels = [measured.at(name, self.at, self.facet) for name in self.series]
        lines = [measured.numbers(label, self.measure) for label in labels]
        margins = [margin(two - (1 - self.slack) * one) for one, two in pairwise(lines)]
        numbers = " · ".join(f"{label.series} {self.shown(measured, label)}" for label in labels)
        steps = ", ".join(_said(step) for step in margins)
        return Finding(together(margins), f"{numbers}; step{'s' if len(margins) > 1 else ''} {steps}")


@dataclass(frozen=True)
class Trend(Claim):
    """From its first value to its last the measure rises (or falls), and no step goes the other way.

    With `above` that is said of the difference to another series. A step the other way by a part `slack` is let pass;
    one by more that is within noise leaves the claim open.
    """

    about = ("series", "above")
    series: str
    _: KW_ONLY
    direction: Literal["rises", "falls"] = "rises"
    above: str = ""
    slack: float = 0.05

    def __post_init__(self) -> None:
        require(self.direction in ("rises", "falls"), "direction", self.direction, "'rises' or 'falls'")
        super().__post_init__()

    def usual_text(self) -> str:
        verb = self.direction.removesuffix("s") if self.name.endswith("s") else self.direction
        what = f"{self.name.capitalize()} of {self.series}" + (f" above that of {self.above}" if self.above else "")
        return f"{what} {verb}."

    def check(self, measured: Measured) -> Finding:
        labels = measured.line(self.series, self.facet)
        if len(labels) < 2:
            return Finding(None, "there is one value only")
        lines = [measured.numbers(label, self.measure) for label in labels]
        if self.above:
            others = [measured.at(self.above, label.value, self.facet) for label in labels]
            lines = [a - measured.numbers(b, self.measure) for a, b in zip(lines, others, strict=True)]
        shown = " → ".join(show(float(line.mean())) for line in lines)
        if self.direction == "falls":
            lines.reverse()
        whole = margin(lines[-1] - lines[0])
        steps = [margin(b - a + self.slack * np.minimum(abs(a), abs(b))) for a, b in pairwise(lines)]
        verdict = together([whole, *(step for step in steps if step.mean <= 0)])
        ends = f"at {format_value(labels[0].value)} … {format_value(labels[-1].value)}"
        return Finding(verdict, f"{shown} {ends}; in all {_said(whole)}")


@dataclass(frozen=True)
class NearPrinted(Claim):
    """Each number that the paper prints is met to within a part `within`."""

    about = ("series",)
    series: str
    printed: Mapping[str, float] | Mapping[float, float]
    _: KW_ONLY
    within: float = 0.25
    scales: tuple[str, ...] | None = ("paper",)

    def usual_text(self) -> str:
        return f"{self.series} is within {self.within:.0%} of the printed numbers."

    def check(self, measured: Measured) -> Finding:
        parts, margins = [], []
        known: dict[Value, float] = dict(self.printed.items())
        for label in measured.line(self.series, self.facet):
            if label.value in known:
                found, paper = measured.numbers(label, self.measure), known[label.value]
                room = self.within * abs(paper)
                margins += [margin(found - (paper - room)), margin(paper + room - found)]
                value = f"{format_value(label.value)}: " if label.value != "" else ""
                parts.append(f"{value}{self.shown(measured, label)} (printed {show(paper)})")
        if not parts:
            return Finding(None, "none of the printed ones was run")
        return Finding(together(margins), " · ".join(parts))


@dataclass(frozen=True)
class Power(Claim):
    """Something grows like a power between `least` and `most`."""

    about = ("series",)
    series: str
    _: KW_ONLY
    least: float = -math.inf
    most: float = math.inf

    @property
    def range(self) -> str:
        """Between which powers."""
        if math.isinf(self.most):
            return f"at least like a power {self.least:g}"
        if math.isinf(self.least):
            return f"like a power of at most {self.most:g}"
        return f"like a power between {self.least:g} and {self.most:g}"

    def between(self, powers: Array) -> tuple[bool | None, str]:
        """Whether exponents, one a seed, lie in the range, and their mean as text."""
        ends = [sign * (powers - end) for sign, end in ((1, self.least), (-1, self.most)) if math.isfinite(end)]
        mean = margin(powers)
        error = "" if math.isnan(mean.error) else f" ± {mean.error:.2f}"
        return together([margin(end) for end in ends]), f"{mean.mean:.2f}{error}"


@dataclass(frozen=True)
class Grows(Power):
    """From half the horizon to the end the curve grows like a power of t between `least` and `most` (1: linearly)."""

    _: KW_ONLY
    at: Value | None = None

    def usual_text(self) -> str:
        return f"{self.series} grows {self.range}."

    def check(self, measured: Measured) -> Finding:
        rounds, curves = measured.curve(measured.at(self.series, self.at, self.facet), self.measure)
        middle = int(np.searchsorted(rounds, rounds[-1] / 2))
        if (curves[:, middle] <= 0).any():
            return Finding(None, "it is zero at half of the horizon")
        powers = np.log(curves[:, -1] / curves[:, middle]) / math.log(rounds[-1] / rounds[middle])
        verdict, power = self.between(powers)
        return Finding(verdict, f"{self.name} grows like t^{power} over the second half")


@dataclass(frozen=True)
class ScalesLike(Power):
    """Fitted over its (numeric) values, the measure is like a power of the value between `least` and `most`."""

    def usual_text(self) -> str:
        return f"{self.series} scales {self.range}."

    def check(self, measured: Measured) -> Finding:
        labels = measured.line(self.series, self.facet)
        numbers = np.stack([measured.numbers(label, self.measure) for label in labels])
        if len(labels) < 2 or (numbers <= 0).any():
            return Finding(None, "there is one value only" if len(labels) < 2 else "some are zero")
        x = np.log([float(label.value) for label in labels])
        verdict, power = self.between(np.polyfit(x, np.log(numbers), 1)[0])
        return Finding(verdict, f"{self.name} is like value^{power}")


@dataclass(frozen=True)
class BetterFront(Claim):
    """At equal regret `better` communicates less, by more than `factor` on average (`verdicts.compare_fronts`)."""

    about = ("better", "worse")
    better: str
    worse: str
    _: KW_ONLY
    cost: str = "messages"
    factor: float = 1.0

    def __post_init__(self) -> None:
        check_measure(self.cost)
        super().__post_init__()

    @property
    def cost_name(self) -> str:
        """The cost in words."""
        return MEASURES[self.cost].partition(" (")[0]

    def usual_text(self) -> str:
        return f"At equal {self.name}, {self.better} has fewer {self.cost_name} than {self.worse}."

    def check(self, measured: Measured) -> Finding:
        lines = [measured.line(series, self.facet) for series in self.needs]
        one, two = (
            (
                np.stack([measured.numbers(label, self.measure) for label in line]),
                np.stack([measured.numbers(label, self.cost) for label in line]),
            )
            for line in lines
        )
        found = compare_fronts(one, two)
        (low, high), (other_low, other_high) = found.spans
        if found.log_ratios is None:
            spans = f"{self.better} {show(low)}–{show(high)}, {self.worse} {show(other_low)}–{show(other_high)}"
            return Finding(found.ahead, f"no {self.name} in common: {spans}")
        ratio, mean = margin(found.log_ratios - math.log(self.factor)), float(found.log_ratios.mean())
        least, most = (math.exp(mean + sign * ratio.error) for sign in (-1, 1))
        times = f"{math.exp(mean):.2f}" + ("" if math.isnan(least) else f" ({least:.2f}–{most:.2f})")
        span = f"{show(max(low, other_low))} to {show(min(high, other_high))}"
        return Finding(ratio.holds, f"{times} times fewer {self.cost_name} at equal {self.name} of {span}")


CLAIMS: dict[str, Callable[..., Claim]] = {
    "below": Below,
    "ordered": Ordered,
    "trend": Trend,
    "grows": Grows,
    "scales_like": ScalesLike,
    "better_front": BetterFront,
}
"""Those that a YAML file can make."""


def show(number: float, error: float | None = None) -> str:
    """A number with as many digits as are worth reading; its error has one at least.

    >>> show(1234.5), show(0.1234, 0.01), show(2.149, 0.011), show(378.2, 0.4), show(7.0), show(0.0)
    ('1,234', '0.123 ± 0.010', '2.15 ± 0.01', '378.2 ± 0.4', '7.0', '0')
    """
    digits = 0 if abs(number) >= 100 or number == 0 else 1 if abs(number) >= 2 else 3
    if error is not None and error > 0:
        digits = max(digits, min(4, math.ceil(-math.log10(error))))
    text = f"{number:,.{digits}f}"
    return text if error is None else f"{text} ± {error:,.{digits}f}"


def _said(found: Margin) -> str:
    """A difference with its own standard error."""
    if found.seeds < 2:
        return f"{show(found.mean)}, one seed"
    return show(found.mean, found.error) + (", within noise" if found.holds is None else "")


def _ratio(high: float, low: float) -> float:
    return high / low if low > 0 else math.inf if high >= low else 0.0
