"""Rows of the error function, relu, sigmoid and the softmax family."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from samples.elementwise import unary
from samples.table import Row, Sample, call, values
from weft.base.dtypes import DType

SHAPES = [
    ((5,), 0),
    ((1,), -1),
    ((3, 4), 1),
    ((3, 4), 0),
    ((2, 0), 0),
    ((2, 0), 1),
    ((2, 1, 3), -2),
]


def scalar(function: Any) -> Any:
    return np.vectorize(function, otypes=[np.float64])


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x.astype(np.float64)))


def shifted(x: Any, axis: int) -> Any:
    wide = x.astype(np.float64)
    return wide - wide.max(axis=axis, keepdims=True) if x.shape[axis] else wide


def softmax(x: Any, *, axis: int) -> Any:
    powers = np.exp(shifted(x, axis))
    return powers / powers.sum(axis=axis, keepdims=True)


def log_softmax(x: Any, *, axis: int) -> Any:
    rest = shifted(x, axis)
    return rest - np.log(np.exp(rest).sum(axis=axis, keepdims=True))


def logsumexp(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """By logaddexp, one after the other: its own way to stay clear of overflow."""
    return np.logaddexp.reduce(x.astype(np.float64), axis=axis, keepdims=keepdims)


def along(dtype: DType) -> Iterable[Sample]:
    for shape, axis in SHAPES:
        yield call(values(shape, dtype), axis=axis)
    large = np.array([[1e4, -1e4, 9990.0], [0.0, -np.inf, 1.0], [np.nan, 0.0, 1.0]])
    yield call(large.astype(dtype.numpy), axis=1)


def folded(dtype: DType) -> Iterable[Sample]:
    for shape in [(), (5,), (3, 4), (0,), (2, 1, 3)]:
        yield call(values(shape, dtype))
        yield call(values(shape, dtype), keepdims=True)
    yield call(values((3, 4), dtype), axis=1)
    yield call(values((2, 0), dtype), axis=1)
    yield call(values((2, 3, 4), dtype), axis=(0, 2), keepdims=True)
    yield call(values((2, 3, 4), dtype), axis=(-1, 0))
    large = np.array([[1e4, 1e4], [-np.inf, -np.inf], [np.inf, 1.0], [-np.inf, 2.0], [np.nan, 0]])
    yield call(large.astype(dtype.numpy), axis=1)


ROWS = [
    unary("erf", scalar(math.erf), "real floating"),
    unary("erfc", scalar(math.erfc), "real floating", domain=(-6, 9)),
    unary("relu", lambda x: np.maximum(x, np.zeros((), x.dtype)), "real numeric"),
    unary("sigmoid", sigmoid, "real floating"),
    Row("softmax", softmax, along, "real floating"),
    Row("log_softmax", log_softmax, along, "real floating"),
    Row("logsumexp", logsumexp, folded, "real floating"),
]
