"""Graphs of the programs with control flow, and of their gradients."""

from __future__ import annotations

from typing import Any

from control_programs import PROGRAMS

import weft
from weft.base.pytree import tree_leaves
from weft.ir.graph import Graph


def arguments(values: tuple[Any, ...]) -> list[weft.Tensor]:
    made = [weft.asarray(value) for value in values]
    return [x.astype(weft.float64) if x.dtype.kind == "float" else x for x in made]


def graphs(name: str) -> list[tuple[Graph, list[list[weft.Tensor]]]]:
    """The graph of a program, and that of its gradients, with the inputs to run them on."""
    function, inputs = PROGRAMS[name]
    given = [arguments(values) for values in inputs]
    specs = [x.type for x in given[0]]

    def gradients(*args: Any) -> Any:
        floats = [x.requires_grad_() for x in args if x.dtype.kind == "float"]
        results = [y for y in tree_leaves(function(*args)) if isinstance(y, weft.Tensor)]
        total = sum((y * y).sum() for y in results if y.requires_grad)
        if not isinstance(total, weft.Tensor):
            return ()
        return weft.autograd.grad(total, floats, materialize_grads=True, allow_unused=True)

    return [(weft.make_graph(call, *specs), given) for call in (function, gradients)]
