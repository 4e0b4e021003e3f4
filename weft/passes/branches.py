"""`if` and `switch`: removes branches that are never taken, and results that nobody uses."""

from __future__ import annotations

from weft.ir.graph import Builder, Graph, Node, Value
from weft.ir.types import TOKEN, TensorType
from weft.ops.cards import FULL, WHERE
from weft.ops.control import IF
from weft.passes.contract import Notes, Pass
from weft.passes.facts import number_of
from weft.passes.nesting import counted, inline, narrowed, replaced_node, used_values


class ConstantBranches(Pass):
    """Replaces an `if` or `switch` by the branch that is always taken."""

    name = "constant_branches"

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        chosen = {node: _chosen(node) for node in graph.nodes if node.op.branch}
        if all(branch is None for branch in chosen.values()):
            return graph
        builder = Builder(graph)
        for node in graph.nodes:
            branch = chosen.get(node)
            if branch is None:
                builder.copy(node)
            else:
                results = inline(builder, branch, builder.inputs_of(node)[1:])
                builder.forward(node.outputs, results)
                notes.add(f"{node.op.name} decided")
        return builder.finish()


def _chosen(node: Node) -> Graph | None:
    """The branch that is taken, or None where that is not known."""
    number = number_of(node.inputs[0])
    if number is None:
        return None
    if node.op is IF:
        return node.graphs[0 if bool(number.item()) else 1]
    return node.graphs[min(max(int(number.item()), 0), len(node.graphs) - 1)]


class SelectBranches(Pass):
    """Replaces an `if` that only chooses between operands and constants by `where`.

    Such an `if` masks a gradient. As a `where`, the mask is fused with what uses the gradient.
    """

    name = "select_branches"

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        chosen = {node for node in graph.nodes if node.op is IF and _is_mask(node)}
        if not chosen:
            return graph
        builder = Builder(graph)
        for node in graph.nodes:
            if node not in chosen:
                builder.copy(node)
                continue
            condition, *operands = builder.inputs_of(node)
            sides = [inline(builder, branch, operands) for branch in node.graphs]
            results = [
                builder.add(WHERE, condition, one, two, like=node)
                for one, two in zip(*sides, strict=True)
            ]
            builder.forward(node.outputs, results)
            counted(notes, "if made a where", 1)
        return builder.finish()


def _is_mask(node: Node) -> bool:
    """Whether each result is an operand on one side, and a constant on the other."""
    if not all(isinstance(value.type, TensorType) for value in node.outputs):
        return False
    if any(inner.op is not FULL for branch in node.graphs for inner in branch.nodes):
        return False
    sides = zip(*[branch.outputs for branch in node.graphs], strict=True)
    return all((one.node is None) != (two.node is None) for one, two in sides)


class TrimBranches(Pass):
    """Drops results of branches that nobody uses, and operands that no branch uses."""

    name = "trim_branches"

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        nodes = [node for node in graph.nodes if node.op.branch]
        if not nodes:
            return graph
        used = used_values(graph)
        smaller = {node: found for node in nodes if (found := _smaller(node, used)) is not None}
        if not smaller:
            return graph
        builder = Builder(graph)
        for node in graph.nodes:
            if node not in smaller:
                builder.copy(node)
                continue
            results, operands = smaller[node]
            given = builder.inputs_of(node)
            graphs = [
                narrowed(
                    branch,
                    [branch.inputs[i] for i in operands],
                    [branch.outputs[i] for i in results],
                )
                for branch in node.graphs
            ]
            replaced_node(
                builder, node, [given[0], *[given[1 + i] for i in operands]], graphs, results
            )
            counted(notes, "results dropped", len(node.outputs) - len(results))
            counted(notes, "operands dropped", len(node.inputs) - 1 - len(operands))
        return builder.finish()


def _smaller(node: Node, used: set[Value]) -> tuple[list[int], list[int]] | None:
    """Which results and operands a node needs; None if it needs all of them."""
    results = [i for i, v in enumerate(node.outputs) if v in used or v.type is TOKEN]
    needed: set[int] = set()
    for branch in node.graphs:
        part = narrowed(branch, branch.inputs, [branch.outputs[i] for i in results])
        inner = used_values(part)
        needed.update(i for i, value in enumerate(part.inputs) if value in inner)
    if len(results) == len(node.outputs) and len(needed) == len(node.inputs) - 1:
        return None
    return results, sorted(needed)
