"""Control flow inside of a transform (`vmap`, `jvp`, …) that is itself recorded as a graph.

The value of a condition is not known there. So the construct is first recorded as a graph of its
own, whose inputs are tensors of the level. Then the rules of the transform run this graph on the
level: see `level_rules`. A backward through control flow of the level below, as in `jacrev`, does
the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft.autodiff.gradient_reach import has_gaps
from weft.autodiff.node import tensor_of
from weft.autodiff.transforms.graphs import GraphRun
from weft.autodiff.transforms.levels import LevelArray, Unlowered, innermost_level
from weft.autodiff.transforms.lowering import LowerOrAsk
from weft.base.pytree import tree_flatten, tree_unflatten
from weft.core.symbolic import SymbolicArray
from weft.core.tensor import Tensor, labelled
from weft.ir.graph import Graph, Value
from weft.record.control.closed import LevelRunner, bottom_recorder, value_type
from weft.record.control.nested import NestedRecorder, assign_states, close, recorded_level
from weft.record.recorder import GraphRecorder

#: Runs a graph on the innermost level. `weft/wiring.py` sets it to `level_run.RUN`.
_runs: list[LevelRunner] = []


def use_run(run: LevelRunner) -> None:
    _runs[:] = [run]


class LevelNested(NestedRecorder):
    """Records op calls of a level; it may capture tensors of levels."""

    def __init__(self, parent: GraphRecorder, name: str) -> None:
        super().__init__(parent, name)
        self._of_levels: dict[int, tuple[Tensor, Value]] = {}  # by id of the array

    def value_of(self, tensor: Tensor) -> Value:
        data = tensor._data
        if not isinstance(data, LevelArray):
            return super().value_of(tensor)
        known = self._of_levels.get(id(data))
        if known is None:
            known = self._of_levels[id(data)] = (tensor, Value(value_type(tensor)))
        key = (known[1], tensor._node)
        found = self.captured.get(key)
        if found is None:
            found = self.captured[key] = (tensor_of(data, tensor._node), Value(known[1].type))
            if gappy(tensor):
                self.with_gaps.add(found[1])
        return found[1]


def below_levels(tensor: Tensor) -> Iterator[SymbolicArray]:
    """The values of graphs that a tensor of levels stands for: its value, and its tangents."""
    waiting: list[Any] = [tensor]
    while waiting:
        x = waiting.pop()
        data = x._data if isinstance(x, Tensor) else None
        if isinstance(data, SymbolicArray):
            yield data
        elif isinstance(data, LevelArray):
            waiting += (data.tensor, getattr(data, "tangent", None))


def gappy(tensor: Tensor) -> bool:
    """Whether a cotangent of a level is zeros for iterations that nobody used: `has_gaps`."""
    return any(has_gaps(data.value, data.recorder.with_gaps) for data in below_levels(tensor))


def mark_gaps(tensor: Tensor) -> None:
    for data in below_levels(tensor):
        data.recorder.with_gaps.add(data.value)


def call_graph(graph: Graph, inputs: Sequence[Tensor]) -> list[Any]:
    """The outputs of a graph on the innermost level, with control flow recorded if need be."""
    level = recorded_level()
    if level is not None:
        with LowerOrAsk(level):
            return _runs[0](graph, inputs)
    return GraphRun(graph).outputs(inputs)


def on_level(construct: Callable[[], Any]) -> Any:
    """The result of a construct on the innermost level: record it, then run its graph there."""
    parent, level = bottom_recorder(), innermost_level()
    assert parent is not None
    assert level is not None
    nested = LevelNested(parent, "on_level")
    with nested.opened():
        leaves, spec = tree_flatten(construct())
        states = nested.changes()
        ends = [state.now() for state in states]
        keeps = [nested.kept_node(state) for state in states]
        kept = [x for x in [*leaves, *ends] if isinstance(x, Tensor)]
        nested.graph.outputs = tuple([nested.value_of(x) for x in kept])
    if any(end is None for end in ends):  # a gradient is removed
        raise Unlowered(level)
    operands = close([nested])
    gaps = [has_gaps(value, nested.with_gaps) for value in nested.graph.outputs]
    results = _runs[0](nested.graph, operands)
    for x, on in zip(results, gaps, strict=True):
        if on:
            mark_gaps(x)
    found = iter(results)
    made = [labelled(next(found), x._result_class) if isinstance(x, Tensor) else x for x in leaves]
    assign_states(states, list(found), keeps)
    return tree_unflatten(spec, made)


def python_effects() -> int:
    """The number of writes to Python objects that were recorded so far."""
    here = bottom_recorder()
    return 0 if here is None else here.python_effects()
