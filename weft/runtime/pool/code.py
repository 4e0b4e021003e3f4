"""The code of the thread pool, as LLVM IR: a function that runs a kernel's items on threads.

    i32 weft_parallel(ptr pool, ptr fn, ptr args, i64 items, i64 grain, ptr stop)

calls `i32 fn(ptr args, i64 begin, i64 end)` on ranges of (mostly) `grain` items that cover
0 … items, and returns 0 or the first nonzero status:

- The caller takes the pool (`busy`). If it is taken (by another Python thread, or by an enclosing
  parallel region), the caller does the work alone. So nothing waits, and there is no deadlock.
- The chunks are distributed evenly, consecutive ones per thread (`slots`), so that the thread that
  wrote rows in one kernel mostly reads them in the next. A thread that has finished its own chunks
  takes chunks of others.
- The job is opened (`state`), the bell is rung (`bell`), and the caller works too. Workers count
  themselves, and work if the job is open: nobody waits for a worker that has not woken up, and the
  caller leaves when the job is closed and the count is 0.
- An idle worker watches the bell for some microseconds, then yields between checks, then sleeps
  until the bell changes.
- The caller polls for signals (below) between chunks, and while it waits for workers. If the run
  must end, no new chunks are started, and `stop`, an i32 of the run, tells long-running kernels. A
  null `stop` means that the job must not be interrupted, because it writes to inputs.
- A new number of threads starts a new generation of workers; the old ones end when they wake up.

    i32 weft_poll(ptr pool)

returns INTERRUPTED if the run must end because a signal handler raised (Ctrl-C), else 0. It asks
Python at most every 50 ms, and costs some nanoseconds otherwise.

All state is one block of memory, initially zero (`weft_pool`). A forked child clears it again.
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
    """The text of the module for a machine; `futex=False` sleeps on a pthread condition."""
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
