"""The rules of `jvp`, `linearize` and `vmap` for nodes of control flow.

Nested graphs are closed, so the transform of a node is a node with transformed graphs. That node is
called on the level below, where the next transform is applied to it. At the bottom a graph is
recorded, and the last node is added to it.

`run` runs nested graphs on a level of their own. For conditions that differ between the elements of
a `vmap`, see `weft.autodiff.transforms.control`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from weft.autodiff.gradient_flow import active_results, is_smooth
from weft.autodiff.transforms.forward import ForwardLevel, LinearLevel
from weft.autodiff.transforms.levels import Level, Unlowered
from weft.autodiff.transforms.lowering import LoweredNode
from weft.autodiff.transforms.vmap import MapLevel, vmap
from weft.autodiff.transforms.whole_call import call_whole, spreads
from weft.base.errors import CaptureError
from weft.core.bind import recorder
from weft.core.grad_mode import mode
from weft.core.tensor import Tensor
from weft.ir.graph import Node
from weft.record.control.batch_rules import PathsDiffer, batched
from weft.record.control.closed import LevelRunner
from weft.record.control.dual_rules import Dual
from weft.record.control.node import emit
from weft.record.recorder import GraphRecorder


def call_control(node: Node, operands: Sequence[Tensor], run: LevelRunner) -> list[Tensor]:
    """The results of a node of control flow on the innermost level, for these operands."""
    here = recorder()
    if isinstance(here, GraphRecorder):
        graphs = [graph.clone() for graph in node.graphs]
        return emit(here, node.op, operands, graphs, dict(node.attrs), location=node.location)
    if not isinstance(here, Level):
        raise CaptureError("control flow of a graph is called where no graph is recorded")
    lowering = LoweredNode(here)
    try:
        lowering.look(operands)
    except Unlowered:
        if not isinstance(here, MapLevel):
            raise
        return _with_history(here, node, operands, run)
    return [lowering.marked(x) for x in _on_level(lowering, node, operands, run)]


def _with_history(
    level: MapLevel, node: Node, operands: Sequence[Tensor], run: LevelRunner
) -> list[Tensor]:
    """A node in a `vmap` whose results need a history: one call on the level."""
    spread = [spreads(level, x) for x in operands]

    def whole(below: Sequence[Tensor]) -> list[Tensor]:
        axes = tuple([0 if on else None for on in spread])
        found: list[Tensor] = vmap(lambda *x: call_control(node, x, run), axes)(*below)
        return found

    return call_whole(level, whole, operands, spread)


def _on_level(
    lowering: LoweredNode, node: Node, operands: Sequence[Tensor], run: LevelRunner
) -> list[Tensor]:
    level = lowering.level
    if isinstance(level, MapLevel):
        region = level.region
        with contextlib.suppress(PathsDiffer), lowering.below():
            given = list(operands) if region is None else [region.entered(x) for x in operands]
            mapped = [level.mapped(x) for x in given]
            given = [level.below(x) for x in given]
            results, flags = batched(level.size, node, given, mapped, run, call_control)
            return [level.element(x, on) for x, on in zip(results, flags, strict=True)]
        return run.differing(node, operands)
    assert isinstance(level, ForwardLevel)
    values = [level.below(x) for x in operands]
    tangents = [level.tangent(x) if mode.enabled else None for x in operands]
    pairs = zip(tangents, node.inputs, strict=True)
    tangents = [t if is_smooth(value.type) else None for t, value in pairs]
    with lowering.below():
        if isinstance(level, LinearLevel):
            return _linear(level, node, values, tangents, run)
        results, moved = Dual(node, tangents, run).call(values, tangents, call_control)
    return list(map(level.dual, results, moved))


def _linear(
    level: LinearLevel, node: Node, values: list[Tensor], places: list[Any], run: LevelRunner
) -> list[Tensor]:
    """The results. The linear map is noted: a node that carries tangents."""
    results = call_control(node, values, run)
    active = active_results(node, [place is not None for place in places])
    if True not in active:
        return [level.dual(x) for x in results]

    def push(given: Sequence[Tensor | None]) -> list[Tensor | None]:
        return Dual(node, given, run).call(values, given, call_control)[1]

    return list(map(level.dual, results, level.note(push, places, active)))
