"""Convolutions by cuDNN, called directly, with memory of ours, so that they can be captured.

Algorithms are chosen by trying them once for each shape, among those that give the same bits in
every run. float32 is exact unless `weft.set_float32_matmul_precision` allows TF32.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weft.base.dtypes import bfloat16, float16, float32, float64
from weft.base.errors import InternalError
from weft.base.precision import rounds_to_tf32
from weft.base.shapes import Shape
from weft.codegen.cuda.convolution import Convolution
from weft.runtime.cuda.products import library, places

__all__ = ["Dnn", "is_there"]

#: cudnnDataType_t, and that of sums.
_TYPES = {float16: (2, 0), bfloat16: (9, 0), float32: (0, 0), float64: (1, 1)}
#: cudnnMathType_t.
_DEFAULT, _TENSOR_CORES, _EXACT = 0, 1, 3
_NCHW, _CROSS_CORRELATION = 0, 1
_CANDIDATES = 10


@functools.cache
def _load() -> Any:
    return library("libcudnn.so", ("9",))


def is_there() -> bool:
    """Whether cuDNN is installed. Its file is only looked for: loading it takes long."""
    return bool(places("libcudnn.so") or ctypes.util.find_library("cudnn")) or _load() is not None


class _Performance(ctypes.Structure):
    """cudnnConvolutionFwdAlgoPerf_t and its like."""

    _fields_ = (
        ("algorithm", ctypes.c_int),
        ("status", ctypes.c_int),
        ("time", ctypes.c_float),
        ("memory", ctypes.c_size_t),
        ("deterministic", ctypes.c_int),
        ("math", ctypes.c_int),
        ("reserved", ctypes.c_int * 3),
    )


@dataclass(frozen=True, slots=True)
class _Prepared:
    """Descriptors, and what was chosen."""

    image: Any
    weight: Any
    result: Any
    bias: Any
    convolution: Any
    algorithm: int
    memory: int


def _ints(numbers: Sequence[int]) -> Any:
    return (ctypes.c_int * len(numbers))(*numbers)


#: By op: the functions that try algorithms, and those that run.
_CALLS = {
    "conv": ("cudnnFindConvolutionForwardAlgorithm", "cudnnConvolutionForward"),
    "conv_input": (
        "cudnnFindConvolutionBackwardDataAlgorithm",
        "cudnnConvolutionBackwardData",
    ),
    "conv_weight": (
        "cudnnFindConvolutionBackwardFilterAlgorithm",
        "cudnnConvolutionBackwardFilter",
    ),
}


class Dnn:
    """A handle of cuDNN."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._library = _load()
        self._handle = ctypes.c_void_p()
        self._prepared: dict[tuple[Convolution, bool], _Prepared] = {}
        self._work: list[Any] = []  # graphs that were captured may use older ones
        self._one = {0: ctypes.c_float(1), 1: ctypes.c_double(1)}
        self._zero = {0: ctypes.c_float(0), 1: ctypes.c_double(0)}
        self._do("cudnnCreate", ctypes.byref(self._handle))

    def _do(self, name: str, *args: Any) -> None:
        status = getattr(self._library, name)(*args)
        if status:
            raise InternalError(f"{name} of cuDNN returned status {status}")

    def use(self, stream: int) -> None:
        self._do("cudnnSetStream", self._handle, ctypes.c_void_p(stream))

    def run(self, call: Convolution, addresses: Sequence[int]) -> None:
        """Run one call; the addresses are those of the operands and the result."""
        ready = self.prepare(call)
        kind = _TYPES[call.dtype][1]
        one, zero = ctypes.byref(self._one[kind]), ctypes.byref(self._zero[kind])
        work = self._work[-1].data.ptr if ready.memory else 0
        at = [ctypes.c_void_p(address) for address in addresses]
        op = "conv" if call.op == "conv_bias" else call.op
        given = {
            "conv": (ready.image, at[0], ready.weight, at[1]),
            "conv_input": (ready.weight, at[1], ready.result, at[0]),
            "conv_weight": (ready.image, at[0], ready.result, at[1]),
        }[op]
        target = {"conv": ready.result, "conv_input": ready.image, "conv_weight": ready.weight}[op]
        self._do(
            *(_CALLS[op][1], self._handle, one, *given, ready.convolution),
            *(ready.algorithm, ctypes.c_void_p(work), ctypes.c_size_t(ready.memory)),
            *(zero, target, at[-1]),
        )
        if call.op == "conv_bias":
            bias = (one, ready.bias, at[2], one, ready.result, at[-1])
            self._do("cudnnAddTensor", self._handle, *bias)

    def prepare(self, call: Convolution) -> _Prepared:
        """Descriptors and the fastest algorithm, found once."""
        key = call, rounds_to_tf32()
        found = self._prepared.get(key)
        if found is None:
            found = self._prepared[key] = self._made(call)
            if found.memory > (self._work[-1].nbytes if self._work else 0):
                self._work.append(self._cupy.empty(found.memory, dtype="u1"))
        return found

    def _made(self, call: Convolution) -> _Prepared:
        kind, sums = _TYPES[call.dtype]
        image, result = self._tensor(kind, call.image), self._tensor(kind, call.result)
        channels = (1, call.weight[0], *(1,) * len(call.stride))
        bias = self._tensor(kind, channels)
        weight = ctypes.c_void_p()
        self._do("cudnnCreateFilterDescriptor", ctypes.byref(weight))
        size = len(call.weight)
        self._do("cudnnSetFilterNdDescriptor", weight, kind, _NCHW, size, _ints(call.weight))
        convolution = ctypes.c_void_p()
        self._do("cudnnCreateConvolutionDescriptor", ctypes.byref(convolution))
        axes = (_ints(call.padding), _ints(call.stride), _ints(call.dilation))
        self._do(
            *("cudnnSetConvolutionNdDescriptor", convolution, len(call.stride), *axes),
            *(_CROSS_CORRELATION, sums),
        )
        self._do("cudnnSetConvolutionGroupCount", convolution, call.groups)
        exact = call.dtype is float64 or (call.dtype is float32 and not rounds_to_tf32())
        narrow = call.dtype in (float16, bfloat16)
        math = _EXACT if exact else _TENSOR_CORES if narrow else _DEFAULT
        self._do("cudnnSetConvolutionMathType", convolution, math)
        op = "conv" if call.op == "conv_bias" else call.op
        given = {
            "conv": (image, weight, convolution, result),
            "conv_input": (weight, result, convolution, image),
            "conv_weight": (image, result, convolution, weight),
        }[op]
        tried = (_Performance * _CANDIDATES)()
        count = ctypes.c_int()
        self._do(
            *(_CALLS[op][0], self._handle, *given, _CANDIDATES),
            *(ctypes.byref(count), ctypes.byref(tried)),
        )
        fit = [one for one in tried[: count.value] if not one.status and one.deterministic == 1]
        if not fit:
            raise InternalError(f"cuDNN has no algorithm for {call}")
        best = min(fit, key=lambda one: one.time)
        if not exact:
            self._do("cudnnSetConvolutionMathType", convolution, best.math)
        memory = int(best.memory)
        return _Prepared(image, weight, result, bias, convolution, int(best.algorithm), memory)

    def _tensor(self, kind: int, shape: Shape) -> Any:
        made = ctypes.c_void_p()
        self._do("cudnnCreateTensorDescriptor", ctypes.byref(made))
        strides, step = [], 1
        for size in reversed(shape):
            strides.append(step)
            step *= size
        dims = _ints(shape), _ints(strides[::-1])
        self._do("cudnnSetTensorNdDescriptor", made, kind, len(shape), *dims)
        return made
