"""Four numbers at a time, for the innermost loops of `@compiled` functions.

The compiler vectorises a loop over a row of d numbers only in strides of sixteen and leaves the rest, with d = 25 nine
numbers of every row, one by one. Here the stride is four and written down: `Four` is a vector of the machine,
`load`, `store` and `total` go between it and arrays, and + and * are as for arrays. With NUMBA_DISABLE_JIT=1 a
`Four` is a NumPy array of length four; both ways the same operations happen in the same order.

A product that is added may go unrounded (`contract`: one FMA instruction for two where the processor has it; an
inversion at d = 200 takes a fifth less). Sums are never reordered.
"""

# ruff: noqa: ARG001 - Numba fixes what these functions are called with
# mypy: disable-error-code="misc,untyped-decorator"

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.errors import TypingError
from numba.core.imputils import impl_ret_borrowed, lower_builtin
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, models, register_model
from numba.np.arrayobj import populate_array
from numpy.typing import NDArray

from fedbandit.engine.fast.switches import has

Four: TypeAlias = NDArray[np.float64]

_VECTOR = ir.VectorType(ir.DoubleType(), 4)
_INDEX = ir.IntType(32)


class _FourType(types.Type):
    def __init__(self) -> None:
        super().__init__(name="Four")


FOUR = _FourType()


@register_model(_FourType)
class _FourModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


def _splat(builder: Any, number: Any) -> Any:
    one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), number, _INDEX(0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_INDEX, 4), [0] * 4))


@infer_global(operator.add)
class _Add(ConcreteTemplate):
    cases = (signature(FOUR, FOUR, FOUR),)


@infer_global(operator.mul)
class _Multiply(ConcreteTemplate):
    cases = (signature(FOUR, FOUR, FOUR), signature(FOUR, FOUR, types.float64))


