"""The history of a function of several ops that ran as one kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.autodiff.api import grad
from weft.autodiff.node import FREED, Node, count, data_of, freed, locate, tensor_of
from weft.autodiff.tape import anomaly
from weft.core.bind import recorder
from weft.core.grad_mode import enable_grad, mode
from weft.core.tensor import Tensor, wrap
from weft.ops.identity import detached

__all__ = ["CompositeNode", "note_composite"]

#: (node, g, wanted) -> one gradient per input, or None if there is no kernel for them.
Kernel = Callable[[Any, Any, Any], "list[Any] | None"]


class CompositeNode(Node):
    """One call of such a function. It keeps its inputs: the backward computes the rest again.

    function   of the tensors
    kernel     the gradients on arrays
    """

    __slots__ = ("function", "kept", "kernel", "label")

    function: Callable[..., Tensor]
    kernel: Kernel
    kept: Any  # the arrays of the inputs
    label: str

    def name(self) -> str:
        return "".join(part.capitalize() for part in self.label.split("_")) + "Backward"

    def forward_name(self) -> str:
        return self.label

    def frees(self) -> bool:
        return True

    def apply(
        self, g: Any, create: bool, keep: bool, wanted: tuple[bool, ...] | None
    ) -> Sequence[Any]:
        if self.kept is FREED:
            raise freed(self.name())
        grads: Sequence[Any] | None = None
        if not create and g.__class__ is np.ndarray and recorder() is None:
            grads = self.kernel(self, g, wanted)
        if grads is None:
            grads = self._by_ops(g, create, wanted)
        if not keep:
            self.kept = FREED
        return grads

    def _by_ops(self, g: Any, create: bool, wanted: tuple[bool, ...] | None) -> list[Any]:
        """By the ops of the function, on the tape."""
        asked = [
            edge is not None and (wanted is None or wanted[number])
            for number, edge in enumerate(self.edges)
        ]
        with enable_grad():
            given = [tensor_of(x, edge) for x, edge in zip(self.kept, self.edges, strict=True)]
            if create:  # the way goes on behind the inputs
                given = [x.clone() if yes else x for x, yes in zip(given, asked, strict=True)]
            else:
                given = [detached(x) for x in given]
                for x, yes in zip(given, asked, strict=True):
                    x.requires_grad = yes
            out = self.function(*given)
            start = g if isinstance(g, Tensor) else wrap(np.asarray(g))
            inputs = [x for x, yes in zip(given, asked, strict=True) if yes]
            found = iter(grad(out, inputs, start, create_graph=create, allow_unused=True))
        grads = [next(found) if yes else None for yes in asked]
        return grads if create else [None if x is None else data_of(x) for x in grads]


def note_composite(
    label: str,
    function: Callable[..., Tensor],
    inputs: Sequence[Tensor],
    out: Tensor,
    kernel: Kernel,
) -> None:
    """Give the result its history, if gradients are on and an input wants one."""
    edges = tuple([x._node for x in inputs])
    if not mode.enabled or not any(edge is not None for edge in edges):
        return
    if out._data.dtype.kind in "biu":
        return
    node = CompositeNode()
    node.edges = edges
    node.extra = None
    node.shape = out._data.shape
    node.label = label
    node.function = function
    node.kernel = kernel
    node.kept = tuple([x._data for x in inputs])
    if anomaly.on:
        locate(node)
    node.number = next(count)
    out._node = node
