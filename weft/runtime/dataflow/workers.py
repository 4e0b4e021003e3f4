"""Threads of Python that run jobs, kept for the next run.

A job is handed to a thread that is idle; if there is none, a new one begins. So a job never waits
for another job, even if runs are nested. Threads that have been idle for a while end.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

__all__ = ["start_job"]

Job = Callable[[], None]
#: After so many seconds without a job a thread ends.
IDLE_SECONDS = 10.0


class _Worker:
    def __init__(self) -> None:
        self.ready = threading.Semaphore(0)
        self.job: Job | None = None


_lock = threading.Lock()
_idle: list[_Worker] = []


def start_job(job: Job) -> None:
    """Run a job in another thread. It must not raise."""
    with _lock:
        worker = _idle.pop() if _idle else None
        if worker is not None:
            worker.job = job
    if worker is not None:
        worker.ready.release()
        return
    worker = _Worker()
    worker.job = job
    threading.Thread(target=_work, args=(worker,), name="weft-dataflow", daemon=True).start()


def _work(worker: _Worker) -> None:
    while True:
        job, worker.job = worker.job, None
        if job is not None:
            job()
            del job  # it holds a run
        with _lock:
            _idle.append(worker)
        if not worker.ready.acquire(timeout=IDLE_SECONDS):
            with _lock:
                if worker in _idle:
                    _idle.remove(worker)
                    return
            worker.ready.acquire()  # a job was handed over just now


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _idle.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
