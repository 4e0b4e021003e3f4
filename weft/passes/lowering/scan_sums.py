"""Products that a scan adds up: one product of all iterations, after the loop.

    total + a.T @ b   in each iteration   is   concat(all a).T @ concat(all b)

This is how the backward of a scan computes the gradients of its weights; see
`weft.passes.lowering.scan_products`.
"""

from __future__ import annotations

from weft.base.shapes import size_of
from weft.ir.graph import Node, Value
from weft.ops.cards import ADD, MATMUL, MULTIPLY, PERMUTE_DIMS, RESHAPE, SUM
from weft.passes.lowering.scan_parts import ScanParts, is_look, is_product, rank_of, shape_of

__all__ = ["Sums"]

#: How many times larger than the sum the operands of one iteration may be that are kept for it.
MOST_KEPT = 2


class Sums:
    """Carries that add up products; `moved`: the terms that become one product after the loop."""

    def __init__(self, parts: ScanParts) -> None:
        self.parts = parts
        self.moved: dict[Value, list[Value]] = {}  # by carry
        self.starts: dict[Value, Value] = {}  # of carries that are removed
        self.uses = parts.uses()
        terms = {c: found for c in parts.carries if (found := self._terms(c))}
        # Sums of what is kept anyway come second: by then products may have had it kept.
        for fits in (self._is_product, self._is_sum):
            for carry, values in terms.items():
                for value in values[1:]:
                    node = self._maker(value)
                    if node is not None and self._is_own(value, carry) and fits(node):
                        self.moved.setdefault(carry, []).append(value)
                        parts.keep(*node.inputs)
        for carry, values in self.moved.items():
            self._shorten(carry, [v for v in terms[carry] if v not in values])

    # --- which --------------------------------------------------------------------------------

    def _terms(self, carry: Value) -> list[Value]:
        """The terms of the sum that a carry is, the carry first. None if it is no sum, or if the
        loop uses the carry or the sum otherwise.
        """
        found: list[Value] = []
        waiting = [self.parts.ends[carry]]
        while waiting:
            value = waiting.pop()
            node = value.node
            if node is not None and node.op is ADD and self._is_own(value, carry):
                waiting.extend(reversed(node.inputs))
            elif value is carry:
                found.insert(0, value)
            else:
                found.append(value)
        is_sum = len(found) > 1 and found[0] is carry and self.uses[carry] == 1
        return found if is_sum else []

    def _is_own(self, value: Value, carry: Value) -> bool:
        """Whether only this sum uses a value, which is as large as the sum."""
        return self.uses[value] == 1 and value.type == carry.type

    def _maker(self, value: Value) -> Node | None:
        """The node that computes a term, through views; None if anything else uses it."""
        while self.uses[value] == 1 and value.node is not None:
            if not is_look(value.node):
                return value.node
            value = value.node.inputs[0]
        return None

    def _is_product(self, node: Node) -> bool:
        found = _factors(node)
        if found is None:
            return False
        if any(self.parts.is_const(self.parts.source(value)) for value in found):
            return False
        more = self.parts.more_bytes(*found)
        worth = more <= MOST_KEPT * node.outputs[0].tensor_type.nbytes
        return worth and self.parts.fits(more)

    def _is_sum(self, node: Node) -> bool:
        return node.op is SUM and self.parts.is_there(node.inputs[0])

    # --- and what of them ---------------------------------------------------------------------

    def _shorten(self, carry: Value, rest: list[Value]) -> None:
        """Reduce the sum of a carry to the terms that stay in the loop, the carry first."""
        parts = self.parts
        if rest == [carry]:
            parts.carries.remove(carry)
            self.starts[carry] = parts.given[carry]
            del parts.ends[carry]
            return
        total = carry
        for value in rest[1:]:
            add = Node(ADD, [total, value], {}, [total.type], (), None)
            parts.nodes.append(add)
            total = add.outputs[0]
        parts.ends[carry] = total

    def put(self) -> None:
        parts = self.parts
        for carry, values in self.moved.items():
            old = parts.results[carry]
            total = self.starts.get(carry) or parts.builder[old]
            for value in values:
                whole = self._whole(value)
                total = parts.builder.add(ADD, total, whole, like=value.node)
            parts.forward(old, total)

    def _whole(self, value: Value) -> Value:
        """The sum of a term over all iterations."""
        add = self.parts.builder.add
        looks: list[Node] = []
        node = value.node
        assert node is not None
        while is_look(node):
            looks.append(node)
            node = node.inputs[0].node
            assert node is not None
        whole = self._total(node) if node.op is SUM else self._product(node)
        for look in reversed(looks):
            whole = add(look.op, whole, like=look, **look.attrs)
        return whole

    def _total(self, node: Node) -> Value:
        add = self.parts.builder.add
        axes = (0, *[axis + 1 for axis in node.attrs["axis"]])
        given = self.parts.stacked(node.inputs[0])
        out = add(SUM, given, like=node, axis=axes, keepdims=False)
        return add(RESHAPE, out, like=node, shape=shape_of(node.outputs[0]))

    def _product(self, node: Node) -> Value:
        """One product: concatenated columns of all left factors by rows of all right ones."""
        add, length = self.parts.builder.add, self.parts.length
        factors = _factors(node)
        assert factors is not None
        m, n = shape_of(node.outputs[0])
        a, b = (self.parts.stacked(value) for value in factors)
        k = size_of(shape_of(factors[0])) // m
        a = add(RESHAPE, a, like=node, shape=(length, m, k))
        side = add(PERMUTE_DIMS, a, like=node, axes=(1, 0, 2))
        wide = add(RESHAPE, side, like=node, shape=(m, length * k))
        high = add(RESHAPE, b, like=node, shape=(length * k, n))
        return add(MATMUL, wide, high, like=node)


def _factors(node: Node) -> tuple[Value, Value] | None:
    """The factors of a matrix product, or of a column multiplied by a row elementwise."""
    if len(node.inputs) != 2:
        return None
    a, b = node.inputs
    if node.op is MATMUL:
        return (a, b) if rank_of(a) == rank_of(b) == 2 and is_product(node) else None
    if node.op is not MULTIPLY or rank_of(node.outputs[0]) != 2:
        return None
    m, n = shape_of(node.outputs[0])
    for column, row in ((a, b), (b, a)):
        if shape_of(column) == (m, 1) and shape_of(row) in ((n,), (1, n)) and m * n:
            return column, row
    return None
