"""The work of a thread on a job: chunk by chunk, its own chunks first."""

from __future__ import annotations

from weft.codegen.text import Function, Module
from weft.runtime.pool.layout import PARALLEL, fetch, field, put, slot

__all__ = ["define_alone", "define_work", "return_if_cancelled"]

#: A range that one thread does alone is split into this many parts, with a poll after each; if the
#: parts would be long, into parts of this many chunks.
POLLS_ALONE, CHUNKS_ALONE = 64, 4096


def _fail(f: Function, status: str) -> None:
    """Set the job's status, unless it is set already."""
    f.do(f"cmpxchg ptr {field(f, 'status')}, i32 0, i32 {status} monotonic monotonic")


def return_if_cancelled(f: Function) -> None:
    """Poll. If the run must end, set the job's status and its stop flag."""
    asked = f("call i32 @weft_poll(ptr %pool)")
    with f.when(f(f"icmp ne i32 {asked}, 0")):
        put(f, "i32", "status", asked)  # overrides other failures: an exception is pending
        stop = f(f"load ptr, ptr {field(f, 'stop')}")
        f.do(f"store atomic i32 {asked}, ptr {stop} monotonic, align 4")


def define_work(module: Module) -> None:
    """@work(pool, home, polls): do chunks of the slot `home`, then of others, until none is left.

    Only the caller polls: workers are not Python threads.
    """
    f = module.function(
        "work", "void", [("ptr", "pool"), ("i64", "home"), ("i1", "polls")], "nounwind noinline"
    )
    fn, args = (f(f"load ptr, ptr {field(f, name)}") for name in ("fn", "args"))
    items, grain, parts = (
        field(f, name).of("i64").load_index() for name in ("items", "grain", "parts")
    )
    with f.loop(0, parts) as step:
        at = (f.index("%home") + step) % parts
        following, end_at = slot(f, at)
        end = f(f"load i64, ptr {end_at}")
        more, look, take, run, done = (f.fresh(w) for w in ("more", "look", "take", "run", "done"))
        f.jump(more)
        f.block(more)
        failed = f(f"icmp ne i32 {fetch(f, 'i32', 'status')}, 0")
        f.branch(failed, done, look)
        f.block(look)  # a check first keeps the counter from overflowing
        seen = f(f"load atomic i64, ptr {following} monotonic, align 8")
        f.branch(f(f"icmp sge i64 {seen}, {end}"), done, take)
        f.block(take)
        chunk = f(f"atomicrmw add ptr {following}, i64 1 monotonic")
        f.branch(f(f"icmp sge i64 {chunk}, {end}"), done, run)
        f.block(run)
        begin = f(f"mul i64 {chunk}, {grain}")
        # The last chunk may be short.
        left = f(f"sub i64 {items}, {begin}")
        size = f(f"call i64 @llvm.smin.i64(i64 {left}, i64 {grain})")
        status = f(f"call i32 {fn}(ptr {args}, i64 {begin}, i64 {f(f'add i64 {begin}, {size}')})")
        with f.when(f(f"icmp ne i32 {status}, 0")):
            _fail(f, status)
        with f.when("%polls"):
            return_if_cancelled(f)
        f.jump(more)
        f.block(done)
    f.do("ret void")
    module.declare("i64", "llvm.smin.i64", "i64, i64")


def define_alone(module: Module) -> None:
    """i32 @alone(pool, fn, args, items, grain, stop): do all the work on this thread."""
    f = module.function("alone", "i32", PARALLEL)
    polls = f("icmp ne ptr %stop, null")
    others = f(f"udiv i64 {f('add i64 %items, -1')}, %grain")  # chunks after the first
    part = f(f"add i64 {f(f'udiv i64 {others}, {POLLS_ALONE}')}, 1")
    at_once = f(f"call i64 @llvm.smin.i64(i64 {part}, i64 {CHUNKS_ALONE})")
    step = f.index(f(f"mul i64 {at_once}, %grain"))
    with f.loop(0, f.index("%items"), step) as begin:
        left = f(f"sub i64 %items, {begin}")
        size = f(f"call i64 @llvm.smin.i64(i64 {left}, i64 {step})")
        status = f(f"call i32 %fn(ptr %args, i64 {begin}, i64 {f(f'add i64 {begin}, {size}')})")
        with f.when(f(f"icmp ne i32 {status}, 0")):
            f.do(f"ret i32 {status}")
            f.block(f.fresh("never"))
        with f.when(polls):
            asked = f("call i32 @weft_poll(ptr %pool)")
            with f.when(f(f"icmp ne i32 {asked}, 0")):
                f.do(f"ret i32 {asked}")
                f.block(f.fresh("never"))
    f.do("ret i32 0")
    module.declare("i64", "llvm.smin.i64", "i64, i64")
