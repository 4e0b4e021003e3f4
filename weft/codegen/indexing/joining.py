"""concat: tensors one after the other along an axis."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager

from weft.codegen.cancel import asks, end_where_asked
from weft.codegen.indexing.access import copy_block, copy_bytes, element, least, most
from weft.codegen.kernel import PARAMS, Kernel, argument
from weft.codegen.text import Function, Module
from weft.ir.graph import Node

__all__ = ["concat"]

_PIECE = 16384  # bytes that are one item, where there is one row only
_FEW = 8  # so many tensors are copied by code of their own


def concat(module: Module, name: str, node: Node) -> list[Kernel] | None:
    out, axis = node.out.tensor_type, node.attrs["axis"]
    size = out.dtype.itemsize
    lengths = [math.prod(v.tensor_type.shape[axis:]) * size for v in node.inputs]
    starts = [0, *itertools.accumulate(lengths)]
    total = starts.pop()
    rows = math.prod(out.shape[:axis]) if total else 0
    f = module.function(name, "i32", PARAMS)
    target = argument(f, len(lengths))
    run = None
    if rows == 1:
        items, cost = -(-total // _PIECE), _PIECE / 12
        first = f(f"mul i64 %begin, {_PIECE}")
        last = least(f, f(f"mul i64 %end, {_PIECE}"), str(total))
        with _table(f, lengths, starts) as (source, length, start):
            begin = most(f, first, start)
            stop = least(f, last, f(f"add i64 {start}, {length}"))
            with f.when(f(f"icmp slt i64 {begin}, {stop}")):
                origin = element(f, source, f(f"sub i64 {begin}, {start}"), 1)
                count = f(f"sub i64 {stop}, {begin}")
                copy_bytes(f, element(f, target, begin, 1), origin, count)
    else:
        items, cost = rows, 2 * len(lengths) + total / 20
        run = asks(f, len(lengths) + 2, cost)
        few = len(lengths) <= _FEW
        sources = [argument(f, i) for i in range(len(lengths))] if few else []
        with f.loop("%begin", "%end") as row:
            to = element(f, target, f(f"mul i64 {row}, {total}"), 1)
            for place, source in enumerate(sources):
                origin = element(f, source, f(f"mul i64 {row}, {lengths[place]}"), 1)
                copy_block(f, element(f, to, str(starts[place]), 1), origin, lengths[place], run)
            if not few:
                with _table(f, lengths, starts) as (source, length, start):
                    if run is not None:
                        end_where_asked(f, run)
                    origin = element(f, source, f(f"mul i64 {row}, {length}"), 1)
                    copy_bytes(f, element(f, to, start, 1), origin, length)
    f.do("ret i32 0")
    return [Kernel(name, items, cost, stops=run is not None)]


@contextmanager
def _table(f: Function, lengths: list[int], starts: list[int]) -> Iterator[tuple[str, str, str]]:
    """A loop over the tensors: the pointer, the length and the start of each."""
    kind = f"[{len(lengths)} x i64]"
    tables = [
        f.module.constant(kind, "[" + ", ".join(f"i64 {n}" for n in numbers) + "]")
        for numbers in (lengths, starts)
    ]
    with f.loop("0", str(len(lengths))) as i:
        source = f(f"load ptr, ptr {f(f'getelementptr ptr, ptr %args, i64 {i}')}")
        length, start = (
            f(f"load i64, ptr {f(f'getelementptr i64, ptr {table}, i64 {i}')}") for table in tables
        )
        yield source, length, start
