"""Rows of elementwise ops."""

from __future__ import annotations

import math
from typing import Any

from weft.base import dtypes
from weft.base.dtypes import DType
from weft.interop.onnx.table import ROWS, Row, kind_of, row, unsupported
from weft.interop.onnx.writer import Writer
from weft.ir.graph import Node

#: Ops that are one operator, with the same meaning.
_ALIKE = {
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div",
    "abs": "Abs", "sqrt": "Sqrt", "reciprocal": "Reciprocal", "exp": "Exp", "log": "Log",
    "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan",
    "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh", "asinh": "Asinh", "acosh": "Acosh",
    "atanh": "Atanh", "erf": "Erf", "sigmoid": "Sigmoid",
}  # fmt: skip


def _alike(name: str) -> Any:
    return lambda w, node, *inputs: w.call(name, *inputs)


for _name, _operator in _ALIKE.items():
    ROWS[_name] = Row(_alike(_operator), computes=True)

# --- what is its operand -------------------------------------------------------------------------


@row("identity", "positive", "stop_gradient", "fence", "named", "assume_shape", "to_device")
@row("with_gradient_of", "real", "conj")
def _itself(w: Writer, node: Node, x: str, *_rest: str, **_attrs: Any) -> str:
    return w.call("Identity", x)


# --- comparison, logic, choice -------------------------------------------------------------------


def _comparable(w: Writer, node: Node, x1: str, x2: str) -> tuple[str, str]:
    """Bools as numbers: ONNX has no order of them."""
    if kind_of(node) is not dtypes.bool:
        return x1, x2
    return w.cast(x1, dtypes.int64), w.cast(x2, dtypes.int64)


def _comparing(operator: str) -> Any:
    return lambda w, node, x1, x2: w.call(operator, *_comparable(w, node, x1, x2))


for _name, _operator in {
    "less": "Less", "less_equal": "LessOrEqual",
    "greater": "Greater", "greater_equal": "GreaterOrEqual",
}.items():  # fmt: skip
    ROWS[_name] = Row(_comparing(_operator), computes=True)


@row("equal", computes=True)
def _equal(w: Writer, node: Node, x1: str, x2: str) -> str:
    return w.call("Equal", x1, x2)


@row("not_equal", computes=True)
def _not_equal(w: Writer, node: Node, x1: str, x2: str) -> str:
    return w.call("Not", w.call("Equal", x1, x2))


def _extreme(operator: str) -> Any:
    def write(w: Writer, node: Node, x1: str, x2: str) -> str:
        found = w.call(operator, *_comparable(w, node, x1, x2))
        return w.cast(found, dtypes.bool) if kind_of(node) is dtypes.bool else found

    return write


ROWS["maximum"] = Row(_extreme("Max"), computes=True)
ROWS["minimum"] = Row(_extreme("Min"), computes=True)


def truth(w: Writer, x: str, dtype: DType) -> str:
    """x != 0."""
    return x if dtype is dtypes.bool else w.cast(x, dtypes.bool)


def _logical(operator: str) -> Any:
    def write(w: Writer, node: Node, *inputs: str) -> str:
        return w.call(operator, *[truth(w, x, kind_of(node, i)) for i, x in enumerate(inputs)])

    return write


for _name, _operator in {
    "logical_and": "And", "logical_or": "Or", "logical_xor": "Xor", "logical_not": "Not",
}.items():  # fmt: skip
    ROWS[_name] = Row(_logical(_operator), computes=True)


def _bitwise(of_bools: str, of_integers: str) -> Any:
    def write(w: Writer, node: Node, *inputs: str) -> str:
        return w.call(of_bools if kind_of(node) is dtypes.bool else of_integers, *inputs)

    return write


for _name, _operator in {"and": "And", "or": "Or", "xor": "Xor", "invert": "Not"}.items():
    ROWS[f"bitwise_{_name}"] = Row(_bitwise(_operator, f"Bitwise{_operator}"), computes=True)


@row("where", computes=True)
def _where(w: Writer, node: Node, condition: str, x1: str, x2: str) -> str:
    if kind_of(node, 1) is dtypes.bool:
        then, other = w.call("And", condition, x1), w.call("Not", condition)
        return w.call("Or", then, w.call("And", other, x2))
    return w.call("Where", condition, x1, x2)


# --- kinds of numbers ----------------------------------------------------------------------------


@row("isnan", computes=True)
def _isnan(w: Writer, node: Node, x: str) -> str:
    if kind_of(node).kind == "float":
        return w.call("IsNaN", x)
    return w.call("Not", w.call("Equal", x, x))


@row("isinf", computes=True)
def _isinf(w: Writer, node: Node, x: str) -> str:
    if kind_of(node).kind == "float":  # IsInf is for float32 and float64 only, as we write it
        return w.call("IsInf", x)
    return w.call("Not", w.call("Equal", x, x))


@row("isfinite", computes=True)
def _isfinite(w: Writer, node: Node, x: str) -> str:
    if kind_of(node).kind == "float":
        return w.call("Not", w.call("Or", w.call("IsInf", x), w.call("IsNaN", x)))
    return w.call("Equal", x, x)


