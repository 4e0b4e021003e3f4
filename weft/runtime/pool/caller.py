"""The caller's side: distribute the work, take part in it, and wait for the workers."""

from __future__ import annotations

from weft.codegen.text import Function, Module
from weft.runtime.pool.layout import COUNT, OPEN, PARALLEL, WAITING, fetch, field, put, slot
from weft.runtime.pool.poll import POLL_NS
from weft.runtime.pool.system import Host, pause
from weft.runtime.pool.work import return_if_cancelled

__all__ = ["define_finish", "define_parallel"]

#: How long a caller spins before it sleeps, and after what time it yields between checks.
WAIT_NS, WAIT_ALONE_NS = 200_000, 5_000


def define_finish(module: Module, host: Host) -> None:
    """@finish(pool): close the job and wait until all workers have left it. A long wait polls for
    signals: a worker may be busy with a long item, which checks `stop` itself."""
    f = module.function("finish", "void", [("ptr", "pool")])
    word = field(f, "state")
    before = f(f"atomicrmw and ptr {word}, i32 {~OPEN} acq_rel")
    f.branch(f(f"icmp eq i32 {f(f'and i32 {before}, {COUNT}')}, 0"), "out", "wait")
    f.block("wait")
    since = f("call i64 @now()")
    f.jump("spin")
    f.block("spin")
    with f.loop(0, 32):
        pause(f, host)
        f.branch(_nobody(f), "out", (on := f.fresh("some")))
        f.block(on)
    waited = f(f"sub i64 {f('call i64 @now()')}, {since}")
    f.branch(f(f"icmp sgt i64 {waited}, {WAIT_NS}"), "tired", "awake")
    f.block("awake")
    with f.when(f(f"icmp sgt i64 {waited}, {WAIT_ALONE_NS}")):
        f.do("call i32 @sched_yield()")
    f.jump("spin")
    f.block("tired")
    f.do(f"atomicrmw or ptr {word}, i32 {WAITING} acq_rel")
    f.jump("bed")
    f.block("bed")
    state = fetch(f, "i32", "state", "acquire")
    f.branch(f(f"icmp eq i32 {f(f'and i32 {state}, {COUNT}')}, 0"), "up", "sleep")
    f.block("sleep")
    stop = f(f"load ptr, ptr {field(f, 'stop')}")
    ends = f(f"icmp ne ptr {stop}, null")
    most = f(f"select i1 {ends}, i64 {POLL_NS}, i64 0")
    f.do(f"call void @sleep(ptr %pool, ptr {word}, i32 {state}, i64 {most})")
    with f.when(ends):
        return_if_cancelled(f)
    f.jump("bed")
    f.block("up")
    f.do(f"atomicrmw and ptr {word}, i32 {~WAITING} acq_rel")
    f.jump("out")
    f.block("out")
    f.do("ret void")


def _nobody(f: Function) -> str:
    inside = f(f"and i32 {fetch(f, 'i32', 'state', 'acquire')}, {COUNT}")
    return f(f"icmp eq i32 {inside}, 0")


def define_parallel(module: Module, *, threads: bool) -> None:
    """weft_parallel. Without threads it has the same signature and does all work itself."""
    f = module.function("weft_parallel", "i32", PARALLEL, linkage="")
    with f.when(f("icmp slt i64 %items, 1")):
        f.do("ret i32 0")
        f.block(f.fresh("never"))
    share = _share(f) if threads else "%items"
    most = f(f"call i64 @llvm.smin.i64(i64 %grain, i64 {share})")
    grain = f(f"call i64 @llvm.smax.i64(i64 {most}, i64 1)")
    module.declare("i64", "llvm.smax.i64", "i64, i64")
    others = f(f"udiv i64 {f('add i64 %items, -1')}, {grain}")
    chunks = f(f"add i64 {others}, 1")
    if threads:
        _together(f, chunks, grain)
    else:
        f.jump("alone")
    f.block("alone")
    items = f"ptr %pool, ptr %fn, ptr %args, i64 %items, i64 {grain}, ptr %stop"
    f.do(f"ret i32 {f(f'call i32 @alone({items})')}")


