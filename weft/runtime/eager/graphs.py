"""The graphs of eager calls on large arrays: of a call, of its gradients, of an update in place.

A graph is for all sizes if possible: sizes above 1 get names, equal ones the same name. Where a
kernel must know some sizes (the channels of a convolution), first the sizes of operands but the
first stay numbers (`SIZES`), then all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weft.autodiff.node import weft_namespace
from weft.autodiff.save_plan import ArrayType, SavePlan
from weft.base.asked_sizes import AskedSizes, NotEmpty, asking
from weft.base.dims import dim
from weft.base.dtypes import dtype_of_numpy
from weft.core.bind import bind
from weft.core.grad_mode import no_grad
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.types import TensorType
from weft.ops.rules import sum_to
from weft.record.make_graph import make_graph
from weft.runtime.eager.layouts import DENSE, Layout

Shape = tuple[int, ...]
Names = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Operand:
    """An array that a graph reads: its dtype (NumPy's), its shape, its layout (None: it is copied
    first), and whether it is one of those whose sizes become numbers first."""

    dtype: Any
    shape: Shape
    layout: Layout | None = DENSE
    fixed: bool = False

    @property
    def read(self) -> Layout:
        """The layout that the graph reads."""
        return self.layout or DENSE


def names_for(operands: Sequence[Operand], with_fixed: bool) -> Names:
    """A name for each size above 1; with `with_fixed`, not for those of fixed operands."""
    fixed: set[int] = set()
    if not with_fixed:
        fixed = {size for x in operands if x.fixed for size in x.shape}
    names: dict[int, int] = {}
    for operand in operands:
        for size in operand.shape:
            if size > 1 and size not in fixed and size not in names:
                names[size] = dim(f"n{len(names)}", min=2)
    return names


def ways_to_name(operands: Sequence[Operand]) -> Iterator[Names]:
    """Which sizes get names: first all, then fewer, then none."""
    yield names_for(operands, with_fixed=True)
    if any(x.fixed for x in operands):
        yield names_for(operands, with_fixed=False)
    yield {}


def named(shape: Shape, names: Names) -> Shape:
    return tuple([names.get(size, size) for size in shape])


def types_of(operands: Sequence[Operand], names: Names) -> tuple[TensorType, ...]:
    """The types of the inputs of a graph."""
    return tuple(
        [
            TensorType(dtype_of_numpy(x.dtype), named(x.read.dense_shape(x.shape), names))
            for x in operands
        ]
    )


def recorded(
    name: str, operands: Sequence[Operand], names: Names, function: Callable[..., Any]
) -> Graph:
    """The graph of a function of these operands."""

    def run(*dense: Any) -> Any:
        xp = weft_namespace()
        given = zip(operands, dense, strict=True)
        return function(*[x.read.array(xp, each, named(x.shape, names)) for x, each in given])

    run.__name__ = name
    with no_grad(), asking(AskedSizes({}, data=NotEmpty())):
        return make_graph(run, *types_of(operands, names))


def call_function(op: Op, attrs: Mapping[str, Any]) -> Callable[..., Any]:
    """The function of one call of an op."""
    return lambda *inputs: bind(op, *inputs, **attrs)


def gradient_function(
    plan: SavePlan,
    attrs: Mapping[str, Any],
    shapes: Sequence[Shape | None],
    kept: Sequence[Any],
    wanted: tuple[bool, ...] | None,
    names: Names,
) -> Callable[..., Any]:
    """The function of the gradients of one call, of g and the arrays that the node kept. What
    it kept the type of only has sizes, too: they have names where operands have the same."""

    def gradients(g: Any, *arrays: Any) -> Any:
        given = iter(arrays)
        whole = [_stand_in(part, given, names) for part in kept]
        found = []
        xp = weft_namespace()
        for number, rule, numbered in plan.rules:
            if wanted is not None and not wanted[number]:
                continue
            first = (number, xp) if numbered else (xp,)
            part = rule(*first, g, *whole, **attrs)
            shape = shapes[number]
            if plan.elementwise and shape is not None:
                part = sum_to(xp, part, named(shape, names))
            found.append(part)
        return tuple(found)

    return gradients


def _stand_in(part: Any, arrays: Iterator[Any], names: Names) -> Any:
    if part is None:
        return None
    if part.__class__ is not ArrayType:
        return next(arrays)
    made = ArrayType.__new__(ArrayType)
    made.shape, made.dtype = named(part.shape, names), part.dtype
    return made
