"""What a recorded path saves for its backward, and what is recomputed for a memory budget."""

from __future__ import annotations

from collections.abc import Sequence

from weft.autodiff.split import BackwardSplit, split
from weft.capture.trace.segments import Ending, Segment
from weft.ir.graph import Node, Value
from weft.ops.identity import FENCE


def split_path(path: Sequence[Segment], shared: int, budget: float | None) -> None:
    """Choose what the path saves for its backward; cheap ops are recomputed there.

    The first `shared` segments also belong to other paths, and are not changed.
    """
    ending = path[-1].ending
    assert ending is not None
    backward = ending.backward
    if backward is None or backward.all_freed:
        if budget is not None and ending.backward_at is not None:
            _split_step(path, shared, ending, ending.backward_at, budget)
        return
    inputs = [value for segment in path for value, _ in segment.inputs]
    forward = [node for segment in path for node in segment.nodes]
    backward.split = split(
        [*inputs, *backward.cotangents],
        forward,
        backward.nodes,
        [*backward.gradients, *backward.there],
        lasting=[value for value in ending.made if value.node is not None],
        crossing=_crossing(path),
        budget=budget,
    )
    backward.nodes = list(backward.split.nodes)


def _crossing(path: Sequence[Segment]) -> list[Value]:
    """Values that a segment leaves to later ones: a call holds them until its end."""
    found: dict[Value, None] = {}
    made: set[Value] = set()  # by the segments before
    for segment in path:
        for node in segment.nodes:
            found.update(dict.fromkeys(value for value in node.inputs if value in made))
        made.update(value for node in segment.nodes for value in node.outputs)
        if segment.question is not None and segment.question.value in made:
            found[segment.question.value] = None
    return list(found)


# --- a backward inside of the path -------------------------------------------------------------


def _split_step(
    path: Sequence[Segment], shared: int, ending: Ending, start: int, budget: float
) -> None:
    """The same for a path that contains a backward, such as a training step.

    Nodes before `start`, the first of a backward, are the forward part. A path on which Python
    asked for a value is not changed.
    """
    segment = path[-1]
    if len(path) > 1 or shared:
        return
    inputs = [value for value, _ in segment.inputs]
    made = [value for value in ending.made if value.node is not None]
    forward, backward = segment.nodes[:start], segment.nodes[start:]
    early = {value for node in forward for value in node.outputs}
    found = split(
        inputs,
        forward,
        backward,
        [value for value in made if value not in early],
        lasting=[value for value in made if value in early],
        budget=budget,
    )
    ending.split = found
    segment.nodes = [*forward, *_copied(found)]


def _copied(found: BackwardSplit) -> list[Node]:
    """The backward part, with copies of recomputed nodes.

    Fences keep the copies from being merged with the originals again.
    """
    again = set(found.recomputed)
    copies: dict[Value, Value] = {}
    fences: dict[Value, Value] = {}
    nodes: list[Node] = []
    for node in found.nodes:
        if node not in again:
            node.inputs = tuple([copies.get(value, value) for value in node.inputs])
            nodes.append(node)
            continue
        for value in node.inputs:
            if value not in copies and value not in fences:
                nodes.append(Node(FENCE, [value], {}, [value.type], (), node.location))
                fences[value] = nodes[-1].out
        inputs = [copies[v] if v in copies else fences[v] for v in node.inputs]
        types = [value.type for value in node.outputs]
        nodes.append(Node(node.op, inputs, node.attrs, types, node.graphs, node.location))
        copies.update(zip(node.outputs, nodes[-1].outputs, strict=True))
    return nodes


# --- reports -----------------------------------------------------------------------------------


def split_of(ending: Ending) -> BackwardSplit | None:
    """The split of the path of an ending, if there is one."""
    if ending.backward is not None and ending.backward.split is not None:
        return ending.backward.split
    return ending.split


def budget_trouble(path: Sequence[Segment]) -> str:
    """Why a path exceeds its memory budget; empty if it does not."""
    ending = path[-1].ending
    assert ending is not None
    found = split_of(ending)
    if found is not None and not found.reached:
        return (
            f"the memory budget {found.budget:g} was not reached: the planned peak is "
            f"{found.peak} bytes, {found.peak / max(found.peak_used, 1):.2f} of the "
            f"{found.peak_used} that it is with all saved"
        )
    if found is None and ending.backward_at is not None:
        return (
            "the memory budget is not applied: the function calls backward itself, and Python "
            "asks for the value of a tensor on the way"
        )
    return ""
