"""A hint to the processor: this memory is needed soon. Without the compiler it does nothing.

With a thousand models, every interaction begins by waiting for a matrix that was last used a thousand interactions
ago. The loop knows who acts next, so it asks for that matrix while it works on this one.
"""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fedbandit.statistics import Array

if numba.config.DISABLE_JIT:

    def prefetch(rows: Array, r: int, i: int) -> None:
        """Plain Python has no such hint."""

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
