"""`weft_poll`: ends a run when a Python signal handler raises, as for Ctrl-C."""

from __future__ import annotations

from weft.codegen.contract import Status
from weft.codegen.text import Module
from weft.runtime.pool.layout import fetch, field, put
from weft.runtime.pool.system import Host

__all__ = ["define_no_poll", "define_poll"]

#: How often Python is asked. If other Python threads are busy, each answer takes about 5 ms.
POLL_NS = 50_000_000


def define_poll(module: Module, host: Host) -> None:
    f = module.function("weft_poll", "i32", [("ptr", "pool")], linkage="")
    ticks = f(f"call i64 @{host.ticks}()")
    late = f(f"icmp sge i64 {ticks}, {fetch(f, 'i64', 'next_look')}")
    with f.when(late):
        me = f("call i64 @pthread_self()")
        mine = f(f"icmp eq i64 {me}, {fetch(f, 'i64', 'main_thread')}")
        with f.when(mine):
            put(f, "i64", "next_look", f(f"add i64 {ticks}, {host.look}"))
            time = f("call i64 @now()")
            with f.when(f(f"icmp sge i64 {time}, {fetch(f, 'i64', 'next_ask')}")):
                held = f("call i32 @PyGILState_Ensure()")
                raised = f("call i32 @PyErr_CheckSignals()")
                with f.when(f(f"icmp ne i32 {raised}, 0")):
                    kind = field(f, "raised")
                    value, trace = (kind.of("ptr") + i for i in (1, 2))
                    f.do(f"call void @PyErr_Fetch(ptr {kind}, ptr {value}, ptr {trace})")
                f.do(f"call void @PyGILState_Release(i32 {held})")
                # Waiting for the GIL may have taken long: the next interval begins now.
                again = f(f"add i64 {f('call i64 @now()')}, {POLL_NS}")
                put(f, "i64", "next_ask", again)
                end = f(f"icmp ne i32 {raised}, 0")
                f.do(f"ret i32 {f(f'select i1 {end}, i32 {Status.INTERRUPTED}, i32 0')}")
                f.block(f.fresh("never"))
    f.do("ret i32 0")


def define_no_poll(module: Module) -> None:
    """A poll that does nothing, for machines without a known counter."""
    f = module.function("weft_poll", "i32", [("ptr", "pool")], linkage="")
    f.do("ret i32 0")
