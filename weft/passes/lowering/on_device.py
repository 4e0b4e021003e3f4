"""Values of control flow on one device: numbers on the CPU that a loop computes join it there."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from weft.base.device import CPU, Device
from weft.ir.graph import Builder, Graph, Node, Value
from weft.ir.types import StackType, TensorType, Type
from weft.ops.cards import TO_DEVICE

__all__ = ["on_device"]


def on_device(graph: Graph, device: Device) -> tuple[Graph, set[int]]:
    """The graph with all that nested graphs compute on a device, and all that is computed from it;
    and the numbers of outputs that are there now, and were on the CPU."""
    builder = Builder(graph, nested=functools.partial(_nested, device=device))
    moved: set[Value] = set()
    given: dict[Value, Value] = {}  # constants that control flow takes
    for node in graph.nodes:
        if not node.graphs and moved.isdisjoint(node.inputs):
            builder.copy(node)
            continue
        moved.update(value for value in node.outputs if _is_host(value))
        for value in node.inputs:
            if node.graphs and _is_host(builder[value]) and value.node and not value.node.inputs:
                constant = _copy(builder, value.node, device)  # there, too: made once more
                given.update(zip(value.node.outputs, constant, strict=True))
        _copy(builder, node, device, [given.get(value, builder[value]) for value in node.inputs])
    outputs = {number for number, value in enumerate(graph.outputs) if value in moved}
    return builder.finish(), outputs


def _nested(graph: Graph, device: Device) -> Graph:
    builder = Builder(graph, nested=functools.partial(_nested, device=device))
    for value in builder.graph.inputs:
        value.type = _there(value.type, device)
    for node in graph.nodes:
        _copy(builder, node, device)
    return builder.finish()


def _copy(
    builder: Builder, node: Node, device: Device, inputs: Sequence[Value] | None = None
) -> tuple[Value, ...]:
    """The same node on the device; its results."""
    if node.op is TO_DEVICE and not _is_host(builder[node.inputs[0]]):
        builder.forward(node.outputs, [builder[node.inputs[0]]])
        return (builder[node.inputs[0]],)
    made = builder.copy(node, inputs)
    if "device" in made.attrs:
        made.attrs = made.attrs | {"device": device}
    for value in made.outputs:
        value.type = _there(value.type, device)
    return made.outputs


def _is_host(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.device == CPU


def _there(kind: Type, device: Device) -> Any:
    if isinstance(kind, StackType):
        return StackType(_there(kind.element, device))
    return dataclasses.replace(kind, device=device) if isinstance(kind, TensorType) else kind
