"""The thread pool's code, as LLVM IR: one function that runs a kernel's items on several threads.

    i32 weft_parallel(ptr pool, ptr fn, ptr args, i64 items, i64 grain, ptr stop)

calls `i32 fn(ptr args, i64 begin, i64 end)` on ranges of (mostly) `grain` items that cover
0 … items, and gives 0, or the first status that was not. How it goes:

- Who calls takes the pool (`busy`) or, where somebody has it (another Python thread; a region
  around this one), does the work alone. So there is nothing to wait for, and no deadlock.
- The chunks are dealt out evenly, one run of them per thread (`slots`), so that the thread which
  wrote rows in one kernel mostly reads them in the next; who is through with its own helps others.
- The job is opened (`state`), the bell is rung (`bell`), and the caller works too. Workers enter
  while the job is open and count themselves: nobody waits for a worker that has not woken up, and
  the caller leaves when the job is closed and the count is 0.
- A worker that has nothing to do looks at the bell for some microseconds, then lets others run,
  then sleeps on the bell; it starts when the bell changes.
- Between chunks the caller polls (below), and also while it waits for the others. Where the run
  shall end, no more chunks are begun, and `stop`, an i32 of the run's, says so to those that take
  long. A null for it says that the job must not be ended: it writes where inputs lie.
- Another number of threads is a new generation of workers: the old ones end when they wake.

    i32 weft_poll(ptr pool)

gives INTERRUPTED where the run shall end because a signal's handler raised (Ctrl-C), else 0: it
asks Python at most every 50 ms, and costs some nanoseconds otherwise.

All state lies in one block of zeros (`weft_pool`): a process that was forked writes zeros again.
"""

from __future__ import annotations

from dataclasses import replace

from weft.codegen.machine import Machine
from weft.codegen.text import Module
from weft.runtime.pool.caller import define_finish, define_parallel
from weft.runtime.pool.layout import POOL_BYTES
from weft.runtime.pool.poll import define_no_poll, define_poll
from weft.runtime.pool.system import declare, define_now, define_sleep, host_of
from weft.runtime.pool.work import define_alone, define_work
from weft.runtime.pool.worker import define_start, define_worker

__all__ = ["EXPORTS", "pool_text"]

EXPORTS = ["weft_parallel", "weft_poll", "weft_pool"]


def pool_text(machine: Machine, *, futex: bool = True) -> str:
    """The module's text for a machine; `futex=False` sleeps on a pthread condition."""
    module = Module(machine)
    module.variable("weft_pool", f"[{POOL_BYTES} x i8]", "zeroinitializer, align 128", "")
    host = host_of(machine.triple)
    if host is None:
        define_no_poll(module)
        define_alone(module)
        define_parallel(module, threads=False)
        return module.text()
    if not futex:
        host = replace(host, futex=0)
    declare(module, host)
    define_now(module, host)
    define_sleep(module, host)
    define_poll(module, host)
    define_work(module)
    define_worker(module, host)
    define_start(module, host)
    define_alone(module)
    define_finish(module, host)
    define_parallel(module, threads=True)
    return module.text()
