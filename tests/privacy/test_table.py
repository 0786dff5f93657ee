"""The numbers in the docs are the computed ones."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

import fedbandit as fb
from fedbandit.audit.likelihood import released_distance
from fedbandit.privacy.calibration import gaussian_epsilon
from fedbandit.privacy.mechanism import distance, gram_mechanism
from fedbandit.privacy.noise import gram_neighbours
from fedbandit.privacy.private_statistics import PrivateStatistics
from fedbandit.privacy.table import BUDGETS, RELEASES, noise_markdown, noise_table, shift_markdown, shift_table

DOCS = (Path(__file__).parents[2] / "docs" / "privacy.md").read_text(encoding="utf-8")


def test_the_tables_stand_in_the_docs() -> None:
    """To the last digit; `python -m fedbandit.privacy.table` prints them anew."""
    assert noise_markdown() in DOCS
    assert shift_markdown() in DOCS


def test_the_blt_is_thirty_times_below_the_published_noise() -> None:
    """At (1, 1e-5) and 128 releases; and every row has published > tree > BLT, with the published one private."""
    rows = {row[:3]: row for row in noise_table()}
    assert set(rows) == {(*budget, n) for budget, n in product(BUDGETS, RELEASES)}
    row = rows[1.0, 1e-5, 128]
    assert row.published / row.blt >= 30
    for row in rows.values():
        assert row.published > 4 * row.tree > 8 * row.blt
        assert row.published_epsilon < row.epsilon


def test_the_text_about_the_weight_of_rewards() -> None:
    """Of the defaults as they are: what κ makes of the noise on V and on b, beside κ = 1."""
    kappa = PrivateStatistics(1.0).reward_weight
    assert kappa == fb.feducb().guarantee.reward_weight
    on_V = (1 + kappa**2) / 2
    assert f"With κ = {kappa:g}, the default of `PrivateStatistics`" in DOCS
    assert (
        f"V has {int(100 * (1 - on_V))} % less noise than\nin the table and b {100 * (on_V / kappa - 1):.0f} % more"
        in DOCS
    )


def test_the_text_around_the_tables() -> None:
    """The ratios that the page mentions."""
    rows, shifts = noise_table(), shift_table()

    def says(values: list[float], before: str, after: str, digits: int | None = None) -> bool:
        return f"{before} {round(min(values), digits)} to {round(max(values), digits)} times {after}" in DOCS

    assert says([row.published / row.tree for row in rows], "FedUCB's scale is", "larger")
    assert says([row.tree / row.blt for row in rows], "buffers needs", "less noise than the tree", 1)
    assert says([row.published / row.published_needed for row in shifts], "needs a shift", "smaller than its 2Λ")
    tree, blt = [row.published / row.tree for row in shifts], [row.published / row.blt for row in shifts]
    assert f"the tree {min(tree):.0f} to {max(tree):.0f} times, the BLT {min(blt):.0f} to {max(blt):.0f} times" in DOCS


@pytest.mark.parametrize(
    ("fault", "noise"),
    [("none", 1.0), ("noise 10 % low", 0.9), ("without its √2", 0.5**0.5), ("too few (of 3)", (2 / 3) ** 0.5)],
)
def test_the_true_epsilon_of_faults(fault: str, noise: float) -> None:
    """In the last table."""
    mechanism = gram_mechanism(1.0, 1e-5, 4, 2, kind="tree")
    a, b = gram_neighbours(1.0, 1.0, 0.5, 2)
    assert released_distance(mechanism, [a - b]) == pytest.approx(distance(mechanism))
    (line,) = re.findall(rf"^\| [^|]*{re.escape(fault)} \|.*$", DOCS, re.MULTILINE)
    assert f"| {gaussian_epsilon(distance(mechanism) / noise, 1e-5):.2f} |" in line
