"""Matrix products by cuBLAS, called directly: CuPy refuses its own calls while a graph is captured.

float32 products are exact float32, or TF32 where `weft.set_float32_matmul_precision` allows it;
narrow floats are summed in float32.
"""

from __future__ import annotations

import ctypes
import glob
import os
import sys
from collections.abc import Sequence
from typing import Any

from weft.base.dtypes import DType, bfloat16, float16, float32, float64
from weft.base.errors import InternalError
from weft.base.precision import rounds_to_tf32
from weft.codegen.cuda.matrix import Gemm

__all__ = ["Blas", "library", "places"]

#: cudaDataType and cublasComputeType_t, by dtype.
_TYPES = {float16: (2, 68), bfloat16: (14, 68), float32: (0, 68), float64: (1, 70)}
#: cublasComputeType_t of float32 products whose operands are rounded to TF32.
_TF32 = 77
_WORKSPACE = 32 << 20


class Blas:
    """A handle of cuBLAS with memory of its own: a piece for each of the products that run at the
    same time."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._library = _load()
        self._handle = ctypes.c_void_p()
        self._check(self._library.cublasCreate_v2(ctypes.byref(self._handle)))
        self._work: list[Any] = []
        self.prepare(1)
        self.room = 0, _WORKSPACE  # the memory of the stream in use: its address and its size
        self._one = {4: ctypes.c_float(1), 8: ctypes.c_double(1)}
        self._zero = {4: ctypes.c_float(0), 8: ctypes.c_double(0)}

    def _check(self, status: int) -> None:
        if status:
            raise InternalError(f"cuBLAS returned status {status}")

    def prepare(self, count: int) -> None:
        """Have so many pieces of memory."""
        while len(self._work) < count:
            self._work.append(self._cupy.empty(_WORKSPACE, dtype="u1"))

    def use(self, stream: int, piece: int = 0) -> None:
        """Let what follows go into a stream, given by its address, with that piece of memory."""
        library, handle = self._library, self._handle
        self._check(library.cublasSetStream_v2(handle, ctypes.c_void_p(stream)))
        work = ctypes.c_void_p(self._work[piece].data.ptr), ctypes.c_size_t(_WORKSPACE)
        self._check(library.cublasSetWorkspace_v2(handle, *work))
        self.room = self._work[piece].data.ptr, _WORKSPACE

    def product(self, call: Gemm, dtype: DType, result: DType, addresses: Sequence[int]) -> None:
        """Run one call on operands of a dtype and a result of another at these addresses."""
        kind, compute = _TYPES[dtype]
        made = _TYPES[result][0]
        if dtype is float32 and rounds_to_tf32():
            compute = _TF32
        wide = 8 if dtype is float64 else 4
        a, b, c = (
            ctypes.c_void_p(at + place * of.itemsize)
            for at, place, of in zip(addresses, call.offsets, (dtype, dtype, result), strict=True)
        )
        # In column-major order, as cuBLAS has it: Cᵀ = Bᵀ · Aᵀ.
        shape = (
            *(self._handle, int(call.right[0]), int(call.left[0])),
            *(call.columns, call.rows, call.terms, ctypes.byref(self._one[wide])),
        )
        zero = ctypes.byref(self._zero[wide])
        if call.count == 1:
            status = self._library.cublasGemmEx(
                *(*shape, b, kind, call.right[1], a, kind, call.left[1]),
                *(zero, c, made, call.columns, compute, -1),
            )
        else:
            step_a, step_b, step_c = map(ctypes.c_longlong, call.steps)
            status = self._library.cublasGemmStridedBatchedEx(
                *(*shape, b, kind, call.right[1], step_b, a, kind, call.left[1], step_a),
                *(zero, c, made, call.columns, step_c, call.count, compute, -1),
            )
        self._check(status)


def _load() -> Any:
    """cuBLAS: the one that CuPy uses, from NVIDIA's wheels or from the system."""
    found = library("libcublas.so", ("13", "12"))
    if found is None:
        raise InternalError("cuBLAS (libcublas.so) cannot be loaded")
    return found


def library(name: str, versions: Sequence[str]) -> Any:
    """A library from NVIDIA's wheels or from the system; None if it cannot be loaded."""
    for path in (*places(name), *(f"{name}.{version}" for version in versions), name):
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    return None


def places(name: str) -> list[str]:
    """The files of a library in NVIDIA's wheels."""
    return [
        path
        for folder in sys.path
        if folder
        for path in sorted(
            glob.glob(os.path.join(folder, "nvidia", "**", f"{name}*"), recursive=True)
        )
    ]
