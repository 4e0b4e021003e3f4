"""Views as offsets and strides: how a value that has no buffer of its own is read."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weft.base.dim_algebra import Dim, known_less
from weft.base.dims import has_dims, is_zero
from weft.base.shapes import size_of
from weft.ir.op import Op
from weft.ops.cards import BROADCAST_TO, GETITEM, PERMUTE_DIMS
from weft.ops.index_shape import slice_length, slice_start

__all__ = ["View", "broadcast_view", "dense", "dense_strides", "viewed"]


@dataclass(frozen=True, slots=True)
class View:
    """Element `i` stands at `offset + sum(i * strides)`, counted in elements of the buffer."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def is_dense(self) -> bool:
        """Whether its elements follow each other in C order, from the first of the buffer on."""
        return self.offset == 0 and all(
            size == 1 or stride == wanted
            for size, stride, wanted in zip(
                self.shape, self.strides, dense_strides(self.shape), strict=True
            )
        )


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def dense(shape: Sequence[int]) -> View:
    return View(tuple(shape), dense_strides(shape))


def viewed(view: View, op: Op, attrs: Mapping[str, Any], shape: Sequence[int]) -> View | None:
    """The view of a view op's result, whose shape is given; None if strides cannot express it."""
    if op.alias:
        return view
    if op is PERMUTE_DIMS:
        axes = attrs["axes"]
        return View(
            tuple(view.shape[i] for i in axes), tuple(view.strides[i] for i in axes), view.offset
        )
    if op is BROADCAST_TO:
        return broadcast_view(view, tuple(shape))
    if op is GETITEM:
        return _indexed(view, attrs["index"])
    return _reshaped(view, tuple(shape))


def broadcast_view(view: View, shape: tuple[int, ...]) -> View:
    """A view repeated along new axes, and along those of size 1."""
    new = len(shape) - len(view.shape)
    strides = [0] * new
    for old, stride, size in zip(view.shape, view.strides, shape[new:], strict=True):
        strides.append(0 if old == 1 and size != 1 else stride)
    return View(shape, tuple(strides), view.offset)


def _indexed(view: View, index: Any) -> View | None:
    parts = index if isinstance(index, tuple) else (index,)
    taken = sum(part is not None and part is not Ellipsis for part in parts)
    shape: list[int] = []
    strides: list[int] = []
    offset = view.offset
    axis = 0
    for part in (*parts, *(() if any(p is Ellipsis for p in parts) else (Ellipsis,))):
        if part is None:
            shape.append(1)
            strides.append(0)
        elif part is Ellipsis:
            rest = len(view.shape) - taken
            shape += view.shape[axis : axis + rest]
            strides += view.strides[axis : axis + rest]
            axis += rest
        elif isinstance(part, slice):
            size = view.shape[axis]
            count, step = slice_length(part, size), 1 if part.step is None else part.step
            offset += 0 if is_zero(count) else slice_start(part, size) * view.strides[axis]
            shape.append(count)
            strides.append(step * view.strides[axis])
            axis += 1
        elif isinstance(part, bool) or not hasattr(part, "__index__"):
            return None
        else:
            at = part if isinstance(part, Dim) else part.__index__()
            offset += (at + view.shape[axis] if known_less(at, 0) else at) * view.strides[axis]
            axis += 1
    return View(tuple(shape), tuple(strides), offset)


def _reshaped(view: View, shape: tuple[int, ...]) -> View | None:
    if size_of(view.shape) == 0:
        return View(shape, dense_strides(shape), 0)
    old = [(n, s) for n, s in zip(view.shape, view.strides, strict=True) if n != 1]
    strides: list[int] = []
    at = 0  # the first of `old` that is not used yet
    group: list[tuple[int, int]] = []
    for place, size in enumerate(shape):
        if size == 1:
            strides.append(0)
            continue
        # The shortest runs of old and new axes with the same number of elements.
        if not group:
            found = _run(old, at, shape[place:])
            if found is None:  # sizes of the run would say which axes belong together
                whole = all(
                    size == 1 or step == wanted
                    for (size, step), wanted in zip(
                        zip(view.shape, view.strides, strict=True),
                        dense_strides(view.shape),
                        strict=True,
                    )
                )
                return View(shape, dense_strides(shape), view.offset) if whole else None
            group, at, new = found
            made = _split(group, new)
            if made is None:
                return None
            pending = list(made)
            left = len([n for n in new if n != 1])
        strides.append(pending.pop(0))
        left -= 1
        if left == 0:
            group = []
    return View(shape, tuple(strides), view.offset)


def _run(
    old: list[tuple[int, int]], at: int, shape: Sequence[int]
) -> tuple[list[tuple[int, int]], int, list[int]] | None:
    """Some old axes from `at` on, the next after them, and the new axes with as many elements.
    None where sizes of the run would decide."""
    taken = [old[at]]
    at += 1
    have = taken[0][0]
    new: list[int] = []
    want = 1
    for size in shape:
        if size == 1:
            continue
        new.append(size)
        want *= size
        while have != want and (more := _is_part(have, want)) is not False:
            if more is None or at >= len(old):
                return None
            taken.append(old[at])
            have *= old[at][0]
            at += 1
        if have == want:
            break
    return taken, at, new


def _is_part(have: int, want: int) -> bool | None:
    """Whether the smaller of two sizes is the first; None where it depends on the run."""
    if not has_dims((have, want)):
        return have < want
    if want % have == 0:
        return True
    return False if have % want == 0 else None


def _split(group: list[tuple[int, int]], new: list[int]) -> list[int] | None:
    """Strides of the new axes of one run; None unless the old axes are contiguous."""
    for (_, outer), (size, inner) in itertools.pairwise(group):
        if outer != size * inner:
            return None
    strides: list[int] = []
    step = group[-1][1]
    for size in reversed(new):
        strides.append(step)
        step *= size
    return strides[::-1]
