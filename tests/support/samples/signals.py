"""Rows of short-time Fourier transforms, of two-dimensional ones, and of windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from samples.table import Row, Sample, call, values
from weft.base.dtypes import DType, as_dtype

Array = np.ndarray[Any, Any]

# --- windows -----------------------------------------------------------------------------------


def lengths(dtype: DType) -> Iterator[Sample]:
    for count in (0, 1, 2, 5, 8):
        yield call(count, dtype=dtype)
        yield call(count, False, dtype=dtype)


def by_numpy(function: Callable[..., Array]) -> Callable[..., Array]:
    """NumPy's symmetric windows; a periodic one is the first part of the next longer one."""

    def reference(count: int, periodic: bool = True, *, dtype: Any) -> Array:
        longer = periodic and count > 1
        found = function(count + longer)[:count]
        return np.abs(found).astype(as_dtype(dtype).numpy)

    return reference


# --- transforms --------------------------------------------------------------------------------


def signals(dtype: DType) -> Iterator[Sample]:
    x = values((2, 20), dtype)
    window = values((6,), dtype, 0.5, 1, seed=1) if dtype.kind != "complex" else None
    yield call(x, 8)
    yield call(x[0], 8, 3, center=False)
    yield call(x, 8, 2, 6, window, normalized=True)
    yield call(x, 8, 2, onesided=False)
    for mode in ("constant", "replicate", "circular"):
        yield call(x[0], 7, 2, pad_mode=mode)
    yield call(x[0], 8, return_complex=False)


_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def stft(
    x: Array,
    n_fft: int,
    hop: int | None = None,
    width: int | None = None,
    window: Array | None = None,
    *,
    center: bool = True,
    pad_mode: Any = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool = True,
) -> Array:
    hop, width = hop or n_fft // 4, width or n_fft
    weights = np.ones(width) if window is None else window
    before = (n_fft - width) // 2
    weights = np.pad(weights, (before, n_fft - width - before))
    if center:
        ends = [(0, 0)] * (x.ndim - 1) + [(n_fft // 2, n_fft // 2)]
        x = np.pad(x, ends, mode=_MODES[pad_mode])  # type: ignore[call-overload]
    starts = range(0, x.shape[-1] - n_fft + 1, hop)
    pieces = np.stack([x[..., s : s + n_fft] * weights for s in starts], axis=-1)
    half = x.dtype.kind != "c" if onesided is None else onesided
    out = (np.fft.rfft if half else np.fft.fft)(pieces, axis=-2)
    if normalized:
        out = out / np.sqrt(n_fft)
    return out if return_complex else np.stack([out.real, out.imag], axis=-1)


def spectra(dtype: DType) -> Iterator[Sample]:
    """Spectra of signals, and what it takes to get these back."""
    single = np.complex64 if dtype.itemsize < 8 else np.complex128
    x = values((2, 20), dtype)
    window = values((8,), dtype, 0.5, 1, seed=1)
    yield call(stft(x, 8, 2, None, window).astype(single), 8, 2, None, window)
    yield call(stft(x, 8).astype(single), 8, length=18)
    yield call(stft(x[0], 8, 3, center=False).astype(single), 8, 3, center=False)
    whole = stft(x, 8, normalized=True, onesided=False).astype(single)
    yield call(whole, 8, normalized=True, onesided=False)


def istft(
    x: Array,
    n_fft: int,
    hop: int | None = None,
    width: int | None = None,
    window: Array | None = None,
    *,
    center: bool = True,
    normalized: bool = False,
    onesided: bool = True,
    length: int | None = None,
) -> Array:
    hop = hop or n_fft // 4
    weights = np.ones(n_fft) if window is None else window.astype(np.float64)
    pieces = np.fft.irfft(x, n_fft, axis=-2) if onesided else np.fft.ifft(x, axis=-2).real
    pieces = pieces * (np.sqrt(n_fft) if normalized else 1.0)
    count = x.shape[-1]
    total = n_fft + hop * (count - 1)
    out, envelope = np.zeros((*x.shape[:-2], total)), np.zeros(total)
    for i in range(count):
        out[..., i * hop : i * hop + n_fft] += pieces[..., i] * weights
        envelope[i * hop : i * hop + n_fft] += weights**2
    start = n_fft // 2 if center else 0
    stop = total - start if length is None else start + length
    return (out / envelope)[..., start:stop]


# --- two axes ----------------------------------------------------------------------------------


def images(dtype: DType) -> Iterator[Sample]:
    yield call(values((3, 4), dtype))
    yield call(values((2, 3, 5), dtype), norm="ortho")
    yield call(values((2, 3, 5), dtype), axes=(0, 1), s=(4, 2))


def by_fft(name: str) -> Callable[..., Array]:
    return lambda x, **how: getattr(np.fft, name)(x, **how)


ROWS = [
    Row("hann_window", by_numpy(np.hanning), lengths, "real floating"),
    Row("hamming_window", by_numpy(np.hamming), lengths, "real floating"),
    Row("blackman_window", by_numpy(np.blackman), lengths, "real floating"),
    Row("bartlett_window", by_numpy(np.bartlett), lengths, "real floating"),
    Row("kaiser_window", by_numpy(lambda n: np.kaiser(n, 12.0)), lengths, "real floating"),
    Row("stft", stft, signals, "real floating", rtol=64),
    Row("istft", istft, spectra, "real floating", rtol=64),
    Row("fft.fft2", by_fft("fft2"), images, "floating", rtol=64),
    Row("fft.ifft2", by_fft("ifft2"), images, "floating", rtol=64),
    Row("fft.rfft2", by_fft("rfft2"), images, "real floating", rtol=64),
    Row("fft.irfft2", by_fft("irfft2"), images, "floating", rtol=64),
]
