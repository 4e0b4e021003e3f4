"""Memory that a run allocates for stacks: a bump allocator, freed at the end of the run.

It grows by chunks, each twice as large as the previous one. `%run` (see `weft.codegen.contract`)
holds the bounds of the free part of the last chunk, and the last chunk itself, which begins with
the address of the previous chunk and its own size.
"""

from __future__ import annotations

from weft.codegen.contract import RUN
from weft.codegen.text import Module

__all__ = ["CHUNK", "END", "FREE", "give_back", "heap", "release"]

#: Positions in `%run`.
FREE, END, CHUNK = (RUN.index(name) for name in ("free", "end", "chunk"))
FIRST = 1 << 16
ALIGN = 64


def heap(module: Module) -> str:
    """`ptr @heap(ptr run, i64 bytes)`: null if the machine is out of memory."""
    return module.once("heap", _heap)


def release(module: Module) -> str:
    """`void @release(ptr run)`: free all chunks."""
    return module.once("release", _release)


def _heap(module: Module) -> None:
    allocate = module.declare("ptr", module.allocate_aligned, "i64, i64")
    f = module.function("heap", "ptr", [("ptr", "run"), ("i64", "bytes")], "nounwind noinline")
    run = f.ptr("%run", "ptr")
    free_at, end_at, chunk_at = run + FREE, run + END, run + CHUNK
    size = (f.index("%bytes") + (ALIGN - 1)) // ALIGN * ALIGN
    free = free_at.load_ptr()
    beyond = free.bytes(size)
    with f.when(f(f"icmp ule ptr {beyond}, {end_at.load()}")):
        free_at.store(beyond)
        f.do(f"ret ptr {free}")
        f.block(f.fresh("never"))
    last = chunk_at.load_ptr("i64")
    want = f.var("i64", FIRST)
    with f.when(f(f"icmp ne ptr {last}, null")):
        want.store((last + 1).load_index() * 2)
    need = size + ALIGN
    with f.when(f(f"icmp ugt i64 {need}, {want.load_index()}")):
        want.store(need)
    length = want.load_index()
    made = f.ptr(f(f"call ptr @{allocate}(i64 {ALIGN}, i64 {length})"), "i64")
    with f.when(f(f"icmp eq ptr {made}, null")):
        f.do("ret ptr null")
        f.block(f.fresh("never"))
    made.of("ptr").store(last)
    (made + 1).store(length)
    chunk_at.store(made)
    start = made.bytes(ALIGN)
    free_at.store(start.bytes(size))
    end_at.store(made.bytes(length))
    f.do(f"ret ptr {start}")


def give_back(module: Module) -> str:
    """`void @give_back(ptr chunk)`, exported: free a chunk and all previous ones."""
    return module.once("give_back", _give_back)


def _release(module: Module) -> None:
    f = module.function("release", "void", [("ptr", "run")])
    chunk = (f.ptr("%run", "ptr") + CHUNK).load()
    f.do(f"call void @{give_back(module)}(ptr {chunk})")
    f.do("ret void")


def _give_back(module: Module) -> None:
    deallocate = module.declare("void", module.deallocate, "ptr")
    f = module.function("give_back", "void", [("ptr", "last")], linkage="")
    at = f.var("ptr", "%last")
    head, body, end = (f.fresh(word) for word in ("head", "body", "end"))
    f.jump(head)
    f.block(head)
    chunk = at.load_ptr("ptr")
    f.branch(f(f"icmp eq ptr {chunk}, null"), end, body)
    f.block(body)
    at.store(chunk.load())
    f.do(f"call void @{deallocate}(ptr {chunk})")
    f.jump(head)
    f.block(end)
    f.do("ret void")
