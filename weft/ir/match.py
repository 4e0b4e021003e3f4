"""Pattern matching: finds where a small graph, the pattern, occurs in another one.

An input of the pattern matches any tensor; if it is used twice, both must be the same value. A node
matches a call of the same op with equal attributes; operands of commutative ops match in either
order. Nodes without inputs are constants: they match if their attributes are equal, and may also be
used outside of the match. All other inner values must be used only inside of it, because the rest
of the graph would lose them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from weft.base.dataclass import dataclass
from weft.ir.attributes import attrs_key
from weft.ir.equal import same_graph
from weft.ir.graph import Graph, Node, Value
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType

Values = dict[Value, Value]  # of the pattern -> of the graph
Nodes = dict[Node, Node]
Todo = list[tuple[Value, Value]]


@dataclass(frozen=True, slots=True)
class Found:
    """A match: maps the values and nodes of the pattern to those of the graph."""

    values: Values
    nodes: Nodes


class Matcher:
    """A graph, prepared for searching."""

    def __init__(self, graph: Graph) -> None:
        self.users = graph.users()
        self.outputs = frozenset(graph.outputs)
        self.place = {node: i for i, node in enumerate(graph.nodes)}
        self.by_op: dict[Op, list[Node]] = {}
        for node in graph.nodes:
            self.by_op.setdefault(node.op, []).append(node)

    def find(
        self, pattern: Graph, root: Node, fixed: Mapping[Value, Value] | None = None
    ) -> Iterator[Found]:
        """All matches in which `root` makes the first output of the pattern.

        With `fixed`, the values that the inputs of the pattern match, all attributes must be
        equal. Without, the pattern was recorded for other types than those in the graph: only the
        ops are compared, and the caller has to check each match again.
        """
        first = pattern.outputs[0]
        assert first.node is not None
        if root.op is first.node.op and first.index < len(root.outputs):
            search = _Search(self, pattern, fixed is not None)
            todo = [(first, root.outputs[first.index])]
            yield from search.solve(todo, Found(dict(fixed or {}), {}))

    def is_whole(self, pattern: Graph, found: Found) -> bool:
        """Whether the inner values of a match are used nowhere else."""
        inside = set(found.nodes.values())
        kept = {found.values[value] for value in pattern.outputs}
        for node in inside:
            for value in node.outputs:
                if value not in kept and (
                    value in self.outputs or not inside.issuperset(self.users[value])
                ):
                    return False
        return len(kept) == 1 or not self._leads_back(pattern, found, inside)

    def _leads_back(self, pattern: Graph, found: Found, inside: set[Node]) -> bool:
        """Whether an input of the match depends on its results, so that no call can replace it."""
        first = min(self.place[node] for node in inside)
        stack = [found.values[value].node for value in pattern.inputs]
        seen: set[Node] = set()
        while stack:
            node = stack.pop()
            if node is None or node in seen or self.place[node] < first:
                continue
            if node in inside:
                return True
            seen.add(node)
            stack.extend(value.node for value in node.inputs)
        return False


class _Search:
    """The search for one pattern; `exact` says whether attributes are compared."""

    def __init__(self, matcher: Matcher, pattern: Graph, exact: bool) -> None:
        self.matcher = matcher
        self.pattern = pattern
        self.exact = exact

    def solve(self, todo: Todo, found: Found) -> Iterator[Found]:
        """All matches of the pairs (value of the pattern, value of the graph) in `todo`."""
        values, nodes = dict(found.values), dict(found.nodes)
        todo = list(todo)
        while todo:
            wanted, given = todo.pop()
            known = values.get(wanted)
            if known is not None:
                if known is given or self._same_constant(known, given):
                    continue
                return
            call = wanted.node
            if call is None:
                if not isinstance(given.type, TensorType):
                    return
                values[wanted] = given
                continue
            node = given.node
            if node is None or given.index != wanted.index or not self._same_call(call, node):
                return
            values.update(zip(call.outputs, node.outputs, strict=True))
            if is_constant(call):
                continue
            nodes[call] = node
            here = Found(values, nodes)
            *others, last = self._pairs(call, node)
            for pairs in others:
                yield from self.solve([*todo, *pairs], here)
            todo += last
        yield from self._rest(Found(values, nodes))

    def _rest(self, found: Found) -> Iterator[Found]:
        """Match the remaining outputs of the pattern, which no matched value depends on."""
        for value in self.pattern.outputs:
            if value not in found.values:
                for node in self._candidates(value, found.values):
                    yield from self.solve([(value, node.outputs[value.index])], found)
                return
        yield found

    def _candidates(self, value: Value, values: Values) -> Iterable[Node]:
        """Nodes that may match the maker of a value: users of matched values, if there are any."""
        call = value.node
        if call is None:
            return ()
        for given in call.inputs:
            if given in values:
                users = dict.fromkeys(self.matcher.users[values[given]])
                return [node for node in users if node.op is call.op]
        return self.matcher.by_op.get(call.op, ())

    def _pairs(self, call: Node, node: Node) -> list[Todo]:
        """The orders in which the inputs of a call can match those of a node."""
        straight = list(zip(call.inputs, node.inputs, strict=True))
        if call.op.commutative and len(straight) == 2:
            crossed = list(zip(call.inputs, reversed(node.inputs), strict=True))
            # The last one is tried last; where the inputs are one value, both are the same.
            return [straight[::-1], crossed] if node.inputs[0] is not node.inputs[1] else [straight]
        return [straight[::-1]]

    def _same_call(self, call: Node, node: Node) -> bool:
        if call.op is not node.op or len(call.inputs) != len(node.inputs):
            return False
        if len(call.graphs) != len(node.graphs) or len(call.outputs) != len(node.outputs):
            return False
        if not self.exact:
            return True
        return attrs_key(call.attrs) == attrs_key(node.attrs) and all(
            same_graph(a, b) for a, b in zip(call.graphs, node.graphs, strict=True)
        )

    def _same_constant(self, known: Value, given: Value) -> bool:
        """Whether two values of the graph are equal constants."""
        a, b = known.node, given.node
        if a is None or b is None or not is_constant(a) or a.op is not b.op:
            return False
        return known.index == given.index and attrs_key(a.attrs) == attrs_key(b.attrs)


def is_constant(node: Node) -> bool:
    """Whether a node has the same results anywhere in the graph."""
    return not (node.inputs or node.graphs or node.op.traits & (Trait.RANDOM | Trait.EFFECT))
