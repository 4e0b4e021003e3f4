"""NCCL among threads: `cupy.cuda.nccl` with its names and arguments, over addresses of the CPU.

Communicators with one id meet when all their ranks have come. `log` has the calls.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from typing import Any

import numpy as np

__all__ = ["NcclCommunicator", "get_unique_id", "groupEnd", "groupStart"]

TYPES = (np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, np.float16, np.float32)
DTYPES = [np.dtype(kind) for kind in (*TYPES, np.float64)]
REDUCE = (np.add, np.multiply, np.maximum, np.minimum)
SECONDS = 20.0

available = True
log: list[str] = []
_numbers = itertools.count(1)
_meetings: dict[bytes, _Meeting] = {}
_lock = threading.Lock()
_open = threading.local()  # calls of this thread between groupStart and groupEnd


class _Meeting:
    def __init__(self, size: int) -> None:
        self.slots: list[Any] = [None] * size
        self.barrier = threading.Barrier(size)


def get_unique_id() -> bytes:
    return next(_numbers).to_bytes(8, "big") + bytes([249] * 120)


def groupStart() -> None:
    _open.calls = []


def groupEnd() -> None:
    calls, _open.calls = _open.calls, None
    if calls:
        calls[0][0].exchange([(kind, at, size, peer) for _, kind, at, size, peer in calls])


def _at(address: int, count: int, number: int) -> Any:
    dtype = DTYPES[number]
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, dtype)


class NcclCommunicator:
    def __init__(self, ranks: int, name: bytes, rank: int) -> None:
        if len(name) != 128:
            raise ValueError("not the id of a communicator")
        with _lock:
            self._meeting = _meetings.setdefault(name, _Meeting(ranks))
        self.rank, self.size = rank, ranks
        self._met(None)

    def _met(self, mine: Any) -> list[Any]:
        self._meeting.slots[self.rank] = mine
        self._meeting.barrier.wait(SECONDS)
        found = list(self._meeting.slots)
        self._meeting.barrier.wait(SECONDS)
        return found

    def _alike(self, what: str, x: Any, *said: Any) -> list[Any]:
        found = self._met((what, said, x.dtype, x.size, x.copy()))
        assert all(other[:4] == found[0][:4] for other in found), found
        log.append(what)
        return [other[4] for other in found]

    def allReduce(self, a: int, b: int, count: int, dtype: int, op: int, stream: int) -> None:
        arrays = self._alike("allReduce", _at(a, count, dtype), op)
        _at(b, count, dtype)[:] = REDUCE[op].reduce(arrays)

    def reduceScatter(self, a: int, b: int, count: int, dtype: int, op: int, stream: int) -> None:
        arrays = self._alike("reduceScatter", _at(a, count * self.size, dtype), op)
        whole = REDUCE[op].reduce(arrays)
        _at(b, count, dtype)[:] = whole[self.rank * count : (self.rank + 1) * count]

    def allGather(self, a: int, b: int, count: int, dtype: int, stream: int) -> None:
        arrays = self._alike("allGather", _at(a, count, dtype))
        _at(b, count * self.size, dtype)[:] = np.concatenate(arrays)

    def broadcast(self, a: int, b: int, count: int, dtype: int, root: int, stream: int) -> None:
        _at(b, count, dtype)[:] = self._alike("broadcast", _at(a, count, dtype), root)[root]

    def send(self, at: int, count: int, dtype: int, peer: int, stream: int) -> None:
        _open.calls.append((self, "send", at, count * DTYPES[dtype].itemsize, peer))

    def recv(self, at: int, count: int, dtype: int, peer: int, stream: int) -> None:
        _open.calls.append((self, "recv", at, count * DTYPES[dtype].itemsize, peer))

    def exchange(self, calls: list[tuple[str, int, int, int]]) -> None:
        """All messages of a group of calls; those of other ranks come at the same time."""
        sent = {peer: _at(at, n, 1).copy() for kind, at, n, peer in calls if kind == "send"}
        found = self._met(sent)
        log.append("exchange")
        for kind, at, n, peer in calls:
            if kind == "recv":
                _at(at, n, 1)[:] = found[peer][self.rank]
