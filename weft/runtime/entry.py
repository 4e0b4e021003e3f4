"""The entry function of a program.

i32 @run(ptr arrays, ptr arena, ptr run)                       addresses of inputs and outputs
"""

from __future__ import annotations

from weft.codegen.contract import RUN, SHARED, SIZES
from weft.codegen.control.heap import CHUNK, release
from weft.codegen.control.stacks import copy
from weft.codegen.text import Module

__all__ = ["add_run"]


def add_run(module: Module, kept: int | None = None, slots: int = 0) -> None:
    """Emit `run` for a graph. If stacks leave it, their memory outlives the run: its address is
    written to the output `kept`, counted after all inputs and outputs of the graph. `slots`: the
    length of the table of sizes, if the run changes it: then each run has its own."""
    params = [("ptr", "arrays"), ("ptr", "arena"), ("ptr", "run")]
    f = module.function("run", "i32", params, linkage="")
    # The shared part of `%run`, and room for what this run needs.
    own = f.var("ptr", count=len(RUN) + module.varies, align=16)
    f.do(f"store [{len(RUN)} x ptr] zeroinitializer, ptr {own}")
    copy(f, own, f.ptr("%run"), 8 * SHARED)
    if module.varies:
        given = (f.ptr("%run", "ptr") + SHARED).load_ptr()
        if slots:
            table = f.var("i64", count=slots, align=16)
            copy(f, table, given, 8 * slots)
            given = table
        (own + SIZES).store(given)
    status = f(f"call i32 @graph(ptr %arrays, ptr %arena, ptr {own})")
    if kept is not None:
        data = (f.ptr("%arrays", "ptr") + kept).load_ptr("ptr")
        chunk = (own + CHUNK).load()
        with f.when(f(f"icmp eq i32 {status}, 0")):
            data.store(chunk)
            f.do("ret i32 0")
            f.block(f.fresh("never"))
    f.do(f"call void @{release(module)}(ptr {own})")
    f.do(f"ret i32 {status}")
