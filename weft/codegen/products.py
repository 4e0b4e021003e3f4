"""Kernels of the products of a graph, for operands of any strides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from weft.base.dims import has_dims, is_zero, typical
from weft.base.dtypes import DType
from weft.codegen import matmul
from weft.codegen.epilogue import Epilogue
from weft.codegen.kernel import Kernel
from weft.codegen.loops.access import dtype_of
from weft.codegen.machine import Machine
from weft.codegen.matmul import Operand, Product
from weft.codegen.pooled import emit_pooled
from weft.codegen.prologue import Prologue
from weft.codegen.tables import PRODUCTS
from weft.codegen.text import Module
from weft.codegen.totals import emit_totals
from weft.ir.graph import Node, Value
from weft.ops.cards import MATMUL
from weft.schedule.axes import Map
from weft.schedule.groups import Group, Leaf
from weft.schedule.views import View, broadcast_view

__all__ = ["emit_product", "packs"]


def emit_product(
    module: Module, name: str, group: Group, places: Mapping[Value, int], run: int
) -> list[Kernel] | None:
    """The kernels of a product with its fused epilogue, totals of that, and a pooling. The run is
    at position `run` of `%args`."""
    node = group.nodes[0]
    scratch = len(group.operands[node]) + len(node.outputs)  # after them: see `arguments`
    made = _main(module, name, group, places, scratch, run)
    if made and group.tail is not None:
        return emit_pooled(module, name, group, places, made)
    if made and group.totals:
        return emit_totals(module, name, group, places, scratch, made, run)
    return made


def _main(
    module: Module, name: str, group: Group, places: Mapping[Value, int], scratch: int, run: int
) -> list[Kernel] | None:
    node = group.nodes[0]
    emit = PRODUCTS[node.op.name]
    place = group.places[node]
    if emit is not None:
        # A convolution's index is (image, channel, position): the spatial axes are merged.
        spatial = tuple(axis for part in place[2:] for axis in part)
        return emit(module, name, node, Epilogue(group, places, (*place[:2], spatial)))  # type: ignore[no-any-return]
    a, b = _leaves(group)
    product, axes = _product(node, a.view, b.view)
    store = Epilogue(group, places, axes(place))
    prologues = {i: Prologue(loops, places) for i, loops in group.prologues.items()}
    if 0 in prologues:
        seen = _seen(group.prologues[0], a.view, len(place))
        prologues[0] = Prologue(group.prologues[0], places, axes(seen))
    at = [i if i in prologues else places[leaf.root] for i, leaf in enumerate((a, b))]
    ops = len(group.nodes)
    # The last of the kernels is wrapped then.
    alone = bool(group.totals) or group.tail is not None
    return matmul.emit(
        module, name, product, at[0], at[1], store, scratch, prologues, ops=ops, run=run,
        alone=alone,
    )  # fmt: skip


def _seen(loops: Group, view: View, count: int) -> Map:
    """The layout of a left operand in the loops that compute it, with as many dimensions as a
    result."""
    found = loops.maps[loops.outputs[0]]
    if not view.is_dense:  # it is transposed
        found = (*found[:-2], found[-1], found[-2])
    return (*[()] * (count - len(found)), *found)


def packs(machine: Machine, node: Node, side: int, left: View, right: View) -> bool:
    """Whether a product packs an operand (0 is the left one) exactly once, so that a prologue may
    compute its elements there."""
    if node.op is not MATMUL or node.inputs[side].tensor_type.dtype.kind != "float":
        return False
    packed = (left, right)[side]
    if len(packed.shape) < 2 or has_dims(packed.shape) or min(packed.shape[-2:]) < 2:
        return False
    return matmul.packs_once(_product(node, left, right)[0], machine, side)


def _leaves(group: Group) -> list[Leaf]:
    return [op for op in group.operands[group.nodes[0]] if isinstance(op, Leaf)]


Axes = Callable[[Map], tuple[tuple[int, ...], ...]]


def _product(node: Node, one: View, two: View) -> tuple[Product, Axes]:
    """The product, and the axes of the group's space that its indices run along."""
    vector_a, vector_b = len(one.shape) == 1, len(two.shape) == 1
    if vector_a:
        one = View((1, *one.shape), (0, *one.strides), one.offset)
    if vector_b:
        two = View((*two.shape, 1), (*two.strides, 0), two.offset)
    m, k = one.shape[-2:]
    n = two.shape[-1]
    count = max(len(one.shape), len(two.shape)) - 2
    batch: list[int] = []
    steps: list[tuple[int, int]] = []
    for back in range(count, 0, -1):
        sizes = [
            (v.shape[-2 - back], v.strides[-2 - back]) if len(v.shape) >= 2 + back else (1, 0)
            for v in (one, two)
        ]
        batch.append(sizes[0][0] if sizes[1][0] == 1 else sizes[1][0])
        steps.append(
            (sizes[0][1] if sizes[0][0] != 1 else 0, sizes[1][1] if sizes[1][0] != 1 else 0)
        )
    if not is_zero(m) and batch and all(is_zero(step) for _, step in steps):
        return _rows_together(one, two, batch, dtype_of(node.inputs[0]), vector_a, vector_b)
    first = Operand(tuple(s for s, _ in steps), one.strides[-2], one.strides[-1], one.offset)
    second = Operand(tuple(s for _, s in steps), two.strides[-2], two.strides[-1], two.offset)
    product = Product(m, n, k, dtype_of(node.inputs[0]), first, second, tuple(batch))

    def axes(place: Map) -> tuple[tuple[int, ...], ...]:
        parts = list(place)
        columns = () if vector_b else parts.pop()
        rows = () if vector_a else parts.pop()
        return (*parts, rows, columns)

    return product, axes


