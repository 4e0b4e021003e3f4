"""Elementwise comparison, logic and bits: one card after the other."""

from __future__ import annotations

from typing import Any

from weft.ir.op import Trait
from weft.ops.define import binary, unary

__all__ = [
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "equal",
    "greater",
    "greater_equal",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "not_equal",
]

# --- comparison -------------------------------------------------------------------------------

equal = binary(
    "equal",
    "x1 == x2, element by element; NaN equals nothing.",
    "equal",
    kinds="all",
    operator="eq",
    result="bool",
    traits=Trait.COMMUTATIVE,
)
not_equal = binary(
    "not_equal",
    "x1 != x2, element by element.",
    "not_equal",
    kinds="all",
    operator="ne",
    result="bool",
    traits=Trait.COMMUTATIVE,
)
less = binary(
    "less", "x1 < x2, element by element.", "less", kinds="real", operator="lt", result="bool"
)
less_equal = binary(
    "less_equal",
    "x1 <= x2, element by element.",
    "less_equal",
    kinds="real",
    operator="le",
    result="bool",
)
greater = binary(
    "greater", "x1 > x2, element by element.", "greater", kinds="real", operator="gt", result="bool"
)
greater_equal = binary(
    "greater_equal",
    "x1 >= x2, element by element.",
    "greater_equal",
    kinds="real",
    operator="ge",
    result="bool",
)


def _of_chosen(xp: Any, g: Any, other_wins: Any, tied: Any) -> Any:
    """g for the one of two that was chosen; equal ones share it."""
    return xp.where(other_wins, 0, xp.where(tied, g / 2, g))


maximum = binary(
    "maximum",
    "The larger of x1 and x2; NaN where either is NaN.",
    "maximum",
    kinds="real",
    vjp=(
        lambda xp, g, _out, x1, x2: _of_chosen(xp, g, x1 < x2, x1 == x2),
        lambda xp, g, _out, x1, x2: _of_chosen(xp, g, x1 > x2, x1 == x2),
    ),
    traits=Trait.COMMUTATIVE,
    swap_rounds="real floating",  # of 0.0 and -0.0, either may be the result
)
minimum = binary(
    "minimum",
    "The smaller of x1 and x2; NaN where either is NaN.",
    "minimum",
    kinds="real",
    vjp=(
        lambda xp, g, _out, x1, x2: _of_chosen(xp, g, x1 > x2, x1 == x2),
        lambda xp, g, _out, x1, x2: _of_chosen(xp, g, x1 < x2, x1 == x2),
    ),
    traits=Trait.COMMUTATIVE,
    swap_rounds="real floating",  # of 0.0 and -0.0, either may be the result
)
isfinite = unary(
    "isfinite", "True where x is neither NaN nor infinite.", "isfinite", kinds="all", result="bool"
)
isinf = unary("isinf", "True where x is infinite.", "isinf", kinds="all", result="bool")
isnan = unary("isnan", "True where x is NaN.", "isnan", kinds="all", result="bool")

# --- logic and bits ---------------------------------------------------------------------------

logical_and = binary(
    "logical_and",
    "True where both are nonzero.",
    "logical_and",
    kinds="all",
    result="bool",
    traits=Trait.COMMUTATIVE,
)
logical_or = binary(
    "logical_or",
    "True where either is nonzero.",
    "logical_or",
    kinds="all",
    result="bool",
    traits=Trait.COMMUTATIVE,
)
logical_xor = binary(
    "logical_xor",
    "True where exactly one is nonzero.",
    "logical_xor",
    kinds="all",
    result="bool",
    traits=Trait.COMMUTATIVE,
)
logical_not = unary(
    "logical_not", "True where x is zero.", "logical_not", kinds="all", result="bool"
)
bitwise_and = binary(
    "bitwise_and",
    "x1 & x2.",
    "bitwise_and",
    kinds="integral or bool",
    operator="and",
    traits=Trait.COMMUTATIVE,
)
bitwise_or = binary(
    "bitwise_or",
    "x1 | x2.",
    "bitwise_or",
    kinds="integral or bool",
    operator="or",
    traits=Trait.COMMUTATIVE,
)
bitwise_xor = binary(
    "bitwise_xor",
    "x1 ^ x2.",
    "bitwise_xor",
    kinds="integral or bool",
    operator="xor",
    traits=Trait.COMMUTATIVE,
)
bitwise_invert = unary(
    "bitwise_invert", "~x.", "bitwise_invert", "__invert__", kinds="integral or bool"
)
bitwise_left_shift = binary(
    "bitwise_left_shift",
    "x1 << x2; 0 where x2 is negative or at least the width of x1.",
    "bitwise_left_shift",
    kinds="integral",
    operator="lshift",
    cycles=3.0,
)
bitwise_right_shift = binary(
    "bitwise_right_shift",
    "x1 >> x2, keeping the sign; a shift out of range leaves 0 or -1.",
    "bitwise_right_shift",
    kinds="integral",
    operator="rshift",
    cycles=3.0,
)
