"""Two hints for the compiled loop, for which Numba has no words. Without the compiler they do nothing.

`prefetch`: this memory is needed soon. With a thousand models, every interaction begins by waiting for a matrix that
was last used a thousand interactions ago. The loop knows who acts next, so it asks for that matrix while it works on
this one.

`borrowed`: these arrays outlive this call. Numba counts references to every array and every view of one, with atomic
instructions; in functions as small as a rank-one update that is a third of the time.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fedbandit.statistics import Array

T = TypeVar("T")

if numba.config.DISABLE_JIT:

    def prefetch(rows: Array, r: int, i: int) -> None:
        """Plain Python has no such hint."""

    def borrowed(value: T) -> T:
        """Plain Python needs no such hint."""
        return value

else:

    @intrinsic  # type: ignore[untyped-decorator]
    def prefetch(typing_context: Any, rows: Any, r: Any, i: Any) -> Any:  # noqa: ARG001
        """Fetch the cache line of rows[r, i] for writing."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            stride = builder.extract_value(array.strides, 0)
            offset = builder.add(
                builder.mul(arguments[1], stride), builder.mul(arguments[2], ir.Constant(ir.IntType(64), 8))
            )
            address = builder.gep(builder.bitcast(array.data, ir.IntType(8).as_pointer()), [offset])
            flag = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [address.type, flag, flag, flag])
            hint = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
            builder.call(hint, [address, *(ir.Constant(flag, value) for value in (1, 3, 1))])  # write, keep, data
            return context.get_dummy_value()

        return types.void(rows, types.int64, types.int64), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def borrowed(typing_context: Any, value: Any) -> Any:  # noqa: ARG001
        """The array, or tuple with arrays, without its owner: views of it count no references."""

        def strip(context: Any, builder: Any, kind: Any, thing: Any) -> Any:
            if isinstance(kind, types.Array):
                array = context.make_array(kind)(context, builder, thing)
                array.meminfo = cgutils.get_null_value(array.meminfo.type)
                array.parent = cgutils.get_null_value(array.parent.type)
                return array._getvalue()
            if isinstance(kind, types.BaseTuple):
                parts = (
                    strip(context, builder, part, builder.extract_value(thing, i)) for i, part in enumerate(kind.types)
                )
                return context.make_tuple(builder, kind, list(parts))
            return thing

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return strip(context, builder, signature.args[0], arguments[0])

        return value(value), generate
