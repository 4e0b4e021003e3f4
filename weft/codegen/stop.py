"""Items of work that may take long look themselves whether the run shall end (Ctrl-C).

A run is ended between kernels, and between the items of one (`weft/runtime/pool/`). Where one item
takes long, a row of a thousand million elements to be sorted, its code asks now and then: whoever
has found out writes it to the run's word "stop", where the others see it.

The kernel says so (`Kernel.stops`) and finds the run behind its memory, as the last of `%args`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from weft.codegen.text import Function, Module

__all__ = ["LONG", "end_where_asked", "long_loop"]

#: Items that take longer than this ask, in ns.
LONG = 30_000_000.0
#: How many rounds of an inner loop go by between two questions: some milliseconds.
ROUNDS = 1 << 20
#: Places in `%run`; see `weft.codegen.program`.
POOL, POLL, STOP = 1, 4, 8


def _asked(module: Module) -> None:
    """`i32 @asked(ptr run)`: not 0 where the run shall end; a null for the run says never."""
    f = module.function("asked", "i32", [("ptr", "run")], "nounwind noinline")
    with f.when(f("icmp eq ptr %run, null")):
        f.do("ret i32 0")
        f.block(f.fresh("never"))
    word = f(f"getelementptr ptr, ptr %run, i64 {STOP}")
    known = f(f"load atomic i32, ptr {word} monotonic, align 4")
    with f.when(f(f"icmp ne i32 {known}, 0")):
        f.do(f"ret i32 {known}")
        f.block(f.fresh("never"))
    pool, poll = (
        f(f"load ptr, ptr {f(f'getelementptr ptr, ptr %run, i64 {place}')}")
        for place in (POOL, POLL)
    )
    status = f(f"call i32 {poll}(ptr {pool})")
    with f.when(f(f"icmp ne i32 {status}, 0")):
        f.do(f"store atomic i32 {status}, ptr {word} monotonic, align 4")
    f.do(f"ret i32 {status}")


def end_where_asked(f: Function, run: str, result: str = "") -> None:
    """End a function here, where the run shall end: with `result`, else with the status."""
    status = f(f"call i32 @{f.module.once('asked', _asked)}(ptr {run})")
    with f.when(f(f"icmp ne i32 {status}, 0")):
        f.do(f"ret {result or f'i32 {status}'}")
        f.block(f.fresh("never"))


@contextmanager
def long_loop(
    f: Function, run: str | None, start: str, stop: str, step: int = 1, *, result: str = ""
) -> Iterator[str]:
    """`f.loop` that asks now and then; where `run` is None, it takes not long and never asks."""
    if run is None:
        with f.loop(start, stop, str(step)) as i:
            yield i
        return
    least = f.module.declare("i64", "llvm.smin.i64", "i64, i64")
    with f.loop(start, stop, str(ROUNDS * step)) as first:
        end_where_asked(f, run, result)
        behind = f(f"add i64 {first}, {ROUNDS * step}")
        with f.loop(first, f(f"call i64 @{least}(i64 {behind}, i64 {stop})"), str(step)) as i:
            yield i
