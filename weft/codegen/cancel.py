"""Long items of work poll for cancellation (Ctrl-C).

A run is cancelled between kernels, and between the items of a kernel (`weft/runtime/pool/`). If one
item takes long, such as sorting a row of 10⁹ elements, its code polls now and then. The first
thread that sees the request writes it to the run's word "stop", where the others read it. Of nested
loops one polls, see `loop_to_poll`. Short items have no code for this.

A kernel that polls says so (`Kernel.stops`); the run is the last pointer of its `%args`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from weft.base.dim_algebra import Dim
from weft.base.dims import has_dims
from weft.codegen.contract import RUN
from weft.codegen.index import Index, Ptr, Size, minimum
from weft.codegen.kernel import argument
from weft.codegen.text import Function, Module

__all__ = [
    "cancellable_loop",
    "copy_in_parts",
    "loop_to_poll",
    "pollable_run",
    "return_if_cancelled",
    "takes_long",
]

#: Items that take longer than this poll, in ns.
LONG = 30_000_000.0
#: Time between two polls, in ns, and maximum iterations between them.
EVERY, ROUNDS = 2_000_000.0, 1 << 20
#: Bytes copied between two polls, and in a nanosecond.
PART, PACE = 1 << 24, 20
#: Positions in `%run`.
POOL, POLL, STOP = (RUN.index(name) for name in ("pool", "poll", "stop"))


def takes_long(cost: float) -> bool:
    return cost > LONG


def pollable_run(f: Function, place: int | None, cost: float) -> Ptr | None:
    """The run, if an item takes so long (`cost` in ns) that it must poll, else None. `place` is its
    position in `%args`."""
    return argument(f, place) if place is not None and takes_long(cost) else None


def loop_to_poll(rounds: Sequence[int], cost: float) -> tuple[int, float]:
    """Which of some nested loops (outermost first, `cost` ns in all) polls: the innermost that
    takes long. Also returns the ns of one of its iterations."""
    each = cost / max(1, math.prod(rounds))
    for place in reversed(range(1, len(rounds))):
        if rounds[place] > 1 and takes_long(each * rounds[place]):
            return place, each
        each *= rounds[place]
    return 0, each


def _cancelled(module: Module) -> None:
    """`i32 @cancelled(ptr run)`: not 0 if the run is cancelled; never for a null run."""
    f = module.function("cancelled", "i32", [("ptr", "run")], "nounwind noinline")
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


def return_if_cancelled(f: Function, run: Ptr, result: str = "") -> None:
    """Return from the function if the run is cancelled: `result`, by default the status."""
    status = f(f"call i32 @{f.module.once('cancelled', _cancelled)}(ptr {run})")
    with f.when(f(f"icmp ne i32 {status}, 0")):
        f.do(f"ret {result or f'i32 {status}'}")
        f.block(f.fresh("never"))


def cancellable_loop(
    f: Function,
    run: Ptr | None,
    start: Size,
    stop: Size,
    step: int = 1,
    *,
    each: float = 2.0,
    result: str = "",
) -> AbstractContextManager[Index]:
    """`f.loop` that polls now and then; an iteration takes about `each` ns. Without a run it never
    polls."""
    if run is None:
        return f.loop(start, stop, step)
    return _polling_loop(f, run, start, stop, step, each, result)


@contextmanager
def _polling_loop(
    f: Function, run: Ptr, start: Size, stop: Size, step: int, each: float, result: str
) -> Iterator[Index]:
    by = step * max(1, min(ROUNDS, int(EVERY / each)))
    with f.loop(start, stop, by) as first:
        if stop.__class__ is Dim:  # in most runs the loop is short: it does not poll then
            with f.when(f(f"icmp ne i64 {first}, {f.size(start)}")):
                return_if_cancelled(f, run, result)
        else:
            return_if_cancelled(f, run, result)
        with f.loop(first, minimum(first + by, stop), step) as i:
            yield i


def copy_in_parts(f: Function, run: Ptr | None, target: Ptr, source: Ptr | None, size: int) -> None:
    """Copy bytes, or clear them if there is no source. Polls the run if that
    takes long."""
    copy = f.module.declare("void", "llvm.memcpy.p0.p0.i64", "ptr, ptr, i64, i1 immarg")
    clear = f.module.declare("void", "llvm.memset.p0.i64", "ptr, i8, i64, i1 immarg")

    def part(skip: Size, count: Size) -> None:
        to, count = target.bytes(skip), f.size(count)
        if source is None:
            f.do(f"call void @{clear}(ptr {to}, i8 0, i64 {count}, i1 false)")
        else:
            origin = source.bytes(skip)
            f.do(f"call void @{copy}(ptr {to}, ptr {origin}, i64 {count}, i1 false)")

    if run is None or not (has_dims((size,)) or takes_long(size / PACE)):
        part(0, size)
        return
    with cancellable_loop(f, run, 0, size, PART, each=PART / PACE) as skip:
        part(skip, minimum(size - skip, PART))
