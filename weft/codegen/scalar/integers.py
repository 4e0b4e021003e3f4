"""Integers and bools: what LLVM leaves undefined has the result of the cards."""

from __future__ import annotations

from collections.abc import Callable

from weft.codegen.scalar.vec import Vec, vector_type
from weft.codegen.text import Module

__all__ = ["BOOLS", "SIGNED", "UNSIGNED"]

Rule = Callable[..., Vec]

# --- division -------------------------------------------------------------------------------------


def _quotient(x: Vec, y: Vec, *, signed: bool) -> Vec:
    """x / y rounded towards 0; y is neither 0 nor, if x is the smallest integer, -1.

    There are no vector instructions for integer division, but floats with more digits than the
    integers give the exact quotient: the true one of n-bit integers is an integer, or at least
    2**-n (relatively) away from the next. LLVM turns a constant divisor into a product or a shift.
    """
    word = "sdiv" if signed else "udiv"
    if x.lanes == 1 or y.known or x.bits == 64:
        return x.op(word, y)
    kind = "float" if x.bits <= 16 else "double"
    into, back = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
    whole = x.convert(into, kind) / y.convert(into, kind)
    return whole.convert(back, x.kind)


def _divided(x: Vec, y: Vec, *, signed: bool) -> tuple[Vec, Vec, Vec]:
    """An i1 (y is 0), and the quotient and remainder rounded down (undefined if y is 0)."""
    zero = y.equals(0)
    unsafe = zero
    if signed:  # the smallest integer / -1 wraps around to x / 1
        unsafe = zero | (y.equals(-1) & x.equals(-(1 << (x.bits - 1))))
    divisor = y if y.known and not _unsafe_literal(y) else unsafe.pick(y.make(1), y)
    quotient = _quotient(x, divisor, signed=signed)
    rest = x - quotient * divisor
    if signed:
        down = rest.differs(0) & ((rest ^ divisor) < 0)
        quotient = quotient - down.convert("zext", x.kind)
        rest = rest + down.pick(divisor, 0)
    return zero, quotient, rest


def _unsafe_literal(y: Vec) -> bool:
    return y.name in (y.make(0).name, y.make(-1).name)


def _floor_divide(x: Vec, y: Vec, *, signed: bool) -> Vec:
    zero, quotient, _ = _divided(x, y, signed=signed)
    return zero.pick(quotient.make(0), quotient)


def _remainder(x: Vec, y: Vec, *, signed: bool) -> Vec:
    zero, _, rest = _divided(x, y, signed=signed)
    return zero.pick(rest.make(0), rest)


# --- powers ---------------------------------------------------------------------------------------


def _power(x: Vec, y: Vec, *, signed: bool) -> Vec:
    if y.name == y.make(2).name:
        return x * x
    name = x.f.module.once(f"weft.ipow.{x.suffix}", lambda m: _add_power(m, x.kind, x.lanes))
    if not signed:
        return _call_power(x, y, name)
    below = y < 0
    whole = _call_power(x, below.pick(y.make(0), y), name)
    # A negative power, rounded towards 0, is 0 except for the bases 1 and -1.
    of_minus_one = 1 - ((y & 1) << 1)
    inverse = x.equals(1).pick(x.make(1), x.equals(-1).pick(of_minus_one, 0))
    return below.pick(inverse, whole)


def _call_power(x: Vec, y: Vec, name: str) -> Vec:
    called = x.f(f"call {x.type} @{name}({x.type} {x}, {x.type} {y})")
    return Vec(x.f, x.kind, x.lanes, called)


def _add_power(module: Module, kind: str, lanes: int) -> None:
    """x ** y for y ≥ 0 (as unsigned), by squaring, until no lane has a bit of y left."""
    whole = vector_type(kind, lanes)
    short = kind if lanes == 1 else f"v{lanes}{kind}"
    f = module.function(f"weft.ipow.{short}", whole, [(whole, "x"), (whole, "y")], "nounwind")
    base, power, out = (f.var(whole) for _ in range(3))
    base.store("%x")
    power.store("%y")
    out.store(Vec(f, kind, lanes, "").make(1).name)
    head, body, end = f.fresh("head"), f.fresh("body"), f.fresh("end")
    f.jump(head)
    f.block(head)
    left = Vec(f, kind, lanes, power.load())
    f.branch(left.differs(0).any(), body, end)
    f.block(body)
    so_far, square = Vec(f, kind, lanes, out.load()), Vec(f, kind, lanes, base.load())
    odd = (left & 1).differs(0)
    out.store(odd.pick(so_far * square, so_far).name)
    base.store((square * square).name)
    power.store(left.op("lshr", 1).name)
    f.jump(head)
    f.block(end)
    f.do(f"ret {whole} {out.load()}")


