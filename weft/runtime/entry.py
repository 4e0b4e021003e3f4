"""The function that Python calls: it finds the addresses of arrays in Python's own lists.

Asking an array for its address from Python costs more than a small kernel. The generated code
reads it from the object: a list keeps its items, and an array its address and flags, at places
that NumPy's and CPython's binary interfaces fix. `_places` looks once whether they are there.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from weft.codegen.control.heap import CHUNK, release
from weft.codegen.control.stacks import copy
from weft.codegen.program import RUN
from weft.codegen.text import Module

__all__ = ["LAYOUT", "add_entry"]

#: What the entry gives back where an input does not lie dense in C order.
LAYOUT = -8


@functools.cache
def _places() -> tuple[int, int, int]:
    """Where a list keeps the address of its items, an array that of its data, and its flags."""
    items: list[Any] = [np.arange(3), np.arange(12).reshape(3, 4).T]
    word = ctypes.c_size_t.from_address
    at_items = next(
        at
        for at in range(16, 64, 8)
        if word(id(items) + at).value > 4096
        and _is_table(word(id(items) + at).value, [id(item) for item in items])
    )
    at_data = next(
        at
        for at in range(16, 64, 8)
        if all(word(id(item) + at).value == item.ctypes.data for item in items)
    )
    dense, turned = items
    flag = ctypes.c_int32.from_address
    at_flags = next(
        at
        for at in range(at_data + 8, 128, 4)
        if flag(id(dense) + at).value == dense.flags.num
        and flag(id(turned) + at).value == turned.flags.num
    )
    return at_items, at_data, at_flags


def _is_table(address: int, wanted: list[int]) -> bool:
    if address % 8:
        return False
    return all(
        ctypes.c_size_t.from_address(address + 8 * i).value == want for i, want in enumerate(wanted)
    )


def add_entry(module: Module, inputs: int, outputs: int, keeps: bool = False) -> None:
    """`i32 @entry(ptr inputs, ptr outputs, ptr arena, ptr run)`, of two lists of arrays.

    Where stacks leave the run, it `keeps` the memory they lie in: its address goes to one more
    output.
    """
    at_items, at_data, at_flags = _places()
    params = [("ptr", "inputs"), ("ptr", "outputs"), ("ptr", "arena"), ("ptr", "run")]
    f = module.function("entry", "i32", params, linkage="")
    table = f.var(f"[{max(1, inputs + outputs)} x ptr]", align=16)
    bits = "-1"
    for side, count, first in (("inputs", inputs, 0), ("outputs", outputs, inputs)):
        items = f(f"load ptr, ptr {f(f'getelementptr i8, ptr %{side}, i64 {at_items}')}")
        all_bits = f.var("i32", "-1")
        with f.loop("0", str(count)) as i:
            array = f(f"load ptr, ptr {f(f'getelementptr ptr, ptr {items}, i64 {i}')}")
            data = f(f"load ptr, ptr {f(f'getelementptr i8, ptr {array}, i64 {at_data}')}")
            flags = f(f"load i32, ptr {f(f'getelementptr i8, ptr {array}, i64 {at_flags}')}")
            f.set("i32", all_bits, f(f"and i32 {f.get('i32', all_bits)}, {flags}"))
            slot = f(f"getelementptr ptr, ptr {table}, i64 {f(f'add i64 {i}, {first}')}")
            f.do(f"store ptr {data}, ptr {slot}")
        if side == "inputs":
            bits = f.get("i32", all_bits)
    dense = f(f"icmp eq i32 {f(f'and i32 {bits}, 257')}, 257")  # in C order, and aligned
    with f.when(f(f"xor i1 {dense}, true")):
        f.do(f"ret i32 {LAYOUT}")
        f.block(f.fresh("never"))
    # What `%run` holds for all runs, and room for what this one needs.
    own = f.var(f"[{len(RUN)} x ptr]", align=16)
    f.do(f"store [{len(RUN)} x ptr] zeroinitializer, ptr {own}")
    copy(f, own, "%run", 8 * RUN.index("free"))
    status = f(f"call i32 @graph(ptr {table}, ptr %arena, ptr {own})")
    if keeps:
        items = f(f"load ptr, ptr {f(f'getelementptr i8, ptr %outputs, i64 {at_items}')}")
        array = f(f"load ptr, ptr {f(f'getelementptr ptr, ptr {items}, i64 {outputs}')}")
        data = f(f"load ptr, ptr {f(f'getelementptr i8, ptr {array}, i64 {at_data}')}")
        chunk = f(f"load ptr, ptr {f(f'getelementptr ptr, ptr {own}, i64 {CHUNK}')}")
        with f.when(f(f"icmp eq i32 {status}, 0")):
            f.do(f"store ptr {chunk}, ptr {data}")
            f.do("ret i32 0")
            f.block(f.fresh("never"))
    f.do(f"call void @{release(module)}(ptr {own})")
    f.do(f"ret i32 {status}")
