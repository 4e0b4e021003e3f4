"""Reductions and sorting as PyTorch means them: with `dim`, pairs of values and indices."""

from __future__ import annotations

from typing import Any

import weft.core.tensor as core
from weft.core.results import ValuesIndices
from weft.ops import elementwise, reduce, select, sorting
from weft.ops.index import nonzero as core_nonzero
from weft.ops.index import take_along_axis
from weft.ops.shape import reshape, squeeze, stack
from weft.torch.tensor import method

__all__ = [
    *("argsort", "equal", "max", "median", "min", "nanmedian", "nonzero", "sort", "std"),
    *("std_mean", "var", "var_mean"),
]


def _found(x: Any, at: Any, dim: int, keepdim: bool) -> ValuesIndices:
    """The elements at places along an axis, with those places."""
    values = take_along_axis(x, at, axis=dim)
    if keepdim:
        return ValuesIndices(values, at)
    return ValuesIndices(squeeze(values, axis=dim), squeeze(at, axis=dim))


def _extreme(name: str) -> Any:
    whole, where = getattr(reduce, name), getattr(sorting, f"arg{name}", None)
    where = where or getattr(reduce, f"arg{name}")
    pairwise = getattr(elementwise, f"{name}imum")

    def function(
        input: Any, dim: Any = None, keepdim: bool = False, *, other: Any = None, axis: Any = None
    ) -> Any:
        other = dim if isinstance(dim, core.Tensor) else other
        if other is not None:
            return pairwise(input, other)
        dim = axis if dim is None else dim
        if dim is None:
            return whole(input)
        if not input.ndim:
            return ValuesIndices(input, where(input))
        return _found(input, where(input, axis=dim, keepdims=True), dim, keepdim)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"The {name}imum of all elements; with `dim`, the pair of values and indices along it; "
        "with another tensor, element by element."
    )
    return method()(function)


max = _extreme("max")
min = _extreme("min")


@method()
def sort(
    input: Any, dim: int = -1, descending: bool = False, stable: bool = True, *, axis: Any = None
) -> ValuesIndices:
    """The pair of sorted values and where they were."""
    dim = dim if axis is None else axis
    if not input.ndim:
        return ValuesIndices(input, reduce.argmax(input))
    at = sorting.argsort(input, axis=dim, descending=descending, stable=True)
    return ValuesIndices(take_along_axis(input, at, axis=dim), at)


@method()
def argsort(
    input: Any, dim: int = -1, descending: bool = False, stable: bool = True, *, axis: Any = None
) -> Any:
    """Where the sorted elements were."""
    return sort(input, dim, descending, stable, axis=axis).indices


def _middle(input: Any, dim: int | None, keepdim: bool, skip_nan: bool) -> Any:
    """The lower of the two middle elements; NaN where there is one, unless it is skipped."""
    if dim is None:
        return _middle(reshape(input, (-1,)), 0, False, skip_nan).values
    if not input.ndim:
        return ValuesIndices(input, reduce.argmax(input))
    order = sorting.argsort(input, axis=dim, stable=True)  # NaN are the last
    size = input.shape[dim]
    missing = reduce.sum(elementwise.not_equal(input, input), axis=dim, keepdims=True)
    if skip_nan:
        place = elementwise.maximum((size - missing - 1) // 2, 0)
    else:
        place = select.where(missing > 0, size - missing, (size - 1) // 2)
    return _found(input, take_along_axis(order, place, axis=dim), dim, keepdim)


@method()
def median(input: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """The lower middle element; with `dim`, the pair of values and indices along it."""
    return _middle(input, dim, keepdim, skip_nan=False)


@method()
def nanmedian(input: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """The lower middle element of those that are not NaN."""
    return _middle(input, dim, keepdim, skip_nan=True)


def _spread(name: str) -> Any:
    core_function = getattr(reduce, name)

    def function(
        input: Any,
        dim: Any = None,
        unbiased: Any = None,
        keepdim: bool = False,
        *,
        correction: Any = 1,
        axis: Any = None,
    ) -> Any:
        if isinstance(dim, bool):  # x.std(False)
            dim, unbiased = None, dim
        if unbiased is not None:
            correction = 1 if unbiased else 0
        dim = axis if dim is None else dim
        return core_function(
            input, axis=tuple(dim) if isinstance(dim, list) else dim, correction=correction,
            keepdims=keepdim,
        )  # fmt: skip

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`weft.{name}`, which divides by n - 1 unless told otherwise."
    return method()(function)


std = _spread("std")
var = _spread("var")


def _with_mean(spread: Any, input: Any, dim: Any, unbiased: Any, keepdim: bool, rest: Any) -> Any:
    axis = None if isinstance(dim, bool) else tuple(dim) if isinstance(dim, list) else dim
    mean = reduce.mean(input, axis=axis, keepdims=keepdim)
    return spread(input, dim, unbiased, keepdim, **rest), mean


def std_mean(
    input: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, **rest: Any
) -> tuple[Any, Any]:
    """The pair of standard deviation and mean."""
    found: tuple[Any, Any] = _with_mean(std, input, dim, unbiased, keepdim, rest)
    return found


def var_mean(
    input: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, **rest: Any
) -> tuple[Any, Any]:
    """The pair of variance and mean."""
    found: tuple[Any, Any] = _with_mean(var, input, dim, unbiased, keepdim, rest)
    return found


@method()
def nonzero(input: Any, *, as_tuple: bool = False) -> Any:
    """Where elements are not 0: one row for each; with `as_tuple`, one tensor for each axis."""
    if not input.ndim:
        input = reshape(input, (1,))
        if not as_tuple:
            return stack(list(core_nonzero(input)), axis=1)[:, :0]
    found = core_nonzero(input)
    return found if as_tuple else stack(list(found), axis=1)


@method()
def equal(input: Any, other: Any) -> bool:
    """Whether two tensors have one shape and the same elements."""
    return input.shape == other.shape and bool(reduce.all(elementwise.equal(input, other)))
