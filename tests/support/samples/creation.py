"""Rows of new tensors and of casts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from samples.table import SHAPES, Row, Sample, call, specials, values
from weft.base.dtypes import DTYPES, DType


def of_shape(*fill: Any) -> Callable[[DType], Iterable[Sample]]:
    def samples(dtype: DType) -> Iterable[Sample]:
        for shape in SHAPES:
            yield call(shape, *fill, dtype=dtype)
        yield call(3, *fill, dtype=dtype)

    return samples


def like(*fill: Any) -> Callable[[DType], Iterable[Sample]]:
    def samples(dtype: DType) -> Iterable[Sample]:
        for shape in SHAPES:
            yield call(values(shape, dtype), *fill)
        yield call(values((2, 3), dtype), *fill, dtype=DTYPES["float64"])

    return samples


def numpy_dtype(function: Callable[..., Any]) -> Callable[..., Any]:
    def reference(*args: Any, dtype: DType | None = None, **kwargs: Any) -> Any:
        if dtype is not None:
            kwargs["dtype"] = dtype.numpy
        return function(*args, **kwargs)

    return reference


def arange(dtype: DType) -> Iterable[Sample]:
    for args in [(5,), (0,), (2, 9), (2, 9, 3), (9, 2, -2), (3, 3), (5, 2)]:
        if dtype.kind != "uint" or args != (9, 2, -2):
            yield call(*args, dtype=dtype)
    if dtype.kind == "float":
        yield call(0.5, 3, 0.25, dtype=dtype)


def linspace(dtype: DType) -> Iterable[Sample]:
    for num in (0, 1, 2, 7):
        yield call(-1.0, 2.5, num, dtype=dtype)
        yield call(3.0, 1.0, num, dtype=dtype, endpoint=False)


def eye(dtype: DType) -> Iterable[Sample]:
    for args in [(3,), (0,), (2, 4), (4, 2)]:
        for k in (-1, 0, 2):
            yield call(*args, k=k, dtype=dtype)


def casts(dtype: DType) -> Iterable[Sample]:
    for target in DTYPES.values():
        if target.name.startswith("float8") or (
            dtype.kind == "complex" and target.kind not in ("complex", "bool")
        ):
            continue
        yield call(values((3, 4), dtype), target)
        yield call(values((), dtype), target)
        yield call(values((0,), dtype), target)
        yield call(specials(dtype), target)


def astype(x: Any, dtype: DType) -> Any:
    """The documented rules, one number at a time, in Python's own arithmetic."""
    if dtype.kind not in ("int", "uint"):
        return x.astype(dtype.numpy)
    info = np.iinfo(dtype.numpy)

    def one(value: Any) -> int:
        if x.dtype.kind in "iub":
            return (int(value) - info.min) % 2**dtype.bits + info.min
        if value != value:
            return 0
        if abs(value) == np.inf:
            return int(info.max if value > 0 else info.min)
        return max(min(int(value), info.max), info.min)

    out = np.empty(x.shape, dtype=dtype.numpy)
    for index in np.ndindex(x.shape):
        out[index] = one(x[index])
    return out


ROWS = [
    Row("zeros", numpy_dtype(np.zeros), of_shape(), "all"),
    Row("ones", numpy_dtype(np.ones), of_shape(), "all"),
    Row("empty", numpy_dtype(np.zeros), of_shape(), "all"),
    Row("full", numpy_dtype(np.full), of_shape(1), "all"),
    Row("zeros_like", numpy_dtype(np.zeros_like), like(), "all"),
    Row("ones_like", numpy_dtype(np.ones_like), like(), "all"),
    Row("empty_like", numpy_dtype(np.zeros_like), like(), "all"),
    Row("full_like", numpy_dtype(np.full_like), like(1), "all"),
    Row("arange", numpy_dtype(np.arange), arange, "real numeric"),
    Row("linspace", numpy_dtype(np.linspace), linspace, "floating"),
    Row("eye", numpy_dtype(np.eye), eye, "all"),
    Row("astype", astype, casts, "all"),
]
