"""What a paper says about its figures, as checks: orders, trends, factors, growth, fronts, printed numbers.

Each function makes a `Claim`; it is checked on the means over seeds and says the numbers that it found. A claim that
does not hold carries an explanation (`otherwise`), which the report prints beside the cross. Where means differ by less
than `NOISE` standard errors of their difference, an order is neither confirmed nor refuted: the claim is left open.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from fedbandit.errors import FedbanditError, require
from fedbandit.experiments.measured import MEASURES, Key, Measured, Value, check_measure, format_value

Scales = tuple[str, ...]

NOISE = 2.0
"""Standard errors of a difference below which it decides nothing."""


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
    """A number with as many digits as are worth reading.

    >>> show(1234.5), show(0.1234, 0.01), show(7.0), show(0.0)
    ('1,234', '0.123 ± 0.010', '7.0', '0')
    """
    digits = 0 if abs(number) >= 100 or number == 0 else 1 if abs(number) >= 2 else 3
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
    """`lower` × `factor` ≤ `upper`, at one value, or at every value that both have."""
    check_measure(measure)

    def check(measured: Measured) -> Finding:
        pairs = _pairs(measured, lower, upper, at, facet)
        if not pairs:
            return Finding(None, "they have no value in common")
        ratios = [_ratio(measured.mean(high, measure), measured.mean(low, measure)) for low, high in pairs]
        worst = int(np.argmin(ratios))
        low, high = pairs[worst]
        place = low.value if low.value != "" else high.value
        where = "" if len(pairs) == 1 else f" at {format_value(place)}, the least of {len(pairs)}"
        numbers = f"{_of(measured, low, measure)} against {_of(measured, high, measure)}: {ratios[worst]:.2f}×{where}"
        if _within_noise(measured, low, high, measure, factor):
            return Finding(None, f"{numbers}, within noise")
        return Finding(min(ratios) >= factor, numbers)

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
        means = [measured.mean(key, measure) for key in keys]
        steps = list(pairwise(keys))
        holds = all(before * (1 - slack) <= after for before, after in pairwise(means))
        unclear = [two for one, two in steps if _within_noise(measured, one, two, measure, 1 - slack)]
        refuted = any(
            measured.mean(one, measure) * (1 - slack) > measured.mean(two, measure)
            for one, two in steps
            if two not in unclear
        )
        numbers = " · ".join(f"{key.series} {_of(measured, key, measure)}" for key in keys)
        if unclear and not refuted:
            return Finding(None, f"{numbers}, within noise at {', '.join(key.series for key in unclear)}")
        return Finding(holds, numbers)

    return Claim(
        text or f"In order of {_plain(measure)}: {', '.join(series)}.", check, tuple(series), otherwise, ours, scales
    )


def trend(
    series: str,
    *,
    measure: str = "regret",
    direction: Literal["rises", "falls"] = "rises",
    slack: float = 0.05,
    facet: str = "",
    text: str = "",
    otherwise: str = "",
    ours: bool = False,
    scales: Scales | None = None,
) -> Claim:
    """Along its values the measure rises (or falls); a step the other way by a part `slack` is let pass."""
    check_measure(measure)
    require(direction in ("rises", "falls"), "direction", direction, "'rises' or 'falls'")

    def check(measured: Measured) -> Finding:
        keys = measured.line(series, facet)
        means = [measured.mean(key, measure) for key in keys]
        if len(means) < 2:
            return Finding(None, "there is one value only")
        if direction == "falls":
            steps = [after <= before * (1 + slack) for before, after in pairwise(means)]
            holds = all(steps) and means[-1] < means[0]
        else:
            steps = [after * (1 + slack) >= before for before, after in pairwise(means)]
            holds = all(steps) and means[-1] > means[0]
        numbers = " → ".join(show(mean) for mean in means)
        return Finding(holds, f"{numbers} at {format_value(keys[0].value)} … {format_value(keys[-1].value)}")

    verb = direction.removesuffix("s") if _plain(measure).endswith("s") else direction
    said = text or f"{_plain(measure).capitalize()} of {series} {verb}."
    return Claim(said, check, (series,), otherwise, ours, scales)


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
        parts, holds = [], True
        known: dict[Value, float] = dict(printed.items())
        for key in measured.line(series, facet):
            if key.value in known:
                mean, paper = measured.mean(key, measure), known[key.value]
                holds &= abs(mean - paper) <= within * abs(paper)
                label = f"{format_value(key.value)}: " if key.value != "" else ""
                parts.append(f"{label}{show(mean)} (printed {show(paper)})")
        return Finding(holds, " · ".join(parts)) if parts else Finding(None, "none of the printed ones was run")

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
        mean = curves.mean(axis=0)
        middle = int(np.searchsorted(rounds, rounds[-1] / 2))
        if mean[middle] <= 0:
            return Finding(None, "it is zero at half of the horizon")
        power = math.log(mean[-1] / mean[middle]) / math.log(rounds[-1] / rounds[middle])
        return Finding(least <= power <= most, f"{_plain(measure)} grows like t^{power:.2f} over the second half")

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
        x, y = (np.log([float(key.value) for key in keys]), np.log([measured.mean(key, measure) for key in keys]))
        power = float(np.polyfit(x, y, 1)[0])
        return Finding(least <= power <= most, f"{_plain(measure)} is like value^{power:.2f}")

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
    """At equal regret `better` communicates less: fronts (cost over regret) compared where both have been measured.

    Both fronts are made monotone (nobody must use a threshold that another of its own beats on both counts) and
    interpolated in logarithms; the geometric mean of the ratio of costs over the common range must exceed `factor`.
    """
    check_measure(measure)
    check_measure(cost)

    def check(measured: Measured) -> Finding:
        one, two = (_front(measured, series, facet, cost, measure) for series in (better, worse))
        low, high = max(one[0][0], two[0][0]), min(one[0][-1], two[0][-1])
        if not low < high:
            return _apart(better, worse, one, two, measure)
        at = np.linspace(low, high, 50)
        ratio = float(np.exp(np.mean(np.interp(at, *two) - np.interp(at, *one))))
        span = f"{show(math.exp(low))} to {show(math.exp(high))}"
        return Finding(ratio > factor, f"{ratio:.2f} times fewer {_plain(cost)} at equal {_plain(measure)} of {span}")

    said = text or f"At equal {_plain(measure)}, {better} has fewer {_plain(cost)} than {worse}."
    return Claim(said, check, (better, worse), otherwise, ours, scales)


def _front(
    measured: Measured, series: str, facet: str, cost: str, measure: str
) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Log regret, rising, and the least log cost at which at most that regret was had."""
    points = sorted(
        (math.log(measured.mean(key, measure)), math.log(max(measured.mean(key, cost), 1.0)))
        for key in measured.line(series, facet)
    )
    regret, spent = (np.array(column) for column in zip(*points, strict=True))
    return regret, np.minimum.accumulate(spent)


def _apart(
    better: str,
    worse: str,
    one: tuple[np.ndarray[tuple[int], np.dtype[np.float64]], ...],
    two: tuple[np.ndarray[tuple[int], np.dtype[np.float64]], ...],
    measure: str,
) -> Finding:
    """Fronts that share no regret: one is better if it has the lower regret and its dearest dot is the cheaper."""
    ahead = one[0][-1] <= two[0][0] and one[1].max() <= two[1].min()
    spans = [
        f"{name} {show(math.exp(f[0][0]))}–{show(math.exp(f[0][-1]))}" for name, f in ((better, one), (worse, two))
    ]
    return Finding(bool(ahead), f"no {_plain(measure)} in common: {', '.join(spans)}")


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


def _within_noise(measured: Measured, low: Key, high: Key, measure: str, factor: float) -> bool:
    """Whether high − factor · low, seed by seed on the same data, is smaller than its noise; one seed has none."""
    one, two = measured.numbers(low, measure), measured.numbers(high, measure)
    if len(one) != len(two) or len(one) < 2:
        return False
    differences = two - factor * one
    return abs(float(differences.mean())) < NOISE * float(differences.std(ddof=1)) / math.sqrt(len(differences))


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
