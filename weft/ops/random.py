"""Random tensors. The same seed gives the same numbers eagerly, compiled, and on every device.

Each primitive (`weft.ops.draws`) is a pure function of a generator's state; which bits make which
number is written down in `weft.ops.philox`. The numbers of a draw do not depend on its shape, only
on their row-major position: rand(6) holds the numbers of rand(2, 3).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.device import as_device
from weft.base.dim_algebra import Dim
from weft.base.dtypes import DType, as_dtype, float_info, int_info
from weft.base.errors import DTypeError, RangeError, ShapeError
from weft.base.promotion import promote_weak, result_dtype
from weft.base.shapes import Shape, broadcast_shapes, new_shape, normalize_axis
from weft.core.operands import Operand, as_tensor, cast, constant, number_kind
from weft.core.public import public
from weft.core.tensor import Tensor
from weft.ops import philox
from weft.ops.draws import (
    FLOATS,
    NORMALS,
    check_dtype,
    check_fits,
    draw,
    no_probability,
    random_bernoulli,
    random_bits,
    random_integers,
    random_normal,
    random_uniform,
    source_of,
)
from weft.ops.elementwise import minimum
from weft.ops.generator import (
    Generator,
    get_rng_state,
    manual_seed,
    set_rng_state,
)
from weft.ops.index import take
from weft.ops.sorting import argsort

__all__ = [
    "Generator",
    "bernoulli",
    "get_rng_state",
    "manual_seed",
    "normal",
    "permutation",
    "rand",
    "rand_like",
    "randint",
    "randn",
    "randn_like",
    "set_rng_state",
    "uniform",
]


def _sizes(shape: tuple[Any, ...], op: str) -> Shape:
    """The shape that rand(2, 3) or rand((2, 3)) asks for."""
    if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        shape = tuple(shape[0])
    return new_shape(shape, op)


def _floating(dtype: Any, op: str, known: frozenset[DType] = FLOATS) -> DType:
    wanted = dtypes.default_float() if dtype is None else as_dtype(dtype)
    check_dtype(wanted, known, op)
    return wanted


# --- floats ------------------------------------------------------------------------------------


@public()
def rand(*shape: Any, dtype: Any = None, device: Any = None, generator: Any = None) -> Tensor:
    """Numbers drawn uniformly from [0, 1): multiples of 2^-24, in float64 of 2^-53.

    >>> generator = weft.manual_seed(0)
    >>> weft.rand(2, 3)
    tensor([[0.39904642, 0.88052016, 0.73571277],
            [0.6054818 , 0.97224116, 0.36209106]])
    """
    wanted = _floating(dtype, "rand")
    return draw(random_uniform, _sizes(shape, "rand"), wanted, device, generator)


@public()
def randn(*shape: Any, dtype: Any = None, device: Any = None, generator: Any = None) -> Tensor:
    """Numbers drawn from the standard normal distribution.

    For a complex dtype the real and imaginary parts have a variance of ½ each.

    >>> generator = weft.manual_seed(0)
    >>> weft.randn(3)
    tensor([ 0.04700499, -1.3546754 , -0.77758944])
    """
    wanted = _floating(dtype, "randn", NORMALS)
    return draw(random_normal, _sizes(shape, "randn"), wanted, device, generator)


@public()
def rand_like(
    x: Tensor, /, *, dtype: Any = None, device: Any = None, generator: Any = None
) -> Tensor:
    """`rand` with the shape of x, and its dtype and device unless others are given."""
    like = as_tensor(x, "rand_like")
    wanted = _floating(like.dtype if dtype is None else dtype, "rand_like")
    place = like.device if device is None else device
    return draw(random_uniform, like.shape, wanted, place, generator)


@public()
def randn_like(
    x: Tensor, /, *, dtype: Any = None, device: Any = None, generator: Any = None
) -> Tensor:
    """`randn` with the shape of x, and its dtype and device unless others are given."""
    like = as_tensor(x, "randn_like")
    wanted = _floating(like.dtype if dtype is None else dtype, "randn_like", NORMALS)
    place = like.device if device is None else device
    return draw(random_normal, like.shape, wanted, place, generator)


@public()
def uniform(
    low: float = 0.0,
    high: float = 1.0,
    shape: Any = (),
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
) -> Tensor:
    """Numbers drawn uniformly from [low, high); where low equals high, that number.

    >>> generator = weft.manual_seed(0)
    >>> weft.uniform(-1, 1, (3,))
    tensor([-0.20190716,  0.76104033,  0.47142553])
    """
    wanted = _floating(dtype, "uniform")
    if not {number_kind(low), number_kind(high)} <= {"bool", "int", "float"}:
        raise DTypeError(
            "low and high must be real numbers",
            op="uniform",
            hint="for bounds in tensors write low + (high - low) * weft.rand(shape)",
        )
    low, high = float(low), float(high)
    largest = float_info(wanted).max
    if not (-largest <= low <= high <= largest and high - low <= largest):
        raise RangeError(
            f"{wanted.name} has no range from {low} to {high}",
            op="uniform",
            hint="low must not exceed high, and high - low must be finite",
        )
    drawn = draw(random_uniform, new_shape(shape, "uniform"), wanted, device, generator)
    if low == 0 and high == 1:
        return drawn
    # Rounding may give `high` if the span is large compared to the spacing of numbers.
    last = np.nextafter(wanted.numpy.type(high), wanted.numpy.type(low))
    return minimum(drawn * (high - low) + low, float(last))


@public()
def normal(
    mean: Operand = 0.0,
    std: Tensor | float = 1.0,
    shape: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
) -> Tensor:
    """Numbers drawn from the normal distribution; mean and std may be tensors that broadcast.

    Without a shape, the result has that of mean and std together. In a tensor, a negative std
    counts as its absolute value: the distribution is symmetric.

    >>> generator = weft.manual_seed(0)
    >>> weft.normal(10.0, weft.asarray([0.0, 0.1, 1.0]))
    tensor([10.      ,  9.864532,  9.22241 ])
    """
    tensors = [as_tensor(p, "normal") for p in (mean, std) if number_kind(p) is None]
    numbers = [kind for kind in map(number_kind, (mean, std)) if kind is not None]
    common = promote_weak(result_dtype([t.dtype for t in tensors], numbers), "float")
    wanted = _floating(common if dtype is None else dtype, "normal", NORMALS)
    if common.kind == "complex" and wanted.kind != "complex":
        raise DTypeError(f"{wanted.name} does not hold a complex mean", op="normal")
    if number_kind(std) is not None and (number_kind(std) == "complex" or not std >= 0):
        raise RangeError(f"std must be a number from 0 up, not {std}", op="normal")
    try:
        together = broadcast_shapes(*(t.shape for t in tensors))
    except ShapeError as error:
        raise error.about("normal", [t.type for t in tensors]) from None
    sizes = together if shape is None else new_shape(shape, "normal")
    check_fits(together, sizes, "normal")
    place = tensors[0].device if tensors and device is None else device
    drawn = draw(random_normal, sizes, wanted, place, generator)
    if not tensors and mean == 0 and std == 1:
        return drawn
    middle, spread = (_as_dtype(p, wanted, drawn) for p in (mean, std))
    return drawn * spread + middle


def _as_dtype(value: Any, dtype: DType, like: Tensor) -> Tensor:
    """A number or a tensor in a dtype, next to another tensor."""
    if number_kind(value) is not None:
        return constant(value, dtype, like.device)
    return cast(as_tensor(value, "normal"), dtype).to_device(like.device)


# --- integers and choices ----------------------------------------------------------------------


@public()
def randint(
    low: int,
    high: int | Sequence[int] | None = None,
    shape: Any = (),
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
) -> Tensor:
    """Integers drawn uniformly from low … high - 1; with one bound, randint(10, (8,)), from 0 on.

    A value's probability is off by at most 2^-64.

    >>> generator = weft.manual_seed(0)
    >>> weft.randint(1, 7, (8,))
    tensor([6, 4, 3, 1, 2, 2, 3, 3])
    """
    if isinstance(high, (tuple, list)) and shape == ():
        high, shape = None, high
    wanted = dtypes.default_int() if dtype is None else as_dtype(dtype)
    if wanted.kind not in ("int", "uint"):
        raise DTypeError(
            f"{wanted.name} is not an integer dtype", op="randint", hint="weft.rand draws floats"
        )
    try:
        bounds: tuple[Any, Any] = (0, low) if high is None else (low, high)
        start, stop = map(operator.index, bounds)
    except TypeError:
        raise DTypeError(
            f"the bounds must be ints, not {low!r:.40} and {high!r:.40}",
            op="randint",
            hint="write randint(low, high, shape)",
        ) from None
    if start >= stop:
        raise RangeError(f"there is no integer from {start} up and below {stop}", op="randint")
    info = int_info(wanted)
    if start < info.min or stop > info.max + 1:
        raise RangeError(
            f"{wanted.name} does not hold all of {start} … {stop - 1}",
            op="randint",
            hint="ask for a wider dtype",
        )
    return draw(
        random_integers,
        new_shape(shape, "randint"),
        wanted,
        device,
        generator,
        per_block=2,
        low=start,
        high=stop,
    )


@public()
def bernoulli(
    p: Tensor | float,
    shape: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
) -> Tensor:
    """1 with probability p, else 0. p is a number or a tensor that broadcasts to the shape.

    The dtype is that of p unless another is given. Probabilities are exact to 2^-32, those in
    float64 to 2^-53; 0 and 1 are certain.

    >>> generator = weft.manual_seed(0)
    >>> weft.bernoulli(weft.asarray([0.0, 0.5, 0.5, 1.0]))
    tensor([0., 0., 0., 1.])
    """
    if number_kind(p) is None:
        chances = as_tensor(p, "bernoulli")
        check_dtype(chances.dtype, FLOATS, "bernoulli")
        place = chances.device if device is None else device
    elif number_kind(p) == "complex" or not 0 <= p <= 1:
        raise no_probability(f"p is {p}")
    else:
        place = source_of(generator, "bernoulli").device if device is None else as_device(device)
        chances = constant(p, dtypes.default_float(), place)
    wanted = chances.dtype if dtype is None else as_dtype(dtype)
    sizes = chances.shape if shape is None else new_shape(shape, "bernoulli")
    check_fits(chances.shape, sizes, "bernoulli")
    per_block = philox.elements_per_block(chances.dtype)
    return draw(random_bernoulli, sizes, wanted, place, generator, chances, per_block=per_block)


@public()
def permutation(x: Any, axis: int = 0, *, device: Any = None, generator: Any = None) -> Tensor:
    """The numbers 0 … x - 1 in random order; of a tensor, its parts along an axis.

    The order is that of random 64-bit keys, so it is the same for every dtype and device.

    >>> generator = weft.manual_seed(0)
    >>> weft.permutation(5)
    tensor([3, 4, 2, 1, 0])
    >>> weft.permutation(weft.asarray([[1, 2, 3], [4, 5, 6]]), axis=1)
    tensor([[1, 2, 3],
            [4, 5, 6]])
    """
    count = x if isinstance(x, (int, np.integer, Dim)) else None
    if count is None:
        parts = as_tensor(x, "permutation")
        along = normalize_axis(axis, parts.ndim, "permutation")
        sizes: Shape = (parts.shape[along],)
        place = parts.device if device is None else device
    else:
        normalize_axis(axis, 1, "permutation")
        sizes = new_shape(count, "permutation")
        place = device
    keys = draw(random_bits, sizes, dtypes.uint64, place, generator)
    order = argsort(keys)
    return order if count is not None else take(parts, order, axis=along)