# --- shifts ---------------------------------------------------------------------------------------


def _left_shift(x: Vec, y: Vec) -> Vec:
    inside = y.compare("ult", x.bits)  # a negative shift is large as unsigned
    return inside.pick(x << inside.pick(y, 0), 0)


def _right_shift(x: Vec, y: Vec, *, signed: bool) -> Vec:
    inside = y.compare("ult", x.bits)
    if signed:  # shifted by the width less one, only the sign is left
        return x >> inside.pick(y, x.bits - 1)
    return inside.pick(x.op("lshr", inside.pick(y, 0)), 0)


# --- the tables -----------------------------------------------------------------------------------


def _compared(word: str) -> Rule:
    return lambda x, y: x.compare(word, y)


def _same(x: Vec) -> Vec:
    return x


def _always(value: bool) -> Rule:
    return lambda x: x.make(value, "i1")


_ANY: dict[str, Rule] = {
    "identity": _same,
    "stop_gradient": _same,
    "equal": lambda x, y: x.equals(y),
    "not_equal": lambda x, y: x.differs(y),
    "isfinite": _always(True),
    "isinf": _always(False),
    "isnan": _always(False),
    "logical_and": lambda x, y: x.differs(0) & y.differs(0),
    "logical_or": lambda x, y: x.differs(0) | y.differs(0),
    "logical_xor": lambda x, y: x.differs(0) ^ y.differs(0),
    "logical_not": lambda x: x.equals(0),
    "bitwise_and": lambda x, y: x & y,
    "bitwise_or": lambda x, y: x | y,
    "bitwise_xor": lambda x, y: x ^ y,
    "bitwise_invert": lambda x: ~x,
}


def _order(sign: str) -> dict[str, Rule]:
    """Comparisons: "s" for signed, "u" for unsigned integers."""
    return {
        "less": _compared(f"{sign}lt"),
        "less_equal": _compared(f"{sign}le"),
        "greater": _compared(f"{sign}gt"),
        "greater_equal": _compared(f"{sign}ge"),
        "maximum": lambda x, y: x.intrinsic(f"{sign}max", y),
        "minimum": lambda x, y: x.intrinsic(f"{sign}min", y),
    }


def _numbers(signed: bool) -> dict[str, Rule]:
    return {
        **_ANY,
        **_order("s" if signed else "u"),
        "add": lambda x, y: x + y,
        "subtract": lambda x, y: x - y,
        "multiply": lambda x, y: x * y,
        "floor_divide": lambda x, y: _floor_divide(x, y, signed=signed),
        "remainder": lambda x, y: _remainder(x, y, signed=signed),
        "pow": lambda x, y: _power(x, y, signed=signed),
        "negative": lambda x: -x,
        "positive": _same,
        "square": lambda x: x * x,
        "floor": _same,
        "ceil": _same,
        "trunc": _same,
        "round": _same,
        "real": _same,
        "conj": _same,
        "imag": lambda x: x.make(0),
        "bitwise_left_shift": _left_shift,
        "bitwise_right_shift": lambda x, y: _right_shift(x, y, signed=signed),
    }


BOOLS: dict[str, Rule] = {
    **_ANY,
    **_order("u"),
    "maximum": lambda x, y: x | y,
    "minimum": lambda x, y: x & y,
}
SIGNED: dict[str, Rule] = {
    **_numbers(True),
    "abs": abs,
    "sign": lambda x: (x > 0).convert("zext", x.kind) - (x < 0).convert("zext", x.kind),
    "relu": lambda x: x.intrinsic("smax", 0),
}
UNSIGNED: dict[str, Rule] = {
    **_numbers(False),
    "abs": _same,
    "sign": lambda x: x.differs(0).convert("zext", x.kind),
    "relu": _same,
}
