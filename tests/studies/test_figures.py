"""Pictures show every system and every run, with or without a display."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from fedbandit.errors import FedbanditError
from fedbandit.studies.figures import Curves, Overlay, Sweep, draw_comparison, draw_panels, look_of, save_figure
from fedbandit.studies.measured import Measured
from tests.studies.test_claims import measured

THREE = measured({("a", ""): (10, 0), ("b", ""): (20, 50), ("c", ""): (300, 1000)})


def test_the_comparison_shows_every_system_and_every_run() -> None:
    figure = draw_comparison(THREE, "a world")
    curves, costs = figure.axes
    assert [str(line.get_label()) for line in curves.get_lines()] == ["a", "b", "c"]
    assert len(curves.collections) == 3  # bands
    dots = [drawn for drawn in costs.collections if isinstance(drawn, PathCollection)]
    assert sum(len(np.asarray(group.get_offsets())) for group in dots) == len(THREE.every())
    assert figure.get_suptitle() == "a world (mean ± standard error of 2 seeds)"
    assert len({look_of(position) for position in range(200)}) == 200


def test_the_comparison_copes_with_one_silent_run(tmp_path: Path) -> None:
    path = save_figure(draw_comparison(Measured.of(THREE.every()[:1]), "one"), tmp_path / "one.svg")
    assert "one seed" in path.read_text()


def test_a_bound_meets_the_mean_of_its_series_at_the_horizon() -> None:
    panel = Curves(
        bounds=(
            Overlay("b", "√T", lambda T: np.asarray(T**0.5, dtype=np.float64)),
            Overlay("elsewhere", "T", lambda T: T.astype(np.float64)),
        )
    )
    (curves,) = draw_panels([panel], THREE, "a world").axes
    drawn = {str(line.get_label()): np.asarray(line.get_xydata()) for line in curves.get_lines()}
    assert set(drawn) == {"a", "b", "c", "∝ √T"}
    assert drawn["∝ √T"][-1].tolist() == pytest.approx(drawn["b"][-1].tolist())
    assert drawn["∝ √T"][0, 1] / drawn["∝ √T"][-1, 1] == pytest.approx((drawn["b"][0, 0] / drawn["b"][-1, 0]) ** 0.5)
    with pytest.raises(FedbanditError, match="the shape of the bound 'one'"):
        draw_panels([Curves(bounds=(Overlay("b", "one", lambda _T: np.ones(1)),))], THREE, "a world")


def test_a_bound_over_values_meets_its_series_at_the_last_of_them() -> None:
    values = measured({("a", 1.0): (10, 0), ("a", 2.0): (20, 50), ("a", 4.0): (300, 1000)})
    halves = Overlay("a", "1/value", lambda values: 1 / values)
    (ax,) = draw_panels([Sweep(x="value", bounds=(halves,))], values, "a world").axes
    (line,) = (line for line in ax.get_lines() if line.get_label() == "∝ 1/value")
    drawn, last = np.asarray(line.get_xydata()), values.line("a", "")[-1]
    assert drawn[-1].tolist() == [last.value, pytest.approx(values.mean(last, "regret"))]
    assert drawn[0, 1] / drawn[-1, 1] == pytest.approx(drawn[-1, 0] / drawn[0, 0])


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FedbanditError, match="must end in"):
        save_figure(Figure(), tmp_path / "a.picture")
