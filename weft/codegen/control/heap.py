"""Memory that a run takes as it goes, for stacks: handed out in order, given back at its end.

It comes in chunks, each twice as large as the one before. `%run` (see `weft.codegen.contract`)
keeps where the free part of the last chunk begins and ends, and the last chunk, which begins with
the address of the one before it and its own size.
"""

from __future__ import annotations

from weft.codegen.contract import RUN
from weft.codegen.text import Module

__all__ = ["CHUNK", "END", "FREE", "give_back", "heap", "release"]

#: Places in `%run`.
FREE, END, CHUNK = (RUN.index(name) for name in ("free", "end", "chunk"))
FIRST = 1 << 16
ALIGN = 64


def heap(module: Module) -> str:
    """`ptr @heap(ptr run, i64 bytes)`: null where the machine has no more memory."""
    return module.once("heap", _heap)


def release(module: Module) -> str:
    """`void @release(ptr run)`: give all chunks back."""
    return module.once("release", _release)


def _heap(module: Module) -> None:
    module.declare("ptr", "aligned_alloc", "i64, i64")
    f = module.function("heap", "ptr", [("ptr", "run"), ("i64", "bytes")], "nounwind noinline")
    free_at = f(f"getelementptr ptr, ptr %run, i64 {FREE}")
    end_at = f(f"getelementptr ptr, ptr %run, i64 {END}")
    chunk_at = f(f"getelementptr ptr, ptr %run, i64 {CHUNK}")
    size = f(f"and i64 {f(f'add i64 %bytes, {ALIGN - 1}')}, {-ALIGN}")
    free = f(f"load i64, ptr {free_at}")
    beyond = f(f"add i64 {free}, {size}")
    fits = f(f"icmp ule i64 {beyond}, {f(f'load i64, ptr {end_at}')}")
    with f.when(fits):
        f.do(f"store i64 {beyond}, ptr {free_at}")
        f.do(f"ret ptr {f(f'inttoptr i64 {free} to ptr')}")
        f.block(f.fresh("never"))
    last = f(f"load ptr, ptr {chunk_at}")
    want = f.var("i64", str(FIRST))
    with f.when(f(f"icmp ne ptr {last}, null")):
        before = f(f"load i64, ptr {f(f'getelementptr i64, ptr {last}, i64 1')}")
        f.set("i64", want, f(f"mul i64 {before}, 2"))
    need = f(f"add i64 {size}, {ALIGN}")
    with f.when(f(f"icmp ugt i64 {need}, {f.get('i64', want)}")):
        f.set("i64", want, need)
    length = f.get("i64", want)
    made = f(f"call ptr @aligned_alloc(i64 {ALIGN}, i64 {length})")
    with f.when(f(f"icmp eq ptr {made}, null")):
        f.do("ret ptr null")
        f.block(f.fresh("never"))
    f.do(f"store ptr {last}, ptr {made}")
    f.do(f"store i64 {length}, ptr {f(f'getelementptr i64, ptr {made}, i64 1')}")
    f.do(f"store ptr {made}, ptr {chunk_at}")
    start = f(f"getelementptr i8, ptr {made}, i64 {ALIGN}")
    f.do(f"store ptr {f(f'getelementptr i8, ptr {start}, i64 {size}')}, ptr {free_at}")
    f.do(f"store ptr {f(f'getelementptr i8, ptr {made}, i64 {length}')}, ptr {end_at}")
    f.do(f"ret ptr {start}")


def give_back(module: Module) -> str:
    """`void @give_back(ptr chunk)`, for all: give a chunk back, and those before it."""
    return module.once("give_back", _give_back)


def _release(module: Module) -> None:
    f = module.function("release", "void", [("ptr", "run")])
    chunk = f(f"load ptr, ptr {f(f'getelementptr ptr, ptr %run, i64 {CHUNK}')}")
    f.do(f"call void @{give_back(module)}(ptr {chunk})")
    f.do("ret void")


def _give_back(module: Module) -> None:
    module.declare("void", "free", "ptr")
    f = module.function("give_back", "void", [("ptr", "last")], linkage="")
    at = f.var("ptr", "%last")
    head, body, end = (f.fresh(word) for word in ("head", "body", "end"))
    f.jump(head)
    f.block(head)
    chunk = f(f"load ptr, ptr {at}")
    f.branch(f(f"icmp eq ptr {chunk}, null"), end, body)
    f.block(body)
    f.do(f"store ptr {f(f'load ptr, ptr {chunk}')}, ptr {at}")
    f.do(f"call void @free(ptr {chunk})")
    f.jump(head)
    f.block(end)
    f.do("ret void")
