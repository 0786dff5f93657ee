"""Means in single precision: half of the memory is read to see which arms cannot win.

A pool of a thousand contexts does not fit in the fastest cache, so that the means of the arms that are offered cost
what it takes to fetch their contexts. Here is a copy of the contexts in half of the memory, each in whole lines of the
cache, what is left of the last one zero. What is computed with it decides nothing: it says where to look, and with
`doubt`, by how much it may be wrong, what need not be looked at.
"""

# ruff: noqa: ARG001 - Numba fixes what these functions are called with
# mypy: disable-error-code="misc,untyped-decorator"

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.errors import TypingError
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, models, register_model
from numpy.typing import NDArray

from fedbandit.engine.fast.algebra import dot
from fedbandit.engine.fast.jit import compiled_inline, compiled_lean
from fedbandit.engine.fast.switches import has
from fedbandit.engine.fast.vectors import FOUR, Four, load, shuffle, store
from fedbandit.types import Array, Ints

Singles: TypeAlias = NDArray[np.float32]
Eight: TypeAlias = Singles

LANES = 8

LINE = 16
"""Numbers in a line of the cache."""

OFTEN, LONG = 4, 17
"""How often each context of a block must be offered, on the average, and how long it must be, for a copy to pay."""

LARGEST = 1e20
"""Longer vectors are not compared in single precision, where what is too large or too small would be lost."""


class Coarse(NamedTuple):
    """A copy of contexts in single precision."""

    of: Array  # (R, d)  what this is a copy of
    X: Singles  # (R, d rounded up to lines), or (0, 0) if there is no copy
    theta: Singles  # (d rounded up,)  the parameter they are multiplied with: scratch


def no_copy(X: Array) -> Coarse:
    """Nothing: contexts are short, or each is offered too seldom."""
    return Coarse(X, np.zeros((0, 0), dtype=np.float32), np.zeros(0, dtype=np.float32))


def coarse_copy(X: Array, offers: int) -> Coarse:
    """A float32 copy of X if contexts are long, reused and in range; otherwise an empty one."""
    used = has("single-precision") and X.shape[1] >= LONG and OFTEN * len(X) <= offers
    if not used or not np.abs(X).max() < LARGEST:
        return no_copy(X)
    rows, d = X.shape
    padded = d + -d % LINE
    room = np.zeros(rows * padded + LINE, dtype=np.float32)
    first = -room.ctypes.data // 4 % LINE
    copied = room[first : first + rows * padded].reshape(rows, padded)
    copied[:, :d] = X
    return Coarse(X, copied, np.zeros(padded, dtype=np.float32))


_SINGLES = ir.VectorType(ir.FloatType(), LANES)


class _EightType(types.Type):
    def __init__(self) -> None:
        super().__init__(name="Eight")


_EIGHT = _EightType()


@register_model(_EightType)
class _EightModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _SINGLES)


@infer_global(operator.add)
class _Add(ConcreteTemplate):
    cases = (signature(_EIGHT, _EIGHT, _EIGHT),)


@infer_global(operator.mul)
class _Multiply(ConcreteTemplate):
    cases = (signature(_EIGHT, _EIGHT, _EIGHT),)


