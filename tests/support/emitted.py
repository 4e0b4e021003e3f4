"""Kernels of single cards, built and called as a run would, to be compared with the card itself."""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from weft.base.device import CPU
from weft.base.dtypes import DType, dtype_of_numpy
from weft.codegen.jit import Library, build
from weft.codegen.kernel import PARAMS, Kernel
from weft.codegen.machine import Caches, Machine, host
from weft.codegen.text import Module
from weft.ir.graph import Node, Value
from weft.ir.op import OPS
from weft.ir.types import TensorType

Array = np.ndarray[Any, Any]
Emitters = dict[str, Callable[..., list[Kernel] | None]]

_CALL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_GUARD = 64  # bytes around results, to see writes beyond them
_FILL = 0xA5


def narrower(width: int) -> Machine:
    """This machine with vectors of fewer bytes."""
    gone = ("avx512",) if width == 32 else ("avx512", "avx", "f16c", "fma")
    words = [
        "-" + word[1:] if word[1:].startswith(gone) else word for word in host().features.split(",")
    ]
    return replace(host(), features=",".join(words), vector_bytes=width)


#: Machines like this one with other caches, which kernels are cut for.
OTHER_CACHES = [
    replace(host(), caches=Caches(32 << 10, 256 << 10, 256 << 10, 8192)),
    replace(host(), caches=Caches(128 << 10, 2 << 20, 12 << 20, 16384)),
]


def type_of(array: Array) -> TensorType:
    return TensorType(dtype_of_numpy(array.dtype), array.shape, CPU)


def node_of(op: str, arrays: Sequence[Array], attrs: dict[str, Any]) -> Node:
    card = OPS[op]
    types = [type_of(a) for a in arrays]
    found = card.infer(*types, **attrs)
    results = found if isinstance(found, tuple) else (found,)
    return Node(card, [Value(t) for t in types], attrs, results)


def eager(op: str, arrays: Sequence[Array], attrs: dict[str, Any]) -> list[Array]:
    """What the card's own kernel gives."""
    card = OPS[op]
    kind = arrays[card.dispatch_on].dtype if arrays else attrs["dtype"].numpy
    out = card.kernels[np.ndarray][kind](*arrays, **attrs)
    return [np.asarray(part) for part in (out if isinstance(out, tuple) else (out,))]


