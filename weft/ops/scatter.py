"""Reading and writing along an axis by tensors of indices, with PyTorch's names and arguments.

Indices count from the end where they are negative, as in x[i]; one out of range is an error. All of
these return new tensors. The methods with an underscore (`x.scatter_add_(…)`) give the result to x.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base import dtypes
from weft.base.asked_sizes import is_less
from weft.base.dtypes import NARROW_FLOATS, int_info
from weft.base.errors import IndexError, ShapeError
from weft.base.shapes import Shape, size_of
from weft.core.bind import bind
from weft.core.operands import Operand, as_tensor, cast, constant, is_strong
from weft.core.public import public
from weft.core.tensor import Tensor, type_of
from weft.ir.op import Op
from weft.ops.arguments import axis_of
from weft.ops.creation import arange, zeros_like
from weft.ops.elementwise import add, divide, equal, floor_divide, logical_and, multiply
from weft.ops.index import fitting, split_index, take, take_along, whole_mask
from weft.ops.index_cards import GETITEM, SETITEM, TENSOR
from weft.ops.reduce_at import ADD_AT, MAXIMUM_AT, MINIMUM_AT, MULTIPLY_AT
from weft.ops.select import where
from weft.ops.shape import reshape

__all__ = [
    "gather",
    "index_add",
    "index_copy",
    "index_fill",
    "index_put",
    "index_reduce",
    "index_select",
    "put",
    "scatter",
    "scatter_add",
    "scatter_reduce",
]

#: Cards by the names of reductions. "mean" is a sum that is divided.
_CARDS = {
    "sum": ADD_AT,
    "add": ADD_AT,
    "mean": ADD_AT,
    "prod": MULTIPLY_AT,
    "multiply": MULTIPLY_AT,
    "amax": MAXIMUM_AT,
    "amin": MINIMUM_AT,
}


def start_of(reduce: str, dtype: Any) -> Any:
    """The number that a reduction starts from: combined with it, a value stays what it is."""
    if _CARDS[reduce] is ADD_AT:
        return 0
    if _CARDS[reduce] is MULTIPLY_AT:
        return 1
    lowest = reduce == "amax"
    if dtype.kind == "bool":
        return not lowest
    if dtype.kind == "float":
        return float("-inf") if lowest else float("inf")
    return int_info(dtype).min if lowest else int_info(dtype).max


def card_of(reduce: str, allowed: Sequence[str], op: str) -> Op:
    if reduce not in allowed:
        raise ShapeError(f"reduce must be one of {', '.join(allowed)}, not {reduce!r}", op=op)
    return _CARDS[reduce]


# --- arguments ---------------------------------------------------------------------------------


def _indices(index: Any, x: Tensor, op: str) -> Tensor:
    given = as_tensor(index, op, like=x)
    if given.dtype.kind not in ("int", "uint"):
        raise IndexError(
            f"an index must be of integers, not {given.dtype.name}",
            op=op,
            operands=[type_of(x), type_of(given)],
            hint="cast it with astype(weft.int64)",
        )
    return given


def _vector(index: Any, x: Tensor, op: str) -> Tensor:
    """An index of one axis; one number is a vector of one."""
    given = _indices(index, x, op)
    if given.ndim > 1:
        raise ShapeError(
            f"index must have 1 axis, not {given.ndim}",
            op=op,
            operands=[type_of(x), type_of(given)],
            hint="weft.gather and weft.scatter take an index for each element",
        )
    return reshape(given, (given.size,))


class _Along:
    """Arguments (x, axis, index, src) of which each element of src has an index along the axis."""

    def __init__(self, x: Tensor, axis: int, index: Any, src: Any, op: str) -> None:
        self.shape = x.shape
        given = _indices(index, x, op)
        self.x = reshape(x, (1,)) if not x.ndim else x
        self.axis = axis_of(self.x, axis, op)
        if not x.ndim and given.ndim == 0:
            given = reshape(given, (1,))
        self.index = given
        operands = [type_of(x), type_of(given)]
        if given.ndim != self.x.ndim:
            raise ShapeError(
                f"x has {x.ndim} axes and index {given.ndim}: they must agree",
                op=op,
                operands=operands,
            )
        if 0 not in given.shape:
            for i, (mine, theirs) in enumerate(zip(given.shape, self.x.shape, strict=True)):
                if i != self.axis and is_less(theirs, mine):
                    raise ShapeError(
                        f"index has size {mine} along axis {i}, where x has {theirs}",
                        op=op,
                        operands=operands,
                        hint=f"only along axis {self.axis} it may be larger than x",
                    )
        self.source = self.x if src is None else self._source(src, op)

    def _source(self, src: Any, op: str) -> Tensor:
        """The part of src that has indices; a number stands for as many equal ones."""
        value = fitting(src, self.x)
        if not is_strong(src):
            return value
        if not value.ndim:
            value = reshape(value, (1,))
        shape = self.index.shape
        if value.ndim != len(shape) or any(
            is_less(size, wanted) for size, wanted in zip(value.shape, shape, strict=True)
        ):
            raise ShapeError(
                f"src of shape {value.shape} has no element for each of index, {shape}",
                op=op,
                operands=[type_of(self.x), type_of(self.index), type_of(value)],
            )
        return cut(value, shape)

    @property
    def places(self) -> list[Tensor]:
        """For each axis of x, the positions of the elements."""
        ndim = self.x.ndim
        places = [
            reshape(arange(size, device=self.x.device), (size, *(1,) * (ndim - i - 1)))
            if i != self.axis
            else self.index
            for i, size in enumerate(self.index.shape)
        ]
        return places

    def write(self, card: Op, x: Tensor, value: Tensor) -> Tensor:
        return written(card, x, value, self.places, (TENSOR,) * self.x.ndim)

    def given_back(self, out: Tensor) -> Tensor:
        return reshape(out, self.shape) if out.shape != self.shape else out


#: Bools are added by "or" and multiplied by "and".
_OF_BOOLS = {ADD_AT: MAXIMUM_AT, MULTIPLY_AT: MINIMUM_AT}


def written(card: Op, x: Tensor, value: Tensor, tensors: Sequence[Tensor], index: Any) -> Tensor:
    """x with a value written to x[index], or combined with it."""
    if x.dtype.kind == "bool" and card is not SETITEM:
        small = (cast(part, dtypes.uint8) for part in (x, value))
        return cast(bind(_OF_BOOLS.get(card, card), *small, *tensors, index=index), dtypes.bool)
    out: Tensor = bind(card, x, value, *tensors, index=index)
    return out


def cut(x: Tensor, shape: Shape) -> Tensor:
    """The first elements of x along each axis."""
    if x.shape == shape:
        return x
    out: Tensor = bind(GETITEM, x, index=tuple(slice(0, size) for size in shape))
    return out


# --- an index for each element -----------------------------------------------------------------


@public("gather")
def gather(x: Tensor, /, axis: int, index: Tensor) -> Tensor:
    """out[i][j] = x[index[i][j]][j] for axis 0, and likewise for others: as large as the index.

    >>> weft.gather(weft.asarray([[1, 2], [3, 4]]), 1, weft.asarray([[0, 0], [1, 0]]))
    tensor([[1, 1],
            [4, 3]])
    """
    along = _Along(x, axis, index, None, "gather")
    axis, sizes = along.axis, along.index.shape
    source = cut(along.x, (*sizes[:axis], along.x.shape[axis], *sizes[axis + 1 :]))
    out = take_along(source, along.index, axis)
    return reshape(out, index.shape) if not x.ndim else out


@public("scatter")
def scatter(
    x: Tensor,
    /,
    axis: int,
    index: Tensor,
    src: Operand | None = None,
    *,
    value: Operand | None = None,
    reduce: str | None = None,
) -> Tensor:
    """x with out[index[i][j]][j] = src[i][j] for axis 0, and likewise for others.

    src is a tensor or a number; `value` is another name for a number. Of several values for one
    position, the last counts; with `reduce="add"` or `"multiply"` all do.

    >>> weft.scatter(weft.zeros((2, 3)), 1, weft.asarray([[2], [0]]), 5.0)
    tensor([[0., 0., 5.],
            [5., 0., 0.]])
    """
    card = SETITEM if reduce is None else card_of(reduce, ("add", "multiply"), "scatter")
    given = value if src is None else src
    if given is None or (src is not None and value is not None):
        raise ShapeError("it takes one of src and value", op="scatter", operands=[type_of(x)])
    along = _Along(x, axis, index, given, "scatter")
    return along.given_back(along.write(card, along.x, along.source))


@public("scatter_add")
def scatter_add(x: Tensor, /, axis: int, index: Tensor, src: Operand) -> Tensor:
    """x with src added at positions along an axis; several values for one position add up.

    >>> weft.scatter_add(weft.zeros(3), 0, weft.asarray([0, 2, 2]), weft.asarray([1.0, 2.0, 3.0]))
    tensor([1., 0., 5.])
    """
    along = _Along(x, axis, index, src, "scatter_add")
    return along.given_back(along.write(ADD_AT, along.x, along.source))


_REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


@public("scatter_reduce")
def scatter_reduce(
    x: Tensor,
    /,
    axis: int,
    index: Tensor,
    src: Operand,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """x with src combined at positions along an axis: "sum", "prod", "mean", "amax" or "amin".

    With `include_self=False` the old elements at those positions do not count.

    >>> places = weft.asarray([0, 0, 2])
    >>> weft.scatter_reduce(weft.ones(3), 0, places, weft.asarray([4.0, 6.0, 0.0]), "mean")
    tensor([3.6666667, 1.       , 0.5      ])
    """
    card = card_of(reduce, _REDUCTIONS, "scatter_reduce")
    return _reduced(_Along(x, axis, index, src, "scatter_reduce"), card, reduce, include_self)


def _reduced(given: _Along | _Parts, card: Op, reduce: str, include_self: bool) -> Tensor:
    x, value = given.x, given.source
    start, dtype = x, x.dtype
    if not include_self:
        start = given.write(SETITEM, x, constant(start_of(reduce, dtype), dtype, x.device))
    if reduce != "mean":
        return given.given_back(given.write(card, start, value))
    wide = dtypes.float32 if dtype in NARROW_FLOATS else dtype
    total = given.write(card, cast(start, wide), cast(value, wide))
    one = constant(1, wide, x.device)
    count = given.write(ADD_AT, zeros_like(total), one)
    number = add(count, 1) if include_self else where(equal(count, 0), one, count)
    over = floor_divide if dtype.kind in ("int", "uint") else divide
    return given.given_back(cast(over(total, number), dtype))


# --- an index for each part of an axis ---------------------------------------------------------


class _Parts:
    """Arguments (x, axis, index, source) with an index for each part of x along the axis."""

    def __init__(self, x: Tensor, axis: int, index: Any, source: Any, op: str) -> None:
        self.shape = x.shape
        self.x = reshape(x, (1,)) if not x.ndim else x
        self.axis = axis_of(self.x, axis, op)
        self.index = _vector(index, x, op)
        value = fitting(source, x)
        sizes = self.x.shape
        wanted = (*sizes[: self.axis], self.index.shape[0], *sizes[self.axis + 1 :])
        if not x.ndim and not value.ndim:
            value = reshape(value, (1,))
        if is_strong(source) and value.shape != wanted and value.ndim:
            raise ShapeError(
                f"the parts have shape {value.shape}, and {wanted} is needed",
                op=op,
                operands=[type_of(x), type_of(self.index), type_of(value)],
            )
        self.source = value

    def write(self, card: Op, x: Tensor, value: Tensor) -> Tensor:
        index = (slice(None),) * self.axis + (TENSOR,)
        return written(card, x, value, [self.index], index)

    def given_back(self, out: Tensor) -> Tensor:
        return reshape(out, self.shape) if out.shape != self.shape else out


@public("index_select")
def index_select(x: Tensor, /, axis: int, index: Tensor) -> Tensor:
    """The parts of x along an axis that a vector of indices names: take(x, index, axis=axis)."""
    given = _vector(index, x, "index_select")
    if not x.ndim:
        return reshape(take(reshape(x, (1,)), given, axis=axis), ())
    return take(x, given, axis=axis)


@public("index_add")
def index_add(
    x: Tensor, /, axis: int, index: Tensor, source: Tensor, *, alpha: float = 1
) -> Tensor:
    """x with the parts of source added: part i to part index[i] of x, times alpha.

    >>> weft.index_add(weft.zeros((3, 2)), 0, weft.asarray([2, 2]), weft.ones((2, 2)))
    tensor([[0., 0.],
            [0., 0.],
            [2., 2.]])
    """
    parts = _Parts(x, axis, index, source, "index_add")
    value = parts.source
    if alpha != 1:
        number = constant(alpha, x.dtype, x.device)
        times = logical_and if x.dtype.kind == "bool" else multiply
        value = times(value, number)
    return parts.given_back(parts.write(ADD_AT, parts.x, value))


@public("index_copy")
def index_copy(x: Tensor, /, axis: int, index: Tensor, source: Tensor) -> Tensor:
    """x with its parts index[i] along an axis replaced by the parts i of source."""
    parts = _Parts(x, axis, index, source, "index_copy")
    return parts.given_back(parts.write(SETITEM, parts.x, parts.source))


@public("index_fill")
def index_fill(x: Tensor, /, axis: int, index: Tensor, value: Operand) -> Tensor:
    """x with its parts at indices along an axis filled with a number."""
    number = fitting(value, x)
    if number.ndim:
        raise ShapeError(f"value must be a number, not of shape {number.shape}", op="index_fill")
    parts = _Parts(x, axis, index, number, "index_fill")
    return parts.given_back(parts.write(SETITEM, parts.x, parts.source))


@public("index_reduce")
def index_reduce(
    x: Tensor,
    /,
    axis: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """x with the parts of source combined: part i with part index[i] of x.

    `reduce` and `include_self` are those of `scatter_reduce`.

    >>> weft.index_reduce(weft.zeros(3), 0, weft.asarray([2, 2]), weft.ones(2), "amax")
    tensor([0., 0., 1.])
    """
    card = card_of(reduce, _REDUCTIONS, "index_reduce")
    return _reduced(_Parts(x, axis, index, source, "index_reduce"), card, reduce, include_self)


# --- any index ---------------------------------------------------------------------------------


@public("index_put")
def index_put(
    x: Tensor, /, indices: Sequence[Tensor], values: Operand, accumulate: bool = False
) -> Tensor:
    """x with x[indices] = values, or += values with `accumulate`; repeated positions then add up.

    >>> at = (weft.asarray([0, 1, 1]),)
    >>> weft.index_put(weft.zeros(3), at, 1.0, accumulate=True)
    tensor([1., 2., 0.])
    """
    return changed_at(x, tuple(indices), values, ADD_AT if accumulate else SETITEM)


def changed_at(x: Tensor, key: tuple[Any, ...], value: Any, card: Op) -> Tensor:
    """x with a value written to x[key], or combined with it."""
    new = fitting(value, x)
    if card is SETITEM and len(key) == 1 and (mask := whole_mask(x, key[0], new)) is not None:
        return where(mask, new, x)
    y, index, tensors = split_index(x, key)
    out = written(card, y, new, tensors, index)
    return reshape(out, x.shape) if out.shape != x.shape else out


@public("put")
def put(x: Tensor, /, index: Tensor, source: Operand, accumulate: bool = False) -> Tensor:
    """x with elements of source at positions in x as a vector; with `accumulate` they are added.

    >>> weft.put(weft.zeros((2, 2)), weft.asarray([3, 0]), weft.asarray([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 1.]])
    """
    given = _indices(index, x, "put")
    value = fitting(source, x)
    if value.ndim:
        if value.size != given.size:
            raise ShapeError(
                f"{value.size} elements for {given.size} positions",
                op="put",
                operands=[type_of(x), type_of(given), type_of(value)],
            )
        value = reshape(value, (value.size,))
    flat = reshape(x, (size_of(x.shape),))
    card = ADD_AT if accumulate else SETITEM
    out = written(card, flat, value, [reshape(given, (given.size,))], (TENSOR,))
    return reshape(out, x.shape)
