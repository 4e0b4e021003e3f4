"""Graphs compared bit by bit, over the values at which arithmetic is special."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import weft
from weft.base.dtypes import DType, int_info
from weft.core.bind import bind
from weft.ir.graph import Graph
from weft.ir.interpret import interpret
from weft.ir.op import Op

Array = np.ndarray[Any, Any]


def special(dtype: DType) -> Array:
    """NaN, infinities, zeros, denormals, limits, and a few ordinary numbers."""
    if dtype.kind == "bool":
        return np.asarray([False, True])
    if dtype.kind in ("int", "uint"):
        info = int_info(dtype)
        root = math.isqrt(info.max) + 1  # its square wraps
        small = [0, 1, 2, 3, 7, 8, 100, root, info.max, info.max - 1, info.min, info.min + 1]
        signed = [-1, -2, -3, -8, -100] if dtype.kind == "int" else []
        return np.asarray(small + signed, dtype=dtype.numpy)
    if dtype.kind == "complex":
        part = special(weft.float32 if dtype is weft.complex64 else weft.float64)[::2]
        pairs = np.stack(np.meshgrid(part, part)).reshape(2, -1)
        out = np.empty(pairs.shape[1], dtype.numpy)
        out.real, out.imag = pairs
        return out
    info_f = weft.finfo(dtype)
    tiny = info_f.smallest_normal
    numbers = [0.0, 1.0, 2.0, 3.0, 0.5, 0.1, 1.5, 2.5, 1e3, tiny, tiny / 4, info_f.max, np.inf]
    return np.asarray([*numbers, *(-n for n in numbers), np.nan]).astype(dtype.numpy)


def ordinary(dtype: DType, count: int, seed: int = 0) -> Array:
    """Numbers of all sizes, as they come."""
    rng = np.random.default_rng(seed)
    if dtype.kind == "bool":
        return rng.integers(0, 2, count).astype(bool)
    if dtype.kind in ("int", "uint"):
        info = int_info(dtype)
        return rng.integers(info.min, info.max, count, dtype=dtype.numpy, endpoint=True)
    if dtype.kind == "complex":
        real = weft.float32 if dtype is weft.complex64 else weft.float64
        parts = ordinary(real, count, seed), ordinary(real, count, seed + 1)
        return (parts[0] + 1j * parts[1]).astype(dtype.numpy)
    sizes = 2.0 ** rng.uniform(-8, 8, count)
    return (rng.normal(size=count) * sizes).astype(dtype.numpy)


def some(dtype: DType, shape: tuple[int, ...], seed: int) -> Array:
    """An array of special numbers."""
    rng = np.random.default_rng(seed)
    return np.asarray(rng.choice(special(dtype), shape), dtype=dtype.numpy)


def contiguous(op: Op, *inputs: Any, **attrs: Any) -> Any:
    """`bind` on tensors that lie in memory as they print.

    What NumPy's SIMD loops and BLAS give depends, in the last bit, on how arrays lie in memory:
    the exponential of a reversed view is computed by other code than that of a plain array, and a
    sum goes through the elements in the order of memory. A pass keeps values, not layouts. So both
    graphs, before and after, are run on plain arrays.
    """
    return bind(op, *map(_plain, inputs), **attrs)


def _plain(x: weft.Tensor) -> weft.Tensor:
    if x._data.flags.c_contiguous:
        return x
    return weft.asarray(np.ascontiguousarray(x.numpy()), copy=False)


def results(graph: Graph, arrays: list[Array], call: Any = contiguous) -> list[Array]:
    """The outputs of a graph; or the error it raises, as one."""
    outputs = interpret(graph, [weft.asarray(a) for a in arrays], call)
    return [out.numpy() for out in outputs]


def same_bits(a: Array, b: Array) -> bool:
    """Equal dtypes, shapes and bits; each NaN is like any other."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind == "c":
        return same_bits(a.real.copy(), b.real.copy()) and same_bits(a.imag.copy(), b.imag.copy())
    if a.dtype.kind in "iub":
        return bool(np.array_equal(a, b))
    unsigned = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[a.dtype.itemsize]
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    equal = a.view(unsigned) == b.view(unsigned)
    return bool(np.all(equal | (np.isnan(a) & np.isnan(b))))


def difference(old: list[Array], new: list[Array]) -> str:
    """What differs, in words; empty if nothing does."""
    if len(old) != len(new):
        return f"{len(old)} and {len(new)} outputs"
    for i, (a, b) in enumerate(zip(old, new, strict=True)):
        if not same_bits(a, b):
            return f"output {i}:\n{a!r}\nbecame\n{b!r}"
    return ""
