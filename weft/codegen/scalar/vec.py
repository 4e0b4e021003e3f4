"""A value in registers with Python's operators, so that formulas in IR read as formulas.

    x = Vec(f, "float", 16, "%x")
    y = x.fma(x, 1.0)                      # x * x + 1, rounded once
    f.do(f"ret <16 x float> {(x < 0.0).pick(-y, y)}")

A Vec is a vector of `lanes` elements of an LLVM type; a scalar if `lanes` is 1. Python numbers
become constants of its type. No operator has fast-math flags. The caller must guard against
undefined results (a shift by the width, an integer divided by 0).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from weft.codegen.text import Function

__all__ = ["FLOATS", "Vec", "constant", "vector_type"]

#: Names of the floating types in intrinsics, and integers of their size.
FLOATS = {"half": ("f16", "i16"), "float": ("f32", "i32"), "double": ("f64", "i64")}

Number = int | float


def vector_type(kind: str, lanes: int) -> str:
    return kind if lanes == 1 else f"<{lanes} x {kind}>"


def constant(kind: str, value: Number, lanes: int) -> str:
    """A number as a constant; floats by their bits, so exactly."""
    if kind in FLOATS:
        text = _float_text(kind, float(value))
    elif kind == "i1":
        text = "true" if value else "false"
    else:
        text = str(int(value))
    return text if lanes == 1 else f"splat ({kind} {text})"


def _float_text(kind: str, value: float) -> str:
    if kind == "half":
        return f"0xH{int.from_bytes(struct.pack('<e', value), 'little'):04X}"
    if kind == "float" and math.isfinite(value):
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    return f"0x{int.from_bytes(struct.pack('<d', value), 'little'):016X}"


class Vec:
    """A value: its function, the LLVM type of its elements, their number, its name."""

    __slots__ = ("f", "kind", "lanes", "name")

    def __init__(self, f: Function, kind: str, lanes: int, name: str) -> None:
        self.f = f
        self.kind = kind
        self.lanes = lanes
        self.name = name

    def __str__(self) -> str:
        return self.name

    @property
    def type(self) -> str:
        return vector_type(self.kind, self.lanes)

    @property
    def bits(self) -> int:
        """The width of an element."""
        return int(FLOATS[self.kind][1][1:] if self.kind in FLOATS else self.kind[1:])

    @property
    def known(self) -> bool:
        """Whether it is a constant."""
        return not self.name.startswith("%")

    def make(self, value: Number, kind: str = "") -> Vec:
        """A constant with as many lanes."""
        kind = kind or self.kind
        return Vec(self.f, kind, self.lanes, constant(kind, value, self.lanes))

    def _same(self, other: Vec | Number) -> Vec:
        return other if isinstance(other, Vec) else self.make(other)

    def _new(self, instruction: str, kind: str = "") -> Vec:
        return Vec(self.f, kind or self.kind, self.lanes, self.f(instruction))

    # --- arithmetic: `f…` on floats, plain on integers -------------------------------------------

    def _binary(self, word: str, other: Vec | Number) -> Vec:
        prefix = "f" if self.kind in FLOATS else ""
        return self._new(f"{prefix}{word} {self.type} {self.name}, {self._same(other).name}")

    def __add__(self, other: Vec | Number) -> Vec:
        return self._binary("add", other)

    def __radd__(self, other: Number) -> Vec:
        return self.make(other)._binary("add", self)

    def __sub__(self, other: Vec | Number) -> Vec:
        return self._binary("sub", other)

    def __rsub__(self, other: Number) -> Vec:
        return self.make(other)._binary("sub", self)

    def __mul__(self, other: Vec | Number) -> Vec:
        return self._binary("mul", other)

    def __rmul__(self, other: Number) -> Vec:
        return self.make(other)._binary("mul", self)

    def __truediv__(self, other: Vec | Number) -> Vec:
        return self._binary("div", other)

    def __rtruediv__(self, other: Number) -> Vec:
        return self.make(other)._binary("div", self)

    def __neg__(self) -> Vec:
        if self.kind in FLOATS:
            return self._new(f"fneg {self.type} {self.name}")
        return 0 - self

    def fma(self, factor: Vec | Number, more: Vec | Number) -> Vec:
        """self * factor + more, rounded once."""
        machine = self.f.module.machine
        if self.kind == "float" and not machine.fuses(4):
            # The product is exact in float64.
            wide = [x.convert("fpext", "double") for x in (self, *map(self._same, (factor, more)))]
            return (wide[0] * wide[1] + wide[2]).convert("fptrunc", "float")
        return self.intrinsic("fma", self._same(factor), self._same(more))

    def poly(self, coefficients: Sequence[float]) -> Vec:
        """A polynomial; the coefficient of the highest power comes first."""
        out = self.make(coefficients[0])
        fuses = self.f.module.machine.fuses(4 if self.kind == "float" else 8)
        for coefficient in coefficients[1:]:
            out = out.fma(self, coefficient) if fuses else out * self + coefficient
        return out

    # --- bits ------------------------------------------------------------------------------------

    def op(self, word: str, other: Vec | Number) -> Vec:
        """Any other binary instruction on this type: "udiv", "ashr"…"""
        return self._new(f"{word} {self.type} {self.name}, {self._same(other).name}")

    def __and__(self, other: Vec | Number) -> Vec:
        return self.op("and", other)

    def __or__(self, other: Vec | Number) -> Vec:
        return self.op("or", other)

    def __xor__(self, other: Vec | Number) -> Vec:
        return self.op("xor", other)

    def __lshift__(self, other: Vec | Number) -> Vec:
        return self.op("shl", other)

    def __rshift__(self, other: Vec | Number) -> Vec:
        """Arithmetic shift."""
        return self.op("ashr", other)

    def __invert__(self) -> Vec:
        return self.op("xor", 1 if self.kind == "i1" else -1)

    def as_bits(self) -> Vec:
        """The bits of floats, as integers."""
        return self.convert("bitcast", FLOATS[self.kind][1])

    def convert(self, word: str, kind: str) -> Vec:
        """A cast instruction: "bitcast", "fpext", "sitofp"…"""
        if kind == self.kind:
            return self
        target = vector_type(kind, self.lanes)
        return self._new(f"{word} {self.type} {self.name} to {target}", kind)

    # --- comparison: NaN compares as Python has it -----------------------------------------------

    def compare(self, word: str, other: Vec | Number) -> Vec:
        """ "oeq", "uno", … for floats, "eq", "slt", "ult", … for integers."""
        which = "fcmp" if self.kind in FLOATS else "icmp"
        return self._new(f"{which} {word} {self.type} {self.name}, {self._same(other).name}", "i1")

    def _ordered(self, word: str, other: Vec | Number) -> Vec:
        return self.compare(("o" if self.kind in FLOATS else "s") + word, other)

    def __lt__(self, other: Vec | Number) -> Vec:
        return self._ordered("lt", other)

    def __le__(self, other: Vec | Number) -> Vec:
        return self._ordered("le", other)

    def __gt__(self, other: Vec | Number) -> Vec:
        return self._ordered("gt", other)

    def __ge__(self, other: Vec | Number) -> Vec:
        return self._ordered("ge", other)

    def equals(self, other: Vec | Number) -> Vec:
        return self.compare("oeq" if self.kind in FLOATS else "eq", other)

    def differs(self, other: Vec | Number) -> Vec:
        return self.compare("une" if self.kind in FLOATS else "ne", other)

    def is_nan(self) -> Vec:
        return self.compare("uno", self)

    def pick(self, yes: Vec | Number, no: Vec | Number) -> Vec:
        """For a mask: `yes` where it holds, else `no`; at least one of them is a Vec."""
        like = yes if isinstance(yes, Vec) else no
        assert isinstance(like, Vec)
        yes, no = like._same(yes), like._same(no)
        return like._new(
            f"select {self.type} {self.name}, {like.type} {yes.name}, {like.type} {no.name}"
        )

    def any(self) -> str:
        """For a mask: an i1, whether it holds in any lane."""
        if self.lanes == 1:
            return self.name
        name = self.f.module.declare("i1", f"llvm.vector.reduce.or.v{self.lanes}i1", self.type)
        return self.f(f"call i1 @{name}({self.type} {self.name})")

    # --- intrinsics ----------------------------------------------------------------------------

    @property
    def suffix(self) -> str:
        """The suffix of intrinsics' names: f32, v16f32, v8i64."""
        short = FLOATS[self.kind][0] if self.kind in FLOATS else self.kind
        return short if self.lanes == 1 else f"v{self.lanes}{short}"

    def intrinsic(self, word: str, *others: Vec | Number) -> Vec:
        """Call `llvm.<word>` on values of this type."""
        values = [self, *map(self._same, others)]
        kinds = ", ".join([self.type] * len(values))
        name = self.f.module.declare(self.type, f"llvm.{word}.{self.suffix}", kinds)
        given = ", ".join(f"{self.type} {value.name}" for value in values)
        return self._new(f"call {self.type} @{name}({given})")

    def __abs__(self) -> Vec:
        if self.kind in FLOATS:
            return self.intrinsic("fabs")
        name = self.f.module.declare(self.type, f"llvm.abs.{self.suffix}", f"{self.type}, i1")
        return self._new(f"call {self.type} @{name}({self.type} {self.name}, i1 false)")
