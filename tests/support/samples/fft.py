"""Samples of `weft.fft`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from samples.table import Row, Sample, call, values
from weft.base.dtypes import DType

NORMS = ("backward", "ortho", "forward")


def along_one(dtype: DType) -> Iterator[Sample]:
    """Transforms of one axis, also of stacks without elements, and of nothing but padding."""
    for shape in [(2,), (5,), (8,), (3, 4), (2, 3, 5)]:
        yield call(values(shape, dtype))
    for norm in NORMS:
        yield call(values((2, 6), dtype), norm=norm)
        yield call(values((6, 2), dtype), axis=0, n=5, norm=norm)
    for n in (1, 2, 3, 7, 8, 9, 16):
        yield call(values((8,), dtype), n=n)
        yield call(values((3, 8, 2), dtype), n=n, axis=-2)
    yield call(values((0, 4), dtype))
    yield call(values((1,), dtype), n=1)
    yield call(values((0,), dtype), n=3)


def halves(dtype: DType) -> Iterator[Sample]:
    """Inverse real transforms: without n, one point has no result. Of none, NumPy's is garbage."""
    for sample in along_one(dtype):
        x = sample.args[0]
        if x.shape[sample.kwargs.get("axis", -1)] > ("n" not in sample.kwargs):
            yield sample


def along_several(dtype: DType) -> Iterator[Sample]:
    for shape in [(5,), (3, 4), (2, 3, 5)]:
        yield call(values(shape, dtype))
    x = values((4, 3, 6), dtype)
    for norm in NORMS:
        yield call(x, norm=norm)
        yield call(x, axes=(0, 2), norm=norm)
    yield call(x, axes=(-1, 0))
    yield call(x, axes=(1,))
    yield call(x, s=(5, 4), axes=(0, 1))
    yield call(x, s=(2, 9), axes=(2, 0))
    yield call(x, s=(-1, 5), axes=(0, 2))
    yield call(values((0, 3, 4), dtype), axes=(1, 2))


def no_axes(samples: Callable[[DType], Iterable[Sample]]) -> Callable[[DType], Iterator[Sample]]:
    """These and, where a transform of no axes is none, a call with no axes and one of 0-d."""

    def more(dtype: DType) -> Iterator[Sample]:
        yield from samples(dtype)
        yield call(values((2, 3), dtype), axes=())
        yield call(values((), dtype))

    return more


def windows(dtype: DType) -> Iterator[Sample]:
    for n in (1, 2, 5, 8, 1001):
        yield call(n, dtype=dtype)
        yield call(n, d=0.25, dtype=dtype)


def shifts(dtype: DType) -> Iterator[Sample]:
    for shape in [(), (0,), (1,), (5,), (6,), (2, 0), (3, 4), (2, 1, 3)]:
        yield call(values(shape, dtype))
    x = values((3, 4, 5), dtype)
    for axes in (0, -1, (0, 2), (-2,), ()):
        yield call(x, axes=axes)


def _complex(name: str) -> Callable[..., Any]:
    """NumPy's function; it keeps real x of no transformed axes real."""

    def reference(x: Any, **kwargs: Any) -> Any:
        single = x.dtype in (np.float32, np.complex64)
        return getattr(np.fft, name)(x.astype(np.complex64 if single else np.complex128), **kwargs)

    return reference


def _shift(name: str) -> Callable[..., Any]:
    """NumPy's function, which does not take 0-d arrays."""

    def reference(x: Any, *, axes: Any = None) -> Any:
        return getattr(np.fft, name)(x, axes) if x.ndim else x

    return reference


def _frequencies(name: str) -> Callable[..., Any]:
    def reference(n: int, *, d: float = 1.0, dtype: DType) -> Any:
        return getattr(np.fft, name)(n, d).astype(dtype.numpy)

    return reference


REAL = "real floating"
FLOATS = "floating"
ROWS = [
    Row("fft.fft", _complex("fft"), along_one, FLOATS, rtol=32),
    Row("fft.ifft", _complex("ifft"), along_one, FLOATS, rtol=32),
    Row("fft.rfft", np.fft.rfft, along_one, REAL, rtol=32),
    Row("fft.irfft", _complex("irfft"), halves, FLOATS, rtol=32),
    Row("fft.hfft", _complex("hfft"), halves, FLOATS, rtol=64),
    Row("fft.ihfft", np.fft.ihfft, along_one, REAL, rtol=32),
    Row("fft.fftn", _complex("fftn"), no_axes(along_several), FLOATS, rtol=64),
    Row("fft.ifftn", _complex("ifftn"), no_axes(along_several), FLOATS, rtol=64),
    Row("fft.rfftn", np.fft.rfftn, along_several, REAL, rtol=64),
    Row("fft.irfftn", _complex("irfftn"), along_several, FLOATS, rtol=64),
    Row("fft.fftfreq", _frequencies("fftfreq"), windows, REAL, rtol=1),
    Row("fft.rfftfreq", _frequencies("rfftfreq"), windows, REAL, rtol=1),
    Row("fft.fftshift", _shift("fftshift"), shifts, kinds="all"),
    Row("fft.ifftshift", _shift("ifftshift"), shifts, kinds="all"),
]
