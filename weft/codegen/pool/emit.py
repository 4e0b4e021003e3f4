"""From nodes of the graph to kernels of pooling."""

from __future__ import annotations

import math
from collections.abc import Callable

from weft.base import dtypes
from weft.codegen.conv.element import Element, PlainStore, element_of
from weft.codegen.kernel import Kernel, Store
from weft.codegen.pool.forward import LARGEST, SUM, Fold, emit_fold
from weft.codegen.pool.problem import Pooling, merged_windows
from weft.codegen.pool.spread import emit_spread
from weft.codegen.pool.winners import emit_indices, emit_pick
from weft.codegen.text import Module
from weft.ir.graph import Node
from weft.ir.types import TensorType
from weft.ops.windows import windows_of

__all__ = ["EMITTERS"]

Emitter = Callable[[Module, str, Node, Store | None], list[Kernel] | None]


def _problem(
    module: Module, node: Node, elements: TensorType, store: Store | None
) -> Pooling | None:
    """The pooling of a tensor; None where there is no code: for a dtype, or for nothing.

    To an epilogue, lanes do not go on from one row of the result to the next.
    """
    types = [value.tensor_type for value in (*node.inputs, *node.outputs)]
    if any(not isinstance(size, int) or size == 0 for t in types for size in t.shape):
        return None
    element = element_of(elements.dtype, module.target)
    if element is None:
        return None
    kernel, stride, padding = (node.attrs[word] for word in ("kernel", "stride", "padding"))
    dilation = node.attrs.get("dilation", (1,) * len(kernel))
    axes = elements.ndim - len(kernel)
    before, sizes = elements.shape[:axes], elements.shape[axes:]
    windows = windows_of(sizes, kernel, stride, dilation, padding)
    if store is None:
        windows = merged_windows(windows)
    channels = before[-1] if before else 1
    return Pooling(math.prod(before[:-1]), channels, windows, element)


def _store(node: Node, problem: Pooling, element: Element, positions: int) -> Store:
    sizes = (problem.batch, problem.channels, positions)
    return PlainStore(element, len(node.inputs), sizes)


def _fold(fold: Fold) -> Emitter:
    def emit(
        module: Module, name: str, node: Node, store: Store | None = None
    ) -> list[Kernel] | None:
        problem = _problem(module, node, node.inputs[0].tensor_type, store)
        if problem is None:
            return None
        result = store or _store(node, problem, problem.element, problem.out)
        return [emit_fold(module, name, problem, fold, result)]

    return emit


def _spread(largest: bool) -> Emitter:
    def emit(
        module: Module, name: str, node: Node, store: Store | None = None
    ) -> list[Kernel] | None:
        problem = _problem(module, node, node.outputs[0].tensor_type, store)
        if problem is None:
            return None
        result = store or _store(node, problem, problem.element, problem.size)
        return emit_spread(module, name, problem, largest, result)

    return emit


def _emit_pick(
    module: Module, name: str, node: Node, store: Store | None = None
) -> list[Kernel] | None:
    problem = _problem(module, node, node.inputs[0].tensor_type, store)
    if problem is None:
        return None
    result = store or _store(node, problem, problem.element, problem.out)
    return [emit_pick(module, name, problem, result)]


def _emit_indices(
    module: Module, name: str, node: Node, store: Store | None = None
) -> list[Kernel] | None:
    problem = _problem(module, node, node.inputs[0].tensor_type, store)
    numbers = element_of(dtypes.int64, module.target)
    if problem is None or numbers is None:
        return None
    result = store or _store(node, problem, numbers, problem.out)
    return [emit_indices(module, name, problem, result)]


#: For each card: `emit(module, name, node, store=None)`, its kernels, or None. A store is given the
#: index (all axes before the channels as one, channel, position among all spatial ones).
EMITTERS: dict[str, Emitter] = {
    "max_pool": _fold(LARGEST),
    "max_pool_indices": _emit_indices,
    "max_pool_input": _spread(True),
    "max_pool_pick": _emit_pick,
    "sum_pool": _fold(SUM),
    "sum_pool_input": _spread(False),
}
