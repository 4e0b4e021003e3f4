"""Kernels of the nodes conv, conv_bias, conv_input and conv_weight."""

from __future__ import annotations

import math

from weft.base.dims import has_dims, is_zero
from weft.base.errors import UnknownSizeError
from weft.base.shapes import Shape
from weft.codegen.conv.core import Places, core_room, emit_core
from weft.codegen.conv.element import Element, PlainStore, element_of
from weft.codegen.conv.geometry import backward_axis, forward_axis, merged
from weft.codegen.conv.plan import Problem
from weft.codegen.conv.weight import emit_weight
from weft.codegen.conv.weight_plan import WeightProblem
from weft.codegen.index import minimum
from weft.codegen.kernel import PARAMS, Kernel, Store, argument
from weft.codegen.machine import Machine
from weft.codegen.text import Module
from weft.ir.graph import Node
from weft.ops.windows import Window, windows_of

__all__ = ["emit_conv", "emit_conv_input", "emit_conv_weight", "room_of"]


def _element(machine: Machine, node: Node) -> Element | None:
    """How elements are summed; None if there is no code for the dtype, or nothing to compute."""
    types = [value.tensor_type for value in (*node.inputs, *node.outputs)]
    if any(is_zero(size) for t in types for size in t.shape):
        return None
    return element_of(types[0].dtype, machine)


def _hold_fixed(node: Node, *sizes: int) -> None:
    """Raise an error if sizes of the run are among these: channels, taps, and how taps lie. Only
    the batch and the spatial sizes may be."""
    low = [pair[0] for pair in node.attrs["padding"]]
    for size in (*sizes, *node.attrs["stride"], *node.attrs["dilation"], *low):
        if has_dims((size,)):
            raise UnknownSizeError(
                f"a convolution has channels, a kernel, steps or padding of size {size}"
            )


def _windows(node: Node, sizes: Shape, kernel: Shape) -> tuple[Window, ...]:
    attrs = node.attrs
    return windows_of(sizes, kernel, attrs["stride"], attrs["dilation"], attrs["padding"])


def emit_conv(
    module: Module, name: str, node: Node, store: Store | None = None
) -> list[Kernel] | None:
    """conv(x, weight) and conv_bias(x, weight, bias)."""
    element = _element(module.machine, node)
    if element is None:
        return None
    # With an epilogue, vectors do not run from one row into the next.
    problem = _forward(node, merge=store is None)
    bias = 2 if len(node.inputs) == 3 else None
    return _core(module, name, node, problem, element, bias, store)


def room_of(machine: Machine, node: Node) -> int:
    """How many bytes of local memory a convolution with an epilogue takes; 0 if there is none."""
    element = _element(machine, node)
    if has_dims(node.inputs[0].tensor_type.shape[2:]):
        return 0
    return 0 if element is None else core_room(_forward(node, merge=False), element, machine)


def _forward(node: Node, *, merge: bool) -> Problem:
    x, weight = (value.tensor_type.shape for value in node.inputs[:2])
    groups = node.attrs["groups"]
    outputs, channels, *kernel = weight
    _hold_fixed(node, *weight)
    axes = [forward_axis(w) for w in _windows(node, x[2:], tuple(kernel))]
    if merge:
        axes = merged(axes)
    taps = math.prod(kernel)
    results = outputs // groups
    return Problem(
        x[0],
        groups,
        channels,
        results,
        tuple(axes),
        (results * channels * taps, channels * taps, taps),
    )


def emit_conv_input(
    module: Module, name: str, node: Node, store: Store | None = None
) -> list[Kernel] | None:
    """conv_input(g, weight): the transpose of conv."""
    element = _element(module.machine, node)
    if element is None:
        return None
    g, weight = (value.tensor_type.shape for value in node.inputs)
    groups = node.attrs["groups"]
    outputs, channels, *kernel = weight
    _hold_fixed(node, *weight)
    axes = [backward_axis(w) for w in _windows(node, node.attrs["size"], tuple(kernel))]
    if store is None:
        axes = merged(axes)
    taps = math.prod(kernel)
    sources = outputs // groups
    problem = Problem(
        g[0],
        groups,
        sources,
        channels,
        tuple(axes),
        (sources * channels * taps, taps, channels * taps),
        transposed=True,
    )
    return _core(module, name, node, problem, element, None, store)


def emit_conv_weight(
    module: Module, name: str, node: Node, store: Store | None = None
) -> list[Kernel] | None:
    """conv_weight(x, g); it takes no epilogue."""
    element = _element(module.machine, node)
    if element is None or store is not None:
        return None
    x, g = (value.tensor_type.shape for value in node.inputs)
    groups, size = node.attrs["groups"], node.attrs["size"]
    _hold_fixed(node, x[1], g[1], *size)
    axes = merged([forward_axis(w) for w in _windows(node, x[2:], size)])
    problem = WeightProblem(x[0], groups, g[1] // groups, x[1] // groups, tuple(axes))
    return emit_weight(module, name, problem, element)


def _core(
    module: Module,
    name: str,
    node: Node,
    problem: Problem,
    element: Element,
    bias: int | None,
    store: Store | None,
) -> list[Kernel] | None:
    place = len(node.inputs)
    if store is None:
        sizes = (problem.batch, problem.groups * problem.results, problem.volume)
        store = PlainStore(element, place, sizes)
    if element.dtype is element.sums:
        made = emit_core(module, name, problem, element, Places(0, 1, bias), store)
        return None if made is None else [made]
    # Narrow weights are widened once, for all items.
    scratch = place + 1
    count = node.inputs[1].tensor_type.size
    kernel = emit_core(module, name, problem, element, Places(0, scratch, bias), store)
    if kernel is None:
        return None
    widened = _widen(module, f"{name}.weights", element, count, scratch)
    room = count * element.width
    return [
        Kernel(widened.name, widened.items, widened.cost, room),
        Kernel(kernel.name, kernel.items, kernel.cost, room),
    ]


def _widen(module: Module, name: str, element: Element, count: int, scratch: int) -> Kernel:
    """Copy weights (position 1) to scratch memory in the accumulator's dtype."""
    part = 1024
    f = module.function(name, "i32", PARAMS)
    weight, wide = argument(f, 1, element.memory), argument(f, scratch, element.kind)
    stop = minimum(f.index("%end") * part, count)
    with f.loop(f.index("%begin") * part, stop) as i:
        value = element.load(f, weight + i, 1)
        element.put(f, wide + i, value, 1)
    f.do("ret i32 0")
    return Kernel(name, -(-count // part), part * 0.5)
