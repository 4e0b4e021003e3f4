"""The parts of a scan, so that work can leave the loop and be done for all iterations at once."""

from __future__ import annotations

from collections import Counter

from weft.base.shapes import size_of
from weft.ir.failing import DOES_MORE
from weft.ir.graph import Builder, Node, Value, extract
from weft.ir.types import TensorType
from weft.ops.cards import GETITEM, MATMUL, PERMUTE_DIMS, RESHAPE, SUM
from weft.passes.facts import has_effect

__all__ = ["MOST_BYTES", "ScanParts", "is_look", "is_product", "rank_of", "shape_of"]

#: The most bytes that a scan may keep of all its iterations only to move work out of it.
MOST_BYTES = 64 << 20


class ScanParts:
    """
    given      for each input of the body: the value of the outer graph that it is, or is a slice of
    consts, carries, xs   the inputs of the body; a value that is computed outside becomes an x
    nodes      those of the body that stay in the loop
    ends       for each carry: the output of the body for it
    ys         for each output of the body that is stacked: the results of the scan that it is
    """

    def __init__(self, node: Node, builder: Builder) -> None:
        self.node, self.builder = node, builder
        body = node.graphs[0]
        consts, carries = node.attrs["consts"], node.attrs["carries"]
        self.length: int = node.attrs["length"]
        self.given = dict(zip(body.inputs, builder.inputs_of(node), strict=True))
        inputs = list(body.inputs)
        self.consts = inputs[:consts]
        self._fixed = set(self.consts)
        self.carries = inputs[consts : consts + carries]
        self.xs = dict.fromkeys(inputs[consts + carries :])
        self.nodes = list(body.nodes)
        self.ends = dict(zip(self.carries, body.outputs[:carries], strict=True))
        self.results = dict(zip(self.carries, node.outputs[:carries], strict=True))
        self.ys: dict[Value, list[Value]] = {}
        for value, result in zip(body.outputs[carries:], node.outputs[carries:], strict=True):
            self.ys.setdefault(value, []).append(result)
        self.bytes = 0  # that are kept of all iterations only for this pass
        self._stacked: dict[Value, Value] = {}

    def uses(self) -> Counter[Value]:
        """How often each value is used in the body, or given by it."""
        found = Counter(value for node in self.nodes for value in node.inputs)
        found.update([*self.ends.values(), *self.ys])
        return found

    # --- what is the same in all iterations -----------------------------------------------------

    def is_const(self, value: Value) -> bool:
        node = value.node
        if node is None:
            return value in self._fixed
        return not node.inputs and not node.graphs and not node.op.traits & DOES_MORE

    def const(self, value: Value) -> Value:
        """The value in the outer graph, if a value of the body is the same in all iterations."""
        if value not in self.given:
            node = value.node
            assert node is not None
            copy = Node(node.op, (), node.attrs, [v.type for v in node.outputs], (), node.location)
            self.builder.graph.nodes.append(copy)
            self.given.update(zip(node.outputs, copy.outputs, strict=True))
        return self.given[value]

    # --- what differs ---------------------------------------------------------------------------

    def source(self, value: Value) -> Value:
        """The value that another is a view of."""
        while value.node is not None and is_look(value.node):
            value = value.node.inputs[0]
        return value

    def is_there(self, value: Value) -> bool:
        """Whether the values of all iterations are stacked in any case."""
        source = self.source(value)
        return isinstance(source.type, TensorType) and (
            source in self._stacked or source in self.xs or source in self.ys
        )

    def more_bytes(self, *values: Value) -> int:
        """The bytes per iteration that it takes to keep values that are not kept yet."""
        sources = dict.fromkeys(map(self.source, values))
        return sum(_bytes(source) for source in sources if not self.is_there(source))

    def fits(self, more: int) -> bool:
        """Whether this many more bytes of each iteration may be kept."""
        return self.bytes + more * self.length <= MOST_BYTES

    def keep(self, *values: Value) -> None:
        """Make the values of all iterations results of the loop."""
        self.bytes += self.more_bytes(*values) * self.length
        for value in values:
            if not self.is_there(value):
                self.ys[self.source(value)] = []

    def stacked(self, value: Value) -> Value:
        """The stacked values of all iterations, as one value of the outer graph."""
        found = self._stacked.get(value)
        if found is None:
            found = self._stacked[value] = self._look(value)
        return found

    def set_stacked(self, value: Value, found: Value) -> None:
        self._stacked[value] = found

    def _look(self, value: Value) -> Value:
        if value in self.xs:
            return self.given[value]
        node = value.node
        assert node is not None, "what is not kept is not there"
        return self.on_all(node, self.stacked(node.inputs[0]))

    def on_all(self, node: Node, below: Value) -> Value:
        """A view or a sum of the stacked values of all iterations: their axis comes first."""
        shape = (self.length, *shape_of(node.outputs[0]))
        if node.op is PERMUTE_DIMS:
            axes = (0, *[axis + 1 for axis in node.attrs["axes"]])
            return self.builder.add(node.op, below, like=node, axes=axes)
        if node.op is SUM:
            axes = tuple(axis + 1 for axis in node.attrs["axis"])
            below = self.builder.add(node.op, below, like=node, axis=axes, keepdims=False)
        return self.builder.add(RESHAPE, below, like=node, shape=shape)

    # --- together again -------------------------------------------------------------------------

    def put(self) -> None:
        """Put what remains of the loop into the outer graph: its results exist from now on."""
        for y in [y for y in self.ys if y in self.xs]:  # passed through unchanged
            for old in self.ys.pop(y):
                self.forward(old, self.given[y])
        needed = self._drop_idle()
        consts = [value for value in self.consts if value in needed]
        inputs = [*consts, *self.carries, *[value for value in self.xs if value in needed]]
        ys = list(self.ys)
        outputs = [*[self.ends[c] for c in self.carries], *ys]
        body = extract(self.node.graphs[0].name, inputs, self.nodes, outputs)
        kinds = [carry.type for carry in self.carries]
        made = [(y, self.node.outputs.index(self.ys[y][0]) if self.ys[y] else -1) for y in ys]
        kinds += [
            self.node.outputs[at].type if at >= 0 else _stacked_type(y, self.length)
            for y, at in made
        ]
        attrs = {**self.node.attrs, "consts": len(consts), "carries": len(self.carries)}
        loop = Node(
            self.node.op,
            [self.given[value] for value in inputs],
            attrs,
            kinds,
            [body],
            self.node.location,
        )
        self.builder.graph.nodes.append(loop)
        for carry, result in zip(self.carries, loop.outputs, strict=False):
            self.forward(self.results[carry], result)
        for y, result in zip(ys, loop.outputs[len(self.carries) :], strict=True):
            self._stacked[y] = result
            for old in self.ys[y]:
                self.forward(old, result)

    def forward(self, old: Value, new: Value) -> None:
        self.builder.forward([old], [new])

    def _drop_idle(self) -> set[Value]:
        """Remove nodes that nothing uses any more. Returns all values that are used."""
        needed = {*self.ends.values(), *self.ys}
        kept = []
        for node in reversed(self.nodes):
            if has_effect(node) or not needed.isdisjoint(node.outputs):
                needed.update(node.inputs)
                kept.append(node)
        self.nodes = kept[::-1]
        return needed


def is_look(node: Node) -> bool:
    """Whether a node is a view of a kind that applies to stacked values as well."""
    if node.op is GETITEM:
        index = node.attrs["index"]
        parts = index if isinstance(index, tuple) else (index,)
        return all(part is None or part is Ellipsis or part == slice(None) for part in parts)
    return node.op in (PERMUTE_DIMS, RESHAPE)


def is_product(node: Node) -> bool:
    """Whether a node is a matrix product without empty operands."""
    return node.op is MATMUL and all(0 not in shape_of(value) for value in node.inputs)


def shape_of(value: Value) -> tuple[int, ...]:
    return value.tensor_type.shape


def rank_of(value: Value) -> int:
    return len(value.tensor_type.shape)


def _bytes(value: Value) -> int:
    kind = value.tensor_type
    return size_of(kind.shape) * kind.dtype.itemsize


def _stacked_type(value: Value, length: int) -> TensorType:
    return value.tensor_type.like(shape=(length, *shape_of(value)))
