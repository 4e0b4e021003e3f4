"""Requests that wait, and the thread that runs them: several at once where they fit together.

Whatever waits when the thread is free runs at once, up to the largest batch: under load batches
form by themselves, and a request that is alone does not wait, unless `max_delay` says so.

The thread is the main one: there a native run can be ended by a signal, so that none runs on after
its time is over.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from weft.base.errors import InternalError, MemoryError, WeftError
from weft.core.tensor import Tensor
from weft.interop.serve.datatypes import Array, BadRequest
from weft.interop.serve.served import Key, Served

__all__ = ["Job", "JobQueue", "Outcome", "stopping"]

log = logging.getLogger("weft.serve")
Outcome = list[Array] | Exception


class RanTooLong(BaseException):
    """Ends a run; a BaseException, so that nothing on its way handles it."""


class Job:
    """A request that waits for its results, until `deadline` (of time.monotonic).

    done     is told, by the thread that runs, what came of all jobs of a run
    waiter   for `done`: who waits for this one
    """

    __slots__ = ("came", "deadline", "done", "group", "inputs", "served", "waiter")

    def __init__(
        self,
        served: Served,
        key: Key,
        inputs: list[Tensor],
        deadline: float,
        done: Callable[[list[tuple[Job, Outcome]]], None],
        waiter: Any,
    ) -> None:
        self.served = served
        # Jobs of one group run together; those that must run alone are a group each.
        self.group: Any = (served, key) if served.batches else self
        self.inputs = inputs
        self.came = time.monotonic()
        self.deadline = deadline
        self.done = done
        self.waiter = waiter


class JobQueue:
    """The jobs that wait, by what fits together, and the loop that runs them."""

    def __init__(self, most: int, delay: float, observe: Callable[[Served, int, float], None]):
        """most, delay: the largest batch, and how long one waits for others; observe: is told the
        size of each batch and the seconds that it ran"""
        self.most = most
        self.delay = delay
        self.observe = observe
        self._waiting: dict[Any, deque[Job]] = {}
        self._count = 0
        self._closed = False
        self._alarm: _Alarm | None = None
        self._end = float("inf")
        self._changed = threading.Condition(threading.Lock())

    def __len__(self) -> int:
        return self._count

    def put(self, job: Job) -> None:
        with self._changed:
            self._waiting.setdefault(job.group, deque()).append(job)
            self._count += 1
            self._changed.notify()

    def drop(self, job: Job) -> None:
        """Take a job out, if it has not begun: nobody waits for it any more."""
        with self._changed:
            group = self._waiting.get(job.group, ())
            if job in group:
                self._take(job.group, [job])

    def _take(self, key: Any, jobs: Sequence[Job]) -> None:
        group = self._waiting[key]
        for job in jobs:
            group.remove(job)
        if not group:
            del self._waiting[key]
        self._count -= len(jobs)

    def end_by(self, moment: float) -> None:
        """End whatever runs at a moment of time.monotonic, or later."""
        self._end = moment
        if self._alarm is not None:
            self._alarm.end_by(moment)

    def close(self) -> None:
        """End the loop, when what waits is done."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def run(self) -> None:
        """Run jobs until the queue is closed and empty."""
        timed = threading.current_thread() is threading.main_thread()
        if timed and hasattr(signal, "setitimer"):
            self._alarm = _Alarm()
            self._alarm.end_by(self._end)  # it may have been told before
        try:
            while jobs := self._next():
                outcomes = self._outcomes(jobs)
                jobs[0].done(list(zip(jobs, outcomes, strict=True)))
                del jobs, outcomes  # buffers of results are used again
        finally:
            if self._alarm is not None:
                self._alarm.close()

    def _next(self) -> list[Job]:
        """The jobs that run next; none if there will be no more."""
        with self._changed:
            while True:
                while not self._waiting:
                    if self._closed:
                        return []
                    self._changed.wait()
                key = min(self._waiting, key=lambda key: self._waiting[key][0].came)
                group = self._waiting[key]
                left = group[0].came + self.delay - time.monotonic()
                may_grow = group[0].served.batches and len(group) < self.most
                if left > 0 and may_grow and not self._closed:
                    self._changed.wait(left)
                    continue
                jobs = list(islice(group, self.most))
                self._take(key, jobs)
                now = time.monotonic()
                found = [job for job in jobs if job.deadline > now]
                if found:
                    return found

    def _outcomes(self, jobs: Sequence[Job]) -> list[Outcome]:
        served, start = jobs[0].served, time.monotonic()
        try:
            with _limited(self._alarm, max(job.deadline for job in jobs)):
                found: list[Outcome] = list(served.run([job.inputs for job in jobs]))
        except RanTooLong:
            found = [self._cut() for _ in jobs]
        except Exception as error:
            if len(jobs) > 1:  # only those that fail alone have failed
                return [x for job in jobs for x in self._outcomes([job])]
            found = [_as_answer(error, served)]
        self.observe(served, len(jobs), time.monotonic() - start)
        return found

    def _cut(self) -> BadRequest:
        """What is told of a run that was ended."""
        if time.monotonic() >= self._end:
            return stopping()
        return BadRequest("the run took longer than the server allows", 504)


def stopping() -> BadRequest:
    """The answer to what a server that stops does not finish."""
    return BadRequest("the server stops before the request is done: send it again", 503)


def _as_answer(error: Exception, served: Served) -> Exception:
    """What the client is told: of the data, what is wrong with them; of the program, nothing."""
    if isinstance(error, MemoryError):
        log.error("%s: %s", served.name, error.message)
        return BadRequest("there is not enough memory for this request", 503)
    if isinstance(error, WeftError) and not isinstance(error, InternalError):
        return BadRequest(f"{served.name}: {error.message}")
    log.error("a run of %s failed", served.name, exc_info=error)
    return BadRequest("the run failed; the log of the server says more", 500)


# --- time limits ----------------------------------------------------------------------------------


class _Alarm:
    """Raises RanTooLong in the main thread, while a run is `armed`, at its limit or at the end
    of the server. The end may be told by another thread, at any time."""

    def __init__(self) -> None:
        self._armed = False
        self._limit = self._end = float("inf")
        self._before = signal.signal(signal.SIGALRM, self._ring)

    def arm(self, limit: float) -> None:
        self._limit, self._armed = limit, True
        while True:
            end = self._end
            self._set()
            if self._end == end:
                return

    def disarm(self) -> None:
        self._armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def end_by(self, moment: float) -> None:
        self._end = moment
        if self._armed:
            self._set()

    def _set(self) -> None:
        left = min(self._limit, self._end) - time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, max(left, 1e-3))

    def _ring(self, _signal: int, _frame: Any) -> None:
        if not self._armed:
            return
        if time.monotonic() < min(self._limit, self._end):  # it was set for the run before
            self._set()
            return
        self._armed = False
        raise RanTooLong

    def close(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)


@contextmanager
def _limited(alarm: _Alarm | None, limit: float) -> Iterator[None]:
    """Ends what runs at a moment of time.monotonic."""
    if alarm is None:
        yield
        return
    try:
        alarm.arm(limit)
        yield
    finally:
        alarm.disarm()
