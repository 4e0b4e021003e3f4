"""Pooling functions: the largest element, or the mean, of windows along the last axes.

They take (batch, channels, *sizes), or (channels, *sizes) if `axes` gives the number of spatial
axes. `weft.nn.functional` has the public functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, overload

import numpy as np

from weft.base.asked_sizes import is_less
from weft.base.dim_algebra import dim_min, known_less
from weft.base.dims import ceil_div, has_dims, is_zero
from weft.base.dtypes import NARROW_FLOATS, default_float, float32
from weft.base.errors import ShapeError
from weft.base.shapes import Shape, size_of
from weft.core.bind import bind
from weft.core.operands import cast
from weft.core.tensor import Tensor, type_of
from weft.ops import pool_cards as cards
from weft.ops.creation import arange, asarray
from weft.ops.elementwise import maximum, minimum
from weft.ops.index import take
from weft.ops.select import where
from weft.ops.shape import expand_dims, reshape
from weft.ops.windows import Padding, extent, per_axis, too_large

Sizes = int | Sequence[int]


def _axes(x: Tensor, axes: int | None, op: str) -> int:
    """The number of spatial axes: as given, or all except batch and channels."""
    if axes is None:
        axes = x.ndim - 2
    if axes < 1 or x.ndim not in (axes + 1, axes + 2):
        expected = f"{axes + 2}, or {axes + 1} without a batch" if axes > 0 else "3 to 5"
        raise ShapeError(
            f"the input has {x.ndim} axes, not {expected}",
            op=op,
            operands=[type_of(x)],
            hint="give it the axes (batch, channels, sizes…)",
        )
    return axes


def _windows(
    x: Tensor,
    kernel: Shape,
    stride: Shape,
    padding: Shape,
    dilation: Shape,
    ceil_mode: bool,
    op: str,
) -> Padding:
    """The padding before and after each axis with which all windows fit.

    In `ceil_mode` the last window may extend beyond the end if it starts before it.
    """
    found = []
    sizes = x.shape[x.ndim - len(kernel) :]
    for size, k, s, d, pad in zip(sizes, kernel, stride, dilation, padding, strict=True):
        reach = extent(k, d)
        if 2 * pad > reach:
            raise ShapeError(
                f"padding {padding} is more than half of the kernel {kernel}",
                op=op,
                operands=[type_of(x)],
                hint="then windows would hold nothing but padding; use at most kernel // 2",
            )
        count = (size + 2 * pad - reach) // s + 1
        if ceil_mode:  # one more window that extends beyond the end, if it starts before it
            over = ceil_div(size + 2 * pad - reach, s) + 1
            count = dim_min(over, (size + pad - 1) // s + 1)
        if is_less(count, 1):
            around = tuple((pad, pad) for pad in padding)
            raise too_large(sizes, kernel, dilation, around).about(op, [type_of(x)])
        found.append((pad, (count - 1) * s + reach - size - pad))
    return tuple(found)


def _options(
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
    axes: int | None,
    op: str,
) -> dict[str, Any]:
    """The attributes of a pooling card, from what users pass."""
    n = _axes(x, axes, op)
    kernel = per_axis(kernel_size, n, "kernel_size", op, least=1)
    step = kernel if stride is None else per_axis(stride, n, "stride", op, least=1)
    pad = per_axis(padding, n, "padding", op, least=0)
    apart = per_axis(dilation, n, "dilation", op, least=1)
    fitted = _windows(x, kernel, step, pad, apart, ceil_mode, op)
    return {"kernel": kernel, "stride": step, "padding": fitted, "dilation": apart}


# --- the largest -------------------------------------------------------------------------------


@overload
def max_pool(
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: Literal[False] = False,
    *,
    axes: int | None = None,
) -> Tensor: ...
@overload
def max_pool(
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    axes: int | None = None,
) -> Any: ...
def max_pool(
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    axes: int | None = None,
) -> Any:
    """The largest element of each window; NaN where there is one.

    The stride is by default the kernel's size. Padding counts as lower than any number. With
    `return_indices`, also where each lies: its number in row-major order of the spatial axes. Of
    equal elements, the first counts: it gets the gradient.

    >>> from weft.ops.pool import max_pool
    >>> max_pool(weft.asarray([[[1.0, 3.0, 2.0, 0.0]]]), 2)
    tensor([[[3., 2.]]])
    """
    attrs = _options(x, kernel_size, stride, padding, dilation, ceil_mode, axes, "max_pool")
    out = bind(cards.max_pool, x, **attrs)
    return (out, bind(cards.max_pool_indices, x, out, **attrs)) if return_indices else out


# --- the mean ----------------------------------------------------------------------------------


def avg_pool(
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    axes: int | None = None,
) -> Tensor:
    """The mean of each window.

    The stride is by default the kernel's size. Padding counts as zeros; without
    `count_include_pad` it does not count at all. `divisor_override` is what sums are divided by
    instead of the number of elements.

    >>> from weft.ops.pool import avg_pool
    >>> avg_pool(weft.asarray([[[1.0, 3.0, 2.0, 0.0]]]), 2)
    tensor([[[2., 1.]]])
    """
    if divisor_override == 0:
        raise ShapeError("divisor_override must not be 0", op="avg_pool")
    attrs = _options(x, kernel_size, stride, padding, 1, ceil_mode, axes, "avg_pool")
    del attrs["dilation"]
    n = len(attrs["kernel"])
    beyond = per_axis(padding, n, "padding", "avg_pool", least=0) if count_include_pad else (0,) * n
    sizes = x.shape[x.ndim - n :]
    divisor: Any = divisor_override
    if divisor is None and has_dims(sizes):
        divisor = _symbolic_counts(x, sizes, beyond=beyond, **attrs)
    elif divisor is None:
        divisor = _counts(sizes, beyond=beyond, **attrs)
    return _mean(x, divisor, attrs)


@lru_cache(maxsize=1024)
def _counts(
    sizes: Shape, kernel: Shape, stride: Shape, padding: Padding, beyond: Shape
) -> int | np.ndarray[Any, Any]:
    """The number of elements of each window, counting `beyond` elements on each side of an axis."""
    total: Any = 1
    volume = size_of(kernel)
    for size, k, s, (low, high), more in zip(sizes, kernel, stride, padding, beyond, strict=True):
        starts = np.arange(-low, size + high - k + 1, s)
        lengths = np.minimum(starts + k, size + more) - np.maximum(starts, -more)
        total = np.multiply.outer(total, lengths)
    return volume if (total == volume).all() else np.maximum(total, 1)


def _symbolic_counts(
    x: Tensor, sizes: Shape, kernel: Shape, stride: Shape, padding: Padding, beyond: Shape
) -> int | Tensor:
    """The same for symbolic sizes: computed with tensors, unless all windows are full."""
    if all(
        low <= more and known_less(high, more + 1)
        for (low, high), more in zip(padding, beyond, strict=True)
    ):
        return size_of(kernel)
    total: Any = 1
    for size, k, s, (low, high), more in zip(sizes, kernel, stride, padding, beyond, strict=True):
        starts = arange(-low, size + high - k + 1, s, device=x.device)
        lengths = minimum(starts + k, size + more) - maximum(starts, -more)
        total = expand_dims(total, -1) * lengths if isinstance(total, Tensor) else lengths
    return maximum(total, 1)


def _mean(x: Tensor, divisor: Any, attrs: dict[str, Any]) -> Tensor:
    """Sums of windows divided by a number, or by one number for each window."""
    if x.dtype.kind in ("bool", "int", "uint"):
        x = cast(x, default_float())
    dtype = x.dtype
    wide = cast(x, float32) if dtype in NARROW_FLOATS else x  # rounded once, after the division
    total: Tensor = bind(cards.sum_pool, wide, **attrs)
    if isinstance(divisor, np.ndarray):
        divisor = asarray(divisor, device=x.device)
    if isinstance(divisor, Tensor):
        divisor = cast(divisor, wide.dtype)
    return cast(total / divisor, dtype)


# --- windows that divide an axis as evenly as can be -------------------------------------------


def _outputs(x: Tensor, output_size: Any, axes: int | None, op: str) -> Shape:
    """The number of windows along each axis; None means the number of elements."""
    n = _axes(x, axes, op)
    given = output_size if isinstance(output_size, (tuple, list)) else (output_size,)
    if len(given) == 1:
        given = tuple(given) * n
    sizes = x.shape[x.ndim - n :]
    if len(given) != n:
        raise ShapeError(f"output_size {output_size!r} does not fit {n} spatial axes", op=op)
    filled = [size if out is None else out for out, size in zip(given, sizes, strict=True)]
    if 0 in sizes:
        raise ShapeError(f"there is nothing to pool in sizes {sizes}", op=op, operands=[type_of(x)])
    return per_axis(filled, n, "output_size", op, least=1)


def _even_windows(x: Tensor, outputs: Shape) -> tuple[Tensor, dict[str, Any], list[Any], list[Any]]:
    """x with its axes rearranged so that the windows have equal lengths and do not overlap.

    With m windows on n elements, window o extends from floor(o n / m) to ceil((o + 1) n / m). If
    lengths differ, the last element of a shorter window is repeated; of a symbolic size, windows
    have room for the longest that there may be. Also returns the attributes of the pooling, the
    elements that were taken along each axis (None: all in order), and the true lengths (None: not
    known, but equal).
    """
    taken: list[Any] = []
    lengths: list[Any] = []
    kernel = []
    for number, windows in enumerate(outputs):
        axis = x.ndim - len(outputs) + number
        size = x.shape[axis]
        symbolic = has_dims((size, windows))
        if symbolic and is_zero(size % windows):  # 1 window, or as many as there are elements
            kernel.append(size // windows)
            lengths.append(None)
            taken.append(None)
            continue
        order: Any = arange(windows, device=x.device) if symbolic else np.arange(windows)
        starts = order * size // windows
        ends = -(-(order + 1) * size // windows)
        longest = size // windows + 2 if symbolic else int((ends - starts).max())
        kernel.append(longest)
        lengths.append(ends - starts)
        if not symbolic and size == windows * longest:
            taken.append(None)
            continue
        if symbolic:
            places = starts[:, None] + arange(longest, device=x.device)
            taken.append(reshape(minimum(places, ends[:, None] - 1), (-1,)))
        else:
            places = np.minimum(starts[:, None] + np.arange(longest), ends[:, None] - 1)
            taken.append(asarray(places.reshape(-1), device=x.device))
        x = take(x, taken[-1], axis=axis)
    attrs = {
        "kernel": tuple(kernel),
        "stride": tuple(kernel),
        "padding": ((0, 0),) * len(kernel),
    }
    return x, attrs, taken, lengths


def adaptive_max_pool(
    x: Tensor, output_size: Any, return_indices: bool = False, *, axes: int | None = None
) -> Any:
    """The largest elements of `output_size` windows that divide each axis as evenly as possible.

    `output_size` is an int, or for each spatial axis an int or None (as many as there are
    elements). With `return_indices`, also where each lies, as in `max_pool`.

    >>> from weft.ops.pool import adaptive_max_pool
    >>> adaptive_max_pool(weft.asarray([[[1.0, 3.0, 2.0, 0.0, 5.0]]]), 2)
    tensor([[[3., 5.]]])
    """
    outputs = _outputs(x, output_size, axes, "adaptive_max_pool")
    even, attrs, taken, _ = _even_windows(x, outputs)
    attrs["dilation"] = (1,) * len(outputs)
    out = bind(cards.max_pool, even, **attrs)
    if not return_indices:
        return out
    at = bind(cards.max_pool_indices, even, out, **attrs)
    sizes = x.shape[x.ndim - len(outputs) :]
    return out, _numbered(at, even.shape[x.ndim - len(outputs) :], sizes, taken)


def _numbered(at: Tensor, sizes: Shape, wanted: Shape, taken: Sequence[Any]) -> Tensor:
    """Flat indices into an array of `sizes`, as indices into the array it was taken from."""
    if all(elements is None for elements in taken):
        return at
    result: Any = 0
    weight = 1
    for size, true, elements in zip(
        reversed(sizes), reversed(wanted), reversed(taken), strict=True
    ):
        place = at % size
        at = at // size
        if elements is not None:
            place = take(elements, place, axis=0)
        result = result + place * weight
        weight *= true
    numbers: Tensor = result
    return numbers


def adaptive_avg_pool(x: Tensor, output_size: Any, *, axes: int | None = None) -> Tensor:
    """The means of `output_size` windows that divide each axis as evenly as possible.

    `output_size` is an int, or for each spatial axis an int or None (as many as there are
    elements).

    >>> from weft.ops.pool import adaptive_avg_pool
    >>> adaptive_avg_pool(weft.asarray([[[1.0, 3.0, 2.0, 0.0, 5.0]]]), 2)
    tensor([[[2.       , 2.3333333]]])
    """
    outputs = _outputs(x, output_size, axes, "adaptive_avg_pool")
    even, attrs, taken, lengths = _even_windows(x, outputs)
    divisor: Any = size_of(attrs["kernel"])
    if any(elements is not None for elements in taken):
        divisor, own = 1, None
        for number, (length, longest) in enumerate(zip(lengths, attrs["kernel"], strict=True)):
            if length is None or (isinstance(length, np.ndarray) and (length == longest).all()):
                divisor = divisor * longest  # all windows along this axis have one length
                continue
            behind = (1,) * (len(lengths) - 1 - number)
            count = asarray(length, device=x.device)
            inside = arange(longest, device=x.device) < count[:, None]
            inside = reshape(inside, (-1, *behind))
            own = inside if own is None else own & inside
            divisor = reshape(count, (-1, *behind)) * divisor
        if own is not None:
            even = where(own, even, 0)
    return _mean(even, divisor, attrs)
