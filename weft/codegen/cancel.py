"""Items of work that may take long look themselves whether the run shall end (Ctrl-C).

A run is ended between kernels, and between the items of one (`weft/runtime/pool/`). Where one item
takes long, a row of a thousand million elements to be sorted, its code asks now and then: whoever
has found out writes it to the run's word "stop", where the others see it. Of loops inside each
other one asks, see `slow_loop`; code for items that are short is as it would be without all this.

The kernel says so (`Kernel.stops`) and finds the run as the last of `%args`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from weft.codegen.contract import RUN
from weft.codegen.index import Index, Ptr, Size, minimum
from weft.codegen.kernel import argument
from weft.codegen.text import Function, Module

__all__ = ["asks", "copy_in_parts", "end_where_asked", "long_loop", "slow_loop", "takes_long"]

#: Items that take longer than this ask, in ns.
LONG = 30_000_000.0
#: About how long goes by between two questions, in ns, and how many rounds of a loop at most.
EVERY, ROUNDS = 2_000_000.0, 1 << 20
#: Bytes that are copied between two questions, and in a nanosecond.
PART, PACE = 1 << 24, 20
#: Places in `%run`.
POOL, POLL, STOP = (RUN.index(name) for name in ("pool", "poll", "stop"))


def takes_long(cost: float) -> bool:
    return cost > LONG


def asks(f: Function, place: int | None, cost: float) -> Ptr | None:
    """The run, where an item of a kernel takes so many ns that it asks; it stands at a place of
    `%args`. Else None."""
    return argument(f, place) if place is not None and takes_long(cost) else None


def slow_loop(rounds: Sequence[int], cost: float) -> tuple[int, float]:
    """Of loops inside each other, the outermost first, that take `cost` ns together: which is to
    ask, as the innermost that takes long, and how long one of its rounds takes."""
    each = cost / max(1, math.prod(rounds))
    for place in reversed(range(1, len(rounds))):
        if rounds[place] > 1 and takes_long(each * rounds[place]):
            return place, each
        each *= rounds[place]
    return 0, each


def _asked(module: Module) -> None:
    """`i32 @asked(ptr run)`: not 0 where the run shall end; a null for the run says never."""
    f = module.function("asked", "i32", [("ptr", "run")], "nounwind noinline")
    with f.when(f("icmp eq ptr %run, null")):
        f.do("ret i32 0")
        f.block(f.fresh("never"))
    run = f.ptr("%run", "ptr")
    word = run + STOP
    known = f(f"load atomic i32, ptr {word} monotonic, align 4")
    with f.when(f(f"icmp ne i32 {known}, 0")):
        f.do(f"ret i32 {known}")
        f.block(f.fresh("never"))
    pool, poll = ((run + place).load() for place in (POOL, POLL))
    status = f(f"call i32 {poll}(ptr {pool})")
    with f.when(f(f"icmp ne i32 {status}, 0")):
        f.do(f"store atomic i32 {status}, ptr {word} monotonic, align 4")
    f.do(f"ret i32 {status}")


def end_where_asked(f: Function, run: Ptr, result: str = "") -> None:
    """End a function here, where the run shall end: with `result`, else with the status."""
    status = f(f"call i32 @{f.module.once('asked', _asked)}(ptr {run})")
    with f.when(f(f"icmp ne i32 {status}, 0")):
        f.do(f"ret {result or f'i32 {status}'}")
        f.block(f.fresh("never"))


def long_loop(
    f: Function,
    run: Ptr | None,
    start: Size,
    stop: Size,
    step: int = 1,
    *,
    each: float = 2.0,
    result: str = "",
) -> AbstractContextManager[Index]:
    """`f.loop` that asks now and then, as a round takes `each` ns; where `run` is None, never."""
    if run is None:
        return f.loop(start, stop, step)
    return _asking_loop(f, run, start, stop, step, each, result)


@contextmanager
def _asking_loop(
    f: Function, run: Ptr, start: Size, stop: Size, step: int, each: float, result: str
) -> Iterator[Index]:
    by = step * max(1, min(ROUNDS, int(EVERY / each)))
    with f.loop(start, stop, by) as first:
        end_where_asked(f, run, result)
        with f.loop(first, minimum(first + by, stop), step) as i:
            yield i


def copy_in_parts(f: Function, run: Ptr | None, target: Ptr, source: Ptr | None, size: int) -> None:
    """Copy bytes, a known number; where there is no source, clear them. It asks where that takes
    long and there is a run."""
    copy = f.module.declare("void", "llvm.memcpy.p0.p0.i64", "ptr, ptr, i64, i1 immarg")
    clear = f.module.declare("void", "llvm.memset.p0.i64", "ptr, i8, i64, i1 immarg")

    def part(skip: Size, count: Size) -> None:
        to = target.bytes(skip)
        if source is None:
            f.do(f"call void @{clear}(ptr {to}, i8 0, i64 {count}, i1 false)")
        else:
            origin = source.bytes(skip)
            f.do(f"call void @{copy}(ptr {to}, ptr {origin}, i64 {count}, i1 false)")

    if run is None or not takes_long(size / PACE):
        part(0, size)
        return
    with long_loop(f, run, 0, size, PART, each=PART / PACE) as skip:
        part(skip, minimum(size - skip, PART))
