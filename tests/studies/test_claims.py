"""Claims hold when they should, fail when they should, and say their numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedbandit.errors import FedbanditError
from fedbandit.studies import claims
from fedbandit.studies.claims import Claim
from fedbandit.studies.measured import Measured
from fedbandit.studies.trials import Curve, Label, Run, Value
from fedbandit.studies.verdicts import margin

Numbers = dict[tuple[str, Value], tuple[float, float]]


def measured(
    numbers: Numbers, power: float = 1.0, facet: str = "", reward: float = 50.0, against: str = ""
) -> Measured:
    """Two runs for each (series, value), 10 % below and above these means of regret; regret grows like t^power.

    Seeds that are bad for the others are good for the series `against`.
    """
    runs = []
    rounds = np.arange(1, 101)
    for (series, value), (regret, messages) in numbers.items():
        for seed, shift in enumerate((0.1, -0.1) if series == against else (-0.1, 0.1)):
            final = regret * (1 + shift)
            report = {
                "system": "uniform" if series == "random" else series,
                "environment": "world",
                "horizon": 100,
                "seed": seed,
                "regret": final,
                "reward": reward if series == "random" else 100.0,
                "uploads": messages / 2,
                "downloads": messages / 2,
                "seconds": 0.0,
            }
            regrets = np.asarray(final * (rounds / 100) ** power, dtype=np.float64)
            rewards = np.asarray(0.5 * rounds, dtype=np.float64)
            curve = Curve(rounds, regrets, rewards, rounds, rounds)
            runs.append(Run(Label(series, value, facet), report, curve, n_clients=10))
    return Measured.of(runs)


TWO = measured({("a", 1): (10, 100), ("a", 2): (20, 50), ("b", 1): (30, 100), ("b", 2): (30, 10)})


@pytest.mark.parametrize(
    ("claim", "holds"),
    [
        (claims.Below("a", "b"), True),
        (claims.Below("b", "a"), False),
        (claims.Below("a", "b", factor=1.4), True),
        (claims.Below("a", "b", factor=1.6), False),
        (claims.Below("a", "b", factor=2.9, at=1), True),
        (claims.Below("a", "b", measure="messages"), False),  # equal at 1, more at 2
        (claims.Below("a", "b", measure="messages", at=1), None),  # equal
        (claims.Below("b", "a", measure="messages", at=2), True),
        (claims.Ordered(("a", "b")), True),
        (claims.Ordered(("b", "a")), False),
        (claims.Ordered(("b", "a"), slack=0.5), True),
        (claims.Ordered(("b", "a"), slack=0.3), False),
        (claims.Trend("a"), True),
        (claims.Trend("a", direction="falls"), False),
        (claims.Trend("a", measure="messages", direction="falls"), True),
        (claims.Trend("b"), None),  # it stays where it is
        (claims.Trend("b", above="a", direction="falls"), True),  # from 20 to 10
        (claims.Trend("b", above="a"), False),
        (claims.NearPrinted("a", {1.0: 11.0, 2.0: 19.0}, within=0.8, scales=None), True),
        (claims.NearPrinted("a", {1.0: 50.0, 2.0: 19.0}, within=0.5, scales=None), False),
        (claims.NearPrinted("a", {1.0: 11.0, 2.0: 19.0}, within=0.1, scales=None), None),  # seeds differ by as much
        (claims.NearPrinted("a", {7.0: 12.0}, scales=None), None),
        (claims.ScalesLike("a", least=0.9, most=1.1), True),
        (claims.ScalesLike("a", least=1.5, most=2.5), False),
        (claims.Below("a", "c"), None),
        (claims.Below("a", "b", facet="elsewhere"), None),
        (claims.Ordered(("a", "b"), at=5), None),
        (claims.Below("a", "b", scales=("paper",)), None),
    ],
)
def test_claims_on_means(claim: Claim, holds: bool | None) -> None:
    finding = claim.find(TWO, "quick")
    assert finding.holds is holds
    assert finding.numbers


def test_a_difference_within_noise_decides_nothing() -> None:
    numbers: Numbers = {("a", ""): (100, 1), ("b", ""): (105, 1), ("c", ""): (900, 1)}
    near = measured(numbers, against="b")  # b − a is 5 ± 20.5
    orders = (claims.Ordered(("a", "b")), claims.Ordered(("b", "a", "c")))
    for claim in (claims.Below("a", "b"), claims.Below("b", "a"), *orders):
        finding = claim.find(near, "")
        assert finding.holds is None
        assert "within noise" in finding.numbers
    assert "difference 5.0 ± 20.5, within noise" in claims.Below("a", "b").find(near, "").numbers
    assert claims.Below("a", "c").find(near, "").holds is True
    assert claims.Below("c", "a").find(near, "").holds is False
    assert claims.Ordered(("c", "a", "b")).find(near, "").holds is False  # refuted whatever a and b are
    assert claims.Below("a", "b", factor=0.2).find(near, "").holds is True  # the margin is beyond noise


def test_noise_is_that_of_differences_on_the_same_seeds() -> None:
    """Means of 100 ± 10 and 105 ± 10.5 overlap; seed by seed b is 5 % above a."""
    paired = measured({("a", ""): (100, 1), ("b", ""): (105, 1)})
    finding = claims.Below("a", "b").find(paired, "")
    assert finding.holds is True
    assert finding.numbers == "100 ± 10 against 105 ± 11: 1.05×; difference 5.0 ± 0.5"
    assert claims.Ordered(("b", "a")).find(paired, "").holds is False


def test_every_pair_counts_not_only_the_closest() -> None:
    """At 2 the order is refuted, at 1 it is within noise though its ratio is worse; at 3 it is clear."""
    numbers: Numbers = {("a", v): (100, 1) for v in (1, 2, 3)} | {("b", 1): (100.5, 1), ("b", 2): (100.9, 1)}
    both = measured(numbers | {("b", 3): (150, 1)}, against="b")
    assert claims.Below("a", "b").find(both, "").holds is None  # 1 and 2 are within noise, whatever 3 is
    clear = measured({("a", 1): (100, 1), ("a", 2): (100, 1), ("b", 1): (100.5, 1), ("b", 2): (50, 1)})
    finding = claims.Below("a", "b").find(clear, "")
    assert finding.holds is False
    assert "at 2, the least of 2" in finding.numbers


def test_few_seeds_need_a_larger_difference() -> None:
    """Student's quantiles: 6.3 standard errors for two seeds, 2.1 for five; pure noise decides one time in ten."""
    assert [margin(np.array([1.0, 1.0 + x])).holds for x in (0.2, 0.5)] == [True, None]
    rng = np.random.default_rng(0)
    for seeds in (2, 3, 10):
        decided = [margin(rng.standard_normal(seeds)).holds for _ in range(4_000)]
        for verdict in (True, False):
            assert decided.count(verdict) == pytest.approx(200, abs=60)
    assert margin(np.array([0.0, 0.0])).holds is None
    assert margin(np.array([-3.0])).holds is False  # one seed knows no noise
    assert "one seed" in claims.Below("a", "b").find(first_seed(TWO), "").numbers


