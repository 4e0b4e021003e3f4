"""Matrix products of a graph as products of matrices that lie somewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from weft.codegen import matmul
from weft.codegen.epilogue import Epilogue
from weft.codegen.kernel import Kernel
from weft.codegen.loops.access import dtype_of
from weft.codegen.matmul import Operand, Product
from weft.codegen.tables import PRODUCTS
from weft.codegen.text import Module
from weft.ir.graph import Value
from weft.schedule.axes import Map
from weft.schedule.groups import Group, Leaf
from weft.schedule.views import View

__all__ = ["emit_product"]


def emit_product(
    module: Module, name: str, group: Group, places: Mapping[Value, int]
) -> list[Kernel] | None:
    """The kernels of a product and what follows it in registers."""
    node = group.nodes[0]
    emit = PRODUCTS[node.op.name]
    place = group.places[node]
    if emit is not None:
        # A convolution counts (image, channel, position): all spatial axes are one.
        spatial = tuple(axis for part in place[2:] for axis in part)
        return emit(module, name, node, Epilogue(group, places, (*place[:2], spatial)))  # type: ignore[no-any-return]
    product, axes = _product(group)
    a, b = _leaves(group)
    store = Epilogue(group, places, axes(place))
    scratch = len(group.operands[node]) + len(node.outputs)  # after them: see GraphCode
    return matmul.emit(module, name, product, places[a.root], places[b.root], store, scratch)


def _leaves(group: Group) -> list[Leaf]:
    return [op for op in group.operands[group.nodes[0]] if isinstance(op, Leaf)]


Axes = Callable[[Map], tuple[tuple[int, ...], ...]]


def _product(group: Group) -> tuple[Product, Axes]:
    """The product, and which axes of the group's space its indices run along."""
    node = group.nodes[0]
    a, b = _leaves(group)
    one, two = a.view, b.view
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
        batch.append(max(size for size, _ in sizes))
        steps.append(
            (sizes[0][1] if sizes[0][0] != 1 else 0, sizes[1][1] if sizes[1][0] != 1 else 0)
        )
    # A stack that only a walks through is more rows of one product.
    if batch and m and all(step == 0 for _, step in steps) and _runs_on(one, batch, steps, m):
        rows = m
        for size in batch:
            rows *= size
        merged = len(batch)
        first = Operand(
            (), one.strides[-2] if m > 1 else _last(steps, one), one.strides[-1], one.offset
        )
        second = Operand((), two.strides[-2], two.strides[-1], two.offset)
        product = Product(rows, n, k, dtype_of(node.inputs[0]), first, second, ())

        def axes_merged(place: Map) -> tuple[tuple[int, ...], ...]:
            rows_axes = tuple(axis for part in place[: merged + (not vector_a)] for axis in part)
            columns = () if vector_b else place[-1]
            return (rows_axes, columns)

        return product, axes_merged
    first = Operand(tuple(s for s, _ in steps), one.strides[-2], one.strides[-1], one.offset)
    second = Operand(tuple(s for _, s in steps), two.strides[-2], two.strides[-1], two.offset)
    product = Product(m, n, k, dtype_of(node.inputs[0]), first, second, tuple(batch))

    def axes(place: Map) -> tuple[tuple[int, ...], ...]:
        parts = list(place)
        columns = () if vector_b else parts.pop()
        rows = () if vector_a else parts.pop()
        return (*parts, rows, columns)

    return product, axes


def _last(steps: list[tuple[int, int]], view: View) -> int:
    return steps[-1][0] or view.strides[-2]


def _runs_on(view: View, batch: list[int], steps: list[tuple[int, int]], m: int) -> bool:
    """Whether the rows of all matrices of a stack follow each other at one step."""
    if m == 1:
        step, size = steps[-1][0], batch[-1]
        rest = list(zip(batch[:-1], steps[:-1], strict=True))
    else:
        step, size = view.strides[-2], m
        rest = list(zip(batch, steps, strict=True))
    reach = step * size
    for count, (stride, _) in reversed(rest):
        if stride != reach:
            return False
        reach *= count
    return step != 0
