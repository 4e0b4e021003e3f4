"""Complex numbers: an integer in compute form, the real part in its low half.

Where ops follow each other in registers, LLVM sees through the packing. Products and quotients
are computed as NumPy does (Smith's method), so that they overflow where NumPy's do. What has no
row here is a call of its card.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.base import dtypes
from weft.base.dtypes import DType, real_dtype
from weft.codegen.scalar.casts import cast
from weft.codegen.scalar.floats import FLOATS
from weft.codegen.scalar.forms import compute_kind, supported
from weft.codegen.scalar.vec import Vec

__all__ = ["emit", "has_emitter"]

Pair = tuple[Vec, Vec]


def has_emitter(op: str, inputs: Sequence[DType], result: DType) -> bool:
    """Whether `emit` can write this op; some operand or the result is complex."""
    first = inputs[0]
    if op == "astype":
        if result is dtypes.bool:
            return True
        return result.kind == "complex" and (first.kind == "complex" or supported(first))
    if op == "complex":
        return inputs[0] is inputs[1] and result.kind == "complex" and supported(first)
    if op == "where":
        return first is dtypes.bool and inputs[1] is inputs[2] is result
    return op in _RULES and all(dtype is first for dtype in inputs)


def emit(op: str, values: Sequence[Vec], kinds: Sequence[DType], result: DType) -> Vec:
    """One op on values in compute form."""
    if op == "where":
        return values[0].pick(values[1], values[2])
    if op == "complex":
        return _packed((values[0], values[1]), result)
    if op == "astype":
        return _cast(values[0], kinds[0], result)
    made = _RULES[op](*[_parts(x, dtype) for x, dtype in zip(values, kinds, strict=True)])
    return made if isinstance(made, Vec) else _packed(made, result)


def _parts(x: Vec, dtype: DType) -> Pair:
    """The real and the imaginary part."""
    kind = compute_kind(real_dtype(dtype))
    half = 4 * dtype.itemsize
    low, high = x, x.op("lshr", half)
    re, im = (part.convert("trunc", f"i{half}").convert("bitcast", kind) for part in (low, high))
    return re, im


def _packed(parts: Pair, dtype: DType) -> Vec:
    whole = compute_kind(dtype)
    low, high = (part.as_bits().convert("zext", whole) for part in parts)
    return low | (high << (4 * dtype.itemsize))


def _cast(x: Vec, source: DType, result: DType) -> Vec:
    if result is dtypes.bool:
        return _nonzero(_parts(x, source))
    real = real_dtype(result)
    if source.kind == "complex":
        re, im = (cast(part, real_dtype(source), real) for part in _parts(x, source))
        return _packed((re, im), result)
    return _packed(
        (cast(x, source, real), Vec(x.f, compute_kind(real), x.lanes, "").make(0)), result
    )


# --- arithmetic -----------------------------------------------------------------------------------


def _multiply(x: Pair, y: Pair) -> Pair:
    (a, b), (c, d) = x, y
    return _fused(a, c, -(b * d)), _fused(a, d, b * c)


def _fused(x: Vec, y: Vec, more: Vec) -> Vec:
    """x * y + more, in one instruction where there is one, as in NumPy's loops."""
    return x.fma(y, more) if x.f.module.machine.fuses(x.bits // 8) else x * y + more


def _divide(x: Pair, y: Pair) -> Pair:
    """By Smith's method, which divides by the larger part of y first."""
    (a, b), (c, d) = x, y
    real = abs(c) >= abs(d)
    big, small = real.pick(c, d), real.pick(d, c)
    p, q = real.pick(a, b), real.pick(b, a)
    ratio = small / big
    scale = 1.0 / (big + small * ratio)
    im = (q - p * ratio) * scale
    re, im = (p + q * ratio) * scale, real.pick(im, -im)
    none = c.equals(0.0) & d.equals(0.0)
    return none.pick(a / abs(c), re), none.pick(b / abs(c), im)


def _reciprocal(x: Pair) -> Pair:
    c, d = x
    real = abs(c) >= abs(d)
    big, small = real.pick(c, d), real.pick(d, c)
    ratio = small / big
    below = big + small * ratio
    first, second = 1.0 / below, ratio / below
    return real.pick(first, second), -real.pick(second, first)


def _square(x: Pair) -> Pair:
    return _multiply(x, x)


def _halves(x: Pair) -> tuple[Vec, Vec, Vec]:
    """The larger part, the smaller one, both without signs, and their quotient, at most 1."""
    a, b = abs(x[0]), abs(x[1])
    larger = a > b
    big, small = larger.pick(a, b), larger.pick(b, a)
    ratio = small / big.equals(0.0).pick(big.make(1.0), big)
    return big, small, small.equals(big).pick(ratio.make(1.0), ratio)


def _abs(x: Pair) -> Vec:
    """It is out of range only where the result is; infinite with any infinite part."""
    big, small, ratio = _halves(x)
    size = big * (ratio * ratio + 1.0).intrinsic("sqrt")
    size = big.equals(0.0).pick(small, size)
    return _infinite(x).pick(size.make(float("inf")), size)


def _infinite(x: Pair) -> Vec:
    return FLOATS["isinf"](x[0]) | FLOATS["isinf"](x[1])


def _nonzero(x: Pair) -> Vec:
    return x[0].differs(0.0) | x[1].differs(0.0)


# --- functions ------------------------------------------------------------------------------------


def _exp(x: Pair) -> Pair:
    """eᵃ (cos b + i sin b), with the limits of C's `cexp` where parts are infinite."""
    a, b = x
    real = b.equals(0.0)
    # Where eᵃ is out of range, the result may not be.
    half = a.make(0.5) * a
    far = abs(a) > (700.0 if a.kind == "double" else 85.0)
    first = FLOATS["exp"](far.pick(half, a))
    second = far.pick(first, 1.0)
    cos, sin = FLOATS["cos"](b), FLOATS["sin"](b)
    re, im = first * cos * second, first * sin * second
    lost = (b - b).differs(0.0)  # b is infinite or NaN
    low, high = a.equals(float("-inf")) & lost, a.equals(float("inf")) & lost
    re = high.pick(a, low.pick(a.make(0.0), re))
    im = low.pick(a.make(0.0), im)
    return real.pick(first * second, re), real.pick(b, im)


def _log(x: Pair) -> Pair:
    """log |x|, exact where |x| is near 1, and the angle."""
    big, small, ratio = _halves(x)
    near = (big > 0.5) & (big < 2.0)
    inner = (big - 1.0) * (big + 1.0) + small * small
    other = ratio * ratio
    half = FLOATS["log1p"](near.pick(inner, other)) * 0.5
    size = near.pick(half, FLOATS["log"](big) + half)
    size = big.equals(0.0).pick(size.make(float("-inf")), size)
    size = (x[0].is_nan() | x[1].is_nan()).pick(size.make(float("nan")), size)
    size = _infinite(x).pick(size.make(float("inf")), size)
    return size, FLOATS["atan2"](x[1], x[0])


def _sqrt(x: Pair) -> Pair:
    """With the limits of C's `csqrt`."""
    a, b = x
    large = 2.0**1020 if a.kind == "double" else 2.0**124
    much = (abs(a) > large) | (abs(b) > large)
    c, d = much.pick(a * 0.25, a), much.pick(b * 0.25, b)
    tiny = 2.0**-1000 if a.kind == "double" else 2.0**-100
    little = (abs(a) < tiny) & (abs(b) < tiny)
    c, d = little.pick(c * 2.0**54, c), little.pick(d * 2.0**54, d)
    root = ((abs(c) + _abs((c, d))) * 0.5).intrinsic("sqrt")
    other = abs(d) / (root * 2.0)
    right = c.compare("oge", 0.0)
    re, im = right.pick(root, other), right.pick(other, root)
    scale = much.pick(root.make(2.0), little.pick(root.make(2.0**-27), 1.0))
    re, im = re * scale, (im * scale).intrinsic("copysign", b)
    none = a.equals(0.0) & b.equals(0.0)
    re, im = none.pick(a.make(0.0), re), none.pick(b, im)
    left, right = a.equals(float("-inf")), a.equals(float("inf"))
    re, im = left.pick(abs(b - b), re), left.pick((-a).intrinsic("copysign", b), im)
    re, im = right.pick(a, re), right.pick((b - b).intrinsic("copysign", b), im)
    high = FLOATS["isinf"](b)
    return high.pick(abs(b), re), high.pick(b, im)


#: By the name of the card: pairs to a pair, or to a real number or a mask.
_RULES: dict[str, Callable[..., Pair | Vec]] = {
    **dict.fromkeys(("identity", "stop_gradient", "positive"), lambda x: x),
    "add": lambda x, y: (x[0] + y[0], x[1] + y[1]),
    "subtract": lambda x, y: (x[0] - y[0], x[1] - y[1]),
    "multiply": _multiply,
    "divide": _divide,
    "negative": lambda x: (-x[0], -x[1]),
    "conj": lambda x: (x[0], -x[1]),
    "real": lambda x: x[0],
    "imag": lambda x: x[1],
    "abs": _abs,
    "square": _square,
    "reciprocal": _reciprocal,
    "exp": _exp,
    "log": _log,
    "sqrt": _sqrt,
    "equal": lambda x, y: x[0].equals(y[0]) & x[1].equals(y[1]),
    "not_equal": lambda x, y: x[0].differs(y[0]) | x[1].differs(y[1]),
    "isnan": lambda x: x[0].is_nan() | x[1].is_nan(),
    "isinf": _infinite,
    "isfinite": lambda x: FLOATS["isfinite"](x[0]) & FLOATS["isfinite"](x[1]),
    "logical_not": lambda x: ~_nonzero(x),
    "logical_and": lambda x, y: _nonzero(x) & _nonzero(y),
    "logical_or": lambda x, y: _nonzero(x) | _nonzero(y),
    "logical_xor": lambda x, y: _nonzero(x) ^ _nonzero(y),
}
