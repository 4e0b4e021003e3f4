"""The two forms of an element: in memory, and in registers for computation.

| dtype | memory | compute |
| --- | --- | --- |
| bool | i8, 0 or 1 | i1 |
| integers | iN | iN |
| float32, float64 | float, double | float, double |
| float16 | half | float, rounded to float16 |
| bfloat16 | i16 | float, rounded to bfloat16 |
| complex64, complex128 | i64, i128 | the same: the real part is the low half |

A narrow float in compute form is always a value of its dtype: ops on it round their result
(`rounded`), so that a store is exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.dtypes import NARROW_FLOATS, DType
from weft.codegen.index import Ptr
from weft.codegen.scalar.vec import Vec, constant, vector_type
from weft.codegen.text import Function

__all__ = [
    "compute_kind",
    "compute_type",
    "literal",
    "load",
    "memory_type",
    "rounded",
    "splat",
    "store",
    "supported",
]

_MEMORY = {
    dtypes.bool: "i8",
    dtypes.float16: "half",
    dtypes.bfloat16: "i16",
    dtypes.float32: "float",
    dtypes.float64: "double",
}
_COMPUTE = {
    dtypes.bool: "i1",
    dtypes.float16: "float",
    dtypes.bfloat16: "float",
    dtypes.float32: "float",
    dtypes.float64: "double",
}
for _dtype in list(dtypes.DTYPES.values()):
    if _dtype.kind in ("int", "uint"):
        _MEMORY[_dtype] = _COMPUTE[_dtype] = f"i{_dtype.bits}"
for _dtype, _bits in ((dtypes.complex64, "i64"), (dtypes.complex128, "i128")):
    _MEMORY[_dtype] = _COMPUTE[_dtype] = _bits  # see `complexes`


def supported(dtype: DType) -> bool:
    """Whether there is arithmetic on a dtype: not on complex ones or users' own."""
    return dtype in _COMPUTE and dtype.kind != "complex"


def memory_type(dtype: DType) -> str:
    return _MEMORY[dtype]


def compute_kind(dtype: DType) -> str:
    return _COMPUTE[dtype]


def compute_type(dtype: DType, lanes: int) -> str:
    return vector_type(_COMPUTE[dtype], lanes)


def literal(dtype: DType, value: Any, lanes: int) -> str:
    """A Python or NumPy number as a constant in compute form."""
    number = np.asarray(value).astype(dtype.numpy)  # narrow floats are rounded here
    if dtype.kind == "complex":
        return constant(_COMPUTE[dtype], int.from_bytes(number.tobytes(), "little"), lanes)
    return constant(_COMPUTE[dtype], number.astype(dtype.numpy).item(), lanes)


def splat(f: Function, dtype: DType, value: str, lanes: int) -> str:
    """A scalar in compute form, in all lanes."""
    if lanes == 1:
        return value
    kind = _COMPUTE[dtype]
    if not value.startswith("%"):
        return f"splat ({kind} {value})"
    whole = f"<{lanes} x {kind}>"
    first = f(f"insertelement {whole} poison, {kind} {value}, i64 0")
    return f(f"shufflevector {whole} {first}, {whole} poison, <{lanes} x i32> zeroinitializer")


# --- memory ---------------------------------------------------------------------------------------


def load(
    f: Function, dtype: DType, pointer: Ptr, lanes: int, mask: str | None = None, align: int = 0
) -> str:
    """`lanes` elements from memory, in compute form; 0 where a mask <lanes x i1> does not hold.
    `align`: bytes that the address is a multiple of, if more than an element has."""
    kind, align = _MEMORY[dtype], align or min(dtype.itemsize, 8)
    whole = vector_type(kind, lanes)
    if mask is None:
        raw = f(f"load {whole}, ptr {pointer.name}, align {align}")
    elif lanes == 1:
        room = f.var(kind, "zeroinitializer")
        with f.when(mask):
            room.store(f(f"load {kind}, ptr {pointer.name}, align {align}"))
        raw = room.load()
    else:
        given = Vec(f, kind, lanes, "")
        mask_type = f"<{lanes} x i1>"
        name = f.module.declare(
            whole, f"llvm.masked.load.{given.suffix}.p0", f"ptr, {mask_type}, {whole}"
        )
        raw = f(
            f"call {whole} @{name}(ptr align {align} {pointer.name}, {mask_type} {mask}, "
            f"{whole} zeroinitializer)"
        )
    return _read(Vec(f, kind, lanes, raw), dtype).name


def store(
    f: Function,
    dtype: DType,
    pointer: Ptr,
    value: str,
    lanes: int,
    mask: str | None = None,
    align: int = 0,
) -> None:
    """Store values in compute form, where a mask holds."""
    raw = _written(Vec(f, _COMPUTE[dtype], lanes, value), dtype)
    align = align or min(dtype.itemsize, 8)
    if mask is None:
        f.do(f"store {raw.type} {raw}, ptr {pointer.name}, align {align}")
    elif lanes == 1:
        with f.when(mask):
            f.do(f"store {raw.type} {raw}, ptr {pointer.name}, align {align}")
    else:
        mask_type = f"<{lanes} x i1>"
        if align < 4:
            mask = _unknown_mask(f, pointer, mask, mask_type)
        name = f.module.declare(
            "void", f"llvm.masked.store.{raw.suffix}.p0", f"{raw.type}, ptr, {mask_type}"
        )
        given = f"{raw.type} {raw}, ptr align {align} {pointer.name}, {mask_type} {mask}"
        f.do(f"call void @{name}({given})")