def first_seed(world: Measured) -> Measured:
    return Measured({label: runs[:1] for label, runs in world.runs.items()})


def test_a_trend_lets_small_steps_pass() -> None:
    nearly = measured({("a", 1): (10, 1), ("a", 2): (9.7, 1), ("a", 3): (20, 1)})
    assert claims.Trend("a", slack=0.05).find(nearly, "").holds is True
    assert claims.Trend("a", slack=0.01).find(nearly, "").holds is False
    rough = measured({("a", 1): (10, 1), ("a", 2): (30, 1)}, against="a")
    assert claims.Trend("a").find(rough, "").holds is True
    unclear = measured({("a", 1): (10, 1), ("a", 2): (10.1, 1)})
    assert claims.Trend("a").find(unclear, "").holds is True  # 1 % with every seed
    assert claims.Trend("a").find(mixed(unclear), "").holds is None


@pytest.mark.parametrize("power", [0.3, 0.5, 1.0])
def test_growth_is_the_power_of_the_curve(power: float) -> None:
    world = measured({("a", ""): (100, 1)}, power)
    assert claims.Grows("a", least=power - 0.01, most=power + 0.01).find(world, "").holds is True
    assert claims.Grows("a", least=power + 0.05).find(world, "").holds is False
    assert claims.Grows("a", most=power - 0.05).find(world, "").holds is False


def front(series: str, scale: float, regrets: list[float]) -> Numbers:
    return {(series, regret): (regret, scale * 1e4 / regret) for regret in regrets}


def test_fronts_are_compared_where_they_overlap() -> None:
    both = measured(front("cheap", 1.0, [10, 20, 40, 80]) | front("dear", 3.0, [15, 30, 60, 120]))
    finding = claims.BetterFront("cheap", "dear").find(both, "")
    assert finding.holds is True
    assert finding.numbers.startswith("3.0")
    assert "times fewer messages at equal regret of 15.0 to 80.0" in finding.numbers
    assert claims.BetterFront("cheap", "dear", factor=2.9).find(both, "").holds is True
    assert claims.BetterFront("cheap", "dear", factor=3.2).find(both, "").holds is False
    assert claims.BetterFront("dear", "cheap").find(both, "").holds is False


def test_fronts_without_a_regret_in_common_are_compared_by_both() -> None:
    world = measured(front("good", 0.01, [1, 2]) | front("bad", 10.0, [10, 20]))
    assert claims.BetterFront("good", "bad").find(world, "").holds is True
    assert claims.BetterFront("bad", "good").find(world, "").holds is False


def mixed(world: Measured) -> Measured:
    """The seeds of every other point in another order: what is paired no longer belongs together."""
    runs = {label: list(reversed(r)) if n % 2 else r for n, (label, r) in enumerate(world.runs.items())}
    return Measured(runs)


def test_measures_follow_from_runs() -> None:
    world = measured({("a", ""): (100, 40), ("random", ""): (500, 0)})
    label = Label("a")
    assert world.mean(label, "per_client_regret") == pytest.approx(10)
    assert world.mean(label, "messages") == 40
    assert world.mean(label, "normalised_reward") == pytest.approx(2.0)
    assert world.error(label) == pytest.approx(10)
    _, curve = world.curve(label, "normalised_reward")
    np.testing.assert_allclose(curve, 1.0)
    assert not world.has(label, "clusters")
    alone = measured({("a", ""): (100, 40)})
    assert not alone.has(label, "normalised_reward")
    assert math.isnan(
        measured({("a", ""): (1, 1), ("random", ""): (1, 1)}, reward=0.0).mean(label, "normalised_reward")
    )


def test_bad_claims_are_refused() -> None:
    with pytest.raises(FedbanditError, match="no measure 'regrets'; did you mean 'regret'"):
        claims.Below("a", "b", measure="regrets")
    with pytest.raises(FedbanditError, match="at least two"):
        claims.Ordered(("a",))
    with pytest.raises(FedbanditError, match="direction is 'up'"):
        claims.Trend("a", direction="up")  # type: ignore[arg-type]
