"""Strength reduction: expensive calls become cheaper ones with the same bits.

Left out because it does not pay: an integer product as a shift (NumPy and LLVM are as fast with
both). Left out because it is not exact: `x / 3` as a product; `x ** 0.5` and `x ** -1`, which only
some versions of NumPy compute as a root and a quotient.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft.base.dtypes import NARROW_FLOATS
from weft.ir.graph import Graph, Node, Value
from weft.ir.literal import CONSTANT
from weft.ir.op import Op
from weft.ir.types import TensorType
from weft.ops.cards import (
    BITWISE_AND,
    BITWISE_RIGHT_SHIFT,
    DIVIDE,
    FLOOR_DIVIDE,
    MULTIPLY,
    POW,
    RECIPROCAL,
    REMAINDER,
    SQUARE,
)
from weft.passes.contract import Notes, Pass
from weft.passes.facts import Array, dense, number_of, of_kind
from weft.passes.fold import MOST_ELEMENTS
from weft.passes.sweep import Sweep

Found = tuple[str, Value] | None


class Strength(Pass):
    """Replaces calls by cheaper ones: x / 4 → x * 0.25, x % 8 → x & 7, x ** 2 → square(x)."""

    name = "strength"

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        def rule(node: Node, sweep: Sweep) -> Value | None:
            reduce = _REDUCTIONS.get(node.op)
            if reduce is None:
                return None
            type = dense(node)
            found = None if type is None else reduce(node, type, sweep)
            if found is None:
                return None
            notes.add(f"× {found[0]}")
            return found[1]

        return Sweep(graph).run(rule)


def _divide(node: Node, type: TensorType, sweep: Sweep) -> Found:
    if not of_kind(type.dtype, "real floating"):
        return None
    x, y = node.inputs
    one = number_of(x)
    if one is not None and one == 1:
        inverse = sweep.fitted(sweep.add(RECIPROCAL, y), type)
        return None if inverse is None else ("1 / x → reciprocal(x)", inverse)
    divisor = _numbers(y)
    if divisor is None or not _has_exact_inverse(divisor):
        return None
    inverse = _like(y, (1 / divisor.astype(np.float64)).astype(divisor.dtype), sweep)
    return "x / 2**k → x * 2**-k", sweep.add(MULTIPLY, x, inverse)


def _has_exact_inverse(numbers: Array) -> bool:
    """Whether these are powers of two with inverses that are not denormal."""
    wide = numbers.astype(np.float64)
    smallest = float(_smallest(numbers.dtype))
    mantissas, _ = np.frexp(wide)
    with np.errstate(all="ignore"):
        inverse = 1 / wide
    inside = (np.abs(inverse) >= smallest) & (np.abs(wide) >= smallest)
    return bool(np.all((np.abs(mantissas) == 0.5) & inside & np.isfinite(wide)))


def _power(node: Node, type: TensorType, sweep: Sweep) -> Found:
    x, y = node.inputs
    number = number_of(y)
    if number is None:
        return None
    whole = of_kind(type.dtype, "integral")
    # The kernel for floats computes a product only if the power is 0-d. For an array of powers,
    # NumPy's vector code is not even exact for x ** 1.
    if not whole and not (of_kind(type.dtype, "real floating") and not y.tensor_type.shape):
        return None
    if number == 1 and not whole:
        return "x ** 1 → x", x
    if number == 2:
        found = sweep.fitted(sweep.add(SQUARE, x), type)
        return None if found is None else ("x ** 2 → square(x)", found)
    if number == 3 and type.dtype not in NARROW_FLOATS:  # those would be rounded in between
        found = sweep.fitted(sweep.add(MULTIPLY, sweep.add(MULTIPLY, x, x), x), type)
        return None if found is None else ("x ** 3 → x * x * x", found)
    return None


def _floor_divide(node: Node, type: TensorType, sweep: Sweep) -> Found:
    power = _power_of_two(node, type)
    if power is None:
        return None
    shift = _like(node.inputs[1], np.asarray(power, type.dtype.numpy), sweep)
    return "x // 2**k → x >> k", sweep.add(BITWISE_RIGHT_SHIFT, node.inputs[0], shift)


def _remainder(node: Node, type: TensorType, sweep: Sweep) -> Found:
    power = _power_of_two(node, type)
    if power is None:
        return None
    mask = _like(node.inputs[1], np.asarray(2**power - 1, type.dtype.numpy), sweep)
    return "x % 2**k → x & (2**k - 1)", sweep.add(BITWISE_AND, node.inputs[0], mask)


def _power_of_two(node: Node, type: TensorType) -> int | None:
    """k, if integers are divided by the number 2**k; else None."""
    if not of_kind(type.dtype, "integral"):
        return None
    number = number_of(node.inputs[1])
    if number is None:
        return None
    whole: int = number.item()
    return whole.bit_length() - 1 if whole > 1 and whole & (whole - 1) == 0 else None


def _numbers(value: Value) -> Array | None:
    """The numbers of a constant, if it is small or holds one number; else None."""
    number = number_of(value)
    if number is not None:
        return number
    if value.node is not None and value.node.op is CONSTANT:
        array: Array = value.node.attrs["value"].array
        return array if 0 < array.size <= MOST_ELEMENTS else None
    return None


def _like(value: Value, numbers: Array, sweep: Sweep) -> Value:
    """A constant of the type of `value` with other numbers, or one number everywhere."""
    type = value.tensor_type
    if numbers.shape == type.shape:
        return sweep.constant(numbers, type)
    return sweep.uniform(numbers, type)


def _smallest(dtype: np.dtype[np.generic]) -> float:
    return _SMALLEST[dtype.name]


#: The smallest normal number of each dtype.
_SMALLEST = {
    "float16": 2.0**-14,
    "bfloat16": 2.0**-126,
    "float32": 2.0**-126,
    "float64": 2.0**-1022,
}

_REDUCTIONS: dict[Op, Callable[[Node, TensorType, Sweep], Found]] = {
    DIVIDE: _divide,
    POW: _power,
    FLOOR_DIVIDE: _floor_divide,
    REMAINDER: _remainder,
}
