"""Batching rules: one op call that does the work of one call per element of an axis.

`vmap` calls the rule of a card, `batch(op, size, mapped, inputs, attrs)`, if an input is mapped:

    size      the size of the mapped axis
    mapped    for each input, whether it has that axis, as its first axis
    inputs    the tensors; those without the axis are the same for all elements
    attrs     the attributes of the call for one element

It returns the result (or results) with the mapped axis first, or `Same(result)` if a result is the
same for all elements. ELEMENTWISE cards need no rule. This file has the rules that several cards
share; `batch_*.py` have those of one family.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.dim_algebra import Dim
from weft.base.errors import ShapeError
from weft.base.shapes import Shape
from weft.core.bind import bind
from weft.core.tensor import Tensor, type_of
from weft.ir.op import OPS, Op
from weft.ir.types import TensorType

__all__: list[str] = []

Mapped = Sequence[bool]
Inputs = Sequence[Tensor]
Attrs = dict[str, Any]
BatchRule = Callable[[Op, int, Mapped, Inputs, Attrs], Any]


class Same:
    """A result without the mapped axis: it is the same for all elements."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


# --- moving axes -------------------------------------------------------------------------------
# These use cards: the functions of `weft.ops.shape` are defined after this file.


def reshaped(x: Tensor, shape: Shape) -> Tensor:
    out: Tensor = x if x.shape == shape else bind(OPS["reshape"], x, shape=shape)
    return out


def permuted(x: Tensor, axes: Sequence[int]) -> Tensor:
    order = tuple(axes)
    if order == tuple(range(len(order))):
        return x
    out: Tensor = bind(OPS["permute_dims"], x, axes=order)
    return out


def moved(x: Tensor, source: int, destination: int, count: int = 1) -> Tensor:
    """x with `count` axes from `source` on moved so that they start at `destination`."""
    if source == destination:
        return x
    block = list(range(source, source + count))
    order = [i for i in range(x.ndim) if i not in block]
    return permuted(x, order[:destination] + block + order[destination:])


def broadcasted(x: Tensor, shape: Shape) -> Tensor:
    out: Tensor = x if x.shape == shape else bind(OPS["broadcast_to"], x, shape=shape)
    return out


def everywhere(x: Tensor, is_mapped: bool, size: int) -> Tensor:
    """x with the mapped axis, which is added if x does not have it."""
    return x if is_mapped else broadcasted(x, (size, *x.shape))


def all_mapped(size: int, mapped: Mapped, inputs: Inputs) -> list[Tensor]:
    return [everywhere(x, m, size) for x, m in zip(inputs, mapped, strict=True)]


def aligned(x: Tensor, is_mapped: bool, ndim: int) -> Tensor:
    """x with axes of size 1 after its mapped axis, so that `ndim` axes follow it."""
    missing = ndim - x.ndim + 1
    if not is_mapped or missing <= 0:
        return x
    return reshaped(x, (x.shape[0], *(1,) * missing, *x.shape[1:]))


def example_types(mapped: Mapped, inputs: Inputs) -> list[TensorType]:
    """The types of the inputs for one element of the mapped axis."""
    types = map(type_of, inputs)
    return [t.like(shape=t.shape[1:]) if m else t for t, m in zip(types, mapped, strict=True)]


# --- rules -------------------------------------------------------------------------------------


def elementwise(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Any:
    """The rule of ops that broadcast."""
    ndim = max(x.ndim - m for x, m in zip(inputs, mapped, strict=True))
    return bind(op, *[aligned(x, m, ndim) for x, m in zip(inputs, mapped, strict=True)], **attrs)


def leading(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Any:
    """The rule of ops that allow any leading axes, the same in all inputs."""
    return bind(op, *all_mapped(size, mapped, inputs), **attrs)


def shifted(*names: str) -> BatchRule:
    """The rule of ops whose attributes `names` are axis numbers."""

    def rule(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Any:
        behind = {name: _behind(attrs[name]) for name in names}
        return bind(op, *all_mapped(size, mapped, inputs), **{**attrs, **behind})

    return rule


def _behind(axis: Any) -> Any:
    if isinstance(axis, tuple):
        return tuple(map(_behind, axis))
    return axis if axis < 0 else axis + 1


def sized(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Any:
    """The rule of ops of one input whose attribute `shape` is that of the result."""
    return bind(op, *inputs, **{**attrs, "shape": (size, *attrs["shape"])})


def stacked(*cores: int) -> BatchRule:
    """The rule of ops that broadcast the axes before the last `cores[i]` of each input."""

    def rule(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Any:
        rows = list(zip(inputs, mapped, cores, strict=True))
        ndim = max(x.ndim - m - core for x, m, core in rows)
        return bind(op, *[aligned(x, m, ndim + core) for x, m, core in rows], **attrs)

    return rule


def looped(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Any:
    """The fallback rule: one call per element. `docs/transforms.md` lists the ops that use it."""
    if isinstance(size, Dim):
        raise ShapeError(
            f"a mapped axis of {size} elements is too unknown to go over one by one",
            op=op.name,
            hint="give the mapped axis a fixed size",
        )
    if size == 0:
        return nothing(op, mapped, inputs, attrs)
    calls = []
    for i in range(size):
        given = [
            bind(OPS["getitem"], x, index=i) if m else x
            for x, m in zip(inputs, mapped, strict=True)
        ]
        calls.append(bind(op, *given, **attrs))
    if not isinstance(calls[0], tuple):
        return together(calls)
    return tuple(together(parts) for parts in zip(*calls, strict=True))


def together(parts: Sequence[Tensor]) -> Tensor:
    """Stack results along a new first axis."""
    out: Tensor = bind(OPS["concat"], *[reshaped(x, (1, *x.shape)) for x in parts], axis=0)
    return out


def nothing(op: Op, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Any:
    """The results for a mapped axis without elements."""
    inferred = op.infer(*example_types(mapped, inputs), **attrs)

    def empty(kind: TensorType) -> Any:
        attrs = {"shape": (0, *kind.shape), "dtype": kind.dtype, "device": kind.device}
        return bind(OPS["full"], value=0, **attrs)

    return tuple(map(empty, inferred)) if isinstance(inferred, tuple) else empty(inferred)
