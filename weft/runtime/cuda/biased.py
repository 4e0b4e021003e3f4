"""Products of matrices to whose columns a bias is added, by cuBLASLt: in float32, before the result
is rounded, and without another kernel."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from weft.base.dtypes import DType, bfloat16, float16
from weft.base.errors import InternalError
from weft.codegen.cuda.matrix import Gemm
from weft.runtime.cuda.products import library

__all__ = ["BiasedProducts"]

#: cudaDataType, by dtype; CUBLAS_COMPUTE_32F and CUDA_R_32F.
_TYPES = {float16: 2, bfloat16: 14}
_COMPUTE, _FLOAT = 68, 0
#: Attributes of a product, of a matrix and of a choice; CUBLASLT_EPILOGUE_BIAS.
_TRANS_A, _TRANS_B, _EPILOGUE, _BIAS_POINTER = 3, 4, 7, 8
_BATCH_COUNT, _BATCH_STEP = 5, 6
_WORKSPACE = 1
_BIAS = 4
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


class BiasedProducts:
    """A handle of cuBLASLt, and what was chosen for each kind of call."""

    def __init__(self) -> None:
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
    ) -> None:
        """Run one call: operands, bias and result at these addresses; `room` is an address and a
        number of bytes to work in."""
        a, b, c = (
            at + place * dtype.itemsize
            for at, place in zip(
                (addresses[0], addresses[1], addresses[3]), call.offsets, strict=True
            )
        )
        key = replace(call, offsets=(0, 0, 0)), dtype, math.gcd(_ALIGNED, a, b, c)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._chosen(call, dtype, addresses[2], room[1], key[2])
        self._set(known.product, _BIAS_POINTER, ctypes.c_void_p(addresses[2]))
        one, zero = ctypes.byref(self._one), ctypes.byref(self._zero)
        # In column-major order, as cuBLAS has it: Cᵀ = Bᵀ · Aᵀ.
        status = self._library.cublasLtMatmul(
            *(self._handle, known.product, one, ctypes.c_void_p(b), known.right),
            *(ctypes.c_void_p(a), known.left, zero, ctypes.c_void_p(c), known.result),
            *(ctypes.c_void_p(c), known.result, known.algorithm),
            *(ctypes.c_void_p(room[0]), ctypes.c_size_t(room[1]), ctypes.c_void_p(stream)),
        )
        self._check(status)

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

    def _chosen(self, call: Gemm, dtype: DType, bias: int, most: int, aligned: int) -> _Call:
        """The description of a call, and cuBLASLt's choice for it."""
        library, by = self._library, ctypes.byref
        product = ctypes.c_void_p()
        self._check(library.cublasLtMatmulDescCreate(by(product), _COMPUTE, _FLOAT))
        self._set(product, _TRANS_A, ctypes.c_int32(call.right[0]))
        self._set(product, _TRANS_B, ctypes.c_int32(call.left[0]))
        self._set(product, _EPILOGUE, ctypes.c_int32(_BIAS))
        self._set(product, _BIAS_POINTER, ctypes.c_void_p(bias))
        n, m, k = call.rows, call.columns, call.terms
        left = self._matrix(dtype, n, k, *call.left, (call.count, call.steps[0]))
        right = self._matrix(dtype, k, m, *call.right, (call.count, call.steps[1]))
        result = self._matrix(dtype, n, m, False, m, (call.count, call.steps[2]))
        choice = ctypes.c_void_p()
        self._check(library.cublasLtMatmulPreferenceCreate(by(choice)))
        size = ctypes.c_uint64(most)
        change = library.cublasLtMatmulPreferenceSetAttribute
        self._check(change(choice, _WORKSPACE, by(size), ctypes.c_size_t(8)))
        least = ctypes.c_uint32(aligned)
        for attribute in _ALIGNMENTS:
            self._check(change(choice, attribute, by(least), ctypes.c_size_t(4)))
        algorithm = (ctypes.c_uint64 * (_RESULT // 8))()
        count = ctypes.c_int()
        self._check(
            library.cublasLtMatmulAlgoGetHeuristic(
                *(self._handle, product, right, left, result, result),
                *(choice, 1, by(algorithm), by(count)),
            )
        )
        library.cublasLtMatmulPreferenceDestroy(choice)
        if not count.value:
            raise InternalError(f"cuBLASLt has no code for {call}")
        return _Call(product, left, right, result, algorithm)
