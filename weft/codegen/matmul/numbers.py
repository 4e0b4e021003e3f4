"""Element types of products: in memory, and in sums."""

from __future__ import annotations

from dataclasses import dataclass

from weft.base import dtypes
from weft.base.dtypes import DType
from weft.codegen.index import Ptr
from weft.codegen.scalar.forms import load, memory_type, splat
from weft.codegen.scalar.vec import vector_type
from weft.codegen.text import Function

__all__ = ["Number", "number_of", "ones"]


def ones(lanes: int, of: int) -> str:
    """The mask of the first `lanes` of `of` lanes."""
    return "<" + ", ".join(f"i1 {int(i < lanes)}" for i in range(of)) + ">"


_FLOATS = {
    dtypes.float64: dtypes.float64,
    dtypes.float32: dtypes.float32,
    dtypes.float16: dtypes.float32,
    dtypes.bfloat16: dtypes.float32,
}


def number_of(dtype: DType) -> Number | None:
    """Returns None for dtypes that have no product here.

    Narrow integers are summed in 32 bits: the low bits, which are the result, are the same.
    """
    if dtype.kind in ("int", "uint"):
        return Number(dtype, dtypes.int64 if dtype.bits == 64 else dtypes.int32)
    return Number(dtype, _FLOATS[dtype]) if dtype in _FLOATS else None


@dataclass(frozen=True, slots=True)
class Number:
    """The dtype of elements in memory, and the dtype to compute with."""

    stored: DType
    dtype: DType

    @property
    def packed(self) -> Number:
        """For elements that were copied: stored in the dtype to compute with."""
        return Number(self.dtype, self.dtype)

    @property
    def is_packed(self) -> bool:
        """Whether elements in memory need no conversion."""
        return self.memory == self.kind

    @property
    def memory(self) -> str:
        return memory_type(self.stored)

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return self.stored.itemsize

    @property
    def kind(self) -> str:
        return memory_type(self.dtype)

    @property
    def width(self) -> int:
        """Bytes in registers."""
        return self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.stored.short}.{self.dtype.short}"

    def load(self, f: Function, at: Ptr, lanes: int, mask: str | None = None) -> str:
        """`lanes` elements in the dtype to compute with; 0 where the mask does not hold."""
        value = load(f, self.stored, at, lanes, mask)
        if self.dtype.kind == "float" or self.is_packed:
            return value
        return f(
            f"zext {vector_type(self.memory, lanes)} {value} to {vector_type(self.kind, lanes)}"
        )

    def madd(self, f: Function, lanes: int, x: str, y: str, sum: str) -> str:
        """The instruction for x * y + sum, rounded once if the machine has FMA."""
        kind = vector_type(self.kind, lanes)
        if self.dtype.kind != "float":
            return f"add {kind} {f(f'mul {kind} {x}, {y}')}, {sum}"
        if not f.module.machine.fuses(self.dtype.itemsize):
            return f"fadd {kind} {f(f'fmul {kind} {x}, {y}')}, {sum}"
        count = "" if lanes == 1 else f"v{lanes}"
        name = f"llvm.fma.{count}{self.dtype.short}"
        f.module.declare(kind, name, f"{kind}, {kind}, {kind}")
        return f"call {kind} @{name}({kind} {x}, {kind} {y}, {kind} {sum})"

    def splat(self, f: Function, value: str, lanes: int) -> str:
        """A scalar in every lane."""
        return splat(f, self.dtype, value, lanes)

    def narrowed(self, f: Function, value: str, lanes: int) -> str:
        """A sum in the accumulator's dtype: the low bits of narrow integers."""
        if self.dtype.kind == "float" or self.is_packed:
            return value
        return f(
            f"trunc {vector_type(self.kind, lanes)} {value} to {vector_type(self.memory, lanes)}"
        )