def _room(dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Memory for an array with guards around, aligned as its dtype needs and no better."""
    size = int(np.prod(shape, dtype=int)) * dtype.itemsize
    memory = np.full(size + 3 * _GUARD, _FILL, np.uint8)
    first = _GUARD - memory.ctypes.data % _GUARD + dtype.alignment
    return memory, memory[first : first + size].view(dtype).reshape(shape)


def _untouched(memory: Array, array: Array) -> bool:
    """Is nothing written before and behind the array?"""
    first = array.ctypes.data - memory.ctypes.data if array.size else 0
    around = np.concatenate([memory[:first], memory[first + array.nbytes :]])
    return bool((around == _FILL).all())


@dataclass
class Case:
    """One call of a card."""

    op: str
    arrays: list[Array] = field(repr=False)
    attrs: dict[str, Any]
    kernels: list[Kernel] | None = None
    library: Library | None = field(default=None, repr=False)

    def on(self, *arrays: Array) -> Case:
        """The same kernels on other values."""
        return replace(self, arrays=list(arrays))

    def run(self, pieces: int = 1, backwards: bool = False) -> tuple[int, list[Array]]:
        """The status and the results, with the items of each kernel cut into pieces."""
        assert self.kernels is not None, f"there is no emitter for {self}"
        node = node_of(self.op, self.arrays, self.attrs)
        results = [_room(v.tensor_type.dtype.numpy, v.tensor_type.shape) for v in node.outputs]
        inputs = [_room(a.dtype, a.shape) for a in self.arrays]
        for (_, room), given in zip(inputs, self.arrays, strict=True):
            room[...] = given
        most = max((kernel.scratch for kernel in self.kernels), default=0)
        scratch = _room(np.dtype(np.uint64), (most // 8 + 1,))  # one for all kernels of the node
        pointers = [array.ctypes.data for _, array in (*inputs, *results, scratch)]
        status = self.call(pointers, pieces, backwards)
        assert all(_untouched(*room) for room in (*inputs, *results, scratch)), self
        for (_, room), given in zip(inputs, self.arrays, strict=True):
            assert room.tobytes() == given.tobytes(), self
        return status, [array for _, array in results]

    def call(self, pointers: Sequence[int], pieces: int = 1, backwards: bool = False) -> int:
        """Run the kernels, up to the first that fails."""
        assert self.kernels is not None
        assert self.library is not None
        args = ctypes.cast((ctypes.c_void_p * len(pointers))(*pointers), ctypes.c_void_p)
        status = 0
        for kernel in self.kernels:
            function = _CALL(self.library.address(f"call.{kernel.name}"))
            cuts = [kernel.items * i // pieces for i in range(pieces + 1)]
            ranges = [cut for cut in itertools.pairwise(cuts) if cut[0] < cut[1]]
            for begin, end in reversed(ranges) if backwards else ranges:
                status |= function(args, begin, end)
            if status:
                break
        return status


def build_cases(cases: Sequence[Case], emitters: Emitters, target: Machine | None = None) -> None:
    """Emit the kernels of all cases into one module, and build it."""
    module = Module(target or host())
    exports = []
    for number, case in enumerate(cases):
        node = node_of(case.op, case.arrays, case.attrs)
        case.kernels = emitters[case.op](module, f"k{number}", node)
        for kernel in case.kernels or ():
            f = module.function(f"call.{kernel.name}", "i32", PARAMS, linkage="")
            call = f(f"call i32 @{kernel.name}(ptr %args, i64 %begin, i64 %end)")
            f.do(f"ret i32 {call}")
            exports.append(f.name)
    library = build(module.text(), exports, target)
    for case in cases:
        case.library = library


def check_case(case: Case) -> None:
    """Bit by bit what the card gives, for any cut; a status where the card fails."""
    try:
        with np.errstate(all="ignore"):
            wanted = eager(case.op, case.arrays, case.attrs)
    except (IndexError, ValueError):
        assert case.run()[0] != 0, case
        assert case.run(3)[0] != 0, case
        return
    for pieces in (1, 2, 7):
        status, results = case.run(pieces, backwards=pieces == 7)
        assert status == 0, case
        for found, right in zip(results, wanted, strict=True):
            assert (found.dtype, found.shape) == (right.dtype, right.shape), case
            assert _bits(case.op, found) == _bits(case.op, right), f"{case}\n{found}\n{right}"


#: Which of several NaNs a sum is, no one has laid down.
_SUMS = frozenset({"scatter_add", "row_sums", "cumulative_sum", "cumulative_prod"})


def _bits(op: str, array: Array) -> bytes:
    if op in _SUMS and array.dtype.kind not in "iu":
        array = np.where(array != array, np.asarray(np.nan, array.dtype), array)
    return array.tobytes()


@functools.cache
def narrow_target() -> Machine:
    """This machine with vectors of 16 bytes, and without what the newer ones brought."""
    gone = ("avx", "fma", "f16c", "vaes", "vpclmulqdq", "xop")
    words = host().features.split(",")
    kept = [f"-{word[1:]}" if word[1:].startswith(gone) else word for word in words]
    return replace(host(), features=",".join(kept), vector_bytes=16)


def values(dtype: DType, shape: tuple[int, ...], seed: int = 0) -> Array:
    """Ordinary numbers with ties, limits, and among floats NaN, infinities and both zeros."""
    rng = np.random.default_rng(seed)
    chance = rng.random(shape)
    if dtype.kind == "bool":
        return np.asarray(chance < 0.5)
    if dtype.kind in ("int", "uint"):
        info = np.iinfo(dtype.numpy)
        drawn = rng.integers(-6 if dtype.kind == "int" else 0, 7, shape)
        some = np.where(chance > 0.9, info.max, drawn.astype(dtype.numpy))
        return np.where(chance < 0.1, info.min, some).astype(dtype.numpy)
    out = np.round(rng.normal(size=shape) * 3, 1)
    if dtype.kind == "complex":
        return (out + 1j * rng.normal(size=shape)).astype(dtype.numpy)
    special = [np.nan, -0.0, 0.0, np.inf, -np.inf]
    for i, value in enumerate(special):
        out = np.where((chance > 0.06 * i) & (chance < 0.06 * (i + 1)), value, out)
    return np.asarray(out).astype(dtype.numpy)
