"""Algebraic simplification: a table of rules, each exact for every value of the dtypes it names.

Rules that are not exact are left out: `x + 0.0` (-0.0 + 0.0 is 0.0), `x * 0.0` and `x - x` (NaN and
infinities), `x == x` for floats (NaN), `x * 1` for complex numbers (infinities), `-(x - y)` for
floats (a zero gets the other sign), and everything that reassociates floats.
"""

from __future__ import annotations

from weft.ir.graph import Graph, Node, Value
from weft.ops.cards import CEIL, FLOOR, ROUND, TRUNC
from weft.passes.contract import Notes, Pass
from weft.passes.patterns import Rule, Table
from weft.passes.sweep import Sweep

_NEUTRAL = [
    Rule("add(x, 0)", "x", "integral"),
    Rule("add(x, -0.0)", "x", "floating", "also for x = 0.0 and x = -0.0"),
    Rule("add(abs(x), 0)", "abs(x)", "real floating", "abs(x) is never -0.0"),
    Rule("add(square(x), 0)", "square(x)", "real floating", "x * x is never -0.0"),
    Rule("add(exp(x), 0)", "exp(x)", "real floating", "exp(x) is never -0.0"),
    Rule("subtract(x, 0)", "x", "numeric", "0.0 only, not -0.0"),
    Rule("subtract(0, x)", "negative(x)", "integral"),
    Rule("subtract(-0.0, x)", "negative(x)", "floating", "0.0 - 0.0 would be 0.0"),
    Rule("multiply(x, 1)", "x", "real numeric"),
    Rule("multiply(x, -1)", "negative(x)", "real numeric", "integers wrap alike"),
    Rule("multiply(x, 0)", "0", "integral", "no NaN, no infinity"),
    Rule("divide(x, 1)", "x", "real floating"),
    Rule("divide(x, -1)", "negative(x)", "real floating"),
    Rule("floor_divide(x, 1)", "x", "integral"),
    Rule("floor_divide(x, -1)", "negative(x)", "signed integer", "INT_MIN // -1 is INT_MIN"),
    Rule("floor_divide(x, 0)", "0", "integral", "so it is defined"),
    Rule("floor_divide(0, x)", "0", "integral", "0 // 0 is 0"),
    Rule("remainder(x, 1)", "0", "integral"),
    Rule("remainder(x, -1)", "0", "signed integer"),
    Rule("remainder(x, 0)", "0", "integral", "so it is defined"),
    Rule("remainder(0, x)", "0", "integral", "0 % 0 is 0"),
    Rule("remainder(x, x)", "0", "integral", "0 % 0 is 0"),
    Rule("subtract(x, x)", "0", "integral", "no NaN, no infinity"),
    Rule("pow(x, 1)", "x", "integral", "of floats `strength` knows when"),
    Rule("pow(x, 0)", "1", "real numeric", "also of NaN, and 0 ** 0"),
    Rule("pow(1, x)", "1", "real numeric", "also to the power of NaN"),
    Rule("bitwise_left_shift(x, 0)", "x", "integral"),
    Rule("bitwise_right_shift(x, 0)", "x", "integral"),
    Rule("bitwise_left_shift(0, x)", "0", "integral"),
    Rule("bitwise_right_shift(0, x)", "0", "integral"),
]

