"""Workers: how they start, wait, work and end."""

from __future__ import annotations

from weft.codegen.index import Ptr
from weft.codegen.text import Function, Module
from weft.runtime.pool.layout import COUNT, MOST_THREADS, OPEN, WAITING, fetch, field, put
from weft.runtime.pool.system import Host, pause

__all__ = ["define_start", "define_worker"]

#: How long a worker watches the bell, and after what time it yields between checks.
SPIN_NS, SPIN_ALONE_NS = 100_000, 20_000
STACK_BYTES = 4 << 20


def define_worker(module: Module, host: Host) -> None:
    """ptr @worker(ptr born): the main function of a worker. `born`: {ptr pool, i32 generation, i32
    number, i32 bell}; `bell` is its value before the worker's first job."""
    f = module.function("worker", "ptr", [("ptr", "born")])
    f.do("%pool = load ptr, ptr %born")
    generation, number, bell = ((f.ptr("%born", "i32") + i).load() for i in (2, 3, 4))
    home = f(f"zext i32 {number} to i64")
    seen = f.var("i32", bell)
    since = f.var("i64")
    f.do("call void @free(ptr %born)")

    f.jump("idle")
    f.block("idle")
    since.store(f("call i64 @now()"))
    f.jump("spin")

    f.block("spin")
    with f.loop(0, 32):
        pause(f, host)
        f.branch(_rung(f, seen), "rung", (on := f.fresh("quiet")))
        f.block(on)
    waited = f(f"sub i64 {f('call i64 @now()')}, {since.load()}")
    f.branch(f(f"icmp sgt i64 {waited}, {SPIN_NS}"), "tired", "awake")
    f.block("awake")
    with f.when(f(f"icmp sgt i64 {waited}, {SPIN_ALONE_NS}")):
        f.do("call i32 @sched_yield()")
    f.jump("spin")

    f.block("tired")  # count first, then check again: the caller does it in the opposite order
    f.do(f"atomicrmw add ptr {field(f, 'sleepers')}, i32 1 seq_cst")
    f.jump("bed")
    f.block("bed")
    f.branch(_rung(f, seen), "up", "sleep")
    f.block("sleep")
    f.do(f"call void @sleep(ptr %pool, ptr {field(f, 'bell')}, i32 {seen.load()}, i64 0)")
    f.jump("bed")
    f.block("up")
    f.do(f"atomicrmw sub ptr {field(f, 'sleepers')}, i32 1 seq_cst")
    f.jump("rung")

    f.block("rung")
    seen.store(fetch(f, "i32", "bell", "acquire"))
    f.branch(f(f"icmp eq i32 {fetch(f, 'i32', 'generation')}, {generation}"), "enter", "end")
    f.block("enter")  # a look first: a worker that comes too late does not disturb the next job
    word = field(f, "state")
    f.branch(_is_open(f, fetch(f, "i32", "state")), "try", "idle")
    f.block("try")
    f.branch(_is_open(f, f(f"atomicrmw add ptr {word}, i32 1 acq_rel")), "inside", "leave")
    f.block("inside")
    f.do(f"call void @work(ptr %pool, i64 {home}, i1 false)")
    f.jump("leave")
    f.block("leave")
    before = f(f"atomicrmw sub ptr {word}, i32 1 acq_rel")
    last = f(f"icmp eq i32 {f(f'and i32 {before}, {WAITING | COUNT}')}, {WAITING | 1}")
    with f.when(last):
        f.do(f"call void @wake(ptr %pool, ptr {word}, i32 1)")
    f.jump("idle")
    f.block("end")
    f.do("ret ptr null")


def _is_open(f: Function, state: str) -> str:
    return f(f"icmp ne i32 {f(f'and i32 {state}, {OPEN}')}, 0")


def _rung(f: Function, seen: Ptr) -> str:
    return f(f"icmp ne i32 {fetch(f, 'i32', 'bell', 'seq_cst')}, {seen.load()}")


def define_start(module: Module, host: Host) -> None:
    """@start(pool, threads): start a new generation of workers; the previous one ends.

    Only the thread that has taken the pool calls it.
    """
    f = module.function("start", "void", [("ptr", "pool"), ("i32", "threads")], "nounwind cold")
    if not host.futex:
        with f.when(f(f"icmp eq i32 {fetch(f, 'i32', 'generation')}, 0")):
            f.do(f"call i32 @pthread_mutex_init(ptr {field(f, 'mutex')}, ptr null)")
            f.do(f"call i32 @pthread_cond_init(ptr {field(f, 'condition')}, ptr null)")
    generation = f(f"add i32 {fetch(f, 'i32', 'generation')}, 1")
    put(f, "i32", "generation", generation)
    bell = f(f"atomicrmw add ptr {field(f, 'bell')}, i32 1 seq_cst")
    with f.when(f(f"icmp ne i32 {fetch(f, 'i32', 'sleepers', 'seq_cst')}, 0")):
        f.do(f"call void @wake(ptr %pool, ptr {field(f, 'bell')}, i32 {MOST_THREADS})")
    # Signals are handled by Python threads: workers start with all signals blocked.
    attributes = f.var("i64", count=32, align=16)
    masked, before = f.var("i64", count=32, align=16), f.var("i64", count=32, align=16)
    f.do(f"call i32 @sigfillset(ptr {masked})")
    f.do(f"call i32 @pthread_sigmask(i32 {host.setmask}, ptr {masked}, ptr {before})")
    f.do(f"call i32 @pthread_attr_init(ptr {attributes})")
    detached = 2 if host.setmask == 3 else 1
    f.do(f"call i32 @pthread_attr_setdetachstate(ptr {attributes}, i32 {detached})")
    f.do(f"call i32 @pthread_attr_setstacksize(ptr {attributes}, i64 {STACK_BYTES})")
    started = f.var("i32", "0")
    thread = f.var("i64")
    threads = f.index(f("zext i32 %threads to i64"))
    with f.loop(1, threads) as number:
        born = f.ptr(f("call ptr @malloc(i64 32)"), "i32")
        with f.when(f(f"icmp ne ptr {born}, null")):
            f.do(f"store ptr %pool, ptr {born}")
            for at, value in (
                (8, generation),
                (12, f(f"trunc i64 {number} to i32")),
                (16, f(f"add i32 {bell}, 1")),
            ):
                born.bytes(at).store(value)
            made = f(
                f"call i32 @pthread_create(ptr {thread}, ptr {attributes}, ptr @worker, ptr {born})"
            )
            good, bad, on = (f.fresh(w) for w in ("good", "bad", "on"))
            f.branch(f(f"icmp eq i32 {made}, 0"), good, bad)
            f.block(bad)  # no more threads available: continue with those that started
            f.do(f"call void @free(ptr {born})")
            f.jump(on)
            f.block(good)
            started.store(f(f"add i32 {started.load()}, 1"))
            f.jump(on)
            f.block(on)
    f.do(f"call i32 @pthread_attr_destroy(ptr {attributes})")
    f.do(f"call i32 @pthread_sigmask(i32 {host.setmask}, ptr {before}, ptr null)")
    put(f, "i32", "workers", started.load())
    put(f, "i32", "current", "%threads")
    f.do("ret void")
