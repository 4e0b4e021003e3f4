"""Slices with tensors as bounds, while a graph is recorded: x[:n], acc[2 * i : 2 * i + 2] = v.

Such a slice becomes integer positions along its axis. The length of what is read depends on values,
unless the distance of the bounds is known: x[i : i + 2] has two elements, and is an error if it
reaches beyond the axis. In a write, the value tells the length; a value that broadcasts along the
axis is written to all positions of the slice.
"""

from __future__ import annotations

import operator
from typing import Any

from weft.base import dtypes
from weft.base.device import CPU
from weft.base.dim_algebra import Dim
from weft.base.errors import CaptureError, DTypeError
from weft.core.bind import bind, recorder
from weft.core.number import Number
from weft.core.operands import cast, constant
from weft.core.recorded import graph_recorder, graph_value
from weft.core.tensor import Tensor
from weft.ir.graph import Value
from weft.ir.op import OPS
from weft.ops.creation import arange
from weft.ops.elementwise import greater_equal, less, logical_and, maximum, remainder
from weft.ops.index_cards import GATHER, SETITEM, TENSOR
from weft.ops.select import clip, where
from weft.ops.shape import reshape

__all__ = ["has_tensor_bounds", "read_slices", "written_slices"]


def has_tensor_bounds(key: Any) -> bool:
    """Whether an index has slices with tensors as bounds, and a graph is recorded.

    Otherwise Python uses the number that such a tensor holds.
    """
    if recorder() is None:
        return False
    return any(map(_is_open, key if key.__class__ is tuple else (key,)))


def _parts(key: Any) -> list[Any]:
    """An index as a list; with numbers as bounds inside of a transform that is not recorded."""
    parts = list(key) if key.__class__ is tuple else [key]
    if graph_recorder() is not None:
        return parts
    return [_known(part) if _is_open(part) else part for part in parts]


def _known(part: slice) -> slice:
    bounds = (part.start, part.stop, part.step)
    return slice(*[operator.index(b) if isinstance(b, Tensor) else b for b in bounds])


def _is_open(part: Any) -> bool:
    return part.__class__ is slice and any(
        isinstance(bound, Tensor) for bound in (part.start, part.stop, part.step)
    )


def _first_open(parts: list[Any], ndim: int, axes_used: Any) -> tuple[int, int] | None:
    """The position in the index of the first open slice, and its axis."""
    axis = 0
    for place, part in enumerate(parts):
        if part is ...:
            axis = max(ndim - sum(map(axes_used, parts[place + 1 :])), axis)
        elif _is_open(part):
            return place, axis
        else:
            axis += axes_used(part)
    return None


def read_slices(x: Tensor, key: Any, axes_used: Any) -> tuple[Tensor, Any]:
    """x with its open slices applied, and the rest of the index.

    `axes_used` gives the number of axes of x that a part of an index covers.
    """
    parts = _parts(key)
    while (found := _first_open(parts, x.ndim, axes_used)) is not None:
        place, axis = found
        cut = Slice(parts[place], x.shape[axis])
        at = cut.places(cut.distance())
        x = bind(GATHER, x, at, index=_along(axis))
        parts[place] = slice(None)
    return x, tuple(parts)


def written_slices(x: Tensor, key: Any, value: Tensor, axes_used: Any) -> Tensor:
    """x with a value written to a part of it that has open slices."""
    parts = _parts(key)
    found = _first_open(parts, x.ndim, axes_used)
    if found is None:
        whole = x.clone()
        whole[tuple(parts)] = value
        return whole
    place, axis = found
    cut = Slice(parts[place], x.shape[axis])
    rest = (*parts[:place], slice(None), *parts[place + 1 :])
    length = _extent(parts, place, x.ndim, value)
    if length == 1:  # one value for all: positions are not needed
        everywhere = written_slices(x, rest, value, axes_used)
        return where(reshape(cut.mask(), (-1,) + (1,) * (x.ndim - axis - 1)), everywhere, x)
    at = cut.places(length if isinstance(length, int) else cut.distance())
    part = bind(GATHER, x, at, index=_along(axis))
    new = written_slices(part, rest, value, axes_used)
    out: Tensor = bind(SETITEM, x, new, at, index=_along(axis))
    return out


def _along(axis: int) -> tuple[Any, ...]:
    return (*[slice(None)] * axis, TENSOR)


def _extent(parts: list[Any], place: int, ndim: int, value: Tensor) -> Any:
    """The size of a value along a slice; None if other tensors in the index make it ambiguous."""
    if any(not (p is None or p is ... or isinstance(p, (slice, int, Dim))) for p in parts):
        return None
    kept = [p for p in parts[place + 1 :] if p is None or isinstance(p, slice)]
    behind = len(kept)
    taken = sum(p is not None and p is not ... for p in parts)
    if not any(p is ... for p in parts[:place]):  # the axes that the index leaves out come last
        behind += ndim - taken
    at = value.ndim - 1 - behind
    return value.shape[at] if at >= 0 else 1


