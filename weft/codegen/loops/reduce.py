"""Reductions in registers: initial values, how two parts are joined, how lanes are reduced."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.dtypes import NARROW_FLOATS, DType
from weft.codegen.elementwise import compute_type, emit, literal
from weft.codegen.text import Function
from weft.ir.graph import Node
from weft.ir.op import Op
from weft.ops.cards import ALL, ANY, MAX, MIN, PROD, SUM

__all__ = ["JOINS", "Reduction", "across"]

#: The op that joins two parts of a reduction.
JOINS = {
    "sum": "add",
    "prod": "multiply",
    "max": "maximum",
    "min": "minimum",
    "all": "logical_and",
    "any": "logical_or",
}


class Reduction:
    """How a reduction node is computed. Narrow floats are summed in float32, and rounded once."""

    def __init__(self, node: Node) -> None:
        op = node.op
        given: Any = node.inputs[0].type
        result: Any = node.outputs[0].type
        self.node = node
        self.join = JOINS[op.name]
        self.given: DType = given.dtype
        self.result: DType = result.dtype
        if op in (ALL, ANY):
            self.dtype = dtypes.bool
        elif self.result in NARROW_FLOATS:
            self.dtype = dtypes.float32
        else:
            self.dtype = self.result
        self.start = _start(op, self.dtype)

    def kind(self, lanes: int) -> str:
        return compute_type(self.dtype, lanes)

    def begin(self, lanes: int) -> str:
        return literal(self.dtype, self.start, lanes)

    def taken(self, f: Function, value: str, lanes: int, mask: str | None) -> str:
        """A value of the operand in the accumulator's dtype; masked lanes get the initial value."""
        # Narrow floats are float32 in registers already: that is their compute form.
        wide = self.given in NARROW_FLOATS and self.dtype is dtypes.float32
        if not wide and self.given is not self.dtype:
            to = {"dtype": self.dtype}
            cast = emit(f, "astype", [(self.given, value)], self.dtype, lanes, to)
            assert cast is not None
            value = cast
        if mask is None:
            return value
        kind = self.kind(lanes)
        return f(f"select <{lanes} x i1> {mask}, {kind} {value}, {kind} {self.begin(lanes)}")

    def joined(self, f: Function, a: str, b: str, lanes: int) -> str:
        made = emit(f, self.join, [(self.dtype, a), (self.dtype, b)], self.dtype, lanes, {})
        assert made is not None
        return made

    def without_negative_zero(self, f: Function, value: str, lanes: int) -> str:
        """Maxima and minima are never -0: which of equal zeros wins would depend on the order."""
        if self.node.op not in (MAX, MIN) or self.dtype.kind != "float":
            return value
        zero = (self.dtype, literal(self.dtype, 0.0, lanes))
        made = emit(f, "add", [(self.dtype, value), zero], self.dtype, lanes, {})
        assert made is not None
        return made

    def finished(self, f: Function, value: str, lanes: int = 1) -> str:
        """The result, in the node's dtype."""
        value = self.without_negative_zero(f, value, lanes)
        if self.dtype is self.result:
            return value
        made = emit(f, "astype", [(self.dtype, value)], self.result, lanes, {"dtype": self.result})
        assert made is not None
        return made


def across(f: Function, reduction: Reduction, value: str, lanes: int) -> str:
    """Reduce all lanes to one number, joining halves."""
    while lanes > 1:
        half = lanes // 2
        kind = reduction.kind(lanes)
        parts = []
        for first in (0, half):
            order = ", ".join(f"i32 {first + i}" for i in range(half))
            part = f(f"shufflevector {kind} {value}, {kind} poison, <{half} x i32> <{order}>")
            if half == 1:
                scalar = reduction.kind(1)
                part = f(f"extractelement <1 x {scalar}> {part}, i64 0")
            parts.append(part)
        value = reduction.joined(f, parts[0], parts[1], half)
        lanes = half
    return value


def _start(op: Op, dtype: DType) -> Any:
    numpy: Any = dtype.numpy
    if op is SUM:
        return numpy.type(0)  # so that a sum is never -0
    if op is PROD:
        return numpy.type(1)
    if op in (ALL, ANY):
        return np.bool_(op is ALL)
    if dtype is dtypes.bool:
        return np.bool_(op is MIN)
    if dtype.kind == "float":
        return numpy.type(-np.inf if op is MAX else np.inf)
    limits = np.iinfo(numpy)
    return numpy.type(limits.min if op is MAX else limits.max)