_SIGNS = [
    Rule("negative(negative(x))", "x", "numeric", "-INT_MIN is INT_MIN"),
    Rule("add(x, negative(y))", "subtract(x, y)", "numeric", "a difference is this sum"),
    Rule("subtract(x, negative(y))", "add(x, y)", "numeric"),
    Rule("multiply(negative(x), negative(y))", "multiply(x, y)", "real numeric"),
    Rule("divide(negative(x), negative(y))", "divide(x, y)", "real floating"),
    Rule("negative(subtract(x, y))", "subtract(y, x)", "integral", "there is no -0"),
    Rule("abs(negative(x))", "abs(x)", "real floating"),
    Rule("abs(negative(x))", "abs(x)", "signed integer", "abs(INT_MIN) is INT_MIN"),
    Rule("abs(abs(x))", "abs(x)", "numeric", "abs(INT_MIN) is INT_MIN"),
    Rule("abs(x)", "x", "unsigned integer"),
    Rule("abs(square(x))", "square(x)", "real floating", "a wrapped square may be negative"),
    Rule("square(negative(x))", "square(x)", "real numeric"),
    Rule("square(abs(x))", "square(x)", "real numeric"),
    Rule("sign(sign(x))", "sign(x)", "real numeric"),
    Rule("positive(x)", "x", "numeric"),
    Rule("conj(x)", "x", "real numeric"),
    Rule("conj(conj(x))", "x", "complex floating"),
    Rule("real(conj(x))", "real(x)", "complex floating"),
    Rule("real(x)", "x", "real numeric"),
    Rule("imag(x)", "0", "real numeric"),
]

_ROUNDED = [op.name for op in (FLOOR, CEIL, TRUNC, ROUND)]
_ROUNDING = [
    *(Rule(f"{outer}(x)", "x", "integral") for outer in _ROUNDED),
    *(
        Rule(f"{outer}({inner}(x))", f"{inner}(x)", "real floating", "already whole, or NaN")
        for outer in _ROUNDED
        for inner in _ROUNDED
    ),
]

_BITS = [
    Rule("bitwise_and(x, 0)", "0", "integral"),
    Rule("bitwise_and(x, ALL)", "x", "integral"),
    Rule("bitwise_and(x, x)", "x", "integral"),
    Rule("bitwise_and(x, bitwise_invert(x))", "0", "integral"),
    Rule("bitwise_or(x, 0)", "x", "integral"),
    Rule("bitwise_or(x, ALL)", "ALL", "integral"),
    Rule("bitwise_or(x, x)", "x", "integral"),
    Rule("bitwise_or(x, bitwise_invert(x))", "ALL", "integral"),
    Rule("bitwise_xor(x, 0)", "x", "integral"),
    Rule("bitwise_xor(x, ALL)", "bitwise_invert(x)", "integral"),
    Rule("bitwise_xor(x, x)", "0", "integral"),
    Rule("bitwise_invert(bitwise_invert(x))", "x", "integral"),
    Rule("bitwise_and(x, y)", "logical_and(x, y)", "bool"),
    Rule("bitwise_or(x, y)", "logical_or(x, y)", "bool"),
    Rule("bitwise_xor(x, y)", "logical_xor(x, y)", "bool"),
    Rule("bitwise_invert(x)", "logical_not(x)", "bool"),
]

_LOGIC = [
    Rule("logical_and(x, True)", "x", "bool"),
    Rule("logical_and(x, False)", "False", "bool"),
    Rule("logical_and(x, x)", "x", "bool"),
    Rule("logical_and(x, logical_not(x))", "False", "bool"),
    Rule("logical_or(x, False)", "x", "bool"),
    Rule("logical_or(x, True)", "True", "bool"),
    Rule("logical_or(x, x)", "x", "bool"),
    Rule("logical_or(x, logical_not(x))", "True", "bool"),
    Rule("logical_xor(x, False)", "x", "bool"),
    Rule("logical_xor(x, True)", "logical_not(x)", "bool"),
    Rule("logical_xor(x, x)", "False", "all", "NaN counts as True"),
    Rule("logical_not(logical_not(x))", "x", "bool"),
    Rule("logical_not(equal(x, y))", "not_equal(x, y)", "all", "also for NaN"),
    Rule("logical_not(not_equal(x, y))", "equal(x, y)", "all", "also for NaN"),
    Rule("logical_not(less(x, y))", "less_equal(y, x)", "integral or bool", "there is no NaN"),
    Rule("logical_not(less_equal(x, y))", "less(y, x)", "integral or bool", "there is no NaN"),
    Rule("logical_not(greater(x, y))", "less_equal(x, y)", "integral or bool", "there is no NaN"),
    Rule("logical_not(greater_equal(x, y))", "less(x, y)", "integral or bool", "there is no NaN"),
]