class Slice:
    """A slice of an axis, with a tensor as one of its bounds at least."""

    def __init__(self, part: slice, size: int) -> None:
        self.graph = graph_recorder()
        self.size = size
        self.step = 1 if part.step is None else part.step
        if isinstance(self.step, (Tensor, Dim)) or self.step == 0:
            raise DTypeError(
                "the step of a slice must be a Python int, and not 0",
                op="getitem",
                hint="use positions: x[weft.arange(...) * step]",
            )
        self.bounds = [self._bound(bound) for bound in (part.start, part.stop)]
        self.forms = [_linear(bound) for bound in self.bounds]

    def _bound(self, bound: Any) -> Any:
        if not isinstance(bound, Tensor):
            return bound
        if bound.__class__ is Number and self.graph.unrolls:
            raise CaptureError(
                "a slice depends on the number of the iteration", hint="the loop is unrolled"
            )
        if bound.ndim or bound.dtype.kind not in ("int", "uint"):
            raise DTypeError(
                f"the bound of a slice must be one integer, not {bound.type}", op="getitem"
            )
        return cast(bound, dtypes.int64)

    def distance(self) -> int | None:
        """The distance of the bounds, if they differ by a number; else None."""
        (first, start), (last, stop) = self.forms
        if first != last or None in self.bounds or not isinstance(stop - start, int):
            return None
        length = len(range(0, stop - start, self.step))
        longer = isinstance(self.size, int) and length > self.size
        return None if longer else length

    def ends(self) -> tuple[Any, Any]:
        """The bounds by Python's rules: counted from the front, and clamped to the axis."""
        low, high = (0, self.size) if self.step > 0 else (-1, self.size - 1)
        defaults = (low, high) if self.step > 0 else (high, low)
        found: list[Any] = []
        for bound, default in zip(self.bounds, defaults, strict=True):
            if bound is None:
                found.append(default)
            else:
                at = bound if isinstance(bound, Tensor) else constant(bound, dtypes.int64, CPU)
                found.append(clip(where(less(at, 0), at + self.size, at), low, high))
        return found[0], found[1]

    def mask(self) -> Tensor:
        """A mask of the elements of the axis that it selects."""
        first, last = self.ends()
        k = arange(self.size)
        if self.step < 0:
            first, last, k = -first, -last, -k
        inside = logical_and(greater_equal(k, first), less(k, last))
        if abs(self.step) == 1:
            return inside
        return logical_and(inside, remainder(k - first, abs(self.step)) == 0)

    def places(self, length: int | None) -> Tensor:
        """The positions that it selects: `length` of them, or as many as there are.

        Equal slices have equal positions, even if they are computed again, so that what is read
        from x[:n] can be written to x[:n].
        """
        memo: dict[Any, Tensor] = self.graph.memo
        key = (
            "slice",
            recorder(),
            *self.forms,
            *[b is None for b in self.bounds],
            self.step,
            self.size,
            length,
        )
        found = memo.get(key)
        if found is None:
            found = memo[key] = self._open() if length is None else self._fixed(length)
        return found

    def _open(self) -> Tensor:
        at: Tensor = bind(OPS["nonzero"], self.mask())[0]
        return at if self.step > 0 else at[::-1]

    def _fixed(self, length: int) -> Tensor:
        first, last = self.ends()
        step = abs(self.step)
        ahead = (last - first if self.step > 0 else first - last) + (step - 1)
        count = maximum(ahead // step, 0)
        # Using a position beyond the axis is an error.
        return where(count == length, first + arange(length) * self.step, self.size)


Form = tuple[frozenset[tuple[Any, int]], Any]
_DEEPEST = 32


def _linear(bound: Any) -> Form:
    """A bound as a sum of multiples of values of the graph, and a number."""
    if bound is None:
        return frozenset(), 0
    if not isinstance(bound, Tensor):
        return frozenset(), bound
    while hasattr(bound._data, "tensor"):  # the tensor below the transforms
        bound = bound._data.tensor
    terms, number = _form(graph_value(bound), _DEEPEST)
    return frozenset((value, n) for value, n in terms.items() if n), number


def _form(value: Value, depth: int) -> tuple[dict[Value, int], int]:
    node = value.node
    name = "" if node is None or not depth else node.op.name
    if node is None or value.tensor_type.dtype.kind != "int":
        return {value: 1}, 0
    if name == "constant" and not value.tensor_type.shape:
        return {}, int(node.attrs["value"].array)
    if name == "astype" and node.inputs[0].tensor_type.dtype is dtypes.int64:
        return _form(node.inputs[0], depth - 1)
    if name not in ("add", "subtract", "multiply", "negative"):
        return {value: 1}, 0
    parts = [_form(x, depth - 1) for x in node.inputs]
    if name == "multiply":
        (one, a), (two, b) = parts
        if one and two:
            return {value: 1}, 0
        terms, factor = (two, a) if not one else (one, b)
        return {v: n * factor for v, n in terms.items()}, a * b
    sign = -1 if name == "negative" else 1
    total, number = {v: n * sign for v, n in parts[0][0].items()}, parts[0][1] * sign
    if len(parts) == 2:
        sign = -1 if name == "subtract" else 1
        for v, n in parts[1][0].items():
            total[v] = total.get(v, 0) + sign * n
        number += sign * parts[1][1]
    return total, number