@dataclass(frozen=True, slots=True)
class _Run:
    """Dimensions of an operand, from outer to inner, whose elements are at one stride: the
    dimensions, their number of elements, the stride."""

    dims: tuple[int, ...]
    size: int
    step: int


def _runs(view: View) -> list[_Run]:
    """All dimensions of a matrix except its columns, in runs; larger strides come first."""
    dims = [i for i in range(len(view.shape) - 1) if view.shape[i] != 1]
    dims.sort(key=lambda i: -typical(view.strides[i]))
    runs: list[_Run] = []
    for i in reversed(dims):
        size, step = view.shape[i], view.strides[i]
        inner = runs[-1] if runs else None
        if inner is not None and step == inner.size * inner.step:
            runs[-1] = _Run((i, *inner.dims), size * inner.size, inner.step)
        else:
            runs.append(_Run((i,), size, step))
    return runs[::-1] or [_Run((len(view.shape) - 2,), 1, view.strides[-2])]


def _rows_together(
    one: View, two: View, batch: list[int], dtype: DType, vector_a: bool, vector_b: bool
) -> tuple[Product, Axes]:
    """Merge batch dimensions that only a has into the rows of one product, in memory order."""
    whole = broadcast_view(one, (*batch, *one.shape[-2:]))
    assert whole is not None
    runs = _runs(whole)
    near = [run for run in runs if run.step == 1] if one.strides[-1] != 1 else []
    rows = max(near or runs, key=lambda run: typical(run.size))
    others = [run for run in runs if run is not rows]
    first = Operand(tuple(run.step for run in others), rows.step, one.strides[-1], one.offset)
    second = Operand((0,) * len(others), two.strides[-2], two.strides[-1], two.offset)
    k, n = two.shape[-2:]
    product = Product(rows.size, n, k, dtype, first, second, tuple(run.size for run in others))

    def axes(place: Map) -> tuple[tuple[int, ...], ...]:
        parts = list(place)
        columns = () if vector_b else parts.pop()
        parts += [()] if vector_a else []
        return (
            *(tuple(axis for i in run.dims for axis in parts[i]) for run in (*others, rows)),
            columns,
        )

    return product, axes
