"""Tails and quantiles in closed form, against SciPy."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedbandit.tails import chi_square_quantile, chi_square_tail, students_quantile

TAIL = st.floats(-9, -0.05).map(lambda exponent: 10**exponent)


@given(st.integers(1, 60), st.sampled_from([1e-6, 0.01, 1.0, 10.0, 100.0, 1e3, 1e5]), TAIL)
def test_noncentral_chi_square(df: int, noncentrality: float, tail: float) -> None:
    """There and back."""
    x = chi_square_quantile(tail, df, noncentrality)
    assert x == pytest.approx(stats.ncx2.isf(tail, df, noncentrality), rel=1e-9)
    assert chi_square_tail(x, df, noncentrality) == pytest.approx(tail, rel=1e-10)


@given(st.integers(1, 200), TAIL)
def test_chi_square(df: int, tail: float) -> None:
    """Odd and even degrees of freedom, near and far."""
    x = chi_square_quantile(tail, df)
    assert x == pytest.approx(stats.chi2.isf(tail, df), rel=1e-11)
    assert chi_square_tail(x, df) == pytest.approx(tail, rel=1e-10)


def test_ends() -> None:
    """At zero everything is beyond; far out nothing is; a huge non-centrality is a normal."""
    assert chi_square_tail(0.0, 3) == chi_square_tail(0.0, 3, 2.0) == 1.0
    assert chi_square_tail(1e4, 3) == 0.0
    psi = 1e12
    assert chi_square_tail(psi + 25 + 2 * math.sqrt(psi), 25, psi) == pytest.approx(stats.norm.sf(1), rel=1e-4)


@given(st.integers(1, 120), st.floats(0.0001, 0.49))
def test_student(df: int, tail: float) -> None:
    """From Cauchy to nearly normal."""
    assert students_quantile(tail, df) == pytest.approx(stats.t.isf(tail, df), rel=1e-9)