def _unknown_mask(f: Function, pointer: Ptr, mask: str, mask_type: str) -> str:
    """The same mask, hidden from LLVM's constant folding.

    For a truncated vector stored under a constant mask of one lane, LLVM (22, x86) stores the whole
    element from before the truncation, overwriting bytes beyond the lane.
    """
    there = f(f"icmp ne ptr {pointer}, null")
    first = f(f"insertelement {mask_type} poison, i1 {there}, i64 0")
    lanes = mask_type.split(" ")[0][1:]
    every = f(
        f"shufflevector {mask_type} {first}, {mask_type} poison, <{lanes} x i32> zeroinitializer"
    )
    return f(f"and {mask_type} {mask}, {every}")


def _read(raw: Vec, dtype: DType) -> Vec:
    if dtype is dtypes.bool:
        return raw.differs(0)
    if dtype is dtypes.bfloat16:
        if raw.lanes % 4 == 0 and raw.f.module.machine.has("cvt.bf16"):
            return _pairs(raw)
        return (raw.convert("zext", "i32") << 16).convert("bitcast", "float")
    if dtype is dtypes.float16:
        return from_half(raw)
    return raw


def _pairs(raw: Vec) -> Vec:
    """bfloat16 as float32, two of them from each 32 bits: one instruction for an element."""
    f, lanes = raw.f, raw.lanes
    pairs = Vec(f, "i32", lanes // 2, f(f"bitcast {raw.type} {raw} to <{lanes // 2} x i32>"))
    low, high = pairs << 16, pairs & -65536
    order = ", ".join(f"i32 {i // 2 + i % 2 * (lanes // 2)}" for i in range(lanes))
    both = f(f"shufflevector {low.type} {low}, {high.type} {high}, <{lanes} x i32> <{order}>")
    return Vec(f, "i32", lanes, both).convert("bitcast", "float")


def _written(value: Vec, dtype: DType) -> Vec:
    if dtype is dtypes.bool:
        return value.convert("zext", "i8")
    if dtype is dtypes.bfloat16:
        return value.as_bits().op("lshr", 16).convert("trunc", "i16")
    if dtype is dtypes.float16:
        return to_half(value)
    return value


# --- narrow floats --------------------------------------------------------------------------------


def rounded(value: Vec, dtype: DType) -> Vec:
    """A float32 result rounded to the narrow float of the result's dtype."""
    if dtype is dtypes.float16:
        return from_half(to_half(value))
    if dtype is dtypes.bfloat16 and value.f.module.machine.has("cvt.bf16"):
        return _read(value.convert("fptrunc", "bfloat").convert("bitcast", "i16"), dtype)
    if dtype is dtypes.bfloat16:
        bits = value.as_bits()
        half_up = bits + (bits.op("lshr", 16) & 1) + 0x7FFF
        kept = value.is_nan().pick(bits | 0x400000, half_up)  # a NaN must not round to infinity
        return (kept & ~0xFFFF).convert("bitcast", "float")
    assert dtype not in NARROW_FLOATS
    return value


def to_half(value: Vec) -> Vec:
    """float to half, to nearest even."""
    if value.f.module.machine.has("f16c"):
        return value.convert("fptrunc", "half")
    # Without the instruction LLVM calls a library function that may not exist: use integers
    # instead.
    bits = value.as_bits()
    sign = bits.op("lshr", 16) & 0x8000
    size = bits & 0x7FFFFFFF
    normal = (size + (size.op("lshr", 13) & 1) - ((112 << 23) - 0xFFF)).op("lshr", 13)
    # A denormal's unit in the last place is that of 0.5 in float32: the addition rounds.
    small = (size.convert("bitcast", "float") + 0.5).as_bits() - 0x3F000000
    # 65520 and more round to infinity; NaN is kept.
    large = (size.compare("ugt", 0x7F800000)).pick(size.make(0x7E00), 0x7C00)
    out = size.compare("ult", 113 << 23).pick(small, normal)
    out = size.compare("uge", 0x477FF000).pick(large, out)
    return (out | sign).convert("trunc", "i16").convert("bitcast", "half")


def from_half(value: Vec) -> Vec:
    """half to float, exactly."""
    if value.f.module.machine.has("f16c"):
        return value.convert("fpext", "float")
    bits = value.as_bits().convert("zext", "i32")
    moved = (bits & 0x7FFF) << 13
    # The product moves the exponents, and normalizes denormal numbers.
    finite = (moved.convert("bitcast", "float") * 2.0**112).as_bits()
    special = moved.compare("uge", 0x7C00 << 13).pick(moved | 0x7F800000, finite)
    return (special | ((bits & 0x8000) << 16)).convert("bitcast", "float")
