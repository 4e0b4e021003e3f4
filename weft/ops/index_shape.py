"""The shapes of parts of tensors, and the form of an index.

An index has a static part (ints, slices, new axes), which is an attribute of the cards in
`weft.ops.index_cards`, and integer tensors, which are inputs. TENSOR marks their places in the
static part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.asked_sizes import is_less
from weft.base.dim_algebra import Dim, dim_max, dim_min, known_less
from weft.base.dims import ceil_div, has_dims
from weft.base.errors import IndexError, UnknownSizeError
from weft.base.shapes import Shape, broadcast_shapes
from weft.ir.types import TensorType

__all__ = ["TENSOR", "check_indices", "full_index", "indexed_shape", "slice_length"]
__all__ += ["indices_in_range", "slice_start"]

#: Stands for an integer tensor in the static part of an index.
TENSOR = "tensor"

Index = Any  # an int, slice, None, Ellipsis or TENSOR, or a tuple of them


def full_index(index: Index, ndim: int) -> list[Any]:
    """The index with `...` and missing axes expanded: one part per axis, and None for new axes."""
    parts = list(index) if isinstance(index, tuple) else [index]
    used = sum(part is not None and part is not ... for part in parts)
    if used > ndim:
        raise IndexError(f"{used} indices for a tensor of {ndim} axes")
    if sum(part is ... for part in parts) > 1:
        raise IndexError("an index can hold only one '...'")
    at = parts.index(...) if any(part is ... for part in parts) else len(parts)
    return parts[:at] + [slice(None)] * (ndim - used) + parts[at + 1 :]


def slice_length(part: slice, size: int) -> int:
    """The number of elements that a slice selects from an axis."""
    step = 1 if part.step is None else part.step
    if not has_dims((part.start, part.stop, step, size)):
        return len(range(*part.indices(size)))
    upwards = is_less(0, step)
    if not upwards and not is_less(step, 0):
        raise _unclear(part, size, "step")
    first, last = (part.start, part.stop) if upwards else (part.stop, part.start)
    # Elements lie between the largest of `lows` and the smallest of `highs`: the bounds of the
    # slice, and the ends of the axis if the bounds may lie beyond them.
    least, most = (0, size) if upwards else (-1, size - 1)
    lows, highs = [least], [most]
    if first is not None:
        lows = [first + size, least] if _is_negative(part, first, size) else [first]
    if last is not None:
        highs = [last + size] if _is_negative(part, last, size) else [last, most]
    length = highs[0] - lows[0]
    for high in highs:
        for low in lows:
            length = dim_min(length, high - low)
    return ceil_div(dim_max(length, 0), step if upwards else -step)


def slice_start(part: slice, size: int) -> int:
    """The index of the first element that a slice selects, if it selects any."""
    step = 1 if part.step is None else part.step
    if not has_dims((part.start, step, size)):
        return slice(part.start, None, part.step).indices(size)[0]  # the end may be symbolic
    upwards = is_less(0, step)
    if part.start is None:
        return 0 if upwards else size - 1
    if _is_negative(part, part.start, size):
        first: int = part.start + size
        return dim_max(first, 0) if upwards else first
    return part.start if upwards else dim_min(part.start, size - 1)


def _is_negative(part: slice, end: int, size: int) -> bool:
    if is_less(end, 0):
        return True
    if is_less(-1, end):
        return False
    raise _unclear(part, size, "sign of its end")


def _unclear(part: slice, size: int, what: str) -> UnknownSizeError:
    ends = (part.start, part.stop, part.step)
    shown = ":".join("" if end is None else str(end) for end in ends[: 2 + (part.step is not None)])
    name = next(end for end in (*ends, size) if end.__class__ is Dim).names[0]
    return UnknownSizeError(
        f"the length of the slice {shown} is not known: the {what} depends on sizes",
        hint=f'say what is known of them, as in weft.dim("{name}", min=1)',
    )


def indexed_shape(shape: Shape, index: Index, tensors: Sequence[Shape] = ()) -> Shape:
    """The shape of x[index] for x of `shape`, with the shapes of the tensors in the index."""
    parts = full_index(index, len(shape))
    sizes = iter(shape)
    gathers = [i for i, part in enumerate(parts) if part is TENSOR]
    result: list[Any] = []
    ints: list[int] = []
    for i, part in enumerate(parts):
        if part is None:
            result.append(1)
            continue
        size = next(sizes)
        if isinstance(part, slice):
            result.append(slice_length(part, size))
        elif part is TENSOR:
            result.append(TENSOR)
        else:
            if is_less(part, -size) or is_less(size - 1, part):
                raise IndexError(f"index {part} is out of range for an axis of size {size}")
            ints.append(i)
            if gathers:
                result.append(TENSOR)  # next to tensors, an int counts as a 0-d tensor
    if not gathers:
        return tuple(result)
    together = broadcast_shapes(*tensors)
    places = sorted(gathers + ints)
    adjacent = places[-1] - places[0] + 1 == len(places)
    rest = [size for size in result if size is not TENSOR]
    front = result.index(TENSOR) if adjacent else 0
    return (*rest[:front], *together, *rest[front:])


def indices_in_range(shape: Shape, index: Index) -> list[int]:
    """For each int of an index: sizes that are at least 1 if it is in range."""
    found: list[int] = []
    sizes = iter(shape)
    for part in full_index(index, len(shape)):
        if part is None:
            continue
        size = next(sizes)
        if not isinstance(part, slice) and part is not TENSOR:
            found.append(part + size + 1 if known_less(part, 0) else size - part)
            if isinstance(part, Dim) and not known_less(part, 0):
                found.append(part + 1)
    return found


def check_indices(indices: Sequence[TensorType]) -> None:
    for part in indices:
        if part.dtype.kind not in ("int", "uint"):
            raise IndexError(
                f"an index must be of integers or bools, not {part.dtype.name}",
                hint="cast it with astype(weft.int64)",
            )
