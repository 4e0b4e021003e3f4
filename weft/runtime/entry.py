"""The functions that a program is called by.

i32 @run(ptr arrays, ptr arena, ptr run)                       addresses of inputs and outputs
i32 @entry(ptr inputs, ptr outputs, ptr arena, ptr run)        two of Python's lists, of arrays
"""

from __future__ import annotations

from weft.codegen.contract import RUN
from weft.codegen.control.heap import CHUNK, release
from weft.codegen.control.stacks import copy
from weft.codegen.text import Module
from weft.runtime.direct import LAYOUT
from weft.runtime.places import list_places

__all__ = ["add_entry"]


def add_entry(module: Module, inputs: int, outputs: int, keeps: bool = False) -> None:
    """`run` and `entry` for a graph.

    Where stacks leave the run, it `keeps` the memory they lie in: its address goes to one more
    output.
    """
    _add_run(module, inputs + outputs if keeps else None)
    at_items, at_data, at_flags = list_places()
    params = [("ptr", "inputs"), ("ptr", "outputs"), ("ptr", "arena"), ("ptr", "run")]
    f = module.function("entry", "i32", params, linkage="")
    outputs += keeps
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
    f.do(f"ret i32 {f(f'call i32 @run(ptr {table}, ptr %arena, ptr %run)')}")


def _add_run(module: Module, kept: int | None) -> None:
    params = [("ptr", "arrays"), ("ptr", "arena"), ("ptr", "run")]
    f = module.function("run", "i32", params, linkage="")
    # What `%run` holds for all runs, and room for what this one needs.
    own = f.var(f"[{len(RUN)} x ptr]", align=16)
    f.do(f"store [{len(RUN)} x ptr] zeroinitializer, ptr {own}")
    copy(f, own, "%run", 8 * RUN.index("free"))
    status = f(f"call i32 @graph(ptr %arrays, ptr %arena, ptr {own})")
    if kept is not None:
        data = f(f"load ptr, ptr {f(f'getelementptr ptr, ptr %arrays, i64 {kept}')}")
        chunk = f(f"load ptr, ptr {f(f'getelementptr ptr, ptr {own}, i64 {CHUNK}')}")
        with f.when(f(f"icmp eq i32 {status}, 0")):
            f.do(f"store ptr {chunk}, ptr {data}")
            f.do("ret i32 0")
            f.block(f.fresh("never"))
    f.do(f"call void @{release(module)}(ptr {own})")
    f.do(f"ret i32 {status}")
