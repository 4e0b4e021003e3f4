"""Histories from outside that a backward pass inside of a recorded run reaches.

Hooks of a tensor from outside are guarded and followed like other user code. A backward pass that
continues into ops from outside depends on how these were computed, which no guard can check: such a
run is refused.
"""

from __future__ import annotations

from typing import Any

from weft.autodiff.node import Node, count, hooks_of
from weft.capture.hooks import Hooks
from weft.capture.watch.calls import callable_for
from weft.capture.watch.refusals import NotKept
from weft.capture.watch.watch import Watch
from weft.core.tensor import Tensor
from weft.ir.graph import Graph
from weft.record.recorder import GraphRecorder


class HistoryRecorder(GraphRecorder):
    """The part of a recorder that checks histories from outside."""

    watch: Watch

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._began = next(count)  # histories with lower numbers are from outside

    def met(self, node: Node, goes_on: bool) -> None:
        if node.number > self._began:
            return
        if goes_on:
            # Before it frees them: then Python runs the call.
            raise NotKept("a backward pass continues into ops from outside")
        tensor = self._tensor_of(node)
        if (tensor is None or not self.watch.hooks(tensor, node)) and hooks_of(node):
            self.refuse("a tensor that was not reached from outside has a hook")

    def _tensor_of(self, node: Any) -> Tensor | None:
        """The tensor from outside that has this history."""
        if node.is_leaf:
            found: Tensor | None = node.variable
            return found
        return next((x for x, _ in self._lifted.values() if x._node is node), None)

    def followed(self, function: Any) -> Any:
        if not self.watch.active:
            return function
        return callable_for(Hooks(self.watch, None), function)
