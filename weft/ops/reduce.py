"""Reductions: fold some axes of a tensor into one value each, and running versions of them.

- `sum` and `prod` of small integers and bools are int64 (uint64 for unsigned), as the standard
  has it; of float16 and bfloat16 they are accumulated in float32 and rounded once.
- NaN propagates through `max` and `min`, and `argmax` / `argmin` point at the first NaN.
"""

from __future__ import annotations

import builtins
from functools import cache, partial
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.dim_algebra import Dim
from weft.base.dtypes import NARROW_FLOATS, DType, as_dtype, float_info, real_dtype
from weft.base.errors import DTypeError, ShapeError
from weft.base.shapes import Axis, normalize_axes, normalize_axis, reduced_shape, size_of
from weft.core.bind import bind, short
from weft.core.operands import cast, constant
from weft.core.public import public
from weft.core.tensor import Tensor
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType
from weft.ops.batching import shifted
from weft.ops.creation import ones, zeros
from weft.ops.elementwise import abs, divide, maximum, not_equal, square, subtract
from weft.ops.extremes import extreme
from weft.ops.rules import cast_to, check_kind, conj_of
from weft.ops.select import root_or_zero
from weft.ops.shape import concat, inverse_order, reshape
from weft.ops.ways import but_axis, reduced_by

__all__ = [
    "all",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "cumulative_prod",
    "cumulative_sum",
    "max",
    "mean",
    "min",
    "prod",
    "std",
    "sum",
    "var",
]


#: All axes of a tensor, by the number of axes. NumPy allows at most 64.
_ALL = [tuple(range(ndim)) for ndim in range(65)]
_SMALL = 4096
#: Asks NumPy (from 2.3 on) for a 0-d array instead of a scalar.
_AS_ARRAY: dict[str, Any] = {"out": ...} if np.lib.NumpyVersion(np.__version__) >= "2.3.0" else {}


