"""What a paper says about its figures, as checks: orders, trends, factors, growth, fronts, printed numbers.

Each function makes a `Claim`; it is checked seed by seed (`verdicts`) and says the numbers that it found. What is
within noise is neither confirmed nor refuted: the claim is left open. A claim that does not hold, or is open, carries
an explanation (`otherwise`), which the report prints beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from fedbandit.errors import FedbanditError, require
from fedbandit.studies.fronts import compare_fronts
from fedbandit.studies.measured import MEASURES, Key, Measured, Value, check_measure, format_value
from fedbandit.studies.verdicts import Margin, margin, telling, together
from fedbandit.types import Array

Scales = tuple[str, ...]


class Finding(NamedTuple):
    """Whether a claim holds (None: could not be checked), and the numbers."""

    holds: bool | None
    numbers: str


@dataclass(frozen=True)
class Claim:
    """A sentence, and how it is checked; `needs` are the series it is about."""

    text: str
    check: Callable[[Measured], Finding]
    needs: tuple[str, ...] = ()
    otherwise: str = ""
    ours: bool = False  # said by us, not by the paper
    scales: Scales | None = None  # None: all

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


def below(
    lower: str,
    upper: str,
    *,
    measure: str = "regret",
    factor: float = 1.0,
    at: Value | None = None,
    facet: str = "",
    text: str = "",
    otherwise: str = "",
    ours: bool = False,
    scales: Scales | None = None,
) -> Claim:
    """`lower` × `factor` < `upper`, at one value, or at every value that both have."""
    check_measure(measure)

    def check(measured: Measured) -> Finding:
        pairs = _pairs(measured, lower, upper, at, facet)
        if not pairs:
            return Finding(None, "they have no value in common")
        margins = [margin(measured.numbers(b, measure) - factor * measured.numbers(a, measure)) for a, b in pairs]
        ratios = [_ratio(measured.mean(b, measure), measured.mean(a, measure)) for a, b in pairs]
        shown = telling(margins, ratios)
        low, high = pairs[shown]
        place = low.value if low.value != "" else high.value
        where = "" if len(pairs) == 1 else f" at {format_value(place)}, the least of {len(pairs)}"
        means = f"{_of(measured, low, measure)} against {_of(measured, high, measure)}: {ratios[shown]:.2f}×{where}"
        over = "" if factor == 1.0 else f" over {factor:g}×"
        return Finding(together(margins), f"{means}; difference{over} {_said(margins[shown])}")

    by = "" if factor == 1.0 else f", by a factor of at least {factor:g}"
    said = text or f"{lower} has less {_plain(measure)} than {upper}{by}."
    return Claim(said, check, (lower, upper), otherwise, ours, scales)


def ordered(
    *series: str,
    measure: str = "regret",
    slack: float = 0.0,
    at: Value | None = None,
    facet: str = "",
    text: str = "",
    otherwise: str = "",
    ours: bool = False,
    scales: Scales | None = None,
) -> Claim:
    """The means of these series rise in this order; a step down by a part `slack` is let pass."""
    check_measure(measure)
    require(len(series) >= 2, "series", series, "at least two")

    def check(measured: Measured) -> Finding:
        keys = [_one(measured, name, at, facet) for name in series]
        margins = [
            margin(measured.numbers(two, measure) - (1 - slack) * measured.numbers(one, measure))
            for one, two in pairwise(keys)
        ]
        numbers = " · ".join(f"{key.series} {_of(measured, key, measure)}" for key in keys)
        steps = ", ".join(_said(step) for step in margins)
        return Finding(together(margins), f"{numbers}; step{'s' if len(margins) > 1 else ''} {steps}")

    return Claim(
        text or f"In order of {_plain(measure)}: {', '.join(series)}.", check, tuple(series), otherwise, ours, scales
    )


def trend(
    series: str,
    *,
    measure: str = "regret",
    direction: Literal["rises", "falls"] = "rises",
    above: str = "",
    slack: float = 0.05,
    facet: str = "",
    text: str = "",
    otherwise: str = "",
    ours: bool = False,
    scales: Scales | None = None,
) -> Claim:
    """From its first value to its last the measure rises (or falls), and no step goes the other way.

    With `above` that is said of the difference to another series. A step the other way by a part `slack` is let pass;
    one by more that is within noise leaves the claim open.
    """
    check_measure(measure)
    require(direction in ("rises", "falls"), "direction", direction, "'rises' or 'falls'")

    def check(measured: Measured) -> Finding:
        keys = measured.line(series, facet)
        if len(keys) < 2:
            return Finding(None, "there is one value only")
        lines = [measured.numbers(key, measure) for key in keys]
        if above:
            lines = [
                line - measured.numbers(_one(measured, above, key.value, facet), measure)
                for line, key in zip(lines, keys, strict=True)
            ]
        shown = " → ".join(show(float(line.mean())) for line in lines)
        if direction == "falls":
            lines.reverse()
        whole = margin(lines[-1] - lines[0])
        steps = [
            margin(after - before + slack * np.minimum(abs(before), abs(after))) for before, after in pairwise(lines)
        ]
        verdict = together([whole, *(step for step in steps if step.mean <= 0)])
        ends = f"at {format_value(keys[0].value)} … {format_value(keys[-1].value)}"
        return Finding(verdict, f"{shown} {ends}; in all {_said(whole)}")

    verb = direction.removesuffix("s") if _plain(measure).endswith("s") else direction
    what = f"{_plain(measure).capitalize()} of {series}" + (f" above that of {above}" if above else "")
    return Claim(text or f"{what} {verb}.", check, (series, above) if above else (series,), otherwise, ours, scales)


def near_printed(
    series: str,
    printed: Mapping[str, float] | Mapping[float, float],
    *,
    measure: str = "regret",
    within: float = 0.25,
    facet: str = "",
    text: str = "",
    otherwise: str = "",
    scales: Scales | None = ("paper",),
) -> Claim:
    """Each number that the paper prints is met to within a part `within`."""
    check_measure(measure)

    def check(measured: Measured) -> Finding:
        parts, margins = [], []
        known: dict[Value, float] = dict(printed.items())
        for key in measured.line(series, facet):
            if key.value in known:
                found, paper = measured.numbers(key, measure), known[key.value]
                room = within * abs(paper)
                margins += [margin(found - (paper - room)), margin(paper + room - found)]
                label = f"{format_value(key.value)}: " if key.value != "" else ""
                parts.append(f"{label}{_of(measured, key, measure)} (printed {show(paper)})")
        return (
            Finding(together(margins), " · ".join(parts))
            if parts
            else Finding(None, "none of the printed ones was run")
        )

    said = text or f"{series} is within {within:.0%} of the printed numbers."
    return Claim(said, check, (series,), otherwise, False, scales)


def grows(
    series: str,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    measure: str = "regret",
    at: Value | None = None,
    facet: str = "",
    text: str = "",
    otherwise: str = "",
    ours: bool = False,
    scales: Scales | None = None,
) -> Claim:
    """From half the horizon to the end the curve grows like a power of t between `least` and `most` (1: linearly)."""
    check_measure(measure)

    def check(measured: Measured) -> Finding:
        rounds, curves = measured.curve(_one(measured, series, at, facet), measure)
        middle = int(np.searchsorted(rounds, rounds[-1] / 2))
        if (curves[:, middle] <= 0).any():
            return Finding(None, "it is zero at half of the horizon")
        powers = np.log(curves[:, -1] / curves[:, middle]) / math.log(rounds[-1] / rounds[middle])
        verdict, power = _between(powers, least, most)
        return Finding(verdict, f"{_plain(measure)} grows like t^{power} over the second half")

    return Claim(text or f"{series} grows {_range(least, most)}.", check, (series,), otherwise, ours, scales)


def scales_like(
    series: str,
    *,
    least: float,
    most: float,
    measure: str = "regret",
    facet: str = "",
    text: str = "",
    otherwise: str = "",
    ours: bool = False,
    scales: Scales | None = None,
) -> Claim:
    """Fitted over its (numeric) values, the measure is like a power of the value between `least` and `most`."""
    check_measure(measure)

    def check(measured: Measured) -> Finding:
        keys = measured.line(series, facet)
        numbers = np.stack([measured.numbers(key, measure) for key in keys])
        if len(keys) < 2 or (numbers <= 0).any():
            return Finding(None, "there is one value only" if len(keys) < 2 else "some are zero")
        x = np.log([float(key.value) for key in keys])
        verdict, power = _between(np.polyfit(x, np.log(numbers), 1)[0], least, most)
        return Finding(verdict, f"{_plain(measure)} is like value^{power}")

    return Claim(text or f"{series} scales {_range(least, most)}.", check, (series,), otherwise, ours, scales)


def better_front(
    better: str,
    worse: str,
    *,
    cost: str = "messages",
    measure: str = "regret",
    factor: float = 1.0,
    facet: str = "",
    text: str = "",
    otherwise: str = "",
    ours: bool = False,
    scales: Scales | None = None,
) -> Claim:
    """At equal regret `better` communicates less, by more than `factor` on average (`fronts`)."""
    check_measure(measure)
    check_measure(cost)

    def check(measured: Measured) -> Finding:
        found = compare_fronts(*(_dots(measured, series, facet, measure, cost) for series in (better, worse)))
        one, two = found.spans
        if found.log_ratios is None:
            spans = f"{better} {show(one[0])}–{show(one[1])}, {worse} {show(two[0])}–{show(two[1])}"
            return Finding(found.ahead, f"no {_plain(measure)} in common: {spans}")
        ratio = margin(found.log_ratios - math.log(factor))
        least, most = (math.exp(float(found.log_ratios.mean()) + sign * ratio.error) for sign in (-1, 1))
        times = f"{math.exp(float(found.log_ratios.mean())):.2f}" + (
            "" if math.isnan(least) else f" ({least:.2f}–{most:.2f})"
        )
        span = f"{show(max(one[0], two[0]))} to {show(min(one[1], two[1]))}"
        return Finding(ratio.holds, f"{times} times fewer {_plain(cost)} at equal {_plain(measure)} of {span}")

    said = text or f"At equal {_plain(measure)}, {better} has fewer {_plain(cost)} than {worse}."
    return Claim(said, check, (better, worse), otherwise, ours, scales)


def _dots(measured: Measured, series: str, facet: str, measure: str, cost: str) -> tuple[Array, Array]:
    """Regret and cost of each point and seed."""
    keys = measured.line(series, facet)
    return tuple(np.stack([measured.numbers(key, name) for key in keys]) for name in (measure, cost))  # type: ignore[return-value]


def _between(powers: Array, least: float, most: float) -> tuple[bool | None, str]:
    """Whether exponents, one a seed, lie between two numbers, and their mean as text."""
    bounds = [sign * (powers - bound) for sign, bound in ((1, least), (-1, most)) if math.isfinite(bound)]
    mean = margin(powers)
    error = "" if math.isnan(mean.error) else f" ± {mean.error:.2f}"
    return together([margin(bound) for bound in bounds]), f"{mean.mean:.2f}{error}"


def _said(found: Margin) -> str:
    """A difference with its own standard error."""
    if found.seeds < 2:
        return f"{show(found.mean)}, one seed"
    return show(found.mean, found.error) + (", within noise" if found.holds is None else "")


def _pairs(measured: Measured, one: str, two: str, at: Value | None, facet: str) -> list[tuple[Key, Key]]:
    """Points of two series at the same value; a series with one point only is compared with all of the other's."""
    if at is not None:
        return [(_one(measured, one, at, facet), _one(measured, two, at, facet))]
    first, second = measured.line(one, facet), measured.line(two, facet)
    if len(first) == 1 or len(second) == 1:
        return [(a, b) for a in first for b in second]
    return [(a, b) for a in first for b in second if a.value == b.value]


def _one(measured: Measured, series: str, at: Value | None, facet: str) -> Key:
    """The point of a series at a value; its only one, or its last, where no value is asked for."""
    line = measured.line(series, facet)
    keys = line if at is None or len(line) == 1 else [key for key in line if key.value == at]
    if not keys:
        raise FedbanditError(f"{Key(facet, series, '' if at is None else at).text} was not run")
    return keys[-1]


def _of(measured: Measured, key: Key, measure: str) -> str:
    return show(measured.mean(key, measure), measured.error(key, measure))


def _ratio(high: float, low: float) -> float:
    return high / low if low > 0 else math.inf if high >= low else 0.0


def _plain(measure: str) -> str:
    return MEASURES[measure].partition(" (")[0].removeprefix("cumulative ")


def _range(least: float, most: float) -> str:
    if math.isinf(most):
        return f"at least like a power {least:g}"
    return f"like a power of at most {most:g}" if math.isinf(least) else f"like a power between {least:g} and {most:g}"


CLAIMS: dict[str, Callable[..., Claim]] = {
    "below": below,
    "ordered": ordered,
    "trend": trend,
    "grows": grows,
    "scales_like": scales_like,
    "better_front": better_front,
}
"""Those that a YAML file can make."""
