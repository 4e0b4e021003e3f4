"""Runs the graph of a saved program: with gradients, inside of a recording, or of a transform."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from weft.autodiff.transforms.levels import innermost_level
from weft.base.asked_sizes import SizeFact
from weft.base.asked_sizes import same_shape as same_sizes
from weft.base.dims import bind_dims
from weft.capture.trace.new_leaves import make_leaves
from weft.capture.trace.result_leaves import result_of
from weft.core.autocast import as_recorded
from weft.core.bind import bind
from weft.core.bind import written as announce_write
from weft.core.grad_mode import no_grad
from weft.core.number import number
from weft.core.tensor import Tensor
from weft.ir.graph import Graph
from weft.ir.interpret import interpret
from weft.ir.signature import NONE, SAME, Given, Signature
from weft.ir.types import TensorType
from weft.ops.cards import IDENTITY
from weft.ops.identity import detached
from weft.record.control.nested import graph_recorder
from weft.record.control.node import replay, with_sizes
from weft.record.control.on_level import call_graph

__all__ = ["Routine", "run_routine"]


@dataclass(frozen=True, eq=False)
class Routine:
    """A graph and what becomes of its inputs and outputs.

    grads   for places that hold the gradient of the tensor at another place: that place
    freed   outputs whose histories a backward pass of the function has freed
    learns  places whose tensors required gradients; where the function writes gradients, they must
    facts   what the code asked of symbolic sizes: the graph is right only where it holds
    """

    graph: Graph
    signature: Signature
    grads: dict[int, int]
    freed: frozenset[int] = frozenset()
    learns: frozenset[int] = frozenset()
    facts: tuple[SizeFact, ...] = ()

    @cached_property
    def writes_gradients(self) -> bool:
        """Whether the function has called backward."""
        writes = self.signature.writes
        return any(write.grad != SAME or write.place in self.grads for write in writes)

    @cached_property
    def tensors(self) -> list[int]:
        """The places that hold no gradients: of the inputs, then of the state."""
        return [i for i in range(len(self.signature.places)) if i not in self.grads]


def run_routine(routine: Routine, given: Sequence[Tensor]) -> Any:
    """The result, from the tensors at the places that hold no gradients; also does the writes."""
    signature = routine.signature
    objects = dict(zip(routine.tensors, given, strict=True))

    def at(place: int) -> Any:
        of = routine.grads.get(place)
        return objects[place] if of is None else objects[of].grad

    inputs = [at(place) for place in signature.inputs]
    if routine.freed and routine.freed >= set(signature.tracked):
        with no_grad():
            made = _outputs(routine.graph, inputs)
    else:
        made = _outputs(routine.graph, inputs)
    for i in routine.freed:
        made[i] = detached(made[i])
    for i, value in enumerate(routine.graph.outputs):
        if value.node is None:  # an input: the result is another tensor with its value
            made[i] = bind(IDENTITY, made[i])
    make_leaves(signature.new_leaves, made, at)
    result = result_of(signature, made, at, _number)
    _write(signature, made, at)
    return result


def _outputs(graph: Graph, inputs: list[Tensor]) -> list[Tensor]:
    if innermost_level() is not None:
        return call_graph(graph, inputs)
    here = graph_recorder()
    if here is None:
        with as_recorded():
            return interpret(graph, inputs, bind)
    sizes: dict[str, int] = {}
    for value, x in zip(graph.inputs, inputs, strict=True):
        kind = value.type
        if isinstance(kind, TensorType) and not same_sizes(kind.shape, x.shape):
            bind_dims(kind.shape, x.shape, sizes)
    return replay(here, with_sizes(graph, sizes), inputs)


def _number(tensor: Tensor) -> Any:
    """A Python number that the graph has computed."""
    return tensor.numpy().item() if graph_recorder() is None else number(detached(tensor))


def _write(signature: Signature, made: Sequence[Tensor], at: Any) -> None:
    found = [
        (write, at(write.place), at(write.grad.place) if isinstance(write.grad, Given) else None)
        for write in signature.writes
    ]
    for write, target, other in found:
        if write.value is not None:
            announce_write(target)
            target._data = made[write.value]._data
            if write.history:
                target._node = made[write.value]._node
        if write.grad == SAME:
            continue
        grad = made[write.grad] if isinstance(write.grad, int) else other
        target.grad = None if write.grad == NONE or grad is None else detached(grad)