def _reduction(
    name: str, ufunc: Any, kinds: str, *, of_one: str, to_bool: bool = False, vjp: Any = None
) -> Op:
    accumulates, extremes = name in ("sum", "prod"), name in ("max", "min")

    def infer(x: TensorType, *, axis: tuple[int, ...], keepdims: bool) -> TensorType:
        check_kind(x, kinds)
        if accumulates and x.dtype is not accumulator(x.dtype):
            raise DTypeError(f"{x.dtype.name} is summed up in {accumulator(x.dtype).name}")
        shape = reduced_shape(x.shape, axis, keepdims)
        if extremes and 0 in [x.shape[i] for i in axis] and 0 not in shape:
            raise ShapeError(f"there is no {name} of an empty axis: the shape is {x.shape}")
        return x.like(shape=shape, dtype=dtypes.bool if to_bool else None)

    def evaluate(xp: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
        return getattr(xp, name)(x, axis=axis, keepdims=keepdims)

    return Op(
        name,
        infer,
        evaluate,
        numpy=(extreme if extremes else _reducing)(ufunc, **_AS_ARRAY),
        kinds=kinds,
        vjp=vjp,
        batch=shifted("axis"),
        traits=Trait.REDUCTION
        | Trait.WIDEN
        | (Trait.LINEAR if name == "sum" else Trait.NONE)
        | (Trait.NEEDS_ELEMENTS if extremes else Trait.NONE),
        autocast="float32" if accumulates else "",
        keeps_one=of_one,
        ways=reduced_by({"all": "min", "any": "max"}.get(name, name)),
    )


def _reducing(ufunc: Any, **more: Any) -> Any:
    return partial(ufunc.reduce, **more)


def _size(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    """The number of elements along `axes`."""
    return size_of(tuple(shape[axis] for axis in axes))


def _spread(xp: Any, g: Any, shape: tuple[int, ...], axis: tuple[int, ...]) -> Any:
    """A reduced value, broadcast back over the reduced axes."""
    if xp is np and size_of(shape) <= _SMALL:  # NumPy's broadcast_to takes longer than a copy
        out = np.empty(shape, dtype=g.dtype)
        out[...] = g if len(axis) == len(shape) else g.reshape(reduced_shape(shape, axis, True))
        return out
    return xp.broadcast_to(xp.reshape(g, reduced_shape(shape, axis, keepdims=True)), shape)


def products_of_others(xp: Any, x: Any) -> Any:
    """For each element along the last axis, the product of the others, without division."""
    before = xp.cumulative_prod(x, axis=-1, include_initial=True)[..., :-1]
    behind = xp.cumulative_prod(xp.flip(x, axis=-1), axis=-1, include_initial=True)[..., :-1]
    return before * xp.flip(behind, axis=-1)


def can_divide(products: Any) -> builtins.bool:
    """Whether products can be divided by a factor: none is 0, tiny, infinite or NaN."""
    size = np.abs(products)
    return builtins.bool(((size >= _least(size.dtype)) & (size < np.inf)).all())


@cache
def _least(dtype: np.dtype[Any]) -> Any:
    """The smallest normal number."""
    return dtype.type(float_info(as_dtype(dtype)).smallest_normal)


def _prod_vjp(
    xp: Any, g: Any, out: Any, x: Any, *, axis: tuple[int, ...], keepdims: builtins.bool
) -> Any:
    spread = _spread(xp, g, x.shape, axis)
    if xp is np and can_divide(out):
        return spread * conj_of(xp, _spread(xp, out, x.shape, axis) / x)
    kept = tuple(i for i in range(len(x.shape)) if i not in axis)
    order = kept + axis
    turned = xp.permute_dims(x, order)
    flat = xp.reshape(turned, (*(x.shape[i] for i in kept), _size(x.shape, axis)))
    others = xp.reshape(products_of_others(xp, flat), turned.shape)
    return spread * conj_of(xp, xp.permute_dims(others, inverse_order(order)))


def _extreme_vjp(
    xp: Any, g: Any, out: Any, x: Any, *, axis: tuple[int, ...], keepdims: builtins.bool
) -> Any:
    """Elements that tie for the extreme share the gradient evenly; so do NaNs."""
    tied = (x == _spread(xp, out, x.shape, axis)) | (x != x)
    number = xp.sum(cast_to(xp, tied, g.dtype), axis=axis, keepdims=True)
    share = xp.reshape(g, number.shape) / number
    return xp.where(tied, share, 0)


_sum = _reduction(
    "sum",
    np.add,
    "numeric",
    of_one="integral",  # 0.0 + -0.0 is 0.0
    vjp=(lambda xp, g, _out, x_type, *, axis, keepdims: _spread(xp, g, x_type.shape, axis),),
)
_prod = _reduction("prod", np.multiply, "numeric", of_one="real numeric", vjp=(_prod_vjp,))
_max = _reduction("max", np.maximum, "real", of_one="integral", vjp=(_extreme_vjp,))
_min = _reduction("min", np.minimum, "real", of_one="integral", vjp=(_extreme_vjp,))
_any = _reduction("any", np.logical_or, "all", of_one="bool", to_bool=True)
_all = _reduction("all", np.logical_and, "all", of_one="bool", to_bool=True)


def _reduce(op: Op, x: Tensor, axis: Axis, keepdims: builtins.bool) -> Tensor:
    ndim = len(x._data.shape)
    axes = _ALL[ndim] if axis is None else normalize_axes(axis, ndim, op.name)
    out: Tensor = bind(op, x, axis=axes, keepdims=bool(keepdims))
    return out


def accumulator(dtype: DType) -> DType:
    """The dtype of sums and products of `dtype`."""
    if dtype.kind in ("bool", "int"):
        return dtypes.int64
    return dtypes.uint64 if dtype.kind == "uint" else dtype


def _accumulated(x: Tensor, dtype: Any) -> Tensor:
    """x in the dtype to accumulate in: the requested one, if it is an accumulator."""
    if dtype is not None:
        return cast(x, accumulator(as_dtype(dtype)))
    return x if x._data.dtype.kind in "fc" else cast(x, accumulator(x.dtype))


def _as_asked(out: Tensor, dtype: Any) -> Tensor:
    """A sum in the requested dtype. An int64 sum wraps like a sum in the narrower integer."""
    return out if dtype is None else cast(out, as_dtype(dtype))


def _dropping(axes: tuple[int, ...]) -> dict[str, Any]:
    return {"axis": axes, "keepdims": False}


@public("sum")
def sum(
    x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False, dtype: Any = None
) -> Tensor:
    """The sum over `axis` (all axes by default).

    >>> weft.asarray([[1, 2], [3, 4]]).sum(axis=0)
    tensor([4, 6])
    """
    data = x._data
    if dtype is None and not keepdims and data.dtype.char in "fdFD":
        axes = _ALL[data.ndim] if axis is None else normalize_axes(axis, data.ndim, "sum")
        out = short(_sum, np.add.reduce, x, axes, _dropping)
        if out is not None:
            return out
    return _as_asked(_reduce(_sum, _accumulated(x, dtype), axis, keepdims), dtype)


@public("prod")
def prod(
    x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False, dtype: Any = None
) -> Tensor:
    """The product over `axis` (all axes by default)."""
    return _as_asked(_reduce(_prod, _accumulated(x, dtype), axis, keepdims), dtype)


def _two_tensors(op: str, x: Tensor, axis: Tensor) -> DTypeError:
    return DTypeError(
        "axis must be an int, not a tensor",
        op=op,
        operands=[x.type, axis.type],
        hint=f"weft.{op}imum(x, y) compares two tensors element by element",
    )


@public("max")
def max(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """The largest value over `axis`; NaN where there is one."""
    if isinstance(axis, Tensor):
        raise _two_tensors("max", x, axis)
    return _reduce(_max, x, axis, keepdims)


@public("min")
def min(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """The smallest value over `axis`; NaN where there is one."""
    if isinstance(axis, Tensor):
        raise _two_tensors("min", x, axis)
    return _reduce(_min, x, axis, keepdims)


@public("any")
def any(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """Whether any element over `axis` is nonzero; False for no elements."""
    return _reduce(_any, x, axis, keepdims)


@public("all")
def all(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """Whether all elements over `axis` are nonzero; True for no elements."""
    return _reduce(_all, x, axis, keepdims)


@public("count_nonzero")
def count_nonzero(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """How many elements over `axis` are nonzero."""
    return sum(not_equal(x, 0), axis=axis, keepdims=keepdims)


# --- where the extremes are --------------------------------------------------------------------


def _position(name: str) -> Op:
    def infer(x: TensorType, *, axis: int, keepdims: bool) -> TensorType:
        check_kind(x, "real")
        shape = reduced_shape(x.shape, (axis,), keepdims)
        if x.shape[axis] == 0 and 0 not in shape:
            raise ShapeError(f"there is no {name} of an empty axis: the shape is {x.shape}")
        return x.like(shape=shape, dtype=dtypes.int64)

    def evaluate(xp: Any, x: Any, *, axis: int, keepdims: bool) -> Any:
        found = getattr(xp, name)(x, axis=axis, keepdims=keepdims)
        return xp.astype(found, dtypes.int64.numpy, copy=False)

    return Op(
        name,
        infer,
        evaluate,
        kinds="real",
        batch=shifted("axis"),
        traits=Trait.WIDEN | Trait.NEEDS_ELEMENTS,
        may_fail=False,
        ways=but_axis,
    )


_argmax = _position("argmax")
_argmin = _position("argmin")


def _locate(op: Op, x: Tensor, axis: int | None, keepdims: builtins.bool) -> Tensor:
    if axis is None:
        out: Tensor = bind(op, reshape(x, (size_of(x.shape),)), axis=0, keepdims=False)
        return reshape(out, (1,) * x.ndim) if keepdims else out
    found: Tensor = bind(op, x, axis=normalize_axis(axis, x.ndim, op.name), keepdims=bool(keepdims))
    return found


@public("argmax")
def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: builtins.bool = False) -> Tensor:
    """The index of the first largest value; over all elements when no axis is given."""
    return _locate(_argmax, x, axis, keepdims)


@public("argmin")
def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: builtins.bool = False) -> Tensor:
    """The index of the first smallest value; over all elements when no axis is given."""
    return _locate(_argmin, x, axis, keepdims)


# --- statistics --------------------------------------------------------------------------------


def computable(x: Tensor) -> tuple[Tensor, DType]:
    """x in the dtype in which statistics are computed, and the dtype of their result."""
    if x.dtype in NARROW_FLOATS:
        return cast(x, dtypes.float32), x.dtype
    if x.dtype.kind in ("float", "complex"):
        return x, x.dtype
    return cast(x, dtypes.float64), dtypes.default_float()


@public("mean")
def mean(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """The arithmetic mean over `axis`; NaN for no elements. Integers give the default float."""
    wide, dtype = computable(x)
    axes = normalize_axes(axis, x.ndim, "mean")
    return cast(divide(sum(wide, axis=axes, keepdims=keepdims), _size(x.shape, axes)), dtype)


@public("var")
def var(
    x: Tensor,
    /,
    *,
    axis: Axis = None,
    correction: float = 0.0,
    keepdims: builtins.bool = False,
) -> Tensor:
    """The variance over `axis`: the mean square distance from the mean.

    The sum of squares is divided by n - correction (1 gives the unbiased estimate); where that is
    not above zero the result is NaN or inf.
    """
    wide, dtype = computable(x)
    axes = normalize_axes(axis, x.ndim, "var")
    n = _size(x.shape, axes)
    centre = divide(sum(wide, axis=axes, keepdims=True), n)
    distance = subtract(wide, centre)
    squares = square(abs(distance) if dtype.kind == "complex" else distance)
    degrees: Any
    if isinstance(n, Dim):
        degrees = subtract(constant(n, real_dtype(wide.dtype), x.device), correction)
        degrees = maximum(degrees, 0)
    else:
        degrees = builtins.max(n - correction, 0)
    result = divide(sum(squares, axis=axes, keepdims=keepdims), degrees)
    return cast(result, real_dtype(dtype))


@public("std")
def std(
    x: Tensor,
    /,
    *,
    axis: Axis = None,
    correction: float = 0.0,
    keepdims: builtins.bool = False,
) -> Tensor:
    """The standard deviation over `axis`: the square root of the variance.

    Of equal values it is 0, with gradient 0.
    """
    wide, dtype = computable(x)
    spread = var(wide, axis=axis, correction=correction, keepdims=keepdims)
    return cast(root_or_zero(spread), real_dtype(dtype))


# --- running versions --------------------------------------------------------------------------


def _cumulative_sum_vjp(xp: Any, g: Any, _out: Any, _x: Any, *, axis: int) -> Any:
    return xp.flip(xp.cumulative_sum(xp.flip(g, axis=axis), axis=axis), axis=axis)


def _cumulative_prod_vjp(xp: Any, g: Any, out: Any, x: Any, *, axis: int) -> Any:
    """Each x[i] is a factor of all out[k] with k ≥ i; there is no division by zero."""
    if xp is np and can_divide(out):
        return _cumulative_sum_vjp(xp, g * conj_of(xp, out), out, x, axis=axis) / conj_of(xp, x)
    last = len(x.shape) - 1
    order = (*(i for i in range(last + 1) if i != axis), axis)
    factors = conj_of(xp, xp.permute_dims(x, order))
    before = xp.cumulative_prod(factors, axis=-1, include_initial=True)[..., :-1]
    behind = running_totals(xp, xp.permute_dims(g, order), factors)
    return xp.permute_dims(before * behind, inverse_order(order))


def running_totals(xp: Any, g: Any, factors: Any) -> Any:
    """total[i] = g[i] + factors[i + 1] * total[i + 1], in about log2(n) steps.

    After a step, total[i] is the sum over a window of elements from i on, and product[i] the factor
    for the total after that window. Each step doubles the window.
    """
    size = g.shape[-1]
    if isinstance(size, Dim):
        return _running_over_all(xp, g, factors)
    total, product, window = g, factors[..., 1:], 1
    while window < size:
        rest = size - window
        more = total[..., :rest] + product[..., :rest] * total[..., window:]
        total = xp.concat([more, total[..., rest:]], axis=-1)
        reach = size - 2 * window
        product = product[..., :reach] * product[..., window:] if reach > 0 else product[..., :0]
        window *= 2
    return total


def _running_over_all(xp: Any, g: Any, factors: Any) -> Any:
    """The same for a symbolic length: over all pairs of i and k."""
    k = xp.arange(g.shape[-1], device=g.device)
    i = xp.expand_dims(k, axis=-1)
    behind = xp.where(k > i, xp.expand_dims(factors, axis=-2), 1)
    products = xp.cumulative_prod(behind, axis=-1)
    terms = xp.where(k >= i, xp.expand_dims(g, axis=-2) * products, 0)
    return xp.sum(terms, axis=-1)


def _cumulative(name: str, ufunc: Any, vjp: Any) -> Op:
    def infer(x: TensorType, *, axis: int) -> TensorType:
        check_kind(x, "numeric")
        return x

    def evaluate(xp: Any, x: Any, *, axis: int) -> Any:
        return getattr(xp, name)(x, axis=axis)

    return Op(
        name,
        infer,
        evaluate,
        numpy=ufunc.accumulate,
        kinds="numeric",
        vjp=(vjp,),
        batch=shifted("axis"),
        traits=Trait.WIDEN | (Trait.LINEAR if name == "cumulative_sum" else Trait.NONE),
        may_fail=False,
        autocast="float32",
        ways=but_axis,
    )


_cumulative_sum = _cumulative("cumulative_sum", np.add, _cumulative_sum_vjp)
_cumulative_prod = _cumulative("cumulative_prod", np.multiply, _cumulative_prod_vjp)


def _accumulate(op: Op, x: Tensor, axis: int | None, dtype: Any) -> Tensor:
    if axis is None:
        if x.ndim != 1:
            raise ShapeError(
                f"an axis is needed for a tensor of {x.ndim} axes", op=op.name, operands=[x.type]
            )
        axis = 0
    axis = normalize_axis(axis, x.ndim, op.name)
    out: Tensor = bind(op, _accumulated(x, dtype), axis=axis)
    return _as_asked(out, dtype)


@public("cumulative_sum")
def cumulative_sum(
    x: Tensor,
    /,
    *,
    axis: int | None = None,
    dtype: Any = None,
    include_initial: builtins.bool = False,
) -> Tensor:
    """Running sums along `axis`; with `include_initial` a 0 stands in front."""
    out = _accumulate(_cumulative_sum, x, axis, dtype)
    return _preceded(zeros, out, axis) if include_initial else out


@public("cumulative_prod")
def cumulative_prod(
    x: Tensor,
    /,
    *,
    axis: int | None = None,
    dtype: Any = None,
    include_initial: builtins.bool = False,
) -> Tensor:
    """Running products along `axis`; with `include_initial` a 1 stands in front."""
    out = _accumulate(_cumulative_prod, x, axis, dtype)
    return _preceded(ones, out, axis) if include_initial else out


def _preceded(make: Any, out: Tensor, axis: int | None) -> Tensor:
    along = 0 if axis is None else axis % out.ndim
    shape = tuple(1 if i == along else size for i, size in enumerate(out.shape))
    return concat([make(shape, dtype=out.dtype, device=out.device), out], axis=along)
