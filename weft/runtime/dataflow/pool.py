"""Schedulers with several threads: "pool" and "priority".

Whoever holds the lock of a run does its bookkeeping, and runs its cheap nodes: Python lets only one
thread run at a time anyway, so cheap nodes run where they became ready. Around a dear node a thread
lets go of the lock, so that another one goes on; if kernels let go of Python's own lock, they run
at the same time.

The thread that called the program takes part, and it alone runs nodes that must run at home. Each
device other than the CPU runs one node at a time, in whichever thread is free.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from typing import Any, Protocol

from weft.core.autocast import as_recorded
from weft.core.grad_mode import no_grad
from weft.runtime.dataflow.arrays import Env
from weft.runtime.dataflow.plan import OP, ExecutionPlan
from weft.runtime.dataflow.run import Activation, Run
from weft.runtime.dataflow.workers import start_job

__all__ = ["pool", "priority"]

CPU = "cpu"


class _Queue(Protocol):
    """Dear nodes that are ready."""

    def __len__(self) -> int: ...
    def push(self, activation: Activation) -> None: ...
    def pop(self) -> Activation: ...


class _Arrival(deque[Activation]):
    """The first to become ready is the first to run."""

    push = deque.append
    pop = deque.popleft


class _Ranked:
    """The node with the longest way to the end of the program is the first to run."""

    def __init__(self, ranks: list[float]) -> None:
        self._ranks = ranks
        self._heap: list[tuple[float, tuple[int, ...], Activation]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, activation: Activation) -> None:
        node, at = activation
        heapq.heappush(self._heap, (-self._ranks[node], (*at.key, node), activation))

    def pop(self) -> Activation:
        return heapq.heappop(self._heap)[2]


class _Pool:
    """One run by several threads."""

    def __init__(self, run: Run, make_queue: Any) -> None:
        plan = run.plan
        self.run = run
        self.plan = plan
        self.lock = threading.Condition()
        self.cheap: deque[Activation] = deque()
        self.home: _Queue = make_queue()
        self.devices = {CPU: run.options.thread_count}
        for task in plan.tasks:
            if task is not None:
                self.devices.setdefault(task.device, 1)
        self.dear: dict[str, _Queue] = {device: make_queue() for device in self.devices}
        self.running = dict.fromkeys(self.devices, 0)
        self.most = sum(self.devices.values())
        self.threads = 1
        self.waiting = 0
        self.over = False

    def go(self, inputs: list[Any]) -> None:
        with self.lock:
            try:
                self.run.start(inputs, self.push)
                self.work(self.run.env, at_home=True)
            finally:  # also after Ctrl-C: other threads stop after the node that they run
                self.over = True
                self.lock.notify_all()

    def push(self, activation: Activation) -> None:
        task = self.plan.tasks[activation[0]]
        if task is None or task.is_cheap:
            self.cheap.append(activation)
        elif task.at_home:
            self.home.push(activation)
            if self.waiting:
                self.lock.notify_all()
        else:
            self.dear[task.device].push(activation)

    def work(self, env: Env, at_home: bool) -> None:
        """Run nodes until there are none; the caller holds the lock."""
        run, cheap = self.run, self.cheap
        while not self.over:
            while cheap and not self.over:
                run.attempt(*cheap.popleft(), env)
            taken = self.next(at_home)
            if taken is not None:
                self.call(*taken, env)
            elif self.busy() or (self.home and not at_home):
                self.waiting += 1
                try:
                    self.lock.wait()
                finally:
                    self.waiting -= 1
            else:
                self.over = True
                self.lock.notify_all()

    def busy(self) -> bool:
        return any(self.running.values())

    def next(self, at_home: bool) -> Activation | None:
        """A dear node that may run now, in this thread."""
        run = self.run
        if at_home:
            while self.home:
                activation = self.home.pop()
                if run.wanted(*activation):
                    return activation
        for device, queue in self.dear.items():
            while queue and self.running[device] < self.devices[device]:
                activation = queue.pop()
                if run.wanted(*activation):
                    return activation
        return None

    def more(self) -> bool:
        """Whether another thread would find something to run."""
        return any(
            queue and self.running[device] < self.devices[device]
            for device, queue in self.dear.items()
        )

    def call(self, node: int, at: Any, env: Env) -> None:
        """Run a dear node without the lock."""
        task = self.plan.tasks[node]
        assert task is not None
        run, lock, device = self.run, self.lock, task.device
        values = run.take(node, at)
        self.running[device] += 1
        if self.more():
            self.wake()
        lock.release()
        error: BaseException | None = None
        out = None
        try:
            out = run.call(node, at, values, env)
        except Exception as raised:
            error = raised
        finally:
            del values
            lock.acquire()
            self.running[device] -= 1
        if error is not None:
            run.fail(node, at, error)
        elif not self.over:
            try:
                run.finish(node, at, out)
            except Exception as raised:  # it returned too few values
                run.fail(node, at, raised)

    def wake(self) -> None:
        """Let another thread take part."""
        if self.waiting:
            self.lock.notify()
        elif self.threads < self.most:
            self.threads += 1
            start_job(self.join)

    def join(self) -> None:
        """What another thread does."""
        with no_grad(), as_recorded(), self.lock:
            env = Env(self.run.env.sizes)
            try:
                self.work(env, at_home=False)
            except BaseException as error:
                self.run.stop(error)
                self.over = True
                self.lock.notify_all()
            finally:
                env.close()


def _ranks(plan: ExecutionPlan) -> list[float]:
    """For each node, the seconds of the longest way from it to the end; a loop runs once."""
    ranks = [0.0] * len(plan.kind)
    for node in reversed(range(len(plan.kind))):
        task = plan.tasks[node]
        later = [reader for readers in plan.readers[node] for _, reader in readers if reader > node]
        after = max((ranks[reader] for reader in later), default=0.0)
        ranks[node] = after + (task.seconds if plan.kind[node] == OP and task is not None else 0.0)
    return ranks


def pool(run: Run, inputs: list[Any]) -> None:
    """Several threads; dear nodes in the order in which they become ready."""
    _Pool(run, _Arrival).go(inputs)


def priority(run: Run, inputs: list[Any]) -> None:
    """Several threads; of the dear nodes, the one on the longest way to the end comes first."""
    ranks = run.plan.ranks or _ranks(run.plan)
    run.plan.ranks = ranks
    _Pool(run, lambda: _Ranked(ranks)).go(inputs)
