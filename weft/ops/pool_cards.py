"""Cards of pooling over the last axes; there may be any number of axes before them.

`max_pool` has two linear companions, which use the position of the largest element of x in each
window (the first of equal ones, or the first NaN): `max_pool_input` adds a value per window to that
element, and `max_pool_pick` reads that element. Each is the derivative of the other, so gradients
of any order exist. `sum_pool` and `sum_pool_input` do the same for sums, from which means are made.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from weft.base import dtypes
from weft.base.dim_algebra import dim_min
from weft.base.errors import ShapeError
from weft.base.shapes import Shape, size_of
from weft.ir.op import Cost, Op, Trait, Types
from weft.ir.types import TensorType
from weft.ops import pool_kernels as kernels
from weft.ops.batching import leading
from weft.ops.rules import apply, check_kind, check_same
from weft.ops.ways import pooled
from weft.ops.windows import Padding, sliding_shape, taps, windows_of

# --- type rules --------------------------------------------------------------------------------


def _pooled(
    x: TensorType, kernel: Shape, stride: Shape, padding: Padding, dilation: Shape
) -> Shape:
    """The shape of one value for each window."""
    at = x.ndim - len(kernel)
    if at < 0:
        raise ShapeError(f"a kernel of size {kernel} needs {len(kernel)} axes, not {x.ndim}")
    return (*x.shape[:at], *sliding_shape(x.shape[at:], kernel, stride, dilation, padding))


def _check_pooled(out: TensorType, want: Shape) -> None:
    if out.shape != want:
        raise ShapeError(f"there are windows of shape {want}, but values of shape {out.shape}")


def _max_type(
    x: TensorType, *, kernel: Shape, stride: Shape, padding: Padding, dilation: Shape
) -> TensorType:
    check_kind(x, "real numeric")
    return x.like(shape=_pooled(x, kernel, stride, padding, dilation))


def _max_input_type(
    g: TensorType, x: TensorType, out: TensorType, *,
    kernel: Shape, stride: Shape, padding: Padding, dilation: Shape,
) -> TensorType:  # fmt: skip
    check_same(g, x, out)
    check_kind(x, "real numeric")
    want = _pooled(x, kernel, stride, padding, dilation)
    _check_pooled(out, want)
    _check_pooled(g, want)
    return x


def _max_pick_type(
    v: TensorType, x: TensorType, out: TensorType, *,
    kernel: Shape, stride: Shape, padding: Padding, dilation: Shape,
) -> TensorType:  # fmt: skip
    check_same(v, x, out)
    check_kind(x, "real numeric")
    if v.shape != x.shape:
        raise ShapeError(f"places in {x.shape} cannot be read from {v.shape}")
    _check_pooled(out, _pooled(x, kernel, stride, padding, dilation))
    return out


def _max_indices_type(
    x: TensorType, out: TensorType, *,
    kernel: Shape, stride: Shape, padding: Padding, dilation: Shape,
) -> TensorType:  # fmt: skip
    _check_pooled(out, _pooled(x, kernel, stride, padding, dilation))
    return out.like(dtype=dtypes.int64)


def _sum_type(x: TensorType, *, kernel: Shape, stride: Shape, padding: Padding) -> TensorType:
    check_kind(x, "numeric")
    return x.like(shape=_pooled(x, kernel, stride, padding, (1,) * len(kernel)))


def _sum_input_type(
    g: TensorType, *, size: Shape, kernel: Shape, stride: Shape, padding: Padding
) -> TensorType:
    check_kind(g, "numeric")
    before = g.shape[: g.ndim - len(size)]
    made = g.like(shape=(*before, *size))
    _check_pooled(g, _pooled(made, kernel, stride, padding, (1,) * len(kernel)))
    return made


# --- reference evaluation, for any namespace ---------------------------------------------------
# Maxima start from the lowest number, so that padding never wins.


def _spatial(x: Any, kernel: Shape) -> Shape:
    return tuple(x.shape[len(x.shape) - len(kernel) :])


def _evaluate_max(
    xp: Any, x: Any, *, kernel: Shape, stride: Shape, padding: Padding, dilation: Shape
) -> Any:
    windows = windows_of(_spatial(x, kernel), kernel, stride, dilation, padding)
    before = x.shape[: len(x.shape) - len(kernel)]
    floating = xp.isdtype(x.dtype, "real floating")
    lowest = -xp.inf if floating else xp.iinfo(x.dtype).min
    out = xp.full((*before, *(w.out for w in windows)), lowest, dtype=x.dtype)
    for outside, inside in taps(windows):
        out[outside] = xp.maximum(out[outside], x[inside])
    return out


def _first_largest(xp: Any, x: Any, out: Any, attrs: Any) -> Any:
    """For each tap: windows, elements, and a mask of the windows whose maximum this tap reads."""
    windows = windows_of(
        _spatial(x, attrs["kernel"]),
        attrs["kernel"],
        attrs["stride"],
        attrs["dilation"],
        attrs["padding"],
    )
    free = xp.ones(out.shape, dtype=xp.bool)
    for outside, inside in taps(windows):
        here = x[inside]
        hit = ((here == out[outside]) | (here != here)) & free[outside]
        free[outside] = free[outside] & ~hit
        yield outside, inside, hit


def _evaluate_max_input(xp: Any, g: Any, x: Any, out: Any, **attrs: Any) -> Any:
    result = xp.zeros(x.shape, dtype=g.dtype)
    for outside, inside, hit in _first_largest(xp, x, out, attrs):
        result[inside] += xp.where(hit, g[outside], 0)
    return result


def _evaluate_max_pick(xp: Any, v: Any, x: Any, out: Any, **attrs: Any) -> Any:
    result = xp.zeros(out.shape, dtype=v.dtype)
    for outside, inside, hit in _first_largest(xp, x, out, attrs):
        result[outside] = xp.where(hit, v[inside], result[outside])
    return result


def _evaluate_max_indices(xp: Any, x: Any, out: Any, **attrs: Any) -> Any:
    sizes = _spatial(x, attrs["kernel"])
    numbers = xp.reshape(xp.arange(size_of(sizes), dtype=xp.int64), sizes)
    result = xp.zeros(out.shape, dtype=xp.int64)
    for outside, inside, hit in _first_largest(xp, x, out, attrs):
        result[outside] = xp.where(hit, numbers[inside], result[outside])
    return result


def _evaluate_sum(xp: Any, x: Any, *, kernel: Shape, stride: Shape, padding: Padding) -> Any:
    windows = windows_of(_spatial(x, kernel), kernel, stride, (1,) * len(kernel), padding)
    before = x.shape[: len(x.shape) - len(kernel)]
    out = xp.zeros((*before, *(w.out for w in windows)), dtype=x.dtype)
    for outside, inside in taps(windows):
        out[outside] += x[inside]
    return out


def _evaluate_sum_input(
    xp: Any, g: Any, *, size: Shape, kernel: Shape, stride: Shape, padding: Padding
) -> Any:
    windows = windows_of(size, kernel, stride, (1,) * len(kernel), padding)
    out = xp.zeros((*g.shape[: len(g.shape) - len(size)], *size), dtype=g.dtype)
    for outside, inside in taps(windows):
        out[inside] += g[outside]
    return out


# --- derivatives -------------------------------------------------------------------------------


def _vjp_max(
    xp: Any, g: Any, out: Any, x: Any, *,
    kernel: Shape, stride: Shape, padding: Padding, dilation: Shape,
) -> Any:  # fmt: skip
    attrs = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    return apply(max_pool_input, g, x, out, **attrs)


def _vjp_max_input(
    xp: Any, g: Any, _out: Any, _g: Any, x: Any, out: Any, *,
    kernel: Shape, stride: Shape, padding: Padding, dilation: Shape,
) -> Any:  # fmt: skip
    attrs = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    return apply(max_pool_pick, g, x, out, **attrs)


def _vjp_max_pick(
    xp: Any, g: Any, _out: Any, _v: Any, x: Any, out: Any, *,
    kernel: Shape, stride: Shape, padding: Padding, dilation: Shape,
) -> Any:  # fmt: skip
    attrs = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    return apply(max_pool_input, g, x, out, **attrs)


def _vjp_sum(
    xp: Any, g: Any, _out: Any, x_type: Any, *, kernel: Shape, stride: Shape, padding: Padding
) -> Any:
    size = _spatial(x_type, kernel)
    return apply(sum_pool_input, g, size=size, kernel=kernel, stride=stride, padding=padding)


def _vjp_sum_input(
    xp: Any, g: Any, _out: Any, _g: Any, *,
    size: Shape, kernel: Shape, stride: Shape, padding: Padding,
) -> Any:  # fmt: skip
    return apply(sum_pool, g, kernel=kernel, stride=stride, padding=padding)


# --- cards -------------------------------------------------------------------------------------


def _cost(inputs: Types, outputs: Types, *, kernel: Shape, **_attrs: Any) -> Cost:
    """One operation for each element of each window."""
    moved = sum(t.nbytes for t in (*inputs, *outputs))
    windows = reduce(dim_min, (t.size for t in (*inputs, *outputs)))
    return Cost(windows * size_of(kernel), moved)


max_pool = Op(
    "max_pool",
    _max_type,
    _evaluate_max,
    numpy=kernels.max_pool,
    kinds="real numeric",
    traits=Trait.WIDEN,
    vjp=(_vjp_max,),
    batch=leading,
    cost=_cost,
    ways=pooled,
    may_fail=False,
)
max_pool_input = Op(
    "max_pool_input",
    _max_input_type,
    _evaluate_max_input,
    numpy=kernels.max_pool_input,
    kinds="real numeric",
    traits=Trait.WIDEN,
    vjp=(_vjp_max_input, None, None),
    batch=leading,
    cost=_cost,
    ways=pooled,
    may_fail=False,
)
max_pool_pick = Op(
    "max_pool_pick",
    _max_pick_type,
    _evaluate_max_pick,
    numpy=kernels.max_pool_pick,
    kinds="real numeric",
    traits=Trait.WIDEN,
    vjp=(_vjp_max_pick, None, None),
    batch=leading,
    cost=_cost,
    ways=pooled,
    may_fail=False,
)
max_pool_indices = Op(
    "max_pool_indices",
    _max_indices_type,
    _evaluate_max_indices,
    numpy=kernels.max_pool_indices,
    kinds="real numeric",
    traits=Trait.WIDEN,
    vjp=(None, None),
    batch=leading,
    cost=_cost,
    ways=pooled,
    may_fail=False,
)
sum_pool = Op(
    "sum_pool",
    _sum_type,
    _evaluate_sum,
    numpy=kernels.sum_pool,
    kinds="numeric",
    traits=Trait.LINEAR | Trait.WIDEN,
    vjp=(_vjp_sum,),
    batch=leading,
    cost=_cost,
    ways=pooled,
    may_fail=False,
)
sum_pool_input = Op(
    "sum_pool_input",
    _sum_input_type,
    _evaluate_sum_input,
    numpy=kernels.sum_pool_input,
    kinds="numeric",
    traits=Trait.LINEAR | Trait.WIDEN,
    vjp=(_vjp_sum_input,),
    batch=leading,
    cost=_cost,
    ways=pooled,
    may_fail=False,
)
