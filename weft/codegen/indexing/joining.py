"""concat: tensors joined along an axis."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager

from weft.base.dims import has_dims, is_zero, typical
from weft.codegen.cancel import pollable_run, return_if_cancelled
from weft.codegen.index import Index, Ptr, maximum, minimum
from weft.codegen.indexing.access import copy_block, copy_bytes
from weft.codegen.kernel import PARAMS, Kernel, argument, each_item
from weft.codegen.text import Function, Module
from weft.ir.graph import Node

__all__ = ["concat"]

_PIECE = 16384  # bytes of one item, if there is only one row
_FEW = 8  # up to this many tensors are copied by unrolled code


def concat(module: Module, name: str, node: Node) -> list[Kernel] | None:
    out, axis = node.out.tensor_type, node.attrs["axis"]
    size = out.dtype.itemsize
    lengths = [math.prod(v.tensor_type.shape[axis:]) * size for v in node.inputs]
    starts = [0, *itertools.accumulate(lengths)]
    total = starts.pop()
    rows = 0 if is_zero(total) else math.prod(out.shape[:axis])
    f = module.function(name, "i32", PARAMS)
    target = argument(f, len(lengths))
    run = None
    if rows == 1:
        items, cost = -(-total // _PIECE), _PIECE / 12
        first = f.index("%begin") * _PIECE
        last = minimum(f.index("%end") * _PIECE, total)
        with _table(f, lengths, starts) as (source, length, start):
            begin = maximum(first, start)
            stop = minimum(last, start + length)
            with f.when(f(f"icmp slt i64 {begin}, {stop}")):
                origin = source + (begin - start)
                count = stop - begin
                copy_bytes(f, target + begin, origin, count)
    else:
        items, cost = rows, 2 * len(lengths) + typical(total) / 20
        run = pollable_run(f, len(lengths) + 2, cost)
        few = len(lengths) <= _FEW
        sources = [argument(f, i) for i in range(len(lengths))] if few else []
        with each_item(f) as row:
            to = target + row * total
            for place, source in enumerate(sources):
                origin = source + row * lengths[place]
                copy_block(f, to + starts[place], origin, lengths[place], run)
            if not few:
                with _table(f, lengths, starts) as (source, length, start):
                    if run is not None:
                        return_if_cancelled(f, run)
                    origin = source + row * length
                    copy_bytes(f, to + start, origin, length)
    f.do("ret i32 0")
    return [Kernel(name, items, cost, stops=run is not None)]


@contextmanager
def _table(
    f: Function, lengths: list[int], starts: list[int]
) -> Iterator[tuple[Ptr, Index, Index]]:
    """A loop over the tensors: the pointer, the length and the start of each."""
    tables = [_array(f, numbers) for numbers in (lengths, starts)]
    with f.loop(0, len(lengths)) as i:
        length, start = ((table + i).load_index() for table in tables)
        yield argument(f, i), length, start


def _array(f: Function, numbers: list[int]) -> Ptr:
    """The numbers as an array: a constant, or written now if the run tells them."""
    if has_dims(numbers):
        made = f.var("i64", count=len(numbers), align=16)
        for place, number in enumerate(numbers):
            (made + place).store(f.size(number))
        return made
    text = ", ".join(f"i64 {number}" for number in numbers)
    return f.ptr(f.module.constant(f"[{len(numbers)} x i64]", f"[{text}]"), "i64")
