"""Floats: arithmetic, rounding, comparison, and simple functions of these."""

from __future__ import annotations

from collections.abc import Callable

from weft.base import dtypes
from weft.base.dtypes import DType
from weft.codegen import math
from weft.codegen.scalar.forms import from_half, to_half
from weft.codegen.scalar.modulo import divided
from weft.codegen.scalar.vec import Vec

__all__ = ["FLOATS", "UNROUNDED", "nextafter"]

Rule = Callable[..., Vec]


def _function(name: str) -> Rule:
    """A function of `weft.codegen.math`."""

    def rule(*values: Vec) -> Vec:
        x = values[0]
        dtype = dtypes.float32 if x.kind == "float" else dtypes.float64
        called = math.call(x.f, name, dtype, x.lanes, *[value.name for value in values])
        return Vec(x.f, x.kind, x.lanes, called)

    return rule


_log = _function("log")
_pow = _function("pow")

# --- comparison -----------------------------------------------------------------------------------


def _maximum(x: Vec, y: Vec) -> Vec:
    """NaN if either is NaN; the second of equal zeros, as in NumPy."""
    return x.is_nan().pick(x, (x > y).pick(x, y))


def _minimum(x: Vec, y: Vec) -> Vec:
    return x.is_nan().pick(x, (x < y).pick(x, y))


def _sign(x: Vec) -> Vec:
    """-1, 0 (never -0) or 1; NaN is kept."""
    some = (x > 0.0).pick(x.make(1.0), (x < 0.0).pick(x.make(-1.0), 0.0))
    return x.is_nan().pick(x, some)


def _relu(x: Vec) -> Vec:
    """NaN is kept; -0 becomes 0."""
    return x.compare("ugt", 0.0).pick(x, 0.0)


# --- neighbours -----------------------------------------------------------------------------------


def nextafter(x: Vec, y: Vec, *, dtype: DType) -> Vec:
    """The next value of the dtype after x towards y: its bits plus or minus one."""
    bits = to_half(x).as_bits() if dtype is dtypes.float16 else x.as_bits()
    step = 1 << 16 if dtype is dtypes.bfloat16 else 1  # its bits are the upper ones of a float
    outwards = (x < y) ^ (x < 0.0)
    moved = bits + outwards.pick(bits.make(step), -step)
    sign = -1 << (bits.bits - 1)
    first = (y < 0.0).pick(bits.make(sign | step), step)
    out = _from_bits(x.equals(0.0).pick(first, moved), x.kind)
    out = x.equals(y).pick(y, out)  # tells 0 from -0
    return x.compare("uno", y).pick(x + y, out)


def _from_bits(bits: Vec, kind: str) -> Vec:
    """Floats from their bits; 16 bits are a half's, which is a float in registers."""
    if bits.kind == "i16":
        return from_half(bits.convert("bitcast", "half"))
    return bits.convert("bitcast", kind)


# --- powers ---------------------------------------------------------------------------------------


def _power(x: Vec, y: Vec) -> Vec:
    """x ** y; for common constant y, a product or a root."""
    powers: dict[float, Callable[[], Vec]] = {
        0.0: lambda: x.make(1.0),
        1.0: lambda: x,
        2.0: lambda: x * x,
        3.0: lambda: x * x * x,
        -1.0: lambda: 1.0 / x,
        0.5: lambda: x.intrinsic("sqrt"),  # as NumPy does for a scalar power
        -0.5: lambda: _inverse_root(x),
    }
    if y.known:
        for power, rule in powers.items():
            if y.name == y.make(power).name:
                return rule()
    return _pow(x, y)


def _inverse_root(x: Vec) -> Vec:
    """x ** -0.5: 1 / √x, except at -0 and -inf, where the power has no sign."""
    out = 1.0 / (x.intrinsic("sqrt") + 0.0)
    return x.equals(float("-inf")).pick(0.0, out)


# --- losses ---------------------------------------------------------------------------------------


def _cut_log(p: Vec) -> Vec:
    return _maximum(_log(p), p.make(-100.0))


def _binary_cross_entropy(p: Vec, target: Vec) -> Vec:
    return (target - 1.0) * _cut_log(1.0 - p) - target * _cut_log(p)


# --- the table ------------------------------------------------------------------------------------


def _same(x: Vec) -> Vec:
    return x


def _nonzero(x: Vec) -> Vec:
    return x.differs(0.0)


def _intrinsic(word: str) -> Rule:
    return lambda x, *others: x.intrinsic(word, *others)


_EXACT: dict[str, Rule] = {  # the results of these are values of the operands' dtype already
    "identity": _same,
    "stop_gradient": _same,
    "positive": _same,
    "real": _same,
    "conj": _same,
    "imag": lambda x: x.make(0.0),
    "negative": lambda x: -x,
    "abs": abs,
    "sign": _sign,
    "relu": _relu,
    "maximum": _maximum,
    "minimum": _minimum,
    "copysign": _intrinsic("copysign"),
    "floor": _intrinsic("floor"),
    "ceil": _intrinsic("ceil"),
    "trunc": _intrinsic("trunc"),
    "round": _intrinsic("roundeven"),
    "equal": lambda x, y: x.equals(y),
    "not_equal": lambda x, y: x.differs(y),
    "less": lambda x, y: x < y,
    "less_equal": lambda x, y: x <= y,
    "greater": lambda x, y: x > y,
    "greater_equal": lambda x, y: x >= y,
    "isnan": lambda x: x.is_nan(),
    "isinf": lambda x: abs(x).equals(float("inf")),
    "isfinite": lambda x: abs(x) < float("inf"),
    "signbit": lambda x: x.as_bits() < 0,
    "logical_and": lambda x, y: _nonzero(x) & _nonzero(y),
    "logical_or": lambda x, y: _nonzero(x) | _nonzero(y),
    "logical_xor": lambda x, y: _nonzero(x) ^ _nonzero(y),
    "logical_not": lambda x: x.equals(0.0),
}
UNROUNDED = frozenset(_EXACT)
FLOATS: dict[str, Rule] = {
    **_EXACT,
    **{name: _function(name) for name in math.FUNCTIONS},
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / y,
    "floor_divide": lambda x, y: divided(x, y)[0],
    "remainder": lambda x, y: divided(x, y)[1],
    "square": lambda x: x * x,
    "sqrt": _intrinsic("sqrt"),
    "rsqrt": lambda x: 1.0 / x.intrinsic("sqrt"),
    "reciprocal": lambda x: 1.0 / x,
    "pow": _power,
    "binary_cross_entropy": _binary_cross_entropy,
}
