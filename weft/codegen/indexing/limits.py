"""Checks of values: `fits_int64` of overflow, `choice_weights` of weights, `python_defined`."""

from __future__ import annotations

from weft.base import dtypes
from weft.base.shapes import size_of
from weft.codegen.indexing.access import fail_if, raw_type
from weft.codegen.kernel import PARAMS, Kernel, argument, each_item
from weft.codegen.scalar.forms import literal
from weft.codegen.text import Module
from weft.ir.graph import Node
from weft.ops.cast import TOO_LARGE

__all__ = ["choice_weights", "fits_int64", "python_defined"]


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


def python_defined(module: Module, name: str, node: Node) -> list[Kernel]:
    """Copy the number if a function of Python's is defined for it; else the kernel fails."""
    f = module.function(name, "i32", PARAMS)
    kind = raw_type(node.outputs[0].tensor_type.dtype.itemsize)
    value, holds, out = (argument(f, i, of) for i, of in enumerate((kind, "i8", kind)))
    with each_item(f) as i:
        fail_if(f, f(f"icmp eq i8 {(holds + i).load(1)}, 0"))
        (out + i).store((value + i).load(8), 8)
    f.do("ret i32 0")
    return [Kernel(name, size_of(node.outputs[0].tensor_type.shape), 2)]


def choice_weights(module: Module, name: str, node: Node) -> list[Kernel] | None:
    """Copy rows of weights; the kernel fails if one is no weight, or if too few are above 0."""
    weights = node.inputs[0].tensor_type
    if weights.dtype is not dtypes.float64 or not weights.shape[-1]:
        return None
    length = weights.shape[-1]
    f = module.function(name, "i32", PARAMS)
    given, out = argument(f, 0, "double"), argument(f, 1, "double")
    infinity = literal(dtypes.float64, float("inf"), 1)
    positive = f.var("i64")
    with each_item(f) as row:
        positive.store(0)
        with f.loop(0, length) as k:
            at = row * length + k
            weight = (given + at).load(8)
            fail_if(f, f(f"fcmp ult double {weight}, 0.0"))
            fail_if(f, f(f"fcmp uge double {weight}, {infinity}"))
            some = f(f"zext i1 {f(f'fcmp ogt double {weight}, 0.0')} to i64")
            positive.store(positive.load_index() + f.index(some))
            (out + at).store(weight, 8)
        fail_if(f, f(f"icmp slt i64 {positive.load_index()}, {node.attrs['count']}"))
    f.do("ret i32 0")
    return [Kernel(name, size_of(weights.shape[:-1]), 2.0 * length)]
