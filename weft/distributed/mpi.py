"""Ranks that are processes, started by MPI; the bytes are carried by mpi4py."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import DTYPES
from weft.base.errors import DistributedError
from weft.base.lazy import Lazy
from weft.base.world import Array, Axes, Group, check_mesh, ranks_of
from weft.distributed.reducing import is_narrow, reduced
from weft.distributed.shared import SharedGroup, shared_memory
from weft.distributed.watchdog import Watchdog

__all__ = ["MpiWorld"]

MPI: Any = Lazy("mpi4py.MPI")

#: The first calls of a group are compared among its ranks, before their data: ranks that run
#: different programs notice it here, and do not hang.
COMPARED = 64


class _Requests:
    """Several requests as one."""

    def __init__(self, *requests: Any) -> None:
        self._requests = requests

    def Test(self) -> None:
        for request in self._requests:
            request.Test()

    def Wait(self) -> None:
        for request in self._requests:
            request.Wait()


class _Group:
    def __init__(self, comm: Any, watchdog: Watchdog) -> None:
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        self.compared = False
        self._comm = comm
        self._watchdog = watchdog
        self._calls = 0
        self._reductions = {"sum": MPI.SUM, "prod": MPI.PROD, "max": MPI.MAX, "min": MPI.MIN}
        #: What was started: its request, the operand, the result.
        self._started: deque[tuple[Any, Array, Array]] = deque()

    def _begin(self, what: str, x: Array) -> Array:
        """The array as MPI takes it. From here to `end` this rank waits for others."""
        self._watchdog.begin(what, x)
        if self._calls < COMPARED:
            self._calls += 1
            mine = f"{what} of {x.dtype.name}{list(x.shape)}"
            theirs = self._comm.allgather(mine)
            for rank, other in enumerate(theirs):
                if other != mine:
                    raise DistributedError(
                        f"ranks of one group call different collectives: {mine} on rank "
                        f"{self.rank}, {other} on rank {rank}",
                        hint="all ranks must run the same program on tensors of the same types",
                    )
        return np.ascontiguousarray(x).reshape(x.shape)

    def all_reduce(self, x: Array, op: str) -> Array:
        given = self._begin(f"all_reduce {op}", x)
        if is_narrow(x.dtype):
            out = self._in_parts(given, op)
        else:
            out = np.empty_like(given)
            self._comm.Allreduce(given, out, self._reductions[op])
        self._watchdog.end()
        return out

    def _in_parts(self, x: Array, op: str) -> Array:
        """A reduction whose sums are our own: each rank computes one part, all gather the parts."""
        part = -(-x.size // self.size)
        parts = np.zeros((self.size, part), x.dtype)
        parts.reshape(-1)[: x.size] = x.reshape(-1)
        mine = reduced(list(self._exchanged(parts)), op)
        return self._gathered(mine).reshape(-1)[: x.size].reshape(x.shape)

    def all_gather(self, x: Array) -> Array:
        out = self._gathered(self._begin("all_gather", x))
        self._watchdog.end()
        return out

    def _gathered(self, x: Array) -> Array:
        out = np.empty((self.size, *x.shape), x.dtype)
        self._comm.Allgather(_bytes(x), _bytes(out))
        return out

    def reduce_scatter(self, x: Array, op: str) -> Array:
        given = self._begin(f"reduce_scatter {op}", x)
        if is_narrow(x.dtype):
            out = reduced(list(self._exchanged(given)), op)
        else:
            out = np.empty_like(given[0])
            self._comm.Reduce_scatter_block(given, out, self._reductions[op])
        self._watchdog.end()
        return out

    def all_to_all(self, x: Array) -> Array:
        out = self._exchanged(self._begin("all_to_all", x))
        self._watchdog.end()
        return out

    def _exchanged(self, x: Array) -> Array:
        out = np.empty_like(x)
        self._comm.Alltoall(_bytes(x), _bytes(out))
        return out

    def broadcast(self, x: Array, root: int) -> Array:
        out = self._begin(f"broadcast from {root}", x).copy()
        self._comm.Bcast(_bytes(out), root)
        self._watchdog.end()
        return out

    def permute(self, x: Array, pairs: Sequence[tuple[int, int]]) -> Array:
        given = self._begin(f"send {tuple(pairs)}", x)
        sources = [a for a, b in pairs if b == self.rank]
        targets = [b for a, b in pairs if a == self.rank]
        out = np.empty_like(given) if sources else np.zeros_like(given)
        nobody = MPI.PROC_NULL
        self._comm.Sendrecv(
            _bytes(given),
            targets[0] if targets else nobody,
            recvbuf=_bytes(out),
            source=sources[0] if sources else nobody,
        )
        self._watchdog.end()
        return out

    def start(self, what: str, x: Array, argument: Any) -> None:
        for request, _, _ in self._started:
            request.Test()  # MPI works on messages while it is called
        # A copy: where the program fails, its memory goes before the message has left.
        given = self._begin(what if argument is None else f"{what} {argument}", x.copy())
        self._watchdog.end()
        comm = self._comm
        if what == "all_reduce":
            out = np.empty_like(given)
            request = comm.Iallreduce(given, out, self._reductions[argument])
        elif what == "reduce_scatter":
            out = np.empty_like(given[0])
            request = comm.Ireduce_scatter_block(given, out, self._reductions[argument])
        elif what == "all_gather":
            out = np.empty((self.size, *given.shape), given.dtype)
            request = comm.Iallgather(_bytes(given), _bytes(out))
        elif what == "send":
            sources = [a for a, b in argument if b == self.rank]
            targets = [b for a, b in argument if a == self.rank]
            out = np.empty_like(given) if sources else np.zeros_like(given)
            nobody = MPI.PROC_NULL
            request = _Requests(
                comm.Irecv(_bytes(out), sources[0] if sources else nobody),
                comm.Isend(_bytes(given), targets[0] if targets else nobody),
            )
        else:
            assert what == "all_to_all", what
            out = np.empty_like(given)
            request = comm.Ialltoall(_bytes(given), _bytes(out))
        self._started.append((request, given, out))

    def finish(self) -> Array:
        request, given, out = self._started.popleft()
        self._watchdog.begin("a message that was started", given)
        request.Wait()
        self._watchdog.end()
        return out

    def abandon(self) -> None:
        while self._started:
            self.finish()  # the arrays stay as long as the message is on its way

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


#: The head of a message between two ranks: sizes of axes, -1 where there is none; a dtype.
_MOST_AXES = 32
_NUMBERED = dict(enumerate(DTYPES.values()))


def _code(dtype: Any) -> int:
    return next(number for number, known in _NUMBERED.items() if known.numpy == dtype)


def _bytes(x: Array) -> Array:
    """An array as bytes: MPI knows no bfloat16 or float8."""
    return x.reshape(-1).view(np.uint8)


def _group(comm: Any, watchdog: Watchdog) -> Group:
    """Ranks of one machine pass arrays through shared memory, others by messages of MPI."""
    memory = None if os.environ.get("WEFT_SHARED_MEMORY") == "0" else shared_memory(comm)
    return _Group(comm, watchdog) if memory is None else SharedGroup(comm, memory, watchdog)


class MpiWorld:
    copies: dict[Any, Any] | None = None

    def __init__(self, timeout: float) -> None:
        self._comm = MPI.COMM_WORLD
        self.rank: int = self._comm.Get_rank()
        self.size: int = self._comm.Get_size()
        self.watchdog = Watchdog(self.rank, timeout, self.abort)
        self._groups: dict[Any, Group] = {}
        self._messages = self._comm.Dup()
        self._posted: list[tuple[Any, Array]] = []  # that may be on their way, with their arrays

    def group(self, mesh: Axes, over: tuple[str, ...]) -> Group:
        key = mesh, over
        found = self._groups.get(key)
        if found is None:
            check_mesh(mesh, self.size)
            ranks = ranks_of(self.rank, mesh, over)
            comm = self._comm.Split(ranks[0], ranks.index(self.rank))
            found = self._groups[key] = _group(comm, self.watchdog)
        return found

    def barrier(self) -> None:
        self.watchdog.begin("barrier")
        self._comm.Barrier()
        self.watchdog.end()

    def post(self, x: Array, rank: int) -> None:
        self._posted = [(request, kept) for request, kept in self._posted if not request.Test()]
        given = np.array(x, order="C")
        head = np.array([*given.shape, *[-1] * (_MOST_AXES - x.ndim), _code(x.dtype)], np.int64)
        for kept in (head, _bytes(given)):
            self._posted.append((self._messages.Isend(kept, rank), kept))

    def take(self, rank: int) -> Array:
        self.watchdog.begin(f"a message from rank {rank}")
        head = np.empty(_MOST_AXES + 1, np.int64)
        self._messages.Recv(head, rank)
        shape = [int(size) for size in head[:-1] if size >= 0]
        found = np.empty(shape, _NUMBERED[int(head[-1])].numpy)
        self._messages.Recv(_bytes(found), rank)
        self.watchdog.end()
        return found

    def abort(self) -> None:
        """End all ranks."""
        self._comm.Abort(1)
