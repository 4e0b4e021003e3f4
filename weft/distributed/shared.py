"""A group of processes on one machine, whose arrays pass through shared memory.

The code is `shared_code.py`. Where ranks share no memory (several machines, another system),
`mpi.py` carries the bytes.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import itertools
import math
import mmap
import os
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.base.dtypes import as_dtype
from weft.base.errors import DistributedError, InternalError
from weft.base.lazy import Lazy
from weft.base.world import Array
from weft.codegen.cache import Code, cached
from weft.codegen.machine import host
from weft.distributed.combine_code import combine_text
from weft.distributed.reducing import reduced
from weft.distributed.shared_code import (
    ALL,
    CALL,
    CHANNEL,
    CHUNK,
    DEPTH,
    DIFFERS,
    DONE,
    EXPORTS,
    ONE,
    REDUCE,
    SEGMENT,
    SIGNATURES,
    shared_text,
)
from weft.distributed.watchdog import Watchdog
from weft.runtime.pool.system import host_of

__all__ = ["SharedGroup", "shared_memory"]

MPI: Any = Lazy("mpi4py.MPI")

_EXCHANGE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
_HERE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, *[ctypes.c_int64] * 3)
_SLOW = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
#: Where a rank writes which call it makes, for the error of those that differ: its number, text.
_TEXT = SIGNATURES + 8 * DEPTH
_MOST_TEXT = SEGMENT - _TEXT - 9
#: Seconds between two looks at what another rank says.
_PAUSE = 1e-3
_SEGMENT = SEGMENT + DEPTH * CHUNK
#: Functions of the machine code: a whole message, and its halves.
HALVES = ("exchange", "start", "finish")
_STARTED, _PUBLISHED = CHANNEL.index("started"), CHANNEL.index("published")
#: Where files are memory; None: where files are temporary.
_FOLDER = "/dev/shm" if os.path.isdir("/dev/shm") else None


def shared_memory(comm: Any) -> mmap.mmap | None:
    """Memory with a segment for each rank; None where some of them do not share memory.

    It is a file without a name: nothing is left of it when the last rank ends, however it ends.
    (Windows of MPI stay behind where a rank is killed.)
    """
    near = comm.Split_type(MPI.COMM_TYPE_SHARED)
    together = near.Get_size() == comm.Get_size() and host_of(host().triple) is not None
    near.Free()
    if not comm.allreduce(together, MPI.LAND):
        return None
    size, path, memory = comm.Get_size() * _SEGMENT, "", None
    if comm.Get_rank() == 0:
        with contextlib.suppress(OSError):
            handle, path = tempfile.mkstemp(prefix="weft-", dir=_FOLDER)
            with contextlib.closing(os.fdopen(handle)):
                os.posix_fallocate(handle, 0, size)  # not found missing at the first write
    path = comm.bcast(path)
    with contextlib.suppress(OSError, ValueError), open(path, "r+b") as file:
        memory = mmap.mmap(file.fileno(), size)
    everywhere = comm.allreduce(memory is not None, MPI.LAND)
    if comm.Get_rank() == 0 and path:
        os.unlink(path)
    return memory if everywhere else None


@functools.cache
def _library() -> Any:
    text = shared_text(host())
    found = cached(None, lambda: Code(text, EXPORTS)).library
    found.keep()
    return found


@functools.cache
def _combine(op: str, dtype: Any) -> int:
    """The function that combines two arrays; 0 where NumPy does it."""
    kind = as_dtype(dtype).kind
    if kind not in ("float", "int", "uint") or (kind == "float" and dtype.itemsize < 4):
        return 0
    text = combine_text(op, kind, dtype.itemsize)
    found = cached(None, lambda: Code(text, ["weft_combine"])).library
    found.keep()
    return int(found.address("weft_combine"))


@dataclass(frozen=True, slots=True)
class _Call:
    """
    words   what machine code reads: CALL
    shape   of the result
    """

    words: Any
    address: int
    shape: tuple[int, ...]
    dtype: Any


class SharedGroup:
    def __init__(self, comm: Any, memory: mmap.mmap, watchdog: Watchdog) -> None:
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        self.compared = False
        self._watchdog = watchdog
        self._segments = np.frombuffer(memory, np.uint8).reshape(self.size, _SEGMENT)
        self._slow = _SLOW(self._wait)
        slow = ctypes.cast(self._slow, ctypes.c_void_p).value
        addresses = [segment.ctypes.data for segment in self._segments]
        self._channel = (ctypes.c_int64 * (len(CHANNEL) + self.size))(
            0, self.rank, self.size, slow, 0, 0, *addresses
        )
        self._at = ctypes.addressof(self._channel)
        library = _library()
        self._functions = {half: library.address(f"weft_{half}") for half in HALVES}
        self._exchange, self._start, self._finish = map(_EXCHANGE, self._functions.values())
        self._pending: deque[tuple[_Call, Array]] = deque()
        self._here = _HERE(library.address("weft_here"))
        self._calls: dict[Any, _Call] = {}
        self._said: dict[int, str] = {}  # calls, by their digests
        self._error: BaseException | None = None
        watchdog.channels.append(self._channel)

    # --- the protocol of groups -------------------------------------------------------------------

    def all_reduce(self, x: Array, op: str) -> Array:
        if not _combine(op, x.dtype):
            return self._in_parts(x, op)
        return self._run(self._call("all_reduce", x.dtype, x.shape, op), x)

    def all_gather(self, x: Array) -> Array:
        return self._run(self._call("all_gather", x.dtype, x.shape), x)

    def reduce_scatter(self, x: Array, op: str) -> Array:
        if not _combine(op, x.dtype):
            return reduced(list(self.all_to_all(x)), op)
        return self._run(self._call("reduce_scatter", x.dtype, x.shape, op), x)

    def all_to_all(self, x: Array) -> Array:
        return self._run(self._call("all_to_all", x.dtype, x.shape), x)

    def broadcast(self, x: Array, root: int) -> Array:
        return self._run(self._call("broadcast", x.dtype, x.shape, root), x)

    def permute(self, x: Array, pairs: Sequence[tuple[int, int]]) -> Array:
        return self._run(self._call("send", x.dtype, x.shape, tuple(pairs)), x)

    def start(self, what: str, x: Array, argument: Any) -> None:
        given = np.ascontiguousarray(x)
        call = self._call(what, x.dtype, x.shape, argument)
        self._pending.append((call, given))
        if self._start(call.address, ctypes.addressof(ctypes.c_void_p(given.ctypes.data))):
            self.failed()

    def finish(self) -> Array:
        call, given = self._pending.popleft()
        return self._received(self._finish, call, given)

    def abandon(self) -> None:
        self._pending.clear()
        number = self._channel[_STARTED]
        if number != self._channel[0]:
            for word in (0, _PUBLISHED):
                self._channel[word] = number
            self._segments[self.rank][DONE : DONE + 8].view(np.int64)[0] = number

    def barrier(self) -> None:
        self._run(self._call("barrier", np.dtype(np.uint8), (0,)), np.empty(0, np.uint8))

    def direct(
        self,
        what: str,
        dtype: Any,
        shape: tuple[int, ...],
        argument: Any,
        parts: Sequence[int],
        half: str = "",
    ) -> int:
        reduces = what in ("all_reduce", "reduce_scatter")
        if reduces and not _combine(argument, dtype):
            return 0
        return self._call(what, dtype, shape, argument, tuple(parts), half or "exchange").address

    def failed(self) -> None:
        """Raise the error of a call that machine code made."""
        error, self._error = self._error, None
        raise error or self._different()

    # --- calls ------------------------------------------------------------------------------------

    def _call(
        self,
        what: str,
        dtype: Any,
        shape: tuple[int, ...],
        argument: Any = None,
        parts: tuple[int, ...] = (),
        half: str = "exchange",
    ) -> _Call:
        key = what, dtype, shape, argument, parts, half
        found = self._calls.get(key)
        if found is None:
            found = self._calls[key] = self._new_call(*key)
        return found

    def _new_call(
        self,
        what: str,
        dtype: Any,
        shape: tuple[int, ...],
        argument: Any,
        parts: tuple[int, ...],
        half: str,
    ) -> _Call:
        name = what if argument is None else f"{what} {argument}"
        said = f"{name} of {dtype.name}{list(shape)}"
        digest = int.from_bytes(hashlib.blake2b(said.encode(), digest_size=8).digest()) >> 1
        self._said[digest] = said
        size, me = math.prod(shape), self.rank
        cut = what in ("reduce_scatter", "all_to_all")
        blocks, block = (self.size, me) if cut else (1, 0)
        how, source, sends, combine, out = ONE, me, 1, 0, shape
        if what in ("all_reduce", "reduce_scatter"):
            how, combine = REDUCE, _combine(argument, dtype)
            out = shape[1:] if cut else shape
        elif what in ("all_gather", "all_to_all"):
            how = ALL
            out = shape if cut else (self.size, *shape)
        elif what == "broadcast":
            source, sends = argument, int(argument == me)
        elif what == "send":
            source = next((a for a, b in argument if b == me), -1)
            sends = int(any(a == me for a, _ in argument))
        starts = [0, *itertools.accumulate(parts or [size // blocks])]
        words = (ctypes.c_int64 * (len(CALL) + len(starts)))(
            *(self._functions[half], self._at, digest, blocks, block, size // blocks),
            *(dtype.itemsize, how, source, sends, combine),
            # A second half has the token of its message behind its operands.
            len(starts) - (half != "finish"),
            *(len(starts) - 1, *starts),
        )
        return _Call(words, ctypes.addressof(words), out, dtype)

    def _run(self, call: _Call, x: Array) -> Array:
        if self._channel[_STARTED] != self._channel[0]:
            raise InternalError("a collective is called while others of its group are on their way")
        return self._received(self._exchange, call, np.ascontiguousarray(x))

    def _received(self, function: Any, call: _Call, given: Array) -> Array:
        out = np.empty(call.shape, call.dtype)
        arrays = (ctypes.c_void_p * 2)(given.ctypes.data, out.ctypes.data)
        if function(call.address, ctypes.addressof(arrays)):
            self.failed()
        return out

    def _in_parts(self, x: Array, op: str) -> Array:
        """A reduction by NumPy: each rank computes one part, all gather the parts."""
        part = -(-x.size // self.size)
        parts = np.zeros((self.size, part), x.dtype)
        parts.reshape(-1)[: x.size] = x.reshape(-1)
        mine = self.reduce_scatter(parts, op)
        return self.all_gather(mine).reshape(-1)[: x.size].reshape(x.shape)

    # --- when it takes long -------------------------------------------------------------------

    def _wait(self, place: int, number: int, digest: int) -> int:
        """What machine code calls when it has waited for a while."""
        try:
            self._watchdog.begin(self._said.get(digest, "a collective"))
            while not self._here(self._at, place, number, 0):
                pass  # signals come in here
            self._watchdog.end(counted=True)
        except BaseException as error:
            self._error = error
            return DIFFERS
        return 0

    def _different(self) -> DistributedError:
        """The error of ranks that make different calls: all of them say which."""
        number = self._channel[0] + 1
        turn = number % DEPTH
        digests = [self._word(rank, SIGNATURES + 8 * turn) for rank in range(self.size)]
        mine = self._said.get(digests[self.rank], "a collective")
        text = mine.encode()[:_MOST_TEXT]
        room = self._segments[self.rank]
        room[_TEXT + 8 : _TEXT + 8 + len(text) + 1] = np.frombuffer(text + b"\0", np.uint8)
        room[_TEXT : _TEXT + 8].view(np.int64)[0] = number
        others = [rank for rank, digest in enumerate(digests) if digest != digests[self.rank]]
        other = others[0] if others else self.rank
        until = time.monotonic() + 2
        while self._word(other, _TEXT) != number and time.monotonic() < until:
            time.sleep(_PAUSE)
        theirs = "another one"
        if self._word(other, _TEXT) == number:
            theirs = bytes(self._segments[other][_TEXT + 8 : SEGMENT]).split(b"\0")[0].decode()
        time.sleep(0.05)  # the others read what this rank says before it ends
        return DistributedError(
            f"ranks of one group call different collectives: {mine} on rank {self.rank}, "
            f"{theirs} on rank {other}",
            hint="all ranks must run the same program on tensors of the same types",
        )

    def _word(self, rank: int, place: int) -> int:
        return int(self._segments[rank][place : place + 8].view(np.int64)[0])