@lower_builtin(operator.add, FOUR, FOUR)
def _lower_add(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return builder.fadd(*args, flags=["contract"])


@lower_builtin(operator.mul, FOUR, FOUR)
def _lower_multiply(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return builder.fmul(*args, flags=["contract"])


@lower_builtin(operator.mul, FOUR, types.float64)
def _lower_scale(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return builder.fmul(args[0], _splat(builder, args[1]), flags=["contract"])


def _place(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), _VECTOR.as_pointer())


def _lower_load(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return builder.load(_place(context, builder, sig.args[0], *args), align=8)


def _lower_store(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    array, index, four = args
    builder.store(four, _place(context, builder, sig.args[0], array, index), align=8)
    return context.get_dummy_value()


def _lower_four(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    four = ir.Constant(_VECTOR, ir.Undefined)
    for k, number in enumerate(args):
        four = builder.insert_element(four, number, _INDEX(k))
    return four


def _lower_total(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    a, b, c, d = (builder.extract_element(args[0], _INDEX(k)) for k in range(4))
    return builder.fadd(builder.fadd(a, c), builder.fadd(b, d))


def shuffle(builder: Any, a: Any, b: Any, lanes: list[int]) -> Any:
    """A vector of these entries of a, followed by b: for those who write vectors of the machine."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_INDEX, len(lanes)), lanes))


def _lower_totals(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    a, b, c, d = args
    ab = builder.fadd(shuffle(builder, a, b, [0, 4, 1, 5]), shuffle(builder, a, b, [2, 6, 3, 7]))
    cd = builder.fadd(shuffle(builder, c, d, [0, 4, 1, 5]), shuffle(builder, c, d, [2, 6, 3, 7]))
    return builder.fadd(shuffle(builder, ab, cd, [0, 1, 4, 5]), shuffle(builder, ab, cd, [2, 3, 6, 7]))


def _lower_lane(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    a, b, c, d, _ = args
    which = sig.args[4].literal_value
    outer = [0, 4, 1, 5] if which < 2 else [2, 6, 3, 7]
    pairs = shuffle(builder, a, b, outer), shuffle(builder, c, d, outer)
    return shuffle(builder, *pairs, [0, 1, 4, 5] if which % 2 == 0 else [2, 3, 6, 7])


def _lower_larger(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    a, b = args
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _lower_entry(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return builder.extract_element(args[0], _INDEX(sig.args[1].literal_value))


def _lower_zeros(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return ir.Constant(_VECTOR, [0.0] * 4)


def _check(array: Any) -> None:
    if array != types.Array(types.float64, 1, "C"):
        raise TypingError(f"{array} is not a contiguous vector of floats")


@intrinsic
def _load(typing_context: Any, array: Any, index: Any) -> Any:
    _check(array)
    return signature(FOUR, array, types.intp), _lower_load


@intrinsic
def _store(typing_context: Any, array: Any, index: Any, four: Any) -> Any:
    _check(array)
    return signature(types.none, array, types.intp, four), _lower_store


@intrinsic
def _four(typing_context: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    return signature(FOUR, *[types.float64] * 4), _lower_four


@intrinsic
def _total(typing_context: Any, four: Any) -> Any:
    return signature(types.float64, four), _lower_total


@intrinsic
def _totals(typing_context: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    return signature(FOUR, *[FOUR] * 4), _lower_totals


@intrinsic
def _larger(typing_context: Any, a: Any, b: Any) -> Any:
    return signature(FOUR, FOUR, FOUR), _lower_larger


@intrinsic(prefer_literal=True)
def _lane(typing_context: Any, a: Any, b: Any, c: Any, d: Any, k: Any) -> Any:
    return signature(FOUR, FOUR, FOUR, FOUR, FOUR, k), _lower_lane


@intrinsic(prefer_literal=True)
def _entry(typing_context: Any, four: Any, k: Any) -> Any:
    return signature(types.float64, four, k), _lower_entry


_READ, _SECOND, _DATA = 0, 2, 1  # as `llvm.prefetch` counts them


def _lower_prefetch(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    if not has("prefetching"):
        return context.get_dummy_value()
    array, index = args
    data = context.make_array(sig.args[0])(context, builder, array).data
    pointer = ir.IntType(8).as_pointer()
    fetch = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(ir.VoidType(), [pointer, _INDEX, _INDEX, _INDEX]), "llvm.prefetch.p0i8"
    )
    place = builder.bitcast(builder.gep(data, [index]), pointer)
    builder.call(fetch, [place, _INDEX(_READ), _INDEX(_SECOND), _INDEX(_DATA)])
    return context.get_dummy_value()


@intrinsic
def _prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    return signature(types.none, array, types.intp), _lower_prefetch


@intrinsic
def _zeros(typing_context: Any) -> Any:
    return signature(FOUR), _lower_zeros


def _load_plain(array: NDArray[np.float64], i: int) -> Four:
    return array[i : i + 4].copy()


def _store_plain(array: NDArray[np.float64], i: int, four: Four) -> None:
    array[i : i + 4] = four


def _four_plain(a: float, b: float, c: float, d: float) -> Four:
    return np.array([a, b, c, d])


def _total_plain(four: Four) -> float:
    return float((four[0] + four[2]) + (four[1] + four[3]))


def _totals_plain(a: Four, b: Four, c: Four, d: Four) -> Four:
    return np.array([_total_plain(four) for four in (a, b, c, d)])


def _larger_plain(a: Four, b: Four) -> Four:
    return np.where(a > b, a, b)


def _lane_plain(a: Four, b: Four, c: Four, d: Four, k: int) -> Four:
    return np.array([a[k], b[k], c[k], d[k]])


def _entry_plain(four: Four, k: int) -> float:
    return float(four[k])


def _prefetch_plain(array: NDArray[np.float64] | NDArray[np.int64], i: int) -> None:
    """Nothing."""


def _zeros_plain() -> Four:
    return np.zeros(4)


_PLAIN = bool(numba.config.DISABLE_JIT)

load: Callable[[NDArray[np.float64], int], Four] = _load_plain if _PLAIN else _load
"""Entries i, …, i + 3 of a contiguous vector. No bounds are checked."""

store: Callable[[NDArray[np.float64], int, Four], None] = _store_plain if _PLAIN else _store
"""Put four numbers in entries i, …, i + 3 of a contiguous vector."""

four: Callable[[float, float, float, float], Four] = _four_plain if _PLAIN else _four
"""Four numbers side by side."""

total: Callable[[Four], float] = _total_plain if _PLAIN else _total
"""(first + third) + (second + fourth)."""

totals: Callable[[Four, Four, Four, Four], Four] = _totals_plain if _PLAIN else _totals
"""The `total` of each."""

larger: Callable[[Four, Four], Four] = _larger_plain if _PLAIN else _larger
"""The larger one of each pair."""

lane: Callable[[Four, Four, Four, Four, int], Four] = _lane_plain if _PLAIN else _lane
"""Entry k, a constant, of each: row k of the transpose."""

entry: Callable[[Four, int], float] = _entry_plain if _PLAIN else _entry
"""Entry k, a constant."""

prefetch: Callable[[NDArray[np.float64] | NDArray[np.int64], int], None] = _prefetch_plain if _PLAIN else _prefetch
"""Have the cache line of entry i of a vector fetched into the second cache. It changes no result.

Not into the first, with which an interaction of 10⁵ clients took a tenth longer: presumably because that waits for few
lines at a time, and contexts, though they are near, queue behind rows that come from memory."""

zeros: Callable[[], Four] = _zeros_plain if _PLAIN else _zeros
"""Four zeros."""


def _lower_matrix_at(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    vector, start, n, d = args
    source = context.make_array(sig.args[0])(context, builder, vector)
    view = context.make_array(sig.return_type)(context, builder)
    size = context.get_constant(types.intp, 8)
    populate_array(
        view,
        data=builder.gep(source.data, [start]),
        shape=(n, d),
        strides=(builder.mul(d, size), size),
        itemsize=size,
        meminfo=source.meminfo,
        parent=source.parent,
    )
    return impl_ret_borrowed(context, builder, sig.return_type, view._getvalue())


@intrinsic
def _matrix_at(typing_context: Any, vector: Any, start: Any, n: Any, d: Any) -> Any:
    matrix = types.Array(types.float64, 2, "C")
    if vector != matrix:
        _check(vector)
    return signature(matrix, vector, types.intp, types.intp, types.intp), _lower_matrix_at


def _matrix_at_plain(vector: NDArray[np.float64], start: int, n: int, d: int) -> NDArray[np.float64]:
    return vector.reshape(-1)[start : start + n * d].reshape((n, d))


matrix_at: Callable[[NDArray[np.float64], int, int, int], NDArray[np.float64]] = (
    _matrix_at_plain if _PLAIN else _matrix_at
)
"""The (n, d) matrix at entry `start` of a contiguous vector or matrix: Numba's own reshape calls a C function."""
