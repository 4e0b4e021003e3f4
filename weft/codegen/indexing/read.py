"""Reading by index: take, gather, take_along_axis, embedding.

The part is processed element by element, or block by block if its last axes are contiguous in x.
Each index is checked before it is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from weft.base.dim_algebra import dim_max
from weft.base.dims import is_zero, typical
from weft.base.dtypes import DType
from weft.codegen.cancel import pollable_run
from weft.codegen.index import Index, Ptr, Size, offset, unravel
from weft.codegen.indexing.access import (
    copy_block,
    fail_if,
    load_index,
    raw_type,
    row_range,
    wrapped,
)
from weft.codegen.indexing.plan import Part, Picked, along_axis, indexed, merged
from weft.codegen.kernel import PARAMS, Kernel, argument, each_item
from weft.codegen.text import Function, Module
from weft.ir.graph import Node
from weft.ops.cards import TAKE
from weft.ops.index_shape import TENSOR

__all__ = ["check_tensors", "embedding", "gather", "take", "take_along_axis"]


@dataclass(frozen=True, slots=True)
class Walk:
    """A part with its axes merged: `sizes` of the axes to loop over, `block` elements at each
    position."""

    sizes: tuple[int, ...]
    start: int
    steps: tuple[int, ...]
    tensors: tuple[Picked, ...]
    block: int

    @property
    def count(self) -> int:
        return math.prod(self.sizes)


def walk(part: Part) -> Walk:
    sizes, (steps, *others) = merged(part.shape, part.steps, *(t.steps for t in part.tensors))
    block = 1
    if sizes and steps[-1] == 1 and all(is_zero(other[-1]) for other in others):
        block, sizes, steps = sizes[-1], sizes[:-1], steps[:-1]
        others = [other[:-1] for other in others]
    tensors = tuple(replace(t, steps=s) for t, s in zip(part.tensors, others, strict=True))
    return Walk(sizes, part.start, steps, tensors, block)


def take(module: Module, name: str, node: Node) -> list[Kernel] | None:
    x, indices = (value.tensor_type for value in node.inputs)
    axis = node.attrs["axis"]
    index = (*(slice(None),) * axis, TENSOR)
    return _read(module, name, node, indexed(x.shape, index, [indices.shape]))


def gather(module: Module, name: str, node: Node) -> list[Kernel] | None:
    x, *tensors = (value.tensor_type for value in node.inputs)
    part = indexed(x.shape, node.attrs["index"], [t.shape for t in tensors])
    return _read(module, name, node, part)


def take_along_axis(module: Module, name: str, node: Node) -> list[Kernel] | None:
    x, indices = (value.tensor_type for value in node.inputs)
    return _read(module, name, node, along_axis(x.shape, indices.shape, node.attrs["axis"]))


def embedding(module: Module, name: str, node: Node) -> list[Kernel] | None:
    weight, indices = (value.tensor_type for value in node.inputs)
    part = indexed(weight.shape, (TENSOR,), [indices.shape])
    return _read(module, name, node, part, negative=False)


def checked(
    f: Function, dtype: DType, pointer: Ptr, place: Size, size: int, negative: bool = True
) -> Index:
    """The index at a position of a tensor; the kernel fails if it is out of range."""
    index = load_index(f, dtype, pointer, place)
    if negative:
        index, outside = wrapped(f, index, size)
    else:
        outside = f(f"icmp uge i64 {index}, {f.size(size)}")
    fail_if(f, outside)
    return index


def _read(
    module: Module, name: str, node: Node, part: Part, *, negative: bool = True
) -> list[Kernel]:
    x, *tensors = (value.tensor_type for value in node.inputs)
    plan = walk(part)
    # Indices are checked even if x has no elements, as in NumPy.
    empty = is_zero(math.prod(part.shape))
    if empty and node.op is not TAKE:
        return check_tensors(module, name, part, [t.dtype for t in tensors], negative)
    size = x.dtype.itemsize
    f = module.function(name, "i32", PARAMS)
    kind, last = raw_type(size), len(tensors) + 1
    source, target = argument(f, 0, kind), argument(f, last, kind)
    pointers = [argument(f, i) for i in range(1, last)]
    length = plan.sizes[-1] if plan.sizes else 1
    outer = plan.sizes[:-1]
    cost = 0.4 + 0.3 * len(tensors) + typical(plan.block) * size / 32
    run = pollable_run(f, last + 2, cost)
    with row_range(f, dim_max(length, 1)) as (row, begin, end):
        at = unravel(row, outer)
        base = offset(plan.start, zip(at, plan.steps[:-1], strict=True))
        row_places = []
        for tensor, pointer, given in zip(plan.tensors, pointers, tensors, strict=True):
            place = offset(0, zip(at, tensor.steps[:-1], strict=True))
            row_places.append(place)
            if not tensor.steps or is_zero(tensor.steps[-1]):
                index = checked(f, given.dtype, pointer, place, tensor.size, negative)
                base = index * tensor.step + base
        out_row = row * (length * plan.block)
        with f.loop(begin, end) as j:
            here = j * plan.steps[-1] + base if plan.sizes else base
            for tensor, pointer, given, place in zip(
                plan.tensors, pointers, tensors, row_places, strict=True
            ):
                if tensor.steps and not is_zero(tensor.steps[-1]):
                    place = j * tensor.steps[-1] + place
                    index = checked(f, given.dtype, pointer, place, tensor.size, negative)
                    here = index * tensor.step + here
            to = target + (j * plan.block + out_row)
            copy_block(f, to, source + here, plan.block * size, run)
    f.do("ret i32 0")
    return [Kernel(name, 0 if empty else plan.count, cost, stops=run is not None)]


def check_tensors(
    module: Module, name: str, part: Part, kinds: list[DType], negative: bool = True, first: int = 1
) -> list[Kernel]:
    """Kernels that only check that indices are in range; `first` is the position of their tensors.

    If the tensors together select nothing, none of them is checked.
    """
    if is_zero(part.together):
        return []
    kernels = []
    for number, (tensor, dtype) in enumerate(zip(part.tensors, kinds, strict=True)):
        sizes = zip(part.shape, tensor.steps, strict=True)
        count = math.prod(size for size, step in sizes if not is_zero(step))
        label = f"{name}.check{number}"
        f = module.function(label, "i32", PARAMS)
        pointer = argument(f, first + number)
        with each_item(f) as i:
            checked(f, dtype, pointer, i, tensor.size, negative)
        f.do("ret i32 0")
        kernels.append(Kernel(label, count, 0.7))
    return kernels
