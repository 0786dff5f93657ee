"""The theorems as functions: limits that the papers name, and Table 1."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import fedbandit as fb
from fedbandit import bounds
from fedbandit.environments.block import world_of

T = np.array([100.0, 10_000.0])


def test_async_interpolates_between_one_model_and_many() -> None:
    """Thm 3.2: γ = 1 has the regret of one model, γ = ∞ √N times that, and no messages."""
    one, many = (bounds.async_regret(T, 100, 5, gamma, gamma) for gamma in (1.0, math.inf))
    np.testing.assert_allclose(many / one, 10.0)
    np.testing.assert_allclose(one, 5 * np.sqrt(T) * np.log(T / 0.1))
    assert bounds.async_communication(T, 100, 5, math.inf, math.inf).tolist() == [0.0, 0.0]
    for rule, factor in (("exp(1/N)", 1.0), ("exp(1/sqrt(N))", 0.25)):
        for N in (10**4, 10**6):
            gamma = math.exp(N ** (-1.0 if rule == "exp(1/N)" else -0.5))
            assert bounds.async_lag(N, gamma, gamma) < 2 * N ** (0.0 if factor == 1.0 else factor)
            row = bounds.async_table(10.0**9, N, 5)[f"async, {rule}"]
            messages = bounds.async_communication(10.0**9, N, 5, gamma, gamma)
            assert messages == pytest.approx(row.uniform)


def test_parts_of_ones_own_cost_what_learning_alone_costs() -> None:
    """Thm 3.4: without local parts it is Thm 3.2; with them, N learners of d_i each are added."""
    np.testing.assert_allclose(bounds.async_am_regret(T, 5, [0] * 4, 2.0, 2.0), bounds.async_regret(T, 4, 5, 2.0, 2.0))
    own = bounds.async_am_regret(T, 5, [3] * 4, 2.0, 2.0) - bounds.async_regret(T, 4, 5, 2.0, 2.0)
    np.testing.assert_allclose(own, 4 * 3 * np.sqrt(T / 4) * np.log(T / 4 / 0.1))


def test_the_threshold_of_theorem_1_is_the_systems() -> None:
    env = fb.environments.feducb(n_clients=4, dim=3)
    told = fb.feducb(as_printed=True, delta=0.1).told(world_of(env, 500))
    assert told.world is not None
    spectrum = told.privacy.spectrum(told.world)
    assert spectrum is not None
    expected = bounds.feducb_threshold(500, 3, *spectrum)
    assert told.parameters()["protocol.threshold"] == pytest.approx(float(expected))
    few = bounds.feducb_synchronisations(500, 3, float(expected), *spectrum)
    assert 4 < few < 4 + 2 * math.sqrt(2 * math.log(3 + 1e-3 * 500))


def test_hetofed_and_fclub_grow_as_printed() -> None:
    one, apart = (bounds.hetofed_regret(T, sizes, 5) for sizes in ([8], [1] * 8))
    assert (one < apart).all(), "d √(NT) against N d √T"
    assert bounds.hetofed_regret(T, [8], 5, hardness=3.0)[0] == pytest.approx(one[0] + 24)
    few, more = (
        bounds.fclub_regret(T, 40, 10, n_servers=5, n_clusters=m, gap=0.5, regularity=0.1, epsilon=1.0) for m in (1, 4)
    )
    assert (more > few).all()
    halved = bounds.fclub_communication(T, 10, n_servers=5, n_clusters=2, upload=1.21, download=2.0)
    np.testing.assert_allclose(
        bounds.fclub_communication(T, 10, n_servers=5, n_clusters=2, upload=1.1, download=1.1), 2 * halved
    )
    with pytest.raises(fb.FedbanditError, match="the smaller of upload and download is 1"):
        bounds.fclub_communication(T, 10, n_servers=5, n_clusters=2, upload=1.0, download=2.0)


def test_collaboration_takes_a_root_of_n_off_what_privacy_adds() -> None:
    """The discussion below Theorems 2 and 4: W uniform against W = I, and local against global."""
    n, d = 16, 5
    apart, even = np.eye(n), np.full((n, n), 1 / n)
    exact = bounds.colin_regret(1000, apart, d)
    g = math.log(1 + 1000 / (d * n))
    printed = 2 * math.sqrt(2 * d * n * 1000 * g) * (math.sqrt(n) + math.sqrt(d * n * g + 2 * math.log(10)))
    assert float(exact) == pytest.approx(printed)

    def added(W: np.ndarray, *, local: bool) -> np.ndarray:
        scale = np.sqrt(np.log1p(T * (W**2).sum() / (d * n * n)))  # of the first factor
        return (bounds.colin_regret(T, W, d, 0.5, local=local) - bounds.colin_regret(T, W, d)) / scale

    np.testing.assert_allclose(added(apart, local=False), math.sqrt(n) * added(even, local=False))
    ratio = math.sqrt(n) * (np.log(T / n) / np.log(T)) ** 1.5
    for W in (apart, even):
        np.testing.assert_allclose(added(W, local=True), ratio * added(W, local=False))
    with pytest.raises(fb.FedbanditError, match="the shape of graph"):
        bounds.colin_regret(T, [1.0, 2.0], d)


def test_bounds_are_drawn_in_comparisons() -> None:
    pytest.importorskip("matplotlib").use("Agg")
    env = fb.environments.homogeneous(n_clients=4, dim=3, n_arms=4)
    found = fb.compare([fb.linucb(), fb.async_linucb()], env, 200, seeds=2)
    grows = {"Thm 3.2": lambda rounds: bounds.async_regret(rounds, 4, 3, 5.0, 5.0)}
    ax = found.plot(bounds={"async-linucb": grows}).axes[0]
    (line,) = (line for line in ax.lines if line.get_label() == "∝ Thm 3.2")
    assert np.asarray(line.get_ydata())[-1] == pytest.approx(found.lines[1]["regret"])
    with pytest.raises(fb.FedbanditError, match="did you mean 'async-linucb'"):
        found.plot(bounds={"async_linucb": grows})


def test_bounds_are_drawn_through_the_end_of_the_curve() -> None:
    pytest.importorskip("matplotlib").use("Agg")
    env = fb.environments.homogeneous(n_clients=4, dim=3, n_arms=4)
    result = fb.simulate(fb.async_linucb(), env, 200, engine="plain")
    with pytest.raises(fb.FedbanditError, match="the bound 'x' is 3, but must be a function of rounds"):
        result.plot(bounds={"x": 3})  # type: ignore[dict-item]
    ax = result.plot(bounds={"Thm 3.2": lambda rounds: bounds.async_regret(rounds, 4, 3, 5.0, 5.0)})
    regret, bound = ax.lines[:2]
    assert bound.get_label() == "∝ Thm 3.2"
    assert bound.get_ydata()[-1] == pytest.approx(regret.get_ydata()[-1])


def test_bounds_of_communication_are_drawn_on_the_axis_of_messages() -> None:
    pytest.importorskip("matplotlib").use("Agg")
    env = fb.environments.homogeneous(n_clients=4, dim=3, n_arms=4)
    result = fb.simulate(fb.async_linucb(), env, 200)
    of_messages = {"Thm 3.2": lambda rounds: bounds.async_communication(rounds, 4, 3, 5.0, 5.0)}
    ax = result.plot(message_bounds=of_messages)
    assert [line.get_label() for line in ax.lines] == ["regret"]
    (right,) = (other for other in ax.figure.axes if other is not ax)
    messages, bound = right.lines
    assert bound.get_label() == "∝ Thm 3.2"
    assert bound.get_ydata()[-1] == pytest.approx(messages.get_ydata()[-1]) == result.communication.messages
    with pytest.raises(fb.FedbanditError, match="must be left out: nothing was sent"):
        fb.simulate(fb.linucb(), env, 20).plot(message_bounds=of_messages)
    with pytest.raises(fb.FedbanditError, match="the end of the bound 'none' is 0"):
        result.plot(message_bounds={"none": lambda rounds: bounds.async_communication(rounds, 4, 3, np.inf, np.inf)})
    found = fb.compare([fb.linucb(), fb.async_linucb()], env, 200, seeds=2)
    assert len(found.plot().axes) == 2
    over, _, third = found.plot(message_bounds={"async-linucb": of_messages}).axes
    assert "∝ Thm 3.2" not in [line.get_label() for line in over.lines]
    (line,) = (line for line in third.lines if line.get_label() == "∝ Thm 3.2")
    sent = [run.report["uploads"] + run.report["downloads"] for run in found.runs if run.label.series == "async-linucb"]
    assert np.asarray(line.get_ydata())[-1] == pytest.approx(np.mean(sent))
    with pytest.raises(fb.FedbanditError, match="did you mean 'async-linucb'"):
        found.plot(message_bounds={"async_linucb": of_messages})


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: bounds.async_regret(T, -3, 3, 2.0, 2.0), "n_clients is -3, but must be a whole number ≥ 1"),
        (lambda: bounds.async_regret("x", 3, 3, 2.0, 2.0), "T is 'x', but must be numbers"),
        (lambda: bounds.async_regret(T, 3, 3, 2.0, 2.0, confidence=0), "confidence is 0, but must be .* between 0 and"),
        (lambda: bounds.async_communication(T, 3, 3, 0.5, 2.0), "gamma_upload is 0.5, but must be a number ≥ 1"),
        (lambda: bounds.async_am_regret(T, 3, [2, 2], 2.0, 2.0, arrivals=[1.0]), r"shape of arrivals is \(1,\), but"),
        (lambda: bounds.async_am_regret(T, 3, 2, 2.0, 2.0), "d_local is 2, but must be a list of whole numbers"),  # type: ignore[arg-type]
        (lambda: bounds.feducb_threshold(T, 3, 0, 1), "rho_min is 0, but must be a number > 0"),
        (lambda: bounds.feducb_regret(T, 3, 3, 1, 3, -1), "kappa is -1, but must be a finite number ≥ 0"),
        (lambda: bounds.feducb_regret(T, 3, 3, 1, 3, 1, tll=2), "There is no keyword of feducb_regret 'tll'; did you"),  # type: ignore[call-arg]
        (lambda: bounds.hetofed_regret(T, [], 3), "sizes is .*, but must be a list of whole numbers"),
        (lambda: bounds.fclub_lag(3, 0.9, 2.0), "upload is 0.9, but must be a number ≥ 1"),
        (lambda: bounds.colin_regret(T, "ring", 3), "graph is 'ring', but must be numbers"),
        (lambda: bounds.colin_regret(T, np.eye(3), 3, epsilon=0), "epsilon is 0, but must be a number > 0"),
    ],
)
def test_wrong_arguments_are_sentences(wrong: Callable[[], object], sentence: str) -> None:
    with pytest.raises(fb.FedbanditError, match=sentence):
        wrong()