def _share(f: Function) -> str:
    """The items of each thread, if all have as many: chunks are no larger, as the times that they
    are cut by are estimates, and cores that wait are lost."""
    wanted = f(f"zext i32 {fetch(f, 'i32', 'wanted')} to i64")
    threads = f(f"call i64 @llvm.smax.i64(i64 {wanted}, i64 1)")
    others = f(f"udiv i64 {f('add i64 %items, -1')}, {threads}")
    return f(f"add i64 {others}, 1")


def _together(f: Function, chunks: str, grain: str) -> None:
    """Take the pool, or branch to the block "alone"."""
    wanted = fetch(f, "i32", "wanted")
    several = f(f"icmp sgt i32 {wanted}, 1")
    enough = f(f"icmp sgt i64 {chunks}, 1")
    f.branch(f(f"and i1 {several}, {enough}"), "take", "alone")

    f.block("take")
    busy = field(f, "busy")
    taken = f(f"cmpxchg ptr {busy}, i32 0, i32 1 acquire monotonic")
    f.branch(f(f"extractvalue {{ i32, i1 }} {taken}, 1"), "mine", "alone")
    f.block("mine")
    with f.when(f(f"icmp ne i32 {fetch(f, 'i32', 'current')}, {wanted}")):
        f.do(f"call void @start(ptr %pool, i32 {wanted})")
    workers = f(f"zext i32 {fetch(f, 'i32', 'workers')} to i64")
    parts = f(f"call i64 @llvm.smin.i64(i64 {f(f'add i64 {workers}, 1')}, i64 {chunks})")
    f.branch(f(f"icmp sgt i64 {parts}, 1"), "deal", "none")

    f.block("deal")
    for kind, name, value in (
        ("ptr", "fn", "%fn"),
        ("ptr", "args", "%args"),
        ("i64", "items", "%items"),
        ("i64", "grain", grain),
        ("i64", "parts", parts),
        ("ptr", "stop", "%stop"),
    ):
        f.do(f"store {kind} {value}, ptr {field(f, name)}")
    put(f, "i32", "status", "0")
    each, rest = f(f"udiv i64 {chunks}, {parts}"), f(f"urem i64 {chunks}, {parts}")
    at = f.var("i64", "0")
    with f.loop(0, f.index(parts)) as part:
        following, end_at = slot(f, part)
        start = at.load()
        longer = f(f"zext i1 {f(f'icmp slt i64 {part}, {rest}')} to i64")
        end = f(f"add i64 {f(f'add i64 {start}, {each}')}, {longer}")
        f.do(f"store atomic i64 {start}, ptr {following} monotonic, align 8")
        f.do(f"store i64 {end}, ptr {end_at}")
        at.store(end)
    # Not a store: a worker that came too late for the job before may be counted for a moment.
    f.do(f"atomicrmw or ptr {field(f, 'state')}, i32 {OPEN} acq_rel")
    f.do(f"atomicrmw add ptr {field(f, 'bell')}, i32 1 seq_cst")
    with f.when(f(f"icmp ne i32 {fetch(f, 'i32', 'sleepers', 'seq_cst')}, 0")):
        count = f(f"trunc i64 {f(f'add i64 {parts}, -1')} to i32")
        f.do(f"call void @wake(ptr %pool, ptr {field(f, 'bell')}, i32 {count})")
    f.do(f"call void @work(ptr %pool, i64 0, i1 {f('icmp ne ptr %stop, null')})")
    f.do("call void @finish(ptr %pool)")
    status = fetch(f, "i32", "status")
    f.do(f"store atomic i32 0, ptr {busy} release, align 4")
    f.do(f"ret i32 {status}")

    f.block("none")
    f.do(f"store atomic i32 0, ptr {busy} release, align 4")
    f.jump("alone")
