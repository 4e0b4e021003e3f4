"""How calls of cards may be divided over ranks: what cards of several families share.

Each function here is, or makes, the `ways` of a card: (input types, output types, **attrs) -> ways,
see `weft/ir/ways.py`. Cards without ways of their own have those that follow from their traits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from weft.base.dims import is_zero
from weft.ir.types import TensorType
from weft.ir.ways import SUM, Interleaved, State, Way, by_letters
from weft.ops.index_shape import TENSOR, full_index

__all__: list[str] = []

Types = tuple[TensorType, ...]
Ways = Iterator[Way]
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _is_cuttable(size: Any) -> bool:
    return size.__class__ is not int or size != 1


def same_axes(inputs: Types, outputs: Types, **_attrs: Any) -> Ways:
    """All axes, of operands and results of one shape; those of another shape are whole."""
    first = (inputs or outputs)[0]
    for axis, size in enumerate(first.shape):
        if _is_cuttable(size):
            states = [axis if kind.shape == first.shape else None for kind in inputs]
            yield Way(tuple(states), (axis,) * len(outputs), size)


def converted(inputs: Types, outputs: Types, **attrs: Any) -> Ways:
    """All axes; and terms, where no number is rounded before they are added."""
    yield from same_axes(inputs, outputs, **attrs)
    floats = all(kind.dtype.kind in ("float", "complex") for kind in (*inputs, *outputs))
    if floats and _bits(outputs[0]) >= _bits(inputs[0]):
        yield Way((SUM,), (SUM,))


def _bits(kind: TensorType) -> int:
    return kind.dtype.itemsize // (2 if kind.dtype.kind == "complex" else 1)


def _axes_of(attrs: Any) -> tuple[int, ...]:
    axis = attrs["axis"]
    return axis if isinstance(axis, tuple) else (axis,)


def but_axis(inputs: Types, outputs: Types, **attrs: Any) -> Ways:
    """All axes but those that the attribute `axis` names, which results may lack."""
    gone = _axes_of(attrs)
    first = inputs[0]
    for axis, size in enumerate(first.shape):
        if axis in gone or not _is_cuttable(size):
            continue
        before = sum(other < axis for other in gone)
        yield Way(
            tuple(axis if kind.ndim == first.ndim else axis - before for kind in inputs),
            tuple(axis if kind.ndim == first.ndim else axis - before for kind in outputs),
            size,
        )


def reduced_by(combine: str) -> Callable[..., Ways]:
    """All axes of a reduction: those that it folds give terms, or what is combined at once."""

    def ways(inputs: Types, outputs: Types, **attrs: Any) -> Ways:
        yield from but_axis(inputs, outputs, **attrs)
        for axis in _axes_of(attrs):
            size = inputs[0].shape[axis]
            if _is_cuttable(size):
                out: State = SUM if combine == "sum" else None
                yield Way((axis,), (out,), size, "" if combine == "sum" else combine)

    return ways


def but_last(core: int) -> Callable[..., Ways]:
    """The leading axes that all operands and results have before their last ones."""

    def ways(inputs: Types, outputs: Types, **_attrs: Any) -> Ways:
        first = inputs[0]
        if any(kind.ndim != first.ndim for kind in inputs):
            return
        for axis in range(first.ndim - core):
            size = first.shape[axis]
            if _is_cuttable(size) and all(
                kind.shape[: axis + 1] == first.shape[: axis + 1] for kind in (*inputs, *outputs)
            ):
                yield Way((axis,) * len(inputs), (axis,) * len(outputs), size)

    return ways


def gated(*sections: int) -> Callable[..., Ways]:
    """Cells of recurrent layers: the batch, and the features of operands and results that have so
    many sections of them."""

    def ways(inputs: Types, outputs: Types, **_attrs: Any) -> Ways:
        yield from but_last(1)(inputs, outputs)
        last = inputs[0].ndim - 1
        states = tuple(_at(last, count) for count in sections)
        size = inputs[0].shape[last]
        if _is_cuttable(size):
            yield Way(
                states[: len(inputs)],
                states[len(inputs) :],
                size // sections[0],
                even=False,
            )

    return ways


# --- views ---------------------------------------------------------------------------------------


def permuted(inputs: Types, _outputs: Types, *, axes: tuple[int, ...]) -> Ways:
    for place, axis in enumerate(axes):
        if _is_cuttable(inputs[0].shape[axis]):
            yield Way((axis,), (place,), inputs[0].shape[axis])


def broadcasted(inputs: Types, outputs: Types, **_attrs: Any) -> Ways:
    new = outputs[0].ndim - inputs[0].ndim
    for axis, size in enumerate(outputs[0].shape):
        if _is_cuttable(size):
            mine = axis - new
            same = mine >= 0 and inputs[0].shape[mine] == size
            yield Way((mine if same else None,), (axis,), size)


def reshaped(inputs: Types, outputs: Types, **_attrs: Any) -> Ways:
    """Axes that stay, those that are merged into one, and those that come of one."""
    before, after = inputs[0].shape, outputs[0].shape
    if not all(size.__class__ is int and size for size in (*before, *after)):
        # Sizes that are not numbers: only axes in front that both have, and the first one with
        # those behind it.
        for axis, (one, two) in enumerate(zip(before, after, strict=False)):
            if one is not two and one != two:
                if axis == 0:
                    yield from _merged_first(before, after)
                return
            if one.__class__ is not int or one > 1:
                yield Way((axis,), (axis,), one)
        return
    old, new = _strides(before), _strides(after)
    for i, (stride, size) in enumerate(old):
        if size == 1:
            continue
        for j, (other, many) in enumerate(new):
            if many == 1:
                continue
            # Both axes as ranges of one long axis: the one that begins further in is cut.
            if (stride, size) == (other, many):
                yield Way((i,), (j,), size)
            elif other <= stride < other * many and stride % other == 0:
                sections = stride // other
                parts = math.gcd(size, many // sections) if many % sections == 0 else 1
                yield Way((i,), (_at(j, sections),), parts, even=False)
            elif stride < other < stride * size and other % stride == 0:
                sections = other // stride
                parts = math.gcd(many, size // sections) if size % sections == 0 else 1
                yield Way((_at(i, sections),), (j,), parts, even=False)


def _merged_first(before: tuple[Any, ...], after: tuple[Any, ...]) -> Ways:
    """The first axis of one shape is the first of the other one with axes behind it."""
    for few, many in ((before, after), (after, before)):
        size = few[0]
        for behind in few[1:]:
            size = size * behind
            if behind.__class__ is int and size == many[0]:
                yield Way((0,), (0,), few[0], even=False)
                return


def _at(axis: int, sections: int) -> State:
    return axis if sections == 1 else Interleaved(axis, sections)


def _strides(shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """For each axis how many sections of the whole there are before it, and its size."""
    found = []
    before = 1
    for size in shape:
        found.append((before, size))
        before *= size
    return found


def joined(inputs: Types, outputs: Types, *, axis: int) -> Ways:
    for other, size in enumerate(outputs[0].shape):
        if other != axis and _is_cuttable(size):
            yield Way((other,) * len(inputs), (other,), size)
    size = inputs[0].shape[axis]
    even = all(kind.shape[axis] == size for kind in inputs)
    if even and _is_cuttable(size) and not is_zero(size):
        yield Way((axis,) * len(inputs), (_at(axis, len(inputs)),), size, even=False)


# --- parts by index ------------------------------------------------------------------------------


def _kept_axes(shape: tuple[Any, ...], index: Any) -> list[tuple[int, int]]:
    """The axes that an index takes whole, and where they are in the result."""
    parts = full_index(index, len(shape))
    tensors = [i for i, part in enumerate(parts) if part is TENSOR]
    if any(isinstance(part, bool) for part in parts) or (tensors and len(tensors) > 1):
        return []  # where several tensors go together, NumPy may move their axes to the front
    kept: list[tuple[int, int]] = []
    axis = place = 0
    for part in parts:
        if part is None:
            place += 1
            continue
        if part is TENSOR:
            return kept  # its axes stand here; what follows is shifted by their number
        if isinstance(part, slice):
            if part == slice(None) and _is_cuttable(shape[axis]):
                kept.append((axis, place))
            place += 1
        axis += 1
    return kept


def read_at(inputs: Types, _outputs: Types, *, index: Any) -> Ways:
    """x[index]: the axes that are read whole."""
    rest = (None,) * (len(inputs) - 1)
    for axis, place in _kept_axes(inputs[0].shape, index):
        yield Way((axis, *rest), (place,), inputs[0].shape[axis])
    if not rest:
        for axis, place, sections, size in _sections(inputs[0].shape, index):
            yield Way((Interleaved(axis, sections),), (place,), size, even=False)


def _bounds(part: Any) -> tuple[int, int] | None:
    """Where a slice begins and ends, if it says both as numbers that count from the front."""
    if not isinstance(part, slice) or part.step not in (None, 1):
        return None
    start, stop = 0 if part.start is None else part.start, part.stop
    if start.__class__ is int and stop.__class__ is int and 0 <= start < stop:
        return start, stop
    return None


def _sections(shape: tuple[Any, ...], index: Any) -> Iterator[tuple[int, int, int, int]]:
    """The axes of which an index takes one of several equal sections: the axis, where it is in the
    result, how many sections there are, and the size of one."""
    axis = place = 0
    for part in full_index(index, len(shape)):
        bounds, size = _bounds(part), None if part is None else shape[axis]
        if bounds is not None and size.__class__ is int and bounds[1] <= size:
            length = bounds[1] - bounds[0]
            if length < size and size % length == 0 and bounds[0] % length == 0:
                yield axis, place, size // length, length
        place += part is None or isinstance(part, slice)
        axis += part is not None


def section_attrs(attrs: Any, whole: Types, local: Types) -> dict[str, Any]:
    """The attributes of a call on parts of sections: of each the same share."""
    adds = "shape" in attrs
    size, part = (whole[-1], local[-1]) if adds else (whole[0], local[0])
    found: dict[str, Any] = {"shape": local[-1].shape} if adds else {}
    parts = full_index(attrs["index"], size.ndim)
    axis = 0
    for i, each in enumerate(parts):
        if each is None:
            continue
        bounds = _bounds(each)
        if bounds is not None and size.shape[axis] != part.shape[axis]:
            ranks = size.shape[axis] // part.shape[axis]
            parts[i] = slice(bounds[0] // ranks, bounds[1] // ranks)
            found["index"] = tuple(parts)
        axis += 1
    return found


def added_at(inputs: Types, outputs: Types, *, shape: Any, index: Any) -> Ways:
    """The transpose of reading: the axes that are written whole; and what is added may be cut."""
    rest = (None,) * (len(inputs) - 1)
    for axis, place in _kept_axes(outputs[0].shape, index):
        yield Way((place, *rest), (axis,), outputs[0].shape[axis])
    if not rest:
        for axis, place, sections, size in _sections(outputs[0].shape, index):
            yield Way((place,), (Interleaved(axis, sections),), size, even=False)
    parts = full_index(index, outputs[0].ndim)
    at = next((i for i, part in enumerate(parts) if part is TENSOR), None)
    if at is not None and len(inputs) == 2 and all(part == slice(None) for part in parts[:at]):
        for axis, size in enumerate(inputs[1].shape):
            if _is_cuttable(size):
                yield Way((at + axis, axis), (SUM,), size)


def written_at(inputs: Types, _outputs: Types, *, index: Any) -> Ways:
    """x[index] = value, where the value is not broadcast along the axis."""
    x, value = inputs[0], inputs[1]
    rest = (None,) * (len(inputs) - 2)
    parts = full_index(index, x.ndim)
    if any(part is TENSOR for part in parts):
        return
    part = sum(p is None or isinstance(p, slice) for p in parts)
    for axis, place in _kept_axes(x.shape, index):
        mine = place - (part - value.ndim)
        same = mine >= 0 and value.shape[mine] == x.shape[axis]
        yield Way((axis, mine if same else None, *rest), (axis,), x.shape[axis])


def taken(inputs: Types, _outputs: Types, *, axis: int) -> Ways:
    x, indices = inputs
    for other, size in enumerate(x.shape):
        if other != axis and _is_cuttable(size):
            place = other if other < axis else other + indices.ndim - 1
            yield Way((other, None), (place,), size)
    for other, size in enumerate(indices.shape):
        if _is_cuttable(size):
            yield Way((None, other), (axis + other,), size)


def taken_along(inputs: Types, _outputs: Types, *, axis: int) -> Ways:
    x, indices = inputs
    for other, size in enumerate(indices.shape):
        if _is_cuttable(size):
            if other == axis:
                yield Way((None, other), (other,), size)
            elif x.shape[other] == size:
                yield Way((other, other), (other,), size)


def embedded(here: Callable[..., Any]) -> Callable[..., Ways]:
    """The indices, the features, and the rows of the table: of other rows there are zeros."""
    return partial(_embedded, here)


def _embedded(here: Callable[..., Any], inputs: Types, _outputs: Types, **_attrs: Any) -> Ways:
    weight, indices = inputs
    if _is_cuttable(weight.shape[0]):
        yield Way((0, None), (SUM,), weight.shape[0], even=False, rule=here)
    for axis, size in enumerate(indices.shape):
        if _is_cuttable(size):
            yield Way((None, axis), (axis,), size)
    if _is_cuttable(weight.shape[1]):
        yield Way((1, None), (indices.ndim,), weight.shape[1])


def summed_rows(here: Callable[..., Any]) -> Callable[..., Ways]:
    """The indices, which gives terms, the features, and the rows of the result."""
    return partial(_summed_rows, here)


def _summed_rows(here: Callable[..., Any], inputs: Types, outputs: Types, **_attrs: Any) -> Ways:
    g, indices = inputs
    if _is_cuttable(outputs[0].shape[0]):
        yield Way((None, None), (0,), outputs[0].shape[0], even=False, rule=here)
    for axis, size in enumerate(indices.shape):
        if _is_cuttable(size) and g.shape[axis] == size:
            yield Way((axis, axis), (SUM,), size)
    if _is_cuttable(g.shape[-1]):
        yield Way((g.ndim - 1, None), (1,), g.shape[-1])


# --- products ------------------------------------------------------------------------------------


def multiplied(inputs: Types, outputs: Types) -> Ways:
    """The axes of both stacks, rows, columns, and the axis that is summed over."""
    x1, x2 = inputs
    out = outputs[0]
    rows = "R" if x1.ndim > 1 else ""
    columns = "C" if x2.ndim > 1 else ""
    stack = LETTERS[: out.ndim - len(rows) - len(columns)]
    first = _last(stack, x1.ndim - 1 - len(rows)) + rows + "K"
    second = _last(stack, x2.ndim - 1 - len(columns)) + "K" + columns
    yield from by_letters([(x1, first), (x2, second)], [(out, stack + rows + columns)])


def _last(letters: str, count: int) -> str:
    return letters[len(letters) - count :]


def linear_layer(inputs: Types, outputs: Types) -> Ways:
    x, weight, bias = inputs
    before = LETTERS[: x.ndim - 1]
    yield from by_letters(
        [(x, before + "K"), (weight, "OK"), (bias, "O")], [(outputs[0], before + "O")], terms=(2,)
    )


def convolved(inputs: Types, outputs: Types, *, groups: int, **_attrs: Any) -> Ways:
    """Images, and channels where they are in one group."""
    space = "." * (inputs[0].ndim - 2)
    i, o = ("I", "O") if groups == 1 else (".", ".")
    given = [(inputs[0], "N" + i + space), (inputs[1], o + i + space)]
    if len(inputs) == 3:
        given.append((inputs[2], o))
    yield from by_letters(given, [(outputs[0], "N" + o + space)], terms=(2,))


def convolved_input(inputs: Types, outputs: Types, *, groups: int, **_attrs: Any) -> Ways:
    space = "." * (inputs[0].ndim - 2)
    i, o = ("I", "O") if groups == 1 else (".", ".")
    given = [(inputs[0], "N" + o + space), (inputs[1], o + i + space)]
    yield from by_letters(given, [(outputs[0], "N" + i + space)])


def convolved_weight(inputs: Types, outputs: Types, *, groups: int, **_attrs: Any) -> Ways:
    space = "." * (inputs[0].ndim - 2)
    i, o = ("I", "O") if groups == 1 else (".", ".")
    given = [(inputs[0], "N" + i + space), (inputs[1], "N" + o + space)]
    yield from by_letters(given, [(outputs[0], o + i + space)])


def pooled(inputs: Types, outputs: Types, *, kernel: tuple[int, ...], **_attrs: Any) -> Ways:
    """Images and channels."""
    yield from but_last(len(kernel))(inputs, outputs)


# --- losses --------------------------------------------------------------------------------------


def picked_classes(here: Callable[..., Any]) -> Callable[..., Ways]:
    """The same as `class_losses`, and the classes: of those of other ranks there are zeros."""

    def ways(inputs: Types, outputs: Types, *, axis: int, **attrs: Any) -> Ways:
        yield from class_losses(inputs, outputs, axis=axis, **attrs)
        size = inputs[0].shape[axis]
        if _is_cuttable(size):
            yield Way((axis, None), (SUM,), size, even=False, rule=here)

    return ways


def class_losses(inputs: Types, outputs: Types, *, axis: int, **attrs: Any) -> Ways:
    """All axes but that of the classes. A mean has no way of its own: it is taken apart."""
    x = inputs[0]
    reduction = attrs.get("reduction", "none")
    if reduction == "mean":
        return
    for other, size in enumerate(x.shape):
        if other != axis and _is_cuttable(size):
            mine = other - (other > axis)
            loss: State = mine if reduction == "none" else SUM
            results: tuple[State, ...] = (loss, other, SUM)
            yield Way((other, mine), results[: len(outputs)], size)