def _signbit_of(w: Writer, x: str, dtype: DType) -> str:
    zero = w.number(0, dtype)
    below = w.call("Less", x, zero)
    return w.call("Or", below, w.call("Less", w.call("Reciprocal", x), zero))  # 1 / -0 is -inf


@row("signbit", computes=True)
def _signbit(w: Writer, node: Node, x: str) -> str:
    return _signbit_of(w, x, kind_of(node))


@row("copysign", computes=True)
def _copysign(w: Writer, node: Node, x1: str, x2: str) -> str:
    size = w.call("Abs", x1)
    return w.call("Where", _signbit_of(w, x2, kind_of(node)), w.call("Neg", size), size)


@row("sign", computes=True)
def _sign(w: Writer, node: Node, x: str) -> str:
    sign = w.call("Sign", x)
    if kind_of(node).kind != "float":
        return sign
    return w.call("Where", w.call("IsNaN", x), x, sign)  # engines differ about NaN


@row("negative", computes=True)
def _negative(w: Writer, node: Node, x: str) -> str:
    dtype = kind_of(node)
    return w.call("Sub", w.number(0, dtype), x) if dtype.kind == "uint" else w.call("Neg", x)


# --- rounding, division --------------------------------------------------------------------------


def _rounding(operator: str) -> Any:
    def write(w: Writer, node: Node, x: str) -> str:
        return w.call(operator if kind_of(node).kind == "float" else "Identity", x)

    return write


for _name, _operator in {"floor": "Floor", "ceil": "Ceil", "round": "Round"}.items():
    ROWS[_name] = Row(_rounding(_operator), computes=True)


@row("trunc", computes=True)
def _trunc(w: Writer, node: Node, x: str) -> str:
    dtype = kind_of(node)
    if dtype.kind != "float":
        return w.call("Identity", x)
    below = w.call("Less", x, w.number(0, dtype))
    return w.call("Where", below, w.call("Ceil", x), w.call("Floor", x))


def _divisors(w: Writer, node: Node, x2: str) -> tuple[str, str, str]:
    """Whether an integer divisor is 0, whether it is -1, and 1 in the place of those."""
    dtype = kind_of(node)
    one = w.number(1, dtype)
    zero = w.call("Equal", x2, w.number(0, dtype))
    if dtype.kind == "uint":
        return zero, "", w.call("Where", zero, one, x2)
    minus = w.call("Equal", x2, w.number(-1, dtype))
    return zero, minus, w.call("Where", w.call("Or", zero, minus), one, x2)


def _rest(w: Writer, node: Node, x1: str, x2: str) -> str:
    """x1 % x2 for floats, with the sign of x2."""
    nothing = w.number(0, kind_of(node))
    rest = w.call("Mod", x1, x2, fmod=1)
    below, x2_below = w.call("Less", rest, nothing), w.call("Less", x2, nothing)
    zero = w.call("Equal", rest, nothing)
    other = w.call("And", w.call("Xor", below, x2_below), w.call("Not", zero))
    return w.call("Where", other, w.call("Add", rest, x2), rest)


@row("remainder", computes=True)
def _remainder(w: Writer, node: Node, x1: str, x2: str) -> str:
    dtype = kind_of(node)
    if dtype.kind == "float":
        return _rest(w, node, x1, x2)
    zero, minus, divisor = _divisors(w, node, x2)
    none = w.call("Or", zero, minus) if minus else zero
    return w.call("Where", none, w.number(0, dtype), w.call("Mod", x1, divisor))


@row("floor_divide", computes=True)
def _floor_divide(w: Writer, node: Node, x1: str, x2: str) -> str:
    dtype = kind_of(node)
    if dtype.kind == "float":
        return _floor_divide_floats(w, node, x1, x2)
    zero, minus, divisor = _divisors(w, node, x2)
    found = w.call("Div", x1, divisor)  # towards zero
    nothing = w.number(0, dtype)
    if minus:
        rest = w.call("Mod", x1, divisor)  # with the sign of the divisor
        below = w.call("Less", w.call("Mul", w.call("Sign", x1), w.call("Sign", divisor)), nothing)
        inexact = w.call("Not", w.call("Equal", rest, nothing))
        less = w.call("Sub", found, w.number(1, dtype))
        found = w.call("Where", w.call("And", below, inexact), less, found)
        found = w.call("Where", minus, w.call("Neg", x1), found)
    return w.call("Where", zero, nothing, found)


def _floor_divide_floats(w: Writer, node: Node, x1: str, x2: str) -> str:
    """As NumPy has it: the quotient of what is left without the rest, rounded to an integer."""
    dtype = kind_of(node)
    plain = w.call("Floor", w.call("Div", x1, x2))
    exact = w.call("Div", w.call("Sub", x1, _rest(w, node, x1, x2)), x2)
    down = w.call("Floor", exact)
    up = w.call("Greater", w.call("Sub", exact, down), w.number(0.5, dtype))
    found = w.call("Where", up, w.call("Add", down, w.number(1, dtype)), down)
    odd = w.call("Or", w.call("IsInf", x1), w.call("IsInf", x2))
    odd = w.call("Or", odd, w.call("Equal", x2, w.number(0, dtype)))
    return w.call("Where", odd, plain, found)


