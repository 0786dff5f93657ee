"""A picture of one run, and the rounds that it shows."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

import fedbandit as fb
from fedbandit.engine.plot import thinned

WORLD = fb.environments.homogeneous(n_clients=4, dim=3, n_arms=5)


def test_a_result_is_plotted_with_its_messages() -> None:
    result = fb.simulate(fb.async_linucb(), WORLD, 300, 0)
    figure = Figure()
    ax = figure.subplots()
    assert result.plot(ax) is ax
    regret, messages = (axes.get_lines()[0] for axes in figure.axes)
    np.testing.assert_array_equal(np.asarray(regret.get_ydata()), result.regret)
    np.testing.assert_array_equal(np.asarray(messages.get_ydata()), result.communication.message_curve)
    silent = fb.simulate(fb.linucb(), WORLD, 20, 0)
    assert len(silent.plot(Figure().subplots()).figure.axes) == 1


def test_a_result_makes_a_figure_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    from matplotlib import pyplot

    ax = fb.simulate(fb.linucb(), WORLD, 20, 0).plot()
    assert ax.get_title() == "linucb on homogeneous, seed 0"
    pyplot.close(ax.figure)


@pytest.mark.parametrize("horizon", [1, 7, 199, 200, 201, 12345])
def test_thinning_keeps_the_end(horizon: int) -> None:
    at = thinned(horizon, 200)
    assert len(at) == min(horizon, 200)
    assert at[-1] == horizon - 1
    assert at[0] >= 0
    assert (np.diff(at) >= 1).all()
