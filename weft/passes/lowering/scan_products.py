"""Matrix products in scans that do not depend on the previous iteration become one product.

Three kinds of products leave the body of a scan:

    before   of a slice and a matrix that is the same in all iterations: x[t] @ W. One product of
             all slices; the body takes slices of its result.
    after    of a value and such a matrix, where the result is only an output: y[t] = h @ W + b
    summed   those that a carry adds up, total + a.T @ b: one product of all a and all b,
             concatenated. The backward of a scan does this for its weights.

One large product is faster than many small ones: it is worth threads and packed operands, and its
sums stay in registers. The order of sums changes.
"""

from __future__ import annotations

from weft.base.shapes import size_of
from weft.ir.failing import DOES_MORE
from weft.ir.graph import Builder, Graph, Node, Value
from weft.ir.sizes import local_sizes
from weft.ops.cards import MATMUL, PERMUTE_DIMS, SUM
from weft.ops.control import SCAN
from weft.passes.contract import Notes, Pass
from weft.passes.lowering.scan_parts import ScanParts, is_look, is_product, rank_of, shape_of
from weft.passes.lowering.scan_sums import Sums

__all__ = ["ScanProducts"]

#: Products of more multiplications than this are as fast in the loop.
MOST_WORK = 1 << 23


class ScanProducts(Pass):
    """Moves products out of scans: one for all iterations, before or after the loop."""

    name = "scan_products"

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        if not any(map(_has_products, graph.nodes)):
            return graph
        builder = Builder(graph)
        changed = False
        for node in graph.nodes:
            if _has_products(node):
                parts = ScanParts(node, builder)
                moved = _before(parts)
                late = _Late(parts)
                sums = Sums(parts)
                if moved or late.nodes or sums.moved:
                    parts.put()
                    late.put()
                    sums.put()
                    changed = True
                    notes.add("× a product of all iterations")
                    continue
            builder.copy(node)
        return builder.finish() if changed else graph


def _has_products(node: Node) -> bool:
    if node.op is not SCAN or not isinstance(node.attrs["length"], int):
        return False
    if node.attrs["length"] < 2 or local_sizes(node.graphs[0]):  # sizes that iterations differ in
        return False
    return any(is_product(inner) for inner in node.graphs[0].nodes)


# --- with a matrix that is the same in all iterations --------------------------------------------


def _row_and_matrix(parts: ScanParts, node: Node) -> tuple[Value, Value] | None:
    """The operands of a product with a matrix that is the same in all iterations: it is last."""
    if not is_product(node):
        return None
    a, b = node.inputs
    work = size_of(shape_of(node.outputs[0])) * shape_of(a)[-1]
    if work > MOST_WORK:
        return None
    if parts.is_const(b) and not parts.is_const(a) and rank_of(b) == 2:
        return a, b
    if parts.is_const(a) and not parts.is_const(b) and rank_of(a) == 2 and rank_of(b) == 1:
        return b, a
    return None


def _all_rows(parts: ScanParts, node: Node, rows: Value, matrix: Value) -> Value:
    """The product for all iterations, from the rows of all of them."""
    fixed = parts.const(matrix)
    if matrix is node.inputs[0]:  # a matrix and a column
        fixed = parts.builder.add(PERMUTE_DIMS, fixed, like=node, axes=(1, 0))
    return parts.builder.add(MATMUL, rows, fixed, like=node)


def _on_all(parts: ScanParts, node: Node) -> Value:
    """A node of the body, applied to all iterations at once."""
    found = _row_and_matrix(parts, node)
    if found is not None:
        return _all_rows(parts, node, parts.stacked(found[0]), found[1])
    given = [parts.const(v) if parts.is_const(v) else parts.stacked(v) for v in node.inputs]
    if node.op.elementwise:
        return parts.builder.add(node.op, *given, like=node, **node.attrs)
    return parts.on_all(node, given[0])


def _is_simple(parts: ScanParts, node: Node) -> bool:
    """Whether a node does the same on stacked values, whose first axis is the iterations."""
    if is_look(node) or node.op is SUM:
        return True
    if not node.op.elementwise or not node.inputs or node.op.traits & DOES_MORE:
        return False
    rank = rank_of(node.outputs[0])
    return all(
        rank_of(v) <= rank if parts.is_const(v) else shape_of(v) == shape_of(node.outputs[0])
        for v in node.inputs
    )


def _before(parts: ScanParts) -> int:
    """Move products of what depends on slices only before the loop. Returns how many moved."""
    known: set[Value] = set(parts.xs)  # for all iterations, before the loop
    products: set[Node] = set()
    for node in parts.nodes:
        changing = [value for value in node.inputs if not parts.is_const(value)]
        if not changing or not known.issuperset(changing):
            continue
        if _row_and_matrix(parts, node) is not None:
            out = node.outputs[0]
            if parts.fits(out.tensor_type.nbytes):
                parts.bytes += out.tensor_type.nbytes * parts.length
                known.add(out)
                products.add(node)
        elif _is_simple(parts, node):
            known.add(node.outputs[0])
    needed = {value for node in products for value in node.inputs}
    todo: list[Node] = []
    for node in reversed(parts.nodes):
        if node in products or not needed.isdisjoint(node.outputs):
            needed.update(node.inputs)
            if node.inputs and not is_look(node):
                todo.append(node)
    for node in reversed(todo):
        out = node.outputs[0]
        made = _on_all(parts, node)
        parts.set_stacked(out, made)
        if node in products:
            parts.given[out] = made
            parts.xs[out] = None
    parts.nodes = [node for node in parts.nodes if node not in products]
    return len(products)


class _Late:
    """Products whose results are only outputs, and simple ops on these."""

    def __init__(self, parts: ScanParts) -> None:
        self.parts = parts
        self.results: dict[Value, list[Value]] = {}
        self.nodes = self._found()
        made = {value for node in self.nodes for value in node.outputs}
        for node in self.nodes:
            out = node.outputs[0]
            if out in parts.ys:
                self.results[out] = parts.ys.pop(out)
            parts.keep(*[v for v in node.inputs if v not in made and not parts.is_const(v)])
        gone = set(self.nodes)
        parts.nodes = [node for node in parts.nodes if node not in gone]

    def _found(self) -> list[Node]:
        parts = self.parts
        used = set(parts.ends.values())  # by what stays in the loop
        may: set[Node] = set()
        for node in reversed(parts.nodes):
            free = len(node.outputs) == 1 and node.outputs[0] not in used
            if free and (self._is_late(node) or _is_simple(parts, node)):
                may.add(node)
            else:
                used.update(node.inputs)
        late: list[Node] = []
        made: set[Value] = set()
        for node in parts.nodes:
            product = node.op is MATMUL
            if node in may and (product or not made.isdisjoint(node.inputs)):
                late.append(node)
                made.update(node.outputs)
        return late

    def _is_late(self, node: Node) -> bool:
        found = _row_and_matrix(self.parts, node)
        return found is not None and self.parts.fits(self.parts.more_bytes(found[0]))

    def put(self) -> None:
        parts = self.parts
        for node in self.nodes:
            out = node.outputs[0]
            made = _on_all(parts, node)
            parts.set_stacked(out, made)
            for old in self.results.get(out, ()):
                parts.forward(old, made)
