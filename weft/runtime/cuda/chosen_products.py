"""Large products of narrow floats by cuBLASLt, with a bias where there is one: it is added to the
columns in float32, before the result is rounded, and without another kernel.

cuBLASLt proposes several algorithms. Where there is much to compute, all of them are timed when a
product first runs, on its own operands, and the fastest is noted on disk.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from weft.base import store
from weft.base.dtypes import DType, as_dtype, bfloat16, float16
from weft.base.errors import InternalError
from weft.codegen.cuda.matrix import Gemm
from weft.runtime.cuda.products import library

__all__ = ["MANY", "ChosenProducts"]

#: cudaDataType, by dtype; CUBLAS_COMPUTE_32F and CUDA_R_32F.
_TYPES = {float16: 2, bfloat16: 14}
_COMPUTE, _FLOAT = 68, 0
#: Attributes of a product, of a matrix and of a choice; CUBLASLT_EPILOGUE_BIAS.
_TRANS_A, _TRANS_B, _EPILOGUE, _BIAS_POINTER = 3, 4, 7, 8
_BATCH_COUNT, _BATCH_STEP = 5, 6
_WORKSPACE = 1
_BIAS = 4
#: Algorithms that are asked for; rounds in which each is timed, and its runs in a round. Products
#: of fewer multiplications than `MANY` are not timed.
ASKED, ROUNDS, TIMES, MANY = 8, 3, 4, 1 << 30
#: Bytes of cublasLtMatmulHeuristicResult_t, of which the first are the algorithm.
_RESULT = 96
#: Of a choice: bytes that the addresses of matrices are multiples of, at most this many.
_ALIGNMENTS, _ALIGNED = range(5, 9), 256


@dataclass(frozen=True, slots=True)
class _Call:
    """Handles of cuBLASLt, which are kept as long as the process runs."""

    product: Any
    left: Any
    right: Any
    result: Any
    algorithm: Any


class ChosenProducts:
    """A handle of cuBLASLt, and what was chosen for each kind of call."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        found = library("libcublasLt.so", ("13", "12"))
        if found is None:
            raise InternalError("cuBLASLt (libcublasLt.so) cannot be loaded")
        self._library = found
        self._handle = ctypes.c_void_p()
        self._check(found.cublasLtCreate(ctypes.byref(self._handle)))
        self._known: dict[Any, _Call] = {}
        self._one, self._zero = ctypes.c_float(1), ctypes.c_float(0)

    def _check(self, status: int) -> None:
        if status:
            raise InternalError(f"cuBLASLt returned status {status}")

    def product(
        self,
        call: Gemm,
        dtype: DType,
        addresses: Sequence[int],
        stream: int,
        room: tuple[int, int],
        *,
        timed: bool,
    ) -> None:
        """Run one call: operands, bias (or 0) and result at these addresses; `room` is an address
        and a number of bytes to work in; `timed`: work can be timed now."""
        left, right, bias, result = addresses
        at = [
            start + place * dtype.itemsize
            for start, place in zip((left, right, result), call.offsets, strict=True)
        ]
        aligned = math.gcd(_ALIGNED, *at)
        key = replace(call, offsets=(0, 0, 0)), dtype.name, aligned, bias != 0
        known = self._known.get(key)
        if known is None:
            known, settled = self._found(key, (at, bias, stream, room), timed=timed)
            if settled:
                self._known[key] = known
        self._check(self._status(known, at, bias, stream, room))

    def _found(self, key: Any, given: Any, *, timed: bool) -> tuple[_Call, bool]:
        """How to run a kind of call: as it was noted, else the fastest, if it can be timed now. And
        whether that is settled."""
        call, dtype, aligned, _ = key
        _, bias, _, room = given
        made = self._described(call, dtype, bias)
        if call.rows * call.columns * call.terms * call.count < MANY:
            return self._proposed(made, call, room[1], aligned)[0], True
        device = self._cupy.cuda.Device()
        where = device.compute_capability, self._library.cublasLtGetVersion(), room[1], key
        name = store.name_of(b"product", repr(where).encode())
        noted = store.read(name)
        if noted is not None and len(noted[1]) == 1 and len(noted[1][0]) == _RESULT:
            algorithm = (ctypes.c_uint64 * (_RESULT // 8)).from_buffer_copy(noted[1][0])
            return replace(made, algorithm=algorithm), True
        proposed = self._proposed(made, call, room[1], aligned)
        if not timed:
            return proposed[0], False
        times = [self._time(one, given) for one in proposed]
        found = proposed[times.index(min(times))]
        store.write(name, "an algorithm of cuBLASLt", [bytes(found.algorithm)])
        return found, True

    def _time(self, one: _Call, given: Any) -> float:
        """What some runs take; infinite if it cannot run."""
        cuda = self._cupy.cuda
        best = math.inf
        for number in range(ROUNDS + 1):
            start, stop = cuda.Event(), cuda.Event()
            start.record()
            for _ in range(TIMES if number else 1):  # the first one loads its code
                if self._status(one, *given):
                    return math.inf
            stop.record()
            stop.synchronize()
            if number:
                best = min(best, cuda.get_elapsed_time(start, stop))
        return best

    def _status(
        self, known: _Call, at: Sequence[int], bias: int, stream: int, room: tuple[int, int]
    ) -> int:
        """Run a product; cuBLASLt's status."""
        a, b, c = at
        if bias:
            self._set(known.product, _BIAS_POINTER, ctypes.c_void_p(bias))
        one, zero = ctypes.byref(self._one), ctypes.byref(self._zero)
        # In column-major order, as cuBLAS has it: Cᵀ = Bᵀ · Aᵀ.
        status: int = self._library.cublasLtMatmul(
            *(self._handle, known.product, one, ctypes.c_void_p(b), known.right),
            *(ctypes.c_void_p(a), known.left, zero, ctypes.c_void_p(c), known.result),
            *(ctypes.c_void_p(c), known.result, known.algorithm),
            *(ctypes.c_void_p(room[0]), ctypes.c_size_t(room[1]), ctypes.c_void_p(stream)),
        )
        return status

    def _set(self, product: Any, attribute: int, value: Any) -> None:
        size = ctypes.c_size_t(ctypes.sizeof(value))
        given = product, attribute, ctypes.byref(value), size
        self._check(self._library.cublasLtMatmulDescSetAttribute(*given))

    def _matrix(
        self, dtype: DType, rows: int, columns: int, turned: bool, leading: int, batch: Any
    ) -> Any:
        """A matrix in C order (or transposed) as one in column-major order, transposed."""
        made = ctypes.c_void_p()
        shape = (rows, columns) if turned else (columns, rows)
        sizes = (*map(ctypes.c_uint64, shape), ctypes.c_int64(leading))
        create = self._library.cublasLtMatrixLayoutCreate
        self._check(create(ctypes.byref(made), _TYPES[dtype], *sizes))
        count, step = batch
        if count > 1:
            change = self._library.cublasLtMatrixLayoutSetAttribute
            for attribute, value in (
                (_BATCH_COUNT, ctypes.c_int32(count)),
                (_BATCH_STEP, ctypes.c_int64(step)),
            ):
                size = ctypes.c_size_t(ctypes.sizeof(value))
                self._check(change(made, attribute, ctypes.byref(value), size))
        return made

    def _described(self, call: Gemm, name: str, bias: int) -> _Call:
        """The description of a call on a dtype, without an algorithm."""
        library, by, dtype = self._library, ctypes.byref, as_dtype(name)
        product = ctypes.c_void_p()
        self._check(library.cublasLtMatmulDescCreate(by(product), _COMPUTE, _FLOAT))
        self._set(product, _TRANS_A, ctypes.c_int32(call.right[0]))
        self._set(product, _TRANS_B, ctypes.c_int32(call.left[0]))
        if bias:
            self._set(product, _EPILOGUE, ctypes.c_int32(_BIAS))
            self._set(product, _BIAS_POINTER, ctypes.c_void_p(bias))
        n, m, k = call.rows, call.columns, call.terms
        left = self._matrix(dtype, n, k, *call.left, (call.count, call.steps[0]))
        right = self._matrix(dtype, k, m, *call.right, (call.count, call.steps[1]))
        result = self._matrix(dtype, n, m, False, m, (call.count, call.steps[2]))
        return _Call(product, left, right, result, None)

    def _proposed(self, made: _Call, call: Gemm, most: int, aligned: int) -> list[_Call]:
        """A call with each of cuBLASLt's algorithms; its own choice first."""
        library, by = self._library, ctypes.byref
        choice = ctypes.c_void_p()
        self._check(library.cublasLtMatmulPreferenceCreate(by(choice)))
        size = ctypes.c_uint64(most)
        change = library.cublasLtMatmulPreferenceSetAttribute
        self._check(change(choice, _WORKSPACE, by(size), ctypes.c_size_t(8)))
        least = ctypes.c_uint32(aligned)
        for attribute in _ALIGNMENTS:
            self._check(change(choice, attribute, by(least), ctypes.c_size_t(4)))
        algorithms = (ctypes.c_uint64 * (_RESULT // 8) * ASKED)()
        count = ctypes.c_int()
        self._check(
            library.cublasLtMatmulAlgoGetHeuristic(
                *(self._handle, made.product, made.right, made.left, made.result, made.result),
                *(choice, ASKED, by(algorithms), by(count)),
            )
        )
        library.cublasLtMatmulPreferenceDestroy(choice)
        if not count.value:
            raise InternalError(f"cuBLASLt has no code for {call}")
        return [replace(made, algorithm=algorithms[i]) for i in range(count.value)]
