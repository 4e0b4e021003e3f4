"""Differences between systems: instructions, clocks, and how a thread sleeps."""

from __future__ import annotations

from dataclasses import dataclass

from weft.codegen.text import Function, Module
from weft.runtime.pool.layout import field

__all__ = ["Host", "declare", "define_now", "define_sleep", "host_of", "pause"]

PRIVATE_WAIT, PRIVATE_WAKE = 128, 129
_SLEEP = [("ptr", "pool"), ("ptr", "word"), ("i32", "value"), ("i64", "most")]


@dataclass(frozen=True, slots=True)
class Host:
    """The properties of a system.

    pause    the intrinsic (and its parameter) for spin loops
    ticks    the intrinsic that reads a counter without a system call
    look     the number of ticks between two reads of the clock by a poll: 1 to 40 ms
    futex    the number of the system call; 0 to sleep on a pthread condition
    clock    the number of the monotonic clock
    setmask  the value of SIG_SETMASK
    """

    pause: str
    how_long: str
    ticks: str
    look: int
    futex: int
    clock: int = 1
    setmask: int = 2


_X86 = ("llvm.x86.sse2.pause", "", "llvm.readcyclecounter", 1 << 24)
_ARM = ("llvm.aarch64.isb", "i32 15", "llvm.readsteadycounter", 1 << 20)


def host_of(triple: str) -> Host | None:
    """The properties of a machine; None if threads are not known to work there."""
    arm = triple.startswith(("aarch64", "arm64"))
    if not (arm or triple.startswith("x86_64")):
        return None
    machine = _ARM if arm else _X86
    if "linux" in triple:
        return Host(*machine, futex=98 if arm else 202)
    if "darwin" in triple or "macos" in triple:
        return Host(*machine, futex=0, clock=6, setmask=3)
    return None


def declare(module: Module, host: Host) -> None:
    for result, name, params in (
        ("void", host.pause, host.how_long.partition(" ")[0]),
        ("i64", host.ticks, ""),
        ("i32", "sched_yield", ""),
        ("i32", "clock_gettime", "i32, ptr"),
        ("ptr", "malloc", "i64"),
        ("void", "free", "ptr"),
        ("i64", "pthread_self", ""),
        ("i32", "pthread_create", "ptr, ptr, ptr, ptr"),
        ("i32", "pthread_attr_init", "ptr"),
        ("i32", "pthread_attr_setdetachstate", "ptr, i32"),
        ("i32", "pthread_attr_setstacksize", "ptr, i64"),
        ("i32", "pthread_attr_destroy", "ptr"),
        ("i32", "pthread_sigmask", "i32, ptr, ptr"),
        ("i32", "sigfillset", "ptr"),
        ("i32", "PyGILState_Ensure", ""),
        ("void", "PyGILState_Release", "i32"),
        ("i32", "PyErr_CheckSignals", ""),
        ("void", "PyErr_Fetch", "ptr, ptr, ptr"),
    ):
        module.declare(result, name, params)


def pause(f: Function, host: Host) -> None:
    f.do(f"call void @{host.pause}({host.how_long})")


def define_now(module: Module, host: Host) -> None:
    """i64 @now(): nanoseconds of the monotonic clock."""
    f = module.function("now", "i64", [])
    time = f.var("i64", count=2)
    f.do(f"call i32 @clock_gettime(i32 {host.clock}, ptr {time})")
    seconds = time.load()
    rest = (time + 1).load()
    whole = f(f"mul i64 {seconds}, 1000000000")
    f.do(f"ret i64 {f(f'add i64 {whole}, {rest}')}")


def define_sleep(module: Module, host: Host) -> None:
    """@sleep(pool, word, value, most): sleep until the word changes or, if `most` is not 0, at most
    that many nanoseconds (below a second). @wake(pool, word, count): wake sleepers."""
    (_sleep_by_futex if host.futex else _sleep_by_condition)(module, host)


def _sleep_by_futex(module: Module, host: Host) -> None:
    module.declare("i64", "syscall", "i64, ...")
    call = f"call i64 (i64, ...) @syscall(i64 {host.futex}, ptr %word"
    f = module.function("sleep", "void", _SLEEP)
    time = f.var("i64", "0", count=2)
    f.do(f"store i64 %most, ptr {time + 1}")
    limit = f(f"select i1 {f('icmp eq i64 %most, 0')}, ptr null, ptr {time}")
    f.do(f"{call}, i32 {PRIVATE_WAIT}, i32 %value, ptr {limit}, ptr null, i32 0)")
    f.do("ret void")
    f = module.function("wake", "void", [("ptr", "pool"), ("ptr", "word"), ("i32", "count")])
    f.do(f"{call}, i32 {PRIVATE_WAKE}, i32 %count, ptr null, ptr null, i32 0)")
    f.do("ret void")


def _sleep_by_condition(module: Module, _host: Host) -> None:
    """Sleep on one mutex and one condition for all words: slower, but portable."""
    for name, params in (
        ("pthread_mutex_init", "ptr, ptr"),
        ("pthread_cond_init", "ptr, ptr"),
        ("pthread_mutex_lock", "ptr"),
        ("pthread_mutex_unlock", "ptr"),
        ("pthread_cond_wait", "ptr, ptr"),
        ("pthread_cond_timedwait", "ptr, ptr, ptr"),
        ("pthread_cond_broadcast", "ptr"),
    ):
        module.declare("i32", name, params)
    f = module.function("sleep", "void", _SLEEP)
    time = f.var("i64", count=2)
    mutex, condition = field(f, "mutex"), field(f, "condition")
    f.do(f"call i32 @pthread_mutex_lock(ptr {mutex})")
    seen = f("load atomic i32, ptr %word seq_cst, align 4")
    with f.when(f(f"icmp eq i32 {seen}, %value")):
        for_long = f("icmp eq i64 %most, 0")
        with f.when(for_long):
            f.do(f"call i32 @pthread_cond_wait(ptr {condition}, ptr {mutex})")
        with f.when(f(f"xor i1 {for_long}, true")):
            f.do(f"call i32 @clock_gettime(i32 0, ptr {time})")  # conditions use the wall clock
            rest_at = time + 1
            rest = f(f"add i64 {rest_at.load()}, %most")
            whole = f(f"udiv i64 {rest}, 1000000000")
            time.store(f(f"add i64 {time.load()}, {whole}"))
            rest_at.store(f(f"urem i64 {rest}, 1000000000"))
            f.do(f"call i32 @pthread_cond_timedwait(ptr {condition}, ptr {mutex}, ptr {time})")
    f.do(f"call i32 @pthread_mutex_unlock(ptr {mutex})")
    f.do("ret void")
    f = module.function("wake", "void", [("ptr", "pool"), ("ptr", "word"), ("i32", "count")])
    mutex, condition = field(f, "mutex"), field(f, "condition")
    f.do(f"call i32 @pthread_mutex_lock(ptr {mutex})")
    f.do(f"call i32 @pthread_cond_broadcast(ptr {condition})")
    f.do(f"call i32 @pthread_mutex_unlock(ptr {mutex})")
    f.do("ret void")
