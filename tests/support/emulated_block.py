"""Runs a block of a kernel on the CPU: its threads are contexts of the C library that take turns.

A wait hands over to the next thread, in a ring: each thread is past its n-th wait only when all
have reached it. A block whose threads do not wait equally often is an error here; a GPU would hang.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from weft.codegen.jit import Library, build

__all__ = ["DIVERGED", "run_blocks"]

#: Bytes of a context, at least, of a thread's stack, and of what the threads share.
CONTEXT, STACK, SHARED = 8192, 1 << 18, 1 << 18
DIVERGED = "threads of a block do not wait for each other equally often"
_NAMES = ("getcontext", "makecontext", "swapcontext", "setcontext")


def _address(name: str) -> str:
    found = ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value
    return f"inttoptr (i64 {found} to ptr)"


@functools.cache
def _runner(arity: int, threads: int, waits: bool) -> tuple[Library, Any]:
    """`i32 run(ptr kernel, ptr args, i64 blocks, ptr shared, ptr memory)`."""
    given = "".join(f"i64 %g{i}, " for i in range(arity))
    loads = "\n".join(
        f"  %p{i} = getelementptr i64, ptr %args, i64 {i}\n  %g{i} = load i64, ptr %p{i}"
        for i in range(arity)
    )
    get, make, swap, put = map(_address, _NAMES)
    text = f"""
@kernel = internal global ptr null
@args = internal global ptr null
@shared = internal global ptr null
@memory = internal global ptr null
@block = internal global i64 0
@now = internal global i64 0
@diverged = internal global i32 0
@done = internal global [{threads} x i8] zeroinitializer

define internal ptr @context(i64 %i) {{
  %m = load ptr, ptr @memory
  %o = mul i64 %i, {CONTEXT + STACK}
  %p = getelementptr i8, ptr %m, i64 %o
  ret ptr %p
}}

define internal void @call(i64 %thread, ptr %wait) {{
  %k = load ptr, ptr @kernel
  %args = load ptr, ptr @args
  %shared = load ptr, ptr @shared
  %block = load i64, ptr @block
{loads}
  call void %k({given}i64 %thread, i64 %block, ptr %shared, ptr %wait)
  ret void
}}

define internal i64 @after(i64 %i) {{
  %n = add i64 %i, 1
  %r = urem i64 %n, {threads}
  ret i64 %r
}}

define internal void @wait() {{
  %i = load i64, ptr @now
  %n = call i64 @after(i64 %i)
  %d = getelementptr i8, ptr @done, i64 %n
  %is = load i8, ptr %d
  %bad = icmp ne i8 %is, 0
  br i1 %bad, label %failed, label %go
failed:
  store i32 1, ptr @diverged
  %main = call ptr @context(i64 {threads})
  call i32 {put}(ptr %main)
  unreachable
go:
  store i64 %n, ptr @now
  %from = call ptr @context(i64 %i)
  %to = call ptr @context(i64 %n)
  call i32 {swap}(ptr %from, ptr %to)
  ret void
}}

define internal void @entry() {{
  %i = load i64, ptr @now
  call void @call(i64 %i, ptr @wait)
  %j = load i64, ptr @now
  %d = getelementptr i8, ptr @done, i64 %j
  store i8 1, ptr %d
  %last = icmp eq i64 %j, {threads - 1}
  %n = add i64 %j, 1
  store i64 %n, ptr @now
  %to = call ptr @context(i64 %n)
  call i32 {put}(ptr %to)
  unreachable
}}

define internal void @together() {{
  store [{threads} x i8] zeroinitializer, ptr @done
  store i64 0, ptr @now
  br label %head
head:
  %i = phi i64 [ 0, %0 ], [ %n, %head ]
  %c = call ptr @context(i64 %i)
  call i32 {get}(ptr %c)
  %sp = getelementptr i8, ptr %c, i64 16
  %size = getelementptr i8, ptr %c, i64 32
  %link = getelementptr i8, ptr %c, i64 8
  %room = getelementptr i8, ptr %c, i64 {CONTEXT}
  store ptr %room, ptr %sp
  store i64 {STACK}, ptr %size
  store ptr null, ptr %link
  call void (ptr, ptr, i32, ...) {make}(ptr %c, ptr @entry, i32 0)
  %n = add i64 %i, 1
  %more = icmp slt i64 %n, {threads}
  br i1 %more, label %head, label %start
start:
  %main = call ptr @context(i64 {threads})
  %first = call ptr @context(i64 0)
  call i32 {swap}(ptr %main, ptr %first)
  ret void
}}

define internal void @alone() {{
  br label %head
head:
  %i = phi i64 [ 0, %0 ], [ %n, %head ]
  call void @call(i64 %i, ptr null)
  %n = add i64 %i, 1
  %more = icmp slt i64 %n, {threads}
  br i1 %more, label %head, label %end
end:
  ret void
}}

define i32 @run(ptr %kernel, ptr %args, i64 %blocks, ptr %shared, ptr %memory) {{
  store ptr %kernel, ptr @kernel
  store ptr %args, ptr @args
  store ptr %shared, ptr @shared
  store ptr %memory, ptr @memory
  store i32 0, ptr @diverged
  br label %head
head:
  %b = phi i64 [ 0, %0 ], [ %n, %next ]
  store i64 %b, ptr @block
  call void @{"together" if waits else "alone"}()
  %bad = load i32, ptr @diverged
  %is = icmp ne i32 %bad, 0
  br i1 %is, label %end, label %next
next:
  %n = add i64 %b, 1
  %more = icmp slt i64 %n, %blocks
  br i1 %more, label %head, label %end
end:
  ret i32 %bad
}}
"""
    library = build(text, ["run"])
    kinds = [*[ctypes.c_void_p] * 2, ctypes.c_int64, *[ctypes.c_void_p] * 2]
    return library, ctypes.CFUNCTYPE(ctypes.c_int32, *kinds)(library.address("run"))


@functools.cache
def _memory(threads: int) -> np.ndarray[Any, Any]:
    return np.empty((threads + 1) * (CONTEXT + STACK) + 64, np.uint8)


def run_blocks(kernel: int, args: list[int], blocks: int, threads: int, waits: bool) -> None:
    """Run all blocks of a kernel, one after another."""
    _library, run = _runner(len(args), threads, waits)
    given = (ctypes.c_int64 * max(1, len(args)))(*args)
    shared = np.full(SHARED, 0xFF, np.uint8)
    at = [(array.ctypes.data + 63) // 64 * 64 for array in (shared, _memory(threads))]
    if run(kernel, ctypes.addressof(given), blocks, *at):
        raise RuntimeError(DIVERGED)
