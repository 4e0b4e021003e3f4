"""The overflow check of `fits_int64`."""

from __future__ import annotations

from weft.base import dtypes
from weft.base.shapes import size_of
from weft.codegen.indexing.access import fail_if
from weft.codegen.kernel import PARAMS, Kernel, argument, each_item
from weft.codegen.scalar.forms import literal
from weft.codegen.text import Module
from weft.ir.graph import Node
from weft.ops.cast import TOO_LARGE

__all__ = ["fits_int64"]


def fits_int64(module: Module, name: str, node: Node) -> list[Kernel]:
    """Copy the value if its estimate is small enough; else the kernel fails."""
    f = module.function(name, "i32", PARAMS)
    value, estimate, out = (argument(f, i, kind) for i, kind in enumerate(("i64", "double", "i64")))
    size = f.module.declare("double", "llvm.fabs.f64", "double")
    limit = literal(dtypes.float64, TOO_LARGE, 1)
    with each_item(f) as i:
        large = f(f"call double @{size}(double {(estimate + i).load(8)})")
        fail_if(f, f(f"fcmp uge double {large}, {limit}"))
        (out + i).store((value + i).load(8), 8)
    f.do("ret i32 0")
    return [Kernel(name, size_of(node.outputs[0].tensor_type.shape), 2)]