# Rounding is within `doubt` whether or not a product is rounded before it is added: "contract" lets it not be.
@lower_builtin(operator.add, _EIGHT, _EIGHT)
def _lower_add(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return builder.fadd(*args, flags=["contract"])


@lower_builtin(operator.mul, _EIGHT, _EIGHT)
def _lower_multiply(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return builder.fmul(*args, flags=["contract"])


def _place(context: Any, builder: Any, sig: Any, array: Any, index: Any, vector: Any) -> Any:
    data = context.make_array(sig.args[0])(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


def _lower_load(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    array, index = args
    return builder.load(_place(context, builder, sig, array, index, _SINGLES), align=4)


def _lower_round(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    array, index, four = args
    singles = ir.VectorType(ir.FloatType(), 4)
    builder.store(builder.fptrunc(four, singles), _place(context, builder, sig, array, index, singles), align=4)
    return context.get_dummy_value()


def _lower_totals(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    def halves(a: Any, b: Any, low: list[int], high: list[int]) -> Any:
        return builder.fadd(shuffle(builder, a, b, low), shuffle(builder, a, b, high))

    a, b, c, d = args
    pairs = [0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]
    fours = [0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]
    sums = halves(halves(a, b, *pairs), halves(c, d, *pairs), *fours)
    return builder.fpext(halves(sums, sums, [0, 1, 2, 3], [4, 5, 6, 7]), ir.VectorType(ir.DoubleType(), 4))


def _check(array: Any) -> None:
    if array != types.Array(types.float32, 1, "C"):
        raise TypingError(f"{array} is not a contiguous vector of single-precision floats")


@intrinsic
def _load_eight(typing_context: Any, array: Any, index: Any) -> Any:
    _check(array)
    return signature(_EIGHT, array, types.intp), _lower_load


@intrinsic
def _store_rounded(typing_context: Any, array: Any, index: Any, four: Any) -> Any:
    _check(array)
    return signature(types.none, array, types.intp, four), _lower_round


@intrinsic
def _totals_of(typing_context: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    return signature(FOUR, *[_EIGHT] * 4), _lower_totals


def _load_eight_plain(array: Singles, i: int) -> Eight:
    return array[i : i + LANES].copy()


def _store_rounded_plain(array: Singles, i: int, four: Four) -> None:
    array[i : i + 4] = four


def _totals_of_plain(a: Eight, b: Eight, c: Eight, d: Eight) -> Four:
    return np.array([eight.sum() for eight in (a, b, c, d)], dtype=np.float64)


_PLAIN = bool(numba.config.DISABLE_JIT)

load_eight: Callable[[Singles, int], Eight] = _load_eight_plain if _PLAIN else _load_eight
"""Entries i, …, i + 7 of a contiguous vector. No bounds are checked."""

store_rounded: Callable[[Singles, int, Four], None] = _store_rounded_plain if _PLAIN else _store_rounded
"""Put four numbers, rounded, in entries i, …, i + 3."""

totals_of: Callable[[Eight, Eight, Eight, Eight], Four] = _totals_of_plain if _PLAIN else _totals_of
"""The sum of each."""


@compiled_inline
def doubt(d: int, size: float) -> float:
    """How far a mean that `dot_each_coarsely` finds may be from ⟨θ, x⟩ with ‖θ‖‖x‖ ≤ size.

    Both vectors, d products and d sums are rounded, each by at most 2⁻²⁴ of Σ|θᵢxᵢ| ≤ ‖θ‖‖x‖; here it is twice that,
    and what may be lost of numbers that are too small.
    """
    return (d + LANES) * 2.0**-23 * size + 1e-15


@compiled_inline
def dot_of_lines(x: Singles, y: Singles, i: int) -> Eight:
    """Entries i, …, i + 15 of both, multiplied, in eight sums."""
    return load_eight(x, i) * load_eight(y, i) + load_eight(x, i + LANES) * load_eight(y, i + LANES)


@compiled_inline
def dot_each_coarsely(theta: Array, coarse: Coarse, arms: Ints, out: Array) -> None:
    """out[a] ≈ ⟨θ, X[arms[a]]⟩, four arms at a time; `out` has room for a number of arms that four divides."""
    d, t, X = theta.shape[0], coarse.theta, coarse.X
    whole = d - d % 4
    for i in range(0, whole, 4):
        store_rounded(t, i, load(theta, i))
    for i in range(whole, d):
        t[i] = theta[i]
    last = arms.shape[0] - 1
    for a in range(0, last + 1, 4):
        w, x, y, z = X[arms[a]], X[arms[min(a + 1, last)]], X[arms[min(a + 2, last)]], X[arms[min(a + 3, last)]]
        s0, s1 = dot_of_lines(w, t, 0), dot_of_lines(x, t, 0)
        s2, s3 = dot_of_lines(y, t, 0), dot_of_lines(z, t, 0)
        if t.shape[0] == 2 * LINE:  # d = 17, …, 32, without a loop
            s0, s1 = s0 + dot_of_lines(w, t, LINE), s1 + dot_of_lines(x, t, LINE)
            s2, s3 = s2 + dot_of_lines(y, t, LINE), s3 + dot_of_lines(z, t, LINE)
        else:
            for i in range(LINE, t.shape[0], LINE):
                s0, s1 = s0 + dot_of_lines(w, t, i), s1 + dot_of_lines(x, t, i)
                s2, s3 = s2 + dot_of_lines(y, t, i), s3 + dot_of_lines(z, t, i)
        store(out, a, totals_of(s0, s1, s2, s3))


@compiled_lean
def find_means(theta: Array, coarse: Coarse, arms: Ints, bound: float, out: Array) -> float:
    """The means of arms with ‖x‖ ≤ bound, coarsely, and by how much they may be wrong: infinity if θ is too long."""
    size = dot(theta, theta)
    if not size < LARGEST:
        return math.inf
    dot_each_coarsely(theta, coarse, arms, out)
    return doubt(theta.shape[0], math.sqrt(size) * bound)
