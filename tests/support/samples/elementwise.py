"""Rows of the elementwise ops: every function on its domain and at the special values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import weft
from samples.table import PAIRS, SHAPES, Row, Sample, call, specials, values
from weft.base.dtypes import DType


def unary(
    name: str,
    reference: Callable[..., Any] | None = None,
    kinds: str = "floating",
    domain: tuple[float, float] = (-4, 4),
    special: bool = True,
    **more: Any,
) -> Row:
    def samples(dtype: DType) -> Iterable[Sample]:
        for shape in SHAPES:
            yield call(values(shape, dtype, *domain))
        if special and dtype.kind != "complex":  # complex limits: the conformance suite
            yield call(specials(dtype))

    return Row(name, reference or getattr(np, name), samples, kinds, **more)


def binary(
    name: str,
    reference: Callable[..., Any] | None = None,
    kinds: str = "numeric",
    domain: tuple[float, float] = (-4, 4),
    second: tuple[float, float] | None = None,
    special: bool = True,
    **more: Any,
) -> Row:
    def samples(dtype: DType) -> Iterable[Sample]:
        for first, other in PAIRS:
            yield call(
                values(first, dtype, *domain), values(other, dtype, *(second or domain), seed=1)
            )
        if special and dtype.kind != "complex":
            every = specials(dtype)
            yield call(every[:, None], every[None, :])

    return Row(name, reference or getattr(np, name), samples, kinds, **more)


def floor_divide(x1: Any, x2: Any) -> Any:
    """Python's integers for integers; floor(x1 / x2) at infinities."""
    out = np.floor_divide(x1, x2)
    if out.dtype.kind == "f":
        return np.where(np.isinf(x1) | np.isinf(x2), np.floor(x1 / x2), out)
    return _each(x1, x2, lambda a, b: a // b if b else 0)


def remainder(x1: Any, x2: Any) -> Any:
    if x1.dtype.kind == "f":
        return np.remainder(x1, x2)
    return _each(x1, x2, lambda a, b: a % b if b else 0)


def power(x1: Any, x2: Any) -> Any:
    """Integer powers with Python's integers, rounded towards zero and wrapped."""
    if x1.dtype.kind not in "iu":
        return np.pow(x1, x2)

    def one(a: int, b: int) -> int:
        if b >= 0:
            return pow(a, b, 2**64) if b > 64 else a**b
        return {1: 1, -1: 1 if b % 2 == 0 else -1}.get(a, 0)

    return _each(x1, x2, one)


def shift(name: str) -> Callable[..., Any]:
    def reference(x1: Any, x2: Any) -> Any:
        bits = 8 * x1.dtype.itemsize

        def one(a: int, b: int) -> int:
            outside = not 0 <= b < bits
            if name == "left":
                return 0 if outside else a << b
            return (-1 if a < 0 else 0) if outside else a >> b

        return _each(x1, x2, one)

    return reference


def _each(x1: Any, x2: Any, function: Callable[[int, int], int]) -> Any:
    """An integer function by Python's own arithmetic, wrapped to the dtype."""
    a, b = np.broadcast_arrays(x1, x2)
    bits = 8 * x1.dtype.itemsize
    out = np.empty(a.shape, dtype=x1.dtype)
    for index in np.ndindex(a.shape):
        wrapped = function(int(a[index]), int(b[index])) % 2**bits
        if x1.dtype.kind == "i" and wrapped >= 2 ** (bits - 1):
            wrapped -= 2**bits
        out[index] = wrapped
    return out


def whole(name: str) -> Callable[..., Any]:
    """floor, ceil, trunc and round leave integers alone."""
    return lambda x: x if x.dtype.kind in "iu" else getattr(np, name)(x)


def real(x: Any) -> Any:
    return np.real(x).copy()


def clip_samples(dtype: DType) -> Iterable[Sample]:
    for shape in SHAPES:
        x = values(shape, dtype)
        low, high = values((), dtype, 0, 1), values((), dtype, 2, 3)
        yield call(x, low, high)
        yield call(x, None, high)
        yield call(x, min=low)
    yield call(values((3, 4), dtype), values((4,), dtype, 0, 1), values((3, 1), dtype, 1, 2))
    yield call(specials(dtype), *(np.asarray(v, dtype=dtype.numpy) for v in (0, 2)))


def clip(x: Any, low: Any = None, high: Any = None, min: Any = None) -> Any:
    low = min if low is None else low
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def where_samples(dtype: DType) -> Iterable[Sample]:
    for first, second in PAIRS:
        x, y = values(first, dtype), values(second, dtype, seed=1)
        yield call(values(first, weft.bool), x, y)
        yield call(values((), weft.bool), x, y)
    yield call(values((3, 1), weft.bool), values((4,), dtype), values((), dtype))


ROWS = [
    binary("add"),
    binary("subtract"),
    binary("multiply"),
    binary("divide", kinds="floating", second=(0.5, 4)),
    binary("floor_divide", floor_divide, "real numeric"),
    binary("remainder", remainder, "real numeric"),
    binary("pow", power, domain=(-2, 3), second=(-2, 3), rtol=32),
    unary("negative", kinds="numeric"),
    unary("positive", kinds="numeric"),
    unary("abs", kinds="numeric"),
    unary("sign", kinds="numeric"),
    unary("square", kinds="numeric"),
    unary("sqrt", domain=(0, 9)),
    unary("rsqrt", lambda x: 1 / np.sqrt(x), "real floating", domain=(0.5, 9)),
    unary("reciprocal", domain=(0.5, 4)),
    unary("exp"),
    unary("expm1"),
    unary("log", domain=(0.1, 9)),
    unary("log1p", domain=(-0.9, 9)),
    unary("log2", domain=(0.1, 9)),
    unary("log10", domain=(0.1, 9)),
    binary("logaddexp", kinds="real floating"),
    unary("sin"),
    unary("cos"),
    unary("tan", domain=(-1.4, 1.4)),
    unary("asin", domain=(-1, 1)),
    unary("acos", domain=(-1, 1)),
    unary("atan"),
    binary("atan2", kinds="real floating"),
    unary("sinh"),
    unary("cosh"),
    unary("tanh"),
    unary("asinh"),
    unary("acosh", domain=(1, 9)),
    unary("atanh", domain=(-0.9, 0.9)),
    binary("hypot", kinds="real floating"),
    unary("floor", whole("floor"), "real numeric"),
    unary("ceil", whole("ceil"), "real numeric"),
    unary("trunc", whole("trunc"), "real numeric"),
    unary("round", whole("round"), "numeric"),
    binary("equal", kinds="all"),
    binary("not_equal", kinds="all"),
    binary("less", kinds="real"),
    binary("less_equal", kinds="real"),
    binary("greater", kinds="real"),
    binary("greater_equal", kinds="real"),
    binary("maximum", kinds="real"),
    binary("minimum", kinds="real"),
    unary("isfinite", kinds="all"),
    unary("isinf", kinds="all"),
    unary("isnan", kinds="all"),
    binary("logical_and", kinds="all"),
    binary("logical_or", kinds="all"),
    binary("logical_xor", kinds="all"),
    unary("logical_not", kinds="all"),
    binary("bitwise_and", kinds="integral or bool"),
    binary("bitwise_or", kinds="integral or bool"),
    binary("bitwise_xor", kinds="integral or bool"),
    unary("bitwise_invert", kinds="integral or bool"),
    binary("bitwise_left_shift", shift("left"), "integral", second=(0, 7)),
    binary("bitwise_right_shift", shift("right"), "integral", second=(0, 7)),
    unary("real", real, "numeric"),
    unary("imag", np.imag, "numeric"),
    unary("conj", kinds="numeric"),
    unary("signbit", kinds="real floating"),
    binary("copysign", kinds="real floating"),
    binary("nextafter", kinds="real floating", skip=frozenset({"float16", "bfloat16"})),
    Row("clip", clip, clip_samples, "real"),
    Row("where", np.where, where_samples, "all"),
]