_COMPARISONS = [
    Rule("equal(x, x)", "True", "integral or bool", "there is no NaN"),
    Rule("not_equal(x, x)", "False", "integral or bool", "there is no NaN"),
    Rule("less(x, x)", "False", "real", "also for NaN"),
    Rule("greater(x, x)", "False", "real", "also for NaN"),
    Rule("less_equal(x, x)", "True", "integral or bool", "there is no NaN"),
    Rule("greater_equal(x, x)", "True", "integral or bool", "there is no NaN"),
    Rule("less(x, MIN)", "False", "real", "also for NaN"),
    Rule("greater(x, MAX)", "False", "real", "also for NaN"),
    Rule("greater_equal(x, MIN)", "True", "integral or bool", "there is no NaN"),
    Rule("less_equal(x, MAX)", "True", "integral or bool", "there is no NaN"),
    Rule("equal(x, True)", "x", "bool"),
    Rule("equal(x, False)", "logical_not(x)", "bool"),
    Rule("not_equal(x, False)", "x", "bool"),
    Rule("not_equal(x, True)", "logical_not(x)", "bool"),
    Rule("isnan(x)", "False", "integral or bool"),
    Rule("isinf(x)", "False", "integral or bool"),
    Rule("isfinite(x)", "True", "integral or bool"),
    Rule("maximum(x, x)", "x", "real", "NaN stays NaN"),
    Rule("minimum(x, x)", "x", "real", "NaN stays NaN"),
    Rule("maximum(x, MIN)", "x", "real", "NaN stays NaN"),
    Rule("minimum(x, MAX)", "x", "real", "NaN stays NaN"),
    Rule("maximum(x, MAX)", "MAX", "integral or bool", "there is no NaN"),
    Rule("minimum(x, MIN)", "MIN", "integral or bool", "there is no NaN"),
]

_CHOICE = [
    Rule("where(c, x, x)", "x", "all"),
    Rule("where(True, x, y)", "x", "all", "the sign and payload of a NaN stay too"),
    Rule("where(False, y, x)", "x", "all"),
    Rule("where(logical_not(c), x, y)", "where(c, y, x)", "all"),
    Rule("where(c, where(c, x, y), z)", "where(c, x, z)", "all"),
    Rule("where(c, z, where(c, y, x))", "where(c, z, x)", "all"),
    Rule("where(c, True, False)", "c", "bool"),
    Rule("where(c, False, True)", "logical_not(c)", "bool"),
]

#: Two constants become one, which `fold` computes. For floats this would round differently.
_REASSOCIATED = [
    Rule(f"{op}({op}(x, k1), k2)", f"{op}(x, {op}(k1, k2))", kinds, "integers wrap alike")
    for op, kinds in (
        ("add", "integral"),
        ("multiply", "integral"),
        ("maximum", "integral or bool"),
        ("minimum", "integral or bool"),
        ("bitwise_and", "integral"),
        ("bitwise_or", "integral"),
        ("bitwise_xor", "integral"),
    )
]

#: By topic. The first rule that matches is applied.
SECTIONS: dict[str, list[Rule]] = {
    "neutral elements": _NEUTRAL,
    "signs and parts": _SIGNS,
    "rounding": _ROUNDING,
    "bits": _BITS,
    "logic": _LOGIC,
    "comparison": _COMPARISONS,
    "choice": _CHOICE,
    "constants of integers": _REASSOCIATED,
}
RULES = [rule for rules in SECTIONS.values() for rule in rules]
_TABLE = Table(RULES)


class Algebra(Pass):
    """Simplifies by the table of exact algebraic rules, such as x * 1 → x."""

    name = "algebra"

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        def rule(node: Node, sweep: Sweep) -> Value | None:
            found = _TABLE.find(node, sweep)
            if found is None:
                return None
            notes.add(f"× {found[0]}")
            return found[1]

        return Sweep(graph).run(rule)
