"""A group of ranks whose arrays lie on GPUs: NCCL carries them, through CuPy.

The communicator is made at the first collective of a group on a device; its id is broadcast by the
group that carries arrays of the CPU, so that NCCL needs no way of its own to start. Calls are put
on CuPy's current stream: nobody waits for them but what reads their results.
"""

from __future__ import annotations

import contextlib
import importlib
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import as_dtype
from weft.base.errors import DistributedError, DTypeError
from weft.base.lazy import Lazy
from weft.base.world import Alone, Calls, Group
from weft.runtime.cuda import opening

__all__ = ["NcclGroup", "nccl_group"]

hashlib = Lazy("hashlib")

#: ncclDataType_t, by the names of dtypes. What NCCL has no numbers for is summed in another dtype.
_NUMBERS = {
    **{"int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5},
    **{"float32": 7, "float64": 8},
}
_WIDER = {"int16": "int32", "uint16": "uint32", "bool": "uint8"}
_BYTES = _NUMBERS["uint8"]
#: ncclRedOp_t
_REDUCTIONS = {"sum": 0, "prod": 1, "max": 2, "min": 3}
#: So many calls of a group are compared among its ranks, before their data.
COMPARED = 64


def _library(cupy: Any) -> Any:
    found = getattr(cupy.cuda, "nccl", None)
    if found is None:  # it is loaded when somebody asks for it
        with contextlib.suppress(ImportError):
            found = importlib.import_module("cupy.cuda.nccl")
    if found is None or not getattr(found, "available", True):
        raise DistributedError(
            "CuPy finds no NCCL, which carries arrays between GPUs",
            hint="pip install nvidia-nccl-cu12",
        )
    return found


class NcclGroup(Calls):
    """See `weft.base.world.Group`; arrays are CuPy's."""

    def __init__(self, near: Group, cupy: Any, index: int) -> None:
        super().__init__()
        self.rank, self.size = near.rank, near.size
        self.compared = near.compared
        self._near = near
        self._cupy = cupy
        self._calls = 0
        self._nccl = nccl = _library(cupy)
        # Bytes; of older versions of CuPy, a tuple of signed numbers.
        mine = nccl.get_unique_id() if near.rank == 0 else bytes(128)
        told = near.broadcast(np.array([isinstance(mine, bytes), *mine], np.int64), 0).tolist()
        name = bytes(told[1:]) if told[0] else tuple(told[1:])
        try:
            self._comm = nccl.NcclCommunicator(near.size, name, near.rank)
        except Exception as error:
            raise DistributedError(
                f"NCCL could not join rank {near.rank} of {near.size} on GPU {index}: {error}",
                hint="each rank needs a GPU of its own: CUDA_VISIBLE_DEVICES, or "
                'x.to(f"cuda:{rank}")',
            ) from error

    def _begin(self, what: str, x: Any) -> Any:
        """The array as NCCL takes it."""
        if self._calls < COMPARED:
            self._calls += 1
            mine = f"{what} of {as_dtype(x.dtype).name}{list(x.shape)} on a GPU"
            digest = hashlib.blake2b(mine.encode(), digest_size=8).digest()
            found = self._near.all_gather(np.frombuffer(digest, np.uint8))
            if (found != found[0]).any():
                raise DistributedError(
                    f"ranks of one group call different collectives: {mine} on rank {self.rank}",
                    hint="all ranks must run the same program on tensors of the same types",
                )
        return self._cupy.ascontiguousarray(x)

    def _stream(self) -> int:
        found: int = self._cupy.cuda.get_current_stream().ptr
        return found

    def _new(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self._cupy.empty(shape, dtype=dtype)

    # --- sums ----------------------------------------------------------------------------------

    def all_reduce(self, x: Any, op: str) -> Any:
        def run(given: Any) -> Any:
            out = self._new(given.shape, given.dtype)
            number, count = _number(given, op), _count(given)
            self._comm.allReduce(
                given.data.ptr, out.data.ptr, count, number, _REDUCTIONS[op], self._stream()
            )
            return out

        return self._reduced(x, op, f"all_reduce {op}", run)

    def reduce_scatter(self, x: Any, op: str) -> Any:
        def run(given: Any) -> Any:
            out = self._new(given.shape[1:], given.dtype)
            number, count = _number(given, op), _count(out)
            self._comm.reduceScatter(
                given.data.ptr, out.data.ptr, count, number, _REDUCTIONS[op], self._stream()
            )
            return out

        return self._reduced(x, op, f"reduce_scatter {op}", run)

    def _reduced(self, x: Any, op: str, what: str, run: Any) -> Any:
        """Narrow floats are summed in float32 and rounded once."""
        given, kind = self._begin(what, x), as_dtype(x.dtype)
        narrow = kind.kind == "float" and kind.itemsize < 4
        wider = "float32" if narrow else _WIDER.get(kind.name)
        if wider is None:
            return run(given)
        return run(given.astype(wider)).astype(x.dtype)

    # --- what only moves, as bytes ---------------------------------------------------------------

    def all_gather(self, x: Any) -> Any:
        given = self._begin("all_gather", x)
        out = self._new((self.size, *x.shape), x.dtype)
        self._comm.allGather(given.data.ptr, out.data.ptr, given.nbytes, _BYTES, self._stream())
        return out

    def broadcast(self, x: Any, root: int) -> Any:
        given = self._begin(f"broadcast from {root}", x)
        out = self._new(x.shape, x.dtype)
        self._comm.broadcast(
            given.data.ptr, out.data.ptr, given.nbytes, _BYTES, root, self._stream()
        )
        return out

    def all_to_all(self, x: Any) -> Any:
        given = self._begin("all_to_all", x)
        out = self._new(x.shape, x.dtype)
        part = given.nbytes // self.size
        everyone = range(self.size)
        self._exchange(
            [(given.data.ptr + part * rank, rank) for rank in everyone],
            [(out.data.ptr + part * rank, rank) for rank in everyone],
            part,
        )
        return out

    def permute(self, x: Any, pairs: Sequence[tuple[int, int]]) -> Any:
        given = self._begin(f"send {tuple(pairs)}", x)
        out = self._cupy.zeros(x.shape, dtype=x.dtype)
        self._exchange(
            [(given.data.ptr, b) for a, b in pairs if a == self.rank],
            [(out.data.ptr, a) for a, b in pairs if b == self.rank],
            given.nbytes,
        )
        return out

    def _exchange(
        self, sent: Sequence[tuple[int, int]], taken: Sequence[tuple[int, int]], size: int
    ) -> None:
        """Messages of so many bytes, all at once."""
        if not size:
            return
        stream = self._stream()
        self._nccl.groupStart()
        try:
            for address, rank in sent:
                self._comm.send(address, size, _BYTES, rank, stream)
            for address, rank in taken:
                self._comm.recv(address, size, _BYTES, rank, stream)
        finally:
            self._nccl.groupEnd()

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


def _number(x: Any, op: str) -> int:
    kind = as_dtype(x.dtype)
    if kind.kind == "complex" and op == "sum":
        return _NUMBERS["float32" if kind.itemsize == 8 else "float64"]
    found = _NUMBERS.get(kind.name)
    if found is None:
        raise DTypeError(f"NCCL has no {op} of {kind.name}", op="all_reduce")
    return found


def _count(x: Any) -> int:
    size: int = x.size
    return 2 * size if as_dtype(x.dtype).kind == "complex" else size


class _OneRank(Alone):
    """A group of one rank, which needs no NCCL."""

    def permute(self, x: Any, pairs: Sequence[tuple[int, int]]) -> Any:
        return x.copy() if (0, 0) in pairs else opening.cupy().zeros(x.shape, dtype=x.dtype)


#: By the group for arrays of the CPU: the same ranks on a device.
_made: weakref.WeakKeyDictionary[Group, dict[int, NcclGroup]] = weakref.WeakKeyDictionary()


def nccl_group(near: Group, x: Any) -> Group:
    """The group of the same ranks for arrays on the GPU of x."""
    if near.size == 1:
        return _OneRank()
    index: int = x.device.id
    known = _made.setdefault(near, {})
    if index not in known:
        known[index] = NcclGroup(near, opening.cupy(), index)
    return known[index]
