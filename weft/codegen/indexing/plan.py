"""The elements of x[index] as strides: a step in x for each axis of the result.

NumPy's index notation (slices, integers, new axes, integer tensors) is parsed once. What remains is
a start, a step in x for each axis of the part, and the steps of each index tensor. Axes are merged
where possible, so that a typical index has one or two left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weft.base.dim_algebra import known_less
from weft.base.dims import is_zero
from weft.base.shapes import broadcast_shapes
from weft.ops.index_shape import TENSOR, full_index, slice_length, slice_start

__all__ = ["Part", "Picked", "along_axis", "dense_steps", "indexed", "merged"]

Ints = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Picked:
    """An integer tensor in an index: it selects positions on an axis of x.

    size    of that axis
    step    in x, from one position on the axis to the next
    steps   in the tensor itself, for each axis of the part
    """

    size: int
    step: int
    steps: Ints


@dataclass(frozen=True, slots=True)
class Part:
    """The elements of x[index]: shape, offset of the first one in x, steps in x, index tensors.

    `together` is how many positions the tensors select: the size of their common shape.
    """

    shape: Ints
    start: int
    steps: Ints
    tensors: tuple[Picked, ...]
    together: int


def dense_steps(shape: Sequence[int], wanted: Sequence[int] | None = None) -> Ints:
    """The steps of a dense tensor in C order, broadcast to the shape `wanted` if given."""
    steps: list[int] = []
    step = 1
    for size in reversed(shape):
        steps.append(step if size != 1 else 0)
        step *= size
    steps.reverse()
    extra = len(wanted) - len(shape) if wanted is not None else 0
    return (*(0,) * extra, *steps[max(-extra, 0) :])


def _strides(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def indexed(shape: Sequence[int], index: Any, tensors: Sequence[Sequence[int]] = ()) -> Part:
    """The part of x of `shape` that an index selects, with index tensors of these shapes."""
    parts = full_index(index, len(shape))
    axes = iter(zip(shape, _strides(shape), strict=True))
    together = tuple(broadcast_shapes(*(tuple(t) for t in tensors))) if tensors else ()
    start, rest, picked, taken = 0, [], [], []
    front = None
    for i, part in enumerate(parts):
        if part is None:
            rest.append((1, 0))
            continue
        size, stride = next(axes)
        if isinstance(part, slice):
            length, step = slice_length(part, size), 1 if part.step is None else part.step
            rest.append((length, stride * step))
            start += 0 if is_zero(length) else slice_start(part, size) * stride
            continue
        taken.append(i)
        front = len(rest) if front is None else front
        if part is TENSOR:
            picked.append((size, stride))
        else:
            start += (part + size if known_less(part, 0) else part) * stride
    adjacent = not taken or taken[-1] - taken[0] + 1 == len(taken)
    at = (front or 0) if adjacent and tensors else 0
    count = len(together)
    before, behind = rest[:at], rest[at:]
    zeros = (0,) * len(before), (0,) * len(behind)
    return Part(
        (*(size for size, _ in before), *together, *(size for size, _ in behind)),
        start,
        (*(step for _, step in before), *(0,) * count, *(step for _, step in behind)),
        tuple(
            Picked(size, stride, (*zeros[0], *dense_steps(given, together), *zeros[1]))
            for (size, stride), given in zip(picked, tensors, strict=True)
        ),
        math.prod(together),
    )


def along_axis(shape: Sequence[int], indices: Sequence[int], axis: int) -> Part:
    """The part that `take_along_axis` reads: along other axes it follows the indices."""
    strides = _strides(shape)
    steps = tuple(0 if i == axis else stride for i, stride in enumerate(strides))
    own = tuple(_strides(indices))
    picked = Picked(shape[axis], strides[axis], own)
    return Part(tuple(indices), 0, steps, (picked,), math.prod(indices))


def merged(shape: Sequence[int], *operands: Sequence[int]) -> tuple[Ints, list[Ints]]:
    """The shape and the steps of operands with as few axes as possible, none of size 1."""
    sizes: list[int] = []
    steps: list[list[int]] = []  # for each remaining axis, of each operand
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        here = [operand[axis] for operand in operands]
        if sizes and all(a == b * size for a, b in zip(steps[-1], here, strict=True)):
            sizes[-1] *= size
            steps[-1] = here
        else:
            sizes.append(size)
            steps.append(here)
    return tuple(sizes), [tuple(axis[i] for axis in steps) for i in range(len(operands))]