# --- powers --------------------------------------------------------------------------------------


@row("square", computes=True)
def _square(w: Writer, node: Node, x: str) -> str:
    return w.call("Mul", x, x)


@row("rsqrt", computes=True)
def _rsqrt(w: Writer, node: Node, x: str) -> str:
    return w.call("Reciprocal", w.call("Sqrt", x))


@row("pow", computes=True)
def _pow(w: Writer, node: Node, x1: str, x2: str) -> str:
    if kind_of(node).kind != "float":
        raise unsupported(
            node,
            "of integers has no exact operator in ONNX",
            "write x * x for a square, or cast to a float",
        )
    return w.call("Pow", x1, x2)


@row("relu", computes=True)
def _relu(w: Writer, node: Node, x: str) -> str:
    dtype = kind_of(node)
    return w.call("Relu", x) if dtype.kind == "float" else w.call("Max", x, w.number(0, dtype))


# --- functions that ONNX has not -----------------------------------------------------------------


def _exp_minus_one(w: Writer, x: str, dtype: DType) -> str:
    """exp(x) - 1 without loss of digits near 0: (u - 1) * x / log(u), for u = exp(x)."""
    one = w.number(1, dtype)
    u = w.call("Exp", x)
    less = w.call("Sub", u, one)
    found = w.call("Div", w.call("Mul", less, x), w.call("Log", u))
    plain = w.call("Greater", w.call("Abs", x), one)  # nothing is lost; infinities, too
    found = w.call("Where", plain, less, found)
    return w.call("Where", w.call("Equal", u, one), x, found)


def _log_one_plus(w: Writer, x: str, dtype: DType) -> str:
    """log(1 + x) without loss of digits near 0: log(u) * x / (u - 1), for u = 1 + x."""
    one = w.number(1, dtype)
    u = w.call("Add", x, one)
    log = w.call("Log", u)
    found = w.call("Div", w.call("Mul", log, x), w.call("Sub", u, one))
    found = w.call("Where", w.call("Greater", w.call("Abs", x), one), log, found)
    return w.call("Where", w.call("Equal", u, one), x, found)


@row("expm1", computes=True)
def _expm1(w: Writer, node: Node, x: str) -> str:
    return _exp_minus_one(w, x, kind_of(node))


@row("log1p", computes=True)
def _log1p(w: Writer, node: Node, x: str) -> str:
    return _log_one_plus(w, x, kind_of(node))


def _logarithm(base: float) -> Any:
    def write(w: Writer, node: Node, x: str) -> str:
        return w.call("Div", w.call("Log", x), w.number(math.log(base), kind_of(node)))

    return write


ROWS["log2"] = Row(_logarithm(2), computes=True)
ROWS["log10"] = Row(_logarithm(10), computes=True)


@row("softplus", computes=True)
def _softplus(w: Writer, node: Node, x: str) -> str:
    dtype = kind_of(node)
    tail = _log_one_plus(w, w.call("Exp", w.call("Neg", w.call("Abs", x))), dtype)
    return w.call("Add", w.call("Max", x, w.number(0, dtype)), tail)


@row("logaddexp", computes=True)
def _logaddexp(w: Writer, node: Node, x1: str, x2: str) -> str:
    dtype = kind_of(node)
    apart = w.call("Neg", w.call("Abs", w.call("Sub", x1, x2)))
    same = w.call("Equal", x1, x2)  # infinities, too
    apart = w.call("Where", same, w.number(0, dtype), apart)
    return w.call("Add", w.call("Max", x1, x2), _log_one_plus(w, w.call("Exp", apart), dtype))


@row("hypot", computes=True)
def _hypot(w: Writer, node: Node, x1: str, x2: str) -> str:
    dtype = kind_of(node)
    zero, one = w.number(0, dtype), w.number(1, dtype)
    a, b = w.call("Abs", x1), w.call("Abs", x2)
    high, low = w.call("Max", a, b), w.call("Min", a, b)
    ratio = w.call("Div", low, w.call("Where", w.call("Equal", high, zero), one, high))
    found = w.call("Mul", high, w.call("Sqrt", w.call("Add", w.call("Mul", ratio, ratio), one)))
    far = w.call("Or", w.call("IsInf", x1), w.call("IsInf", x2))
    return w.call("Where", far, w.number(math.inf, dtype), found)


@row("binary_cross_entropy", computes=True)
def _binary_cross_entropy(w: Writer, node: Node, p: str, target: str) -> str:
    dtype = kind_of(node)
    one, least = w.number(1, dtype), w.number(-100, dtype)
    no = w.call("Max", w.call("Log", w.call("Sub", one, p)), least)
    yes = w.call("Max", w.call("Log", p), least)
    left = w.call("Mul", w.call("Sub", target, one), no)
    return w.call("Sub", left, w.call("Mul", target, yes))
