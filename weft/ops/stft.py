"""Short-time Fourier transforms: the spectra of overlapping pieces of a signal, and back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.base.errors import DTypeError, RangeError, ShapeError
from weft.core.operands import cast, common
from weft.core.public import public
from weft.core.tensor import Tensor, type_of
from weft.ops.creation import asarray, ones, zeros
from weft.ops.elementwise import imag, real, square
from weft.ops.fft_axis import fft, ifft, irfft, rfft
from weft.ops.index import take
from weft.ops.linalg_rules import floating, widened
from weft.ops.scatter import index_add
from weft.ops.select import where
from weft.ops.shape import concat, matrix_transpose, reshape, stack

__all__ = ["istft", "stft"]

_PADDINGS = ("constant", "reflect", "replicate", "circular")
#: Below this, the windows leave parts of a signal that cannot be told from their transform.
_LEAST = 1e-11


def _sizes(n_fft: int, hop: int | None, width: int | None, op: str) -> tuple[int, int]:
    hop = n_fft // 4 if hop is None else hop
    width = n_fft if width is None else width
    if n_fft < 1 or hop < 1 or not 1 <= width <= n_fft:
        raise RangeError(
            f"n_fft and hop_length must be positive and win_length from 1 to n_fft: "
            f"{n_fft}, {hop}, {width}",
            op=op,
        )
    return hop, width


def _window(window: Tensor | None, width: int, n_fft: int, like: Tensor, op: str) -> Tensor:
    """The window in the middle of n_fft samples, with zeros around it."""
    kind = real(like).dtype
    if window is None:
        middle = ones(width, dtype=kind, device=like.device)
    else:
        middle = window
        if window.shape != (width,):
            raise ShapeError(f"the window must have {width} samples, not {window.shape}", op=op)
    before = (n_fft - width) // 2
    parts = [
        zeros(before, dtype=middle.dtype, device=like.device),
        middle,
        zeros(n_fft - width - before, dtype=middle.dtype, device=like.device),
    ]
    return concat([part for part in parts if part.shape[0]], axis=0)


def _padded(places: Any, size: int, mode: str) -> Any:
    """The samples that stand at places outside of a signal; -1 where it is 0."""
    if mode == "constant":
        return np.where((places >= 0) & (places < size), places, -1)
    if mode == "replicate":
        return np.clip(places, 0, size - 1)
    if mode == "circular":
        return places % size
    turned = np.abs(places)
    return np.where(turned >= size, 2 * (size - 1) - turned, turned)


@public("stft")
def stft(
    x: Tensor,
    /,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool = True,
) -> Tensor:
    """The spectra of pieces of `n_fft` samples of a signal, `hop_length` apart (n_fft // 4).

    The result has an axis of frequencies and one of pieces. With `center`, piece t is centred at
    sample t * hop_length, and the signal is continued at both ends by `pad_mode`. A real signal
    has half of the frequencies (`onesided`). Without `return_complex`, real and imaginary parts
    stand along a new last axis.

    >>> x = weft.sin(weft.arange(64) * (2 * weft.pi / 8))
    >>> weft.stft(x, 16, window=weft.hann_window(16)).shape
    (9, 17)
    """
    signal = floating(x, "stft")
    hop, width = _sizes(n_fft, hop_length, win_length, "stft")
    if signal.ndim not in (1, 2):
        raise ShapeError(
            f"a signal has one axis, or two with the batch; not {signal.ndim}",
            op="stft",
            operands=[type_of(signal)],
        )
    if pad_mode not in _PADDINGS:
        raise RangeError(f"pad_mode is one of {_PADDINGS}, not {pad_mode!r}", op="stft")
    size = signal.shape[-1]
    beyond = n_fft // 2 if center else 0
    if beyond >= size and pad_mode in ("reflect", "circular") and beyond:
        raise ShapeError(
            f"{size} samples cannot be continued by {beyond} with pad_mode={pad_mode!r}",
            op="stft",
            hint='use a smaller n_fft, or pad_mode="constant"',
        )
    count = (size + 2 * beyond - n_fft) // hop + 1
    if count < 1:
        raise ShapeError(f"{size} samples are fewer than n_fft = {n_fft}", op="stft")
    places = np.arange(count)[:, None] * hop + np.arange(n_fft) - beyond
    source = _padded(places, size, pad_mode)
    flat = take(signal, asarray(np.maximum(source, 0).reshape(-1), device=signal.device), axis=-1)
    pieces = reshape(flat, (*signal.shape[:-1], count, n_fft))
    if (source < 0).any():
        pieces = where(asarray(source >= 0, device=signal.device), pieces, 0)
    weights = _window(window, width, n_fft, signal, "stft")
    pieces, weights = common((widened(pieces), widened(weights)), "stft")
    whole = pieces * weights
    is_complex = whole.dtype.kind == "complex"
    half = not is_complex if onesided is None else onesided
    if half and is_complex:
        raise DTypeError("a complex signal has no one-sided transform", op="stft")
    spectra = rfft(whole) if half else fft(whole)
    if normalized:
        spectra = spectra / math.sqrt(n_fft)
    out = matrix_transpose(spectra)
    return out if return_complex else stack([real(out), imag(out)], axis=-1)


@public("istft")
def istft(
    x: Tensor,
    /,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The signal of `stft` with the same arguments: the best fit, where pieces contradict.

    >>> x = weft.arange(32.0)
    >>> window = weft.hann_window(8)
    >>> weft.istft(weft.stft(x, 8, window=window), 8, window=window, length=32)[:4]
    tensor([-2.3841858e-08,  1.0000000e+00,  2.0000000e+00,  3.0000000e+00])
    """
    spectra = floating(x, "istft")
    hop, width = _sizes(n_fft, hop_length, win_length, "istft")
    if spectra.dtype.kind != "complex" or spectra.ndim not in (2, 3):
        raise ShapeError(
            "x must be complex, with axes of frequencies and pieces, or a batch of these",
            op="istft",
            operands=[type_of(spectra)],
        )
    half = (not return_complex) if onesided is None else onesided
    number = n_fft // 2 + 1 if half else n_fft
    if spectra.shape[-2] != number:
        raise ShapeError(
            f"{spectra.shape[-2]} frequencies, where n_fft = {n_fft} has {number}", op="istft"
        )
    rows = matrix_transpose(spectra)
    pieces = irfft(rows, n=n_fft) if half else ifft(rows)
    if not return_complex:
        pieces = real(pieces)
    if normalized:
        pieces = pieces * math.sqrt(n_fft)
    weights = cast(_window(window, width, n_fft, spectra, "istft"), real(pieces).dtype)
    count = spectra.shape[-1]
    total = n_fft + hop * (count - 1)
    index = asarray(
        (np.arange(count)[:, None] * hop + np.arange(n_fft)).reshape(-1), device=spectra.device
    )
    signal = _overlapped(pieces * weights, index, total)
    envelope = _overlapped(square(weights) + 0 * real(pieces), index, total)
    start = n_fft // 2 if center else 0
    stop = total - start if length is None else min(start + length, total)
    signal, envelope = signal[..., start:stop], envelope[..., start:stop]
    known = isinstance(envelope._data, np.ndarray) and envelope.size
    if known and float(np.abs(envelope.detach().numpy()).min()) < _LEAST:
        raise RangeError(
            "the windows leave samples that are not in any piece",
            op="istft",
            hint="use a smaller hop_length, or a window without zeros",
        )
    out = signal / envelope
    missing = 0 if length is None else length - out.shape[-1]
    if missing > 0:
        none = zeros((*out.shape[:-1], missing), dtype=out.dtype, device=out.device)
        out = concat([out, none], axis=-1)
    return out


def _overlapped(pieces: Tensor, index: Tensor, total: int) -> Tensor:
    """The sum of pieces at their places in a signal."""
    flat = reshape(pieces, (*pieces.shape[:-2], pieces.shape[-2] * pieces.shape[-1]))
    room = zeros((*flat.shape[:-1], total), dtype=flat.dtype, device=flat.device)
    return index_add(room, -1, index, flat)
