"""Kernels of pooling nodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from weft.base import dtypes
from weft.base.dims import has_dims, is_zero
from weft.base.errors import UnknownSizeError
from weft.codegen.conv.element import PlainStore, element_of
from weft.codegen.conv.sized import LONGEST
from weft.codegen.kernel import Kernel, Store
from weft.codegen.pool.backward import emit_backward
from weft.codegen.pool.forward import LARGEST, SUM, emit_fold
from weft.codegen.pool.problem import ITEMS, Pooling, merged_windows
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
    """The pooling of a tensor; None if there is no code for the dtype, or nothing to compute.

    With an epilogue, vectors do not run from one row of the result into the next.
    """
    types = [value.tensor_type for value in (*node.inputs, *node.outputs)]
    if any(is_zero(size) for t in types for size in t.shape):
        return None
    element = element_of(elements.dtype, module.machine)
    if element is None:
        return None
    kernel, stride, padding = (node.attrs[word] for word in ("kernel", "stride", "padding"))
    dilation = node.attrs.get("dilation", (1,) * len(kernel))
    axes = elements.ndim - len(kernel)
    before, sizes = elements.shape[:axes], elements.shape[axes:]
    low = tuple(pair[0] for pair in padding)
    if has_dims((*dilation, *low)):
        raise UnknownSizeError(f"a pooling has dilation {dilation} and padding {low}")
    windows = windows_of(sizes, kernel, stride, dilation, padding)
    if store is None:
        windows = merged_windows(windows)
    channels = before[-1] if before else 1
    for size in (size for w in windows for size in (w.size, w.out, w.taps) if has_dims((size,))):
        module.sizes.need(LONGEST - size)
    items = module.machine.parts(ITEMS)
    return Pooling(math.prod(before[:-1]), channels, windows, element, items)


@dataclass(frozen=True, slots=True)
class _Card:
    """
    make       the kernels, from the problem and the store
    of_result  whether windows cover the result, as in derivatives; else the result has one
               element for each window
    numbers    whether the result is indices, as int64
    """

    make: Callable[[Module, str, Pooling, Store], list[Kernel]]
    of_result: bool = False
    numbers: bool = False

    def __call__(
        self, module: Module, name: str, node: Node, store: Store | None = None
    ) -> list[Kernel] | None:
        values = node.outputs if self.of_result else node.inputs
        problem = _problem(module, node, values[0].tensor_type, store)
        if problem is None:
            return None
        element = element_of(dtypes.int64, module.machine) if self.numbers else problem.element
        if element is None:
            return None
        sizes = (problem.batch, problem.channels, problem.size if self.of_result else problem.out)
        return self.make(
            module, name, problem, store or PlainStore(element, len(node.inputs), sizes)
        )


#: For each card: `emit(module, name, node, store=None)`, its kernels, or None. A store is given the
#: index (all axes before the channels as one, channel, position among all spatial ones).
EMITTERS: dict[str, Emitter] = {
    "max_pool": _Card(partial(emit_fold, fold=LARGEST)),
    "max_pool_indices": _Card(emit_indices, numbers=True),
    "max_pool_input": _Card(partial(emit_backward, largest=True), of_result=True),
    "max_pool_pick": _Card(emit_pick),
    "sum_pool": _Card(partial(emit_fold, fold=SUM)),
    "sum_pool_input": _Card(partial(emit_backward, largest=False), of_result=True),
}
