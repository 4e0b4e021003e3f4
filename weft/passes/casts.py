"""Casts of casts: one cast, or none.

A cast loses nothing if the second dtype holds every value of the first. Then the next cast can
start from the first dtype, with one exception: outside the range of an integer dtype, a float
saturates and an integer wraps.
"""

from __future__ import annotations

from functools import lru_cache

from weft.base.dtypes import DType, real_dtype
from weft.ir.graph import Graph, Node, Value
from weft.ops.cards import ASTYPE
from weft.passes.contract import Notes, Pass
from weft.passes.facts import STANDARD, dense, made_by
from weft.passes.sweep import Sweep

#: Bits of an integer that a floating dtype holds exactly, and its largest exponent.
_DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
_REACH = {"float16": 15, "bfloat16": 127, "float32": 127, "float64": 1023}


class Casts(Pass):
    """Removes casts that change nothing, and merges two casts where that is exact."""

    name = "casts"

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        def rule(node: Node, sweep: Sweep) -> Value | None:
            if node.op is not ASTYPE or dense(node) is None:
                return None
            found = _shorter(node, sweep)
            if found is not None:
                notes.add("casts left out")
            return found

        return Sweep(graph).run(rule)


def _shorter(node: Node, sweep: Sweep) -> Value | None:
    target = node.outputs[0].tensor_type.dtype
    value = node.inputs[0]
    if value.tensor_type.dtype is target:
        return value
    inner = made_by(value, ASTYPE)
    if inner is None:
        return None
    first = inner.inputs[0]
    source = first.tensor_type.dtype
    if not can_skip(source, value.tensor_type.dtype, target):
        return None
    return first if source is target else sweep.add(ASTYPE, first, dtype=target)


@lru_cache(maxsize=10_000)
def can_skip(source: DType, through: DType, target: DType) -> bool:
    """Whether a cast from `source` over `through` to `target` equals the direct cast."""
    if not STANDARD.issuperset((source, through, target)):
        return False
    if source.kind == "complex" and target.kind not in ("complex", "bool"):
        return False  # such a cast is an error
    whole = {"int", "uint"}
    if {source.kind, through.kind, target.kind} <= whole and through.bits >= target.bits:
        return True  # only the low bits count
    if not holds(through, source):
        return False
    if source.kind in whole and through.kind == "float" and target.kind in whole:
        return holds(target, source)  # a float saturates where an integer wraps
    return True


def holds(wide: DType, narrow: DType) -> bool:
    """Whether `wide` has every value of `narrow`."""
    if wide is narrow or narrow.kind == "bool":
        return True
    if wide.kind == "bool":
        return False
    if wide.kind == "complex":
        return holds(real_dtype(wide), real_dtype(narrow))
    if narrow.kind == "complex":
        return False
    if narrow.kind == "float":
        return (
            wide.kind == "float"
            and _DIGITS[wide.name] >= _DIGITS[narrow.name]
            and _REACH[wide.name] >= _REACH[narrow.name]
        )
    bits = narrow.bits - (narrow.kind == "int")
    if wide.kind == "float":
        return bits <= _DIGITS[wide.name] and bits <= _REACH[wide.name]
    signed = narrow.kind == "int"
    return bits <= wide.bits - (wide.kind == "int") and (wide.kind == "int" or not signed)
