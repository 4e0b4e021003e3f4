"""Ranks that are threads of one process: for trying and testing without MPI."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.errors import DistributedError
from weft.base.world import Array, Axes, Calls, Group, check_mesh, ranks_of, use_world
from weft.distributed.reducing import reduced

__all__ = ["run_virtual"]


class _Meeting:
    """Where the threads of one group lay down their arrays."""

    def __init__(self, size: int) -> None:
        self.slots: list[Any] = [None] * size
        self.barrier = threading.Barrier(size)


class _Hub:
    """What the threads of one world share."""

    def __init__(self, size: int, timeout: float, link: tuple[float, float]) -> None:
        self.size = size
        self.timeout = timeout
        self.link = link
        self.error: tuple[int, BaseException] | None = None
        self.ended: set[int] = set()
        self._meetings: dict[tuple[int, ...], _Meeting] = {}
        self._boxes: dict[tuple[int, int], queue.SimpleQueue[Array]] = {}
        self._lock = threading.Lock()

    def meeting(self, ranks: tuple[int, ...]) -> _Meeting:
        with self._lock:
            found = self._meetings.get(ranks)
            if found is None:
                found = self._meetings[ranks] = _Meeting(len(ranks))
                if self.error is not None:
                    found.barrier.abort()
            return found

    def box(self, source: int, target: int) -> queue.SimpleQueue[Array]:
        """The arrays that one rank has posted to another."""
        with self._lock:
            return self._boxes.setdefault((source, target), queue.SimpleQueue())

    def check(self) -> None:
        """Raise an error if a rank has failed."""
        if self.error is not None:
            raise _Stopped(f"rank {self.error[0]} failed: {self.error[1]}")

    def end(self, rank: int) -> None:
        """A rank has ended its program: those that wait for it wait in vain."""
        with self._lock:
            self.ended.add(rank)
            left = [m for ranks, m in self._meetings.items() if rank in ranks]
        if any(meeting.barrier.n_waiting for meeting in left):
            self.fail(rank, self.gone(rank))

    @staticmethod
    def gone(rank: int) -> DistributedError:
        return DistributedError(
            f"rank {rank} has ended its program, and other ranks wait for it",
            hint="all ranks of a group must make the same collective calls",
        )

    def fail(self, rank: int, error: BaseException) -> None:
        """Wake all ranks that wait: one of them will not come."""
        with self._lock:
            if self.error is None:
                self.error = rank, error
            for meeting in self._meetings.values():
                meeting.barrier.abort()


class _Stopped(DistributedError):
    """This rank stopped because another one failed."""


class _Group(Calls):
    def __init__(self, hub: _Hub, ranks: list[int], rank: int) -> None:
        super().__init__()
        self.size = len(ranks)
        self.rank = ranks.index(rank)
        self.compared = False
        self._world_rank = rank
        self._ranks = ranks
        self._hub = hub
        self._meeting = hub.meeting(tuple(ranks))
        self._sent: deque[float] = deque()  # when messages were started
        self._since: float | None = None  # when the one at hand was, if it was

    def start(self, what: str, x: Array, argument: Any) -> None:
        super().start(what, x, argument)
        self._sent.append(time.monotonic())

    def finish(self) -> Array:
        self._since = self._sent.popleft()
        try:
            return super().finish()
        finally:
            self._since = None

    def abandon(self) -> None:
        super().abandon()
        self._sent.clear()

    def wait(self) -> None:
        gone = self._hub.ended.intersection(self._ranks)
        if gone and self._hub.error is None:
            raise self._hub.gone(min(gone))
        try:
            self._meeting.barrier.wait(self._hub.timeout)
        except threading.BrokenBarrierError:
            failed = self._hub.error
            if failed is not None:
                raise _Stopped(f"rank {failed[0]} failed: {failed[1]}") from None
            raise DistributedError(
                f"rank {self._world_rank} waited {self._hub.timeout:g} s for other ranks",
                hint="do all ranks of the group call the same collectives in the same order?",
            ) from None

    def _exchanged(self, what: str, x: Array, given: Array | None = None) -> list[Array]:
        """The arrays of all ranks. They are those of the ranks themselves: they must be copied
        before `wait()` lets these go on."""
        slots = self._meeting.slots
        latency, second = self._hub.link
        slow = latency > 0 or second > 0
        since = (self._since or time.monotonic()) if slow else 0.0
        slots[self.rank] = what, given if given is not None else x, since
        self.wait()
        if slow:
            come = max(sent for _, _, sent in slots) + latency + x.nbytes * second
            time.sleep(max(0.0, come - time.monotonic()))
        for rank, (other, _, _) in enumerate(slots):
            if other != what:
                error = DistributedError(
                    f"ranks of one group call different collectives: {what} on rank {self.rank}, "
                    f"{other} on rank {rank}",
                    hint="all ranks must run the same program on tensors of the same types",
                )
                self._hub.fail(self._world_rank, error)
                raise error
        return [array for _, array, _ in slots]

    def _met(self, what: str, x: Array, compute: Callable[[list[Array]], Array]) -> Array:
        found = compute(self._exchanged(f"{what} of {x.dtype.name}{list(x.shape)}", x))
        self.wait()
        return found

    def all_reduce(self, x: Array, op: str) -> Array:
        return self._met(f"all_reduce {op}", x, lambda arrays: reduced(arrays, op))

    def all_gather(self, x: Array) -> Array:
        return self._met("all_gather", x, np.stack)

    def reduce_scatter(self, x: Array, op: str) -> Array:
        return self._met(
            f"reduce_scatter {op}",
            x,
            lambda arrays: reduced([array[self.rank] for array in arrays], op),
        )

    def all_to_all(self, x: Array) -> Array:
        return self._met(
            "all_to_all", x, lambda arrays: np.stack([array[self.rank] for array in arrays])
        )

    def broadcast(self, x: Array, root: int) -> Array:
        return self._met(f"broadcast from {root}", x, lambda arrays: arrays[root].copy())

    def permute(self, x: Array, pairs: Sequence[tuple[int, int]]) -> Array:
        sources = [a for a, b in pairs if b == self.rank]
        return self._met(
            f"send {tuple(pairs)}",
            x,
            lambda arrays: arrays[sources[0]].copy() if sources else np.zeros_like(x),
        )

    def direct(
        self,
        what: str,
        dtype: Any,
        shape: tuple[int, ...],
        argument: Any,
        parts: Sequence[int],
        half: str = "",
    ) -> int:
        return 0

    def failed(self) -> None:
        """Machine code does not call it."""


class VirtualWorld:
    """One thread's view of the world."""

    def __init__(self, hub: _Hub, rank: int) -> None:
        self.rank = rank
        self.size = hub.size
        self._hub = hub
        self.copies: dict[Any, Any] | None = {}
        self._groups: dict[Any, _Group] = {}

    def group(self, mesh: Axes, over: tuple[str, ...]) -> Group:
        check_mesh(mesh, self.size)
        return self._group(ranks_of(self.rank, mesh, over), (mesh, over))

    def barrier(self) -> None:
        self._group(list(range(self.size)), "all").wait()

    def post(self, x: Array, rank: int) -> None:
        self._hub.box(self.rank, rank).put(x.copy())

    def take(self, rank: int) -> Array:
        box, until = self._hub.box(rank, self.rank), time.monotonic() + self._hub.timeout
        while True:
            ended = rank in self._hub.ended  # asked first: what it has posted by then is there
            try:
                return box.get(timeout=0.0 if ended else 0.02)
            except queue.Empty:
                self._hub.check()
                if ended:
                    raise self._hub.gone(rank) from None
                if time.monotonic() > until:
                    raise DistributedError(
                        f"rank {self.rank} waited {self._hub.timeout:g} s for rank {rank}"
                    ) from None

    def _group(self, ranks: list[int], key: Any) -> _Group:
        found = self._groups.get(key)
        if found is None:
            found = self._groups[key] = _Group(self._hub, ranks, self.rank)
        return found


