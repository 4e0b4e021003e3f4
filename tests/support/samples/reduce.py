"""Rows of reductions, running sums, and positions of extremes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from samples.table import Row, Sample, call, specials, values
from weft.base.dtypes import DType

SHAPES: list[tuple[int, ...]] = [(), (1,), (5,), (3, 4), (2, 1, 3), (2, 3, 4)]
EMPTY: list[tuple[int, ...]] = [(0,), (2, 0), (0, 3)]


def samples(
    empty: bool = True, domain: tuple[float, float] = (-3, 3), several: bool = True
) -> Callable[[DType], Iterable[Sample]]:
    def make(dtype: DType) -> Iterable[Sample]:
        for shape in SHAPES + (EMPTY if empty else []):
            x = values(shape, dtype, *domain)
            yield call(x)
            yield call(x, keepdims=True)
            for axis in range(-len(shape), len(shape)):
                yield call(x, axis=axis)
                yield call(x, axis=axis, keepdims=True)
        if several:
            x = values((2, 3, 4), dtype, *domain)
            yield call(x, axis=(0, 2))
            yield call(x, axis=(-1, 0), keepdims=True)
            yield call(x, axis=())
        yield call(specials(dtype))

    return make


def running(dtype: DType) -> Iterable[Sample]:
    for shape in [(1,), (5,), (0,), (3, 4), (2, 3, 4), (2, 0)]:
        x = values(shape, dtype, -2, 2)
        for axis in range(-len(shape), len(shape)):
            yield call(x, axis=axis)
            yield call(x, axis=axis, include_initial=True)
    yield call(values((4,), dtype, -2, 2))


def narrow_kept(reference: Callable[..., Any]) -> Callable[..., Any]:
    """Statistics of integers are computed in float64 and given as float32."""

    def wrapped(x: Any, **kwargs: Any) -> Any:
        wide = x.astype(np.float64) if x.dtype.kind in "iub" else x
        return reference(wide, **kwargs)

    return wrapped


def variance(reference: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(x: Any, correction: float = 0, **kwargs: Any) -> Any:
        return narrow_kept(reference)(x, ddof=correction, **kwargs)

    return wrapped


def variance_samples(dtype: DType) -> Iterable[Sample]:
    for sample in samples(several=True)(dtype):
        yield sample
        if sample.args[0].size > 5:
            yield call(*sample.args, correction=1, **sample.kwargs)


def same_dtype(function: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's sums of small integers are already as wide as ours."""

    def wrapped(x: Any, **kwargs: Any) -> Any:
        if x.dtype.kind == "b":
            x = x.astype(np.int64)
        return function(x, **kwargs)

    return wrapped


def diff_samples(dtype: DType) -> Iterable[Sample]:
    x = values((3, 4), dtype)
    yield call(x)
    yield call(x, axis=0)
    yield call(x, n=2)
    yield call(x, n=0)
    yield call(x, prepend=values((3, 1), dtype), append=values((3, 2), dtype))
    yield call(values((1,), dtype))


def diff(x: Any, **kwargs: Any) -> Any:
    return np.diff(x, **{k: v for k, v in kwargs.items() if v is not None})


ROWS = [
    Row("sum", same_dtype(np.sum), samples(), "all", rtol=16),
    Row("prod", same_dtype(np.prod), samples(domain=(-2, 2)), "all", rtol=16),
    Row("max", np.max, samples(empty=False), "real"),
    Row("min", np.min, samples(empty=False), "real"),
    Row("any", np.any, samples(), "all"),
    Row("all", np.all, samples(), "all"),
    Row("count_nonzero", np.count_nonzero, samples(), "all"),
    Row("mean", narrow_kept(np.mean), samples(), "all", rtol=16),
    Row("var", variance(np.var), variance_samples, "all", rtol=64),
    Row("std", variance(np.std), variance_samples, "all", rtol=64),
    Row("argmax", np.argmax, samples(empty=False, several=False), "real"),
    Row("argmin", np.argmin, samples(empty=False, several=False), "real"),
    Row("cumulative_sum", np.cumulative_sum, running, "numeric", rtol=16),
    Row("cumulative_prod", np.cumulative_prod, running, "numeric", rtol=16),
    Row("diff", diff, diff_samples, "all"),
]
