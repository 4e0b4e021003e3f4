"""Random counts, categories and choices."""

from __future__ import annotations

from typing import Any

from weft.base.dtypes import NARROW_FLOATS, float32
from weft.base.errors import RangeError, ShapeError
from weft.base.shapes import new_shape, normalize_axis, size_of
from weft.core.operands import Operand, as_tensor, cast
from weft.core.public import public
from weft.core.tensor import Tensor
from weft.ops.draws import draw
from weft.ops.draws_rejection import random_binomial, random_poisson
from weft.ops.elementwise import floor, log, log1p, negative
from weft.ops.index import take
from weft.ops.random import permutation, randint
from weft.ops.random_continuous import gumbel, open_uniform
from weft.ops.random_parameters import parameters
from weft.ops.reduce import argmax
from weft.ops.shape import broadcast_to, moveaxis, reshape
from weft.ops.sorting import argsort

__all__ = ["binomial", "categorical", "choice", "geometric", "poisson", "randperm"]


@public(namespace="random")
def poisson(
    rate: Operand,
    shape: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
) -> Tensor:
    """Counts of the Poisson distribution with this mean, in the dtype of `rate` by default.

    >>> generator = weft.manual_seed(0)
    >>> weft.random.poisson(weft.asarray([0.0, 1.0, 1000.0]))
    tensor([  0.,   0., 983.])
    """
    p = parameters("poisson", (rate,), shape, dtype, device, generator)
    return draw(random_poisson, p.shape, p.dtype, p.device, generator, *p.tensors, per_block=1)


@public(namespace="random")
def binomial(
    n: Operand,
    p: Operand,
    shape: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
) -> Tensor:
    """How many of n trials succeed, each with probability p; floats by default, as p.

    >>> generator = weft.manual_seed(0)
    >>> weft.random.binomial(10, weft.asarray([0.0, 0.5, 1.0]))
    tensor([ 0.,  4., 10.])
    """
    q = parameters("binomial", (n, p), shape, dtype, device, generator)
    return draw(random_binomial, q.shape, q.dtype, q.device, generator, *q.tensors, per_block=1)


@public(namespace="random")
def geometric(
    p: Operand,
    shape: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
) -> Tensor:
    """How many trials it takes until one succeeds: 1, 2, 3, …, with probability p in each."""
    q = parameters("geometric", (p,), shape, dtype, device, generator, positive=("p",))
    (chance,) = q.tensors
    work = float32 if chance.dtype in NARROW_FLOATS else chance.dtype
    u = open_uniform(q, work, generator)
    return cast(floor(log(u) / log1p(negative(cast(chance, work)))) + 1, q.dtype)


@public(namespace="random")
def categorical(
    logits: Tensor,
    shape: Any = None,
    *,
    axis: int = -1,
    device: Any = None,
    generator: Any = None,
) -> Tensor:
    """Indices along an axis, drawn with the probabilities softmax(logits).

    The result has the other axes of `logits`, or `shape`, to which they broadcast. Logits of -inf
    are never drawn; for probabilities write categorical(weft.log(p)).

    >>> generator = weft.manual_seed(0)
    >>> weft.random.categorical(weft.log(weft.asarray([0.1, 0.0, 0.9])), (8,))
    tensor([2, 2, 0, 2, 2, 2, 0, 2])
    """
    (tensor,) = parameters("categorical", (logits,), None, None, device, generator).tensors
    if not tensor.ndim:
        raise ShapeError("logits must have an axis of categories", op="categorical")
    last = moveaxis(tensor, normalize_axis(axis, tensor.ndim, "categorical"), -1)
    count = last.shape[-1]
    if not count:
        raise ShapeError("there are no categories to draw from", op="categorical")
    sizes = last.shape[:-1] if shape is None else new_shape(shape, "categorical")
    whole = (*sizes, count)
    noise = gumbel(shape=whole, dtype=tensor.dtype, device=tensor.device, generator=generator)
    return argmax(broadcast_to(last, whole) + noise, axis=-1)


@public(namespace="random")
def randperm(n: int, *, device: Any = None, generator: Any = None) -> Tensor:
    """The numbers 0 … n - 1 in random order: `permutation` of a number."""
    return permutation(n, device=device, generator=generator)


@public(namespace="random")
def choice(
    x: Any,
    shape: Any = (),
    *,
    replace: bool = True,
    p: Tensor | None = None,
    axis: int = 0,
    device: Any = None,
    generator: Any = None,
) -> Tensor:
    """Elements along an axis of x, or of 0 … x - 1, drawn with equal probability or with p.

    Without `replace`, each is drawn at most once.

    >>> generator = weft.manual_seed(0)
    >>> weft.random.choice(weft.asarray([10, 20, 30]), (5,))
    tensor([30, 20, 20, 10, 10])
    """
    values = None if isinstance(x, int) else as_tensor(x, "choice")
    if values is None:
        count = x
    else:
        axis = normalize_axis(axis, values.ndim, "choice")
        count = values.shape[axis]
        device = values.device if device is None else device
    sizes = new_shape(shape, "choice")
    if not replace and size_of(sizes) > count:
        raise RangeError(
            f"{size_of(sizes)} different elements of {count} are asked for",
            op="choice",
            hint="allow repetition: replace=True",
        )
    if p is not None and as_tensor(p, "choice").shape != (count,):
        raise ShapeError(f"p must have one probability for each of {count} elements", op="choice")
    index = _chosen(count, sizes, replace, p, device, generator)
    if values is None:
        return index
    picked = take(values, reshape(index, (size_of(sizes),)), axis=axis)
    return reshape(picked, (*values.shape[:axis], *sizes, *values.shape[axis + 1 :]))


def _chosen(
    count: int, sizes: Any, replace: bool, p: Tensor | None, device: Any, generator: Any
) -> Tensor:
    if p is None and replace:
        return randint(count, shape=sizes, device=device, generator=generator)
    if p is None:
        order = permutation(count, device=device, generator=generator)
    elif replace:
        return categorical(log(p), sizes, device=device, generator=generator)
    else:  # the largest of log(p) + Gumbel noise are draws without replacement
        (weights,) = parameters("choice", (p,), None, None, device, generator).tensors
        noise = gumbel(shape=(count,), dtype=weights.dtype, device=device, generator=generator)
        order = argsort(log(weights) + noise, descending=True)
    return reshape(order[: size_of(sizes)], sizes)
