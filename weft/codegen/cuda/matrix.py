"""How operands of products lie, and the calls of a product of stacks of matrices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from weft.base.shapes import Shape, size_of
from weft.schedule.views import View

__all__ = ["Gemm", "gemms", "is_matrix", "matrices"]


def is_matrix(view: View) -> bool:
    """Whether the last two axes are a matrix of cuBLAS: by rows or by columns, none repeated."""
    (rows, columns), (down, along) = view.shape[-2:], view.strides[-2:]
    if along == 1 or columns == 1:
        return rows == 1 or down >= columns
    return along >= rows and (rows == 1 or down == 1)


def matrices(operands: Sequence[View], shape: Shape) -> tuple[View, View, Shape]:
    """The operands and the shape of a product as stacks of matrices: a vector on the left is a row,
    one on the right a column."""
    left, right = operands
    if len(left.shape) == 1:
        shape = (*shape[:-1], 1, shape[-1]) if len(right.shape) > 1 else (1, *shape)
        left = View((1, *left.shape), (left.shape[0] * left.strides[0], *left.strides), left.offset)
    if len(right.shape) == 1:
        shape = (*shape, 1)
        right = View((*right.shape, 1), (*right.strides, 1), right.offset)
    return left, right, shape


@dataclass(frozen=True, slots=True)
class Gemm:
    """One call: `count` products C = A·B of n × k and k × m, all in C order; offsets and steps in
    elements. `left` and `right`: whether the operand lies transposed, and its leading dimension."""

    rows: int
    columns: int
    terms: int
    count: int
    left: tuple[bool, int]
    right: tuple[bool, int]
    offsets: tuple[int, int, int]
    steps: tuple[int, int, int]


def _lies(view: View) -> tuple[bool, int]:
    (rows, columns), (down, along) = view.shape[-2:], view.strides[-2:]
    if along == 1 or columns == 1:
        return False, max(down if rows > 1 else columns, columns)
    return True, max(along, rows)


def gemms(left: View, right: View, shape: Shape) -> Iterator[Gemm]:
    """The calls for a product of stacks of matrices; one where their distances are regular. Where
    one matrix is for all of a stack, the rows of the stack are those of one larger matrix."""
    left, right, shape = _one_matrix(left, right, shape)
    rows, columns, terms = shape[-2], shape[-1], left.shape[-1]
    stack = shape[:-2]
    strides = [_broadcast(view, stack) for view in (left, right)]
    dense = []
    step = rows * columns
    for size in reversed(stack):
        dense.append(step)
        step *= size
    strides.append(dense[::-1])
    common = {
        "rows": rows,
        "columns": columns,
        "terms": terms,
        "left": _lies(left),
        "right": _lies(right),
    }
    # Trailing axes of the stack that are one regular axis for all three.
    inner, count, steps = len(stack), 1, (0, 0, 0)
    while inner:
        here = tuple(s[inner - 1] for s in strides)
        if count == 1:
            steps = here  # type: ignore[assignment]
        elif any(h != s * count for h, s in zip(here, steps, strict=True)):
            break
        count *= stack[inner - 1]
        inner -= 1
    for number in range(size_of(stack[:inner])):
        places = [left.offset, right.offset, 0]
        for axis in reversed(range(inner)):
            number, index = divmod(number, stack[axis])
            places = [p + index * s[axis] for p, s in zip(places, strides, strict=True)]
        yield Gemm(count=count, offsets=tuple(places), steps=steps, **common)  # type: ignore[arg-type]


def _one_matrix(left: View, right: View, shape: Shape) -> tuple[View, View, Shape]:
    """Join axes of the stack with the rows, while the rows of the left operand go on there and the
    right one is the same."""
    while len(shape) > 2:
        count, rows = shape[-3], shape[-2]
        if len(left.shape) < 3 or left.shape[-3] != count:
            break
        if len(right.shape) > 2 and right.shape[-3] != 1 and right.strides[-3] != 0:
            break
        down, along = left.strides[-2:]
        if count > 1 and rows > 1 and left.strides[-3] != rows * down:
            break
        down = left.strides[-3] if rows == 1 else down
        if along != 1 and left.shape[-1] > 1 and down != 1:
            break
        joined = (*left.shape[:-3], count * rows, left.shape[-1])
        left = View(joined, (*left.strides[:-3], down, along), left.offset)
        if len(right.shape) > 2:
            cut = (*right.shape[:-3], *right.shape[-2:])
            right = View(cut, (*right.strides[:-3], *right.strides[-2:]), right.offset)
        shape = (*shape[:-3], count * rows, shape[-1])
    return left, right, shape


def _broadcast(view: View, stack: Shape) -> list[int]:
    own = list(zip(view.shape[:-2], view.strides[:-2], strict=True))
    missing = len(stack) - len(own)
    return [0] * missing + [0 if size == 1 else step for size, step in own]
