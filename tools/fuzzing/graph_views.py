"""Views: expressions of a shape that only move, repeat or leave out elements of another tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuzzing.graphs import GraphWriter, Shape


def _permuted(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if len(shape) < 2:
        return None
    if w.chance(0.5):
        inner = w.tensor((*shape[:-2], shape[-1], shape[-2]), dtype)
        return f"{inner}.{w.pick(['mT', 'swapaxes(-1, -2)'])}"
    axes = w.rng.sample(range(len(shape)), len(shape))
    whole = [0] * len(shape)
    for i, axis in enumerate(axes):
        whole[axis] = shape[i]
    return f"weft.permute_dims({w.tensor(tuple(whole), dtype)}, {tuple(axes)})"


def _sliced(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    """Cropped, strided, reversed along some axes, and perhaps one row of many."""
    whole, index = [], []
    for size in shape:
        how = w.rng.randrange(7)
        if how <= 2:
            whole.append(size)
            index.append(":")
        elif how == 3:
            skip = w.pick([1, 2])
            whole.append(size + skip)
            index.append(w.pick([f"{skip}:", f":{size}"]))
        elif how == 4:
            whole.append(size + 2)
            index.append("1:-1")
        elif how == 5 and size:
            whole.append(2 * size)
            index.append(w.pick(["::2", "1::2"]))
        else:
            whole.append(size)
            index.append("::-1")
    if w.chance(0.35):
        axis = w.rng.randint(0, len(shape))
        whole.insert(axis, w.pick([2, 3, 4]))
        index.insert(axis, str(w.pick([0, 1, -1])))
    if not index or not w.fits(whole):
        return None
    return f"{w.tensor(tuple(whole), dtype)}[{', '.join(index)}]"


def _reshaped(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    size = 1
    for n in shape:
        size *= n
    if not size:
        return None
    whole: list[int] = []
    left = size
    while left > 1 and len(whole) < 3:
        whole.append(w.pick([d for d in range(1, left + 1) if left % d == 0]))
        left //= whole[-1]
    whole.append(left)
    if w.chance(0.3) and len(shape) > 1:  # heads merged or split, after a permutation
        whole = [*shape[:-2], shape[-2] * shape[-1]]
    return f"{w.tensor(tuple(whole), dtype)}.reshape({shape})"


def _copied(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    """A reshape that must copy: of a permuted tensor."""
    if len(shape) != 1 or shape[0] < 4:
        return _reshaped(w, shape, dtype)
    divisors = [d for d in range(2, shape[0]) if shape[0] % d == 0]
    if not divisors:
        return None
    rows = w.pick(divisors)
    return f"{w.tensor((rows, shape[0] // rows), dtype)}.T.reshape(-1)"


def _broadcast(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if not shape:
        return None
    inner = tuple(1 if w.chance(0.5) else size for size in shape)
    inner = inner[w.rng.randint(0, len(inner)) :] if w.chance(0.4) else inner
    text = w.tensor(inner, dtype)
    return f"weft.broadcast_to({text}, {shape})"


def _expanded(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if 1 not in shape:
        return None
    axis = shape.index(1)
    inner = w.tensor((*shape[:axis], *shape[axis + 1 :]), dtype)
    return f"weft.expand_dims({inner}, {axis})"


def _squeezed(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    axis = w.rng.randint(0, len(shape))
    inner = w.tensor((*shape[:axis], 1, *shape[axis:]), dtype)
    return f"weft.squeeze({inner}, {axis})"


def _diagonal(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if not shape or not w.fits((*shape, shape[-1])):
        return None
    return f"weft.linalg.diagonal({w.tensor((*shape, shape[-1]), dtype)})"


def _row(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if not w.fits(shape, 3):
        return None
    return f"{w.tensor((3, *shape), dtype)}[{w.pick([0, 1, 2, -1])}]"


VIEWS: list[Callable[[GraphWriter, Shape, str], str | None]] = [
    *(_permuted, _permuted, _permuted, _sliced, _sliced, _sliced, _reshaped, _reshaped, _copied),
    *(_broadcast, _expanded, _squeezed, _diagonal, _row),
]