def run_virtual(
    ranks: int,
    function: Callable[..., Any],
    *args: Any,
    timeout: float = 60.0,
    link: tuple[float, float] = (0.0, 0.0),
) -> list[Any]:
    """Call a function on several ranks that are threads of this process; returns their results.

    A function that was written for processes runs here unchanged, for trying and testing. Threads
    share the interpreter, so nothing gets faster. If a rank raises an error, all of them stop, and
    this error is raised. `link`: how many seconds a message of a collective takes, and each of its
    bytes, to see what a program does while its messages are on their way.

    >>> from weft import distributed
    >>> def total():
    ...     mine = weft.tensor([1.0, 10.0 * distributed.rank()])
    ...     return distributed.all_reduce(mine)
    >>> distributed.run_virtual(3, total)
    [tensor([ 3., 30.]), tensor([ 3., 30.]), tensor([ 3., 30.])]
    """
    hub = _Hub(ranks, timeout, link)
    results: list[Any] = [None] * ranks

    def work(rank: int) -> None:
        use_world(VirtualWorld(hub, rank), this_thread=True)
        try:
            results[rank] = function(*args)
            hub.end(rank)
        except _Stopped:
            pass
        except BaseException as error:
            error.add_note(f"(on rank {rank} of {ranks})")
            hub.fail(rank, error)

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException as error:  # Ctrl-C
        hub.fail(0, error)
        raise
    if hub.error is not None:
        raise hub.error[1]
    return results
