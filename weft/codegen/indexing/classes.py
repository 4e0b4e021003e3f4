"""Class indices: the negative log-likelihood, and the check that each index is a class.

A target is a class or the ignored index; anything else is an error of the cards `nll` and
`cross_entropy`. Code that computes these differently runs `check_classes` first.
"""

from __future__ import annotations

import math

from weft.base.dtypes import DType
from weft.codegen.index import Index, offset, unravel
from weft.codegen.indexing.access import fail_if, load_index, raw_type
from weft.codegen.indexing.plan import along_axis, merged
from weft.codegen.kernel import PARAMS, Kernel, argument, each_item
from weft.codegen.text import Function, Module
from weft.ir.graph import Node
from weft.ir.types import TensorType

__all__ = ["check_classes", "nll"]


def check_classes(
    module: Module, name: str, target: TensorType, classes: int, ignore_index: int, place: int
) -> Kernel:
    """A kernel that fails if a target is not a class; `place` is the position of the targets."""
    f = module.function(name, "i32", PARAMS)
    targets = argument(f, place)
    with each_item(f) as i:
        index = load_index(f, target.dtype, targets, i)
        _class_of(f, index, target.dtype, classes, ignore_index)
    f.do("ret i32 0")
    return Kernel(name, target.size, 0.7)


def _class_of(
    f: Function, index: Index, dtype: DType, classes: int, ignore_index: int
) -> tuple[Index, str]:
    """The class (0 for the ignored index), and an i1: is it ignored? Else the kernel fails."""
    ignored = _is_ignored(f, index, dtype, ignore_index)
    found = f.index(f(f"select i1 {ignored}, i64 0, i64 {index}"))
    fail_if(f, f(f"icmp uge i64 {found}, {f.size(classes)}"))
    return found, ignored


def nll(module: Module, name: str, node: Node) -> list[Kernel] | None:
    logp, target = (value.tensor_type for value in node.inputs)
    axis, ignored = node.attrs["axis"], node.attrs["ignore_index"]
    with_axis = (*target.shape[:axis], 1, *target.shape[axis:])
    part = along_axis(logp.shape, with_axis, axis)
    (tensor,) = part.tensors
    sizes, (steps, own) = merged(part.shape, part.steps, tensor.steps)
    kind, bits = raw_type(logp.dtype.itemsize), 8 * logp.dtype.itemsize
    f = module.function(name, "i32", PARAMS)
    source, targets, out = (argument(f, i, kind) for i in range(3))
    with each_item(f) as i:
        at = unravel(i, sizes)
        index = load_index(f, target.dtype, targets, offset(0, zip(at, own, strict=True)))
        index, skip = _class_of(f, index, target.dtype, tensor.size, ignored)
        place = offset(0, [*zip(at, steps, strict=True), (index, tensor.step)])
        value = (source + place).load(1)
        value = f(f"select i1 {skip}, {kind} 0, {kind} {value}")
        value = f(f"xor {kind} {value}, {1 << (bits - 1)}")  # negated, 0 to -0
        (out + i).store(value, 1)
    f.do("ret i32 0")
    return [Kernel(name, math.prod(target.shape), 1.0)]


def _is_ignored(f: Function, index: Index, dtype: DType, ignore_index: int) -> str:
    """An i1: whether a class index (from `load_index`) is the ignored one."""
    limits = (-(2**63), 2**63) if dtype.kind == "int" else (0, 2**64)
    if not limits[0] <= ignore_index < limits[1]:
        return "false"
    return f(f"icmp eq i64 {index}, {ignore_index - 2**64 * (ignore_index >= 2**63)}")
