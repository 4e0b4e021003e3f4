"""A captured function that `vmap` or `jvp` runs: vmap(compile(f)).

There its own graph is run, op by op, on the tensors of the transform. So a condition on a mapped
tensor, which Python could not answer, is an `if` in the graph, and each element takes its side.
"""

from __future__ import annotations

from typing import Any

from weft.autodiff.transforms.graphs import GraphRun
from weft.base.pytree import tree_unflatten
from weft.capture.trace.segments import Given, Made, Segment
from weft.ir.graph import extract


def runs_inside(segment: Segment) -> bool:
    """Whether a path can be run there: it is one graph, and writes nothing outside."""
    ending = segment.ending
    if ending is None or ending.writes or ending.effects or ending.new_leaves:
        return False
    return not any(leaf.__class__ is Made and leaf.is_number for leaf in ending.leaves)


def run_inside(segment: Segment, given: list[Any]) -> Any:
    """What the function gives for what its guards let pass."""
    ending = segment.ending
    assert ending is not None
    at = segment.places()
    inputs = [value for value, _ in segment.inputs]
    graph = extract("inside", inputs, segment.nodes, ending.made)
    made = GraphRun(graph).outputs([given[at[id(origin)]] for _, origin in segment.inputs])
    leaves: list[Any] = []
    for leaf in ending.leaves:
        if leaf.__class__ is Made:
            leaves.append(made[leaf.index])
        else:
            leaves.append(given[at[id(leaf.origin)]] if leaf.__class__ is Given else leaf)
    return tree_unflatten(ending.result, leaves)
