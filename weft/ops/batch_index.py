"""Batching rules of the cards that read and write parts of tensors.

If index tensors are mapped, the element number b becomes one more index: x[b, i[b]].
"""

from __future__ import annotations

from typing import Any

from weft.base import dtypes
from weft.base.errors import ShapeError
from weft.base.shapes import Shape, size_of
from weft.core.bind import bind
from weft.core.operands import cast, constant
from weft.core.tensor import Tensor
from weft.ir.op import OPS, Op
from weft.ops.batching import (
    Attrs,
    Inputs,
    Mapped,
    aligned,
    all_mapped,
    elementwise,
    everywhere,
    example_types,
    moved,
    reshaped,
)
from weft.ops.index_shape import TENSOR, full_index, indexed_shape

__all__: list[str] = []

_ALL = slice(None)


def numbers(size: int, like: Tensor, ndim: int) -> Tensor:
    """0 … size - 1 along the first axis, followed by `ndim` axes of size 1."""
    attrs = {"start": 0, "step": 1, "length": size, "dtype": dtypes.int64, "device": like.device}
    out: Tensor = bind(OPS["arange"], **attrs)
    return reshaped(out, (size, *(1,) * ndim))


def _parts(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


class _Index:
    """An index and its tensors, for one element and for all elements."""

    def __init__(self, ndim: int, index: Any, tensors: Inputs, mapped: Mapped, size: int) -> None:
        parts = full_index(index, ndim)  # ndim: of the indexed tensor, for one element
        taken = [i for i, part in enumerate(parts) if not isinstance(part, (slice, type(None)))]
        self.mapped = any(mapped)
        self.tensors = list(tensors)
        #: the number of axes of the broadcast tensors, and of axes of the result before them
        self.count = max((t.ndim - m for t, m in zip(tensors, mapped, strict=True)), default=0)
        self.adjacent = not tensors or taken[-1] - taken[0] + 1 == len(taken)
        self.front = taken[0] if tensors and self.adjacent else 0
        if self.mapped:
            self.tensors = [aligned(t, m, self.count) for t, m in zip(tensors, mapped, strict=True)]
        self.size = size
        self.index = index

    def of_mapped(self, like: Tensor) -> tuple[list[Tensor], tuple[Any, ...]]:
        """The tensors and the index for a tensor whose mapped axis comes first."""
        parts = _parts(self.index)
        if not self.mapped:
            return self.tensors, (_ALL, *parts)
        return [numbers(self.size, like, self.count), *self.tensors], (TENSOR, *parts)

    def read(self, part: Tensor) -> Tensor:
        """The result of reading from a mapped tensor, with its axes in the right order."""
        if self.mapped:
            return moved(part, 1, 1 + self.front, self.count)
        return part if self.adjacent else moved(part, self.count, 0)

    def written(self, part: Tensor) -> Tensor:
        """The value to write into a mapped tensor, with its axes in the order of the index."""
        if self.mapped:
            return moved(part, 1 + self.front, 1, self.count)
        return part if self.adjacent else moved(part, 0, self.count)


def getitem_rule(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Tensor:
    out: Tensor = bind(op, inputs[0], index=(_ALL, *_parts(attrs["index"])))
    return out


def gather_rule(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Tensor:
    x, *tensors = inputs
    index = _Index(x.ndim - mapped[0], attrs["index"], tensors, mapped[1:], size)
    if mapped[0]:
        given, whole = index.of_mapped(x)
        return index.read(bind(op, x, *given, index=whole))
    return moved(bind(op, x, *index.tensors, index=attrs["index"]), index.front, 0)


def setitem_rule(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Tensor:
    x, value, *tensors = inputs
    types = example_types(mapped, inputs)
    index = _Index(types[0].ndim, attrs["index"], tensors, mapped[2:], size)
    part = indexed_shape(types[0].shape, attrs["index"], [t.shape for t in types[2:]])
    shape = _padded(types[1].shape, len(part))
    value = reshaped(value, (size if mapped[1] else 1, *shape))
    x = everywhere(x, mapped[0], size)
    given, whole = index.of_mapped(x)
    attrs = {**attrs, "index": whole}
    out: Tensor = bind(op, x, index.written(value), *given, **attrs)
    return out


def _padded(shape: Shape, ndim: int) -> Shape:
    """A shape with `ndim` axes: axes of size 1 are added or removed in front."""
    missing = ndim - len(shape)
    return (1,) * missing + shape if missing >= 0 else shape[-missing:]


def scatter_add_rule(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Tensor:
    value, *tensors = inputs
    shape = attrs["shape"]
    index = _Index(len(shape), attrs["index"], tensors, mapped[1:], size)
    value = everywhere(value, mapped[0], size)
    given, whole = index.of_mapped(value)
    out: Tensor = bind(op, index.written(value), *given, shape=(size, *shape), index=whole)
    return out


def take_rule(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Tensor:
    axis = attrs["axis"]
    if not mapped[1]:
        out: Tensor = bind(op, *inputs, axis=axis + 1)
        return out
    if not mapped[0]:
        return moved(bind(op, *inputs, axis=axis), axis, 0)
    index = {"index": (_ALL,) * axis + (TENSOR,)}
    return gather_rule(OPS["gather"], size, mapped, inputs, index)


def repeat_rule(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Tensor:
    if mapped[1]:
        raise ShapeError(
            "the counts are mapped, so the results would differ in size",
            op="repeat",
            hint="let the counts be the same for all: in_axes=None for them",
        )
    out: Tensor = bind(op, *inputs, axis=attrs["axis"] + 1)
    return out


def search_rule(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Any:
    """A table for each element, and its values as one row."""
    tables, values = inputs
    if not mapped[0] and tables.ndim == 1:
        return bind(op, tables, values, **attrs)
    tables, values = all_mapped(size, mapped, inputs)
    if tables.ndim > 2:
        return bind(op, tables, values, **attrs)
    flat = reshaped(values, (size, size_of(values.shape[1:])))
    return reshaped(bind(op, tables, flat, **attrs), values.shape)


# --- rows of a table ---------------------------------------------------------------------------


def _is(indices: Tensor, number: int) -> Tensor:
    """A mask of where an index equals a number, with a last axis for the features."""
    hits: Tensor = bind(OPS["equal"], indices, constant(number, indices.dtype, indices.device))
    return reshaped(hits, (*hits.shape, 1))


def embedding_rule(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Tensor:
    if not mapped[0]:
        out: Tensor = bind(op, *inputs, **attrs)
        return out
    op.infer(*example_types(mapped, inputs), **attrs)
    weight, indices = inputs
    # As unsigned integers, negative indices lie beyond the last row: an error.
    rows = cast(indices, dtypes.uint64) if indices.dtype.kind == "int" else indices
    out = gather_rule(OPS["gather"], size, mapped, (weight, rows), {"index": (TENSOR,)})
    padding = attrs["padding_idx"]
    if padding is not None:  # its row has no gradient
        fixed = bind(OPS["stop_gradient"], out)
        choice = (mapped[1], True, True)
        out = elementwise(OPS["where"], size, choice, (_is(indices, padding), fixed, out), {})
    return out


def row_sums_rule(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Tensor:
    """All tables become one table, below each other."""
    g, indices = all_mapped(size, mapped, inputs)
    rows, padding = attrs["rows"], attrs["padding_idx"]
    if padding is not None:
        none = constant(0, g.dtype, g.device)
        g = bind(OPS["where"], _is(indices, padding), none, g)
    first = bind(
        OPS["multiply"],
        numbers(size, indices, indices.ndim - 1),
        constant(rows, dtypes.int64, g.device),
    )
    places = bind(OPS["add"], cast(indices, dtypes.int64), first)
    out: Tensor = bind(op, g, places, rows=rows * size, padding_idx=None)
    return reshaped(out, (size, rows, *out.shape[1:]))
