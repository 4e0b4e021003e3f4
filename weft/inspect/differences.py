"""The differences between two graphs: calls that were removed, added or changed.

    d = weft.inspect.diff(compiled.graph("captured"), compiled.graph("optimized"))
    print(d)

Calls match if they compute the same: the same op with the same attributes on matched operands. The
other calls are matched by op, type and source line, and count as changed.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.inspect.explain.style import Style, style_for
from weft.ir.attribute_text import AttributeText
from weft.ir.attributes import attrs_key
from weft.ir.graph import Graph, Node, Value
from weft.ir.text import Printer, value_names

__all__ = ["Change", "Diff", "diff"]

Pairs = dict[Node, Node]
SIGNS = {"same": " ", "removed": "-", "added": "+", "changed": "~"}


@dataclass
class Change:
    """One call.

    kind     "same", "removed", "added" or "changed"
    was      for a changed call, the call in the first graph
    became   for a removed call, the values that replace its results, if any
    nested   the changes in its nested graphs
    """

    kind: str
    before: Node | None
    after: Node | None
    text: str
    was: str = ""
    became: str = ""
    nested: list[Diff] = field(default_factory=list)

    @property
    def node(self) -> Node:
        found = self.after or self.before
        assert found is not None
        return found


@dataclass
class Diff:
    """The calls of two graphs, in the order of the second."""

    name: str
    sizes: tuple[int, int]
    changes: list[Change]

    def counts(self) -> dict[str, int]:
        """The number of calls of each kind, including nested graphs."""
        found = Counter(change.kind for change in self.changes)
        for change in self.changes:
            for inner in change.nested:
                found.update(inner.counts())
        return {kind: found[kind] for kind in SIGNS}

    @property
    def same(self) -> bool:
        """Whether there are no differences."""
        return all(n == 0 for kind, n in self.counts().items() if kind != "same")

    def text(self, *, colour: bool = False) -> str:
        return "\n".join(_lines(self, style_for(colour), ""))

    def __str__(self) -> str:
        return "\n".join(_lines(self, style_for(None), ""))

    def __repr__(self) -> str:
        return f"<difference of graphs @{self.name}: {_said(self)}>"

    def as_dict(self) -> dict[str, Any]:
        """The differences as plain data for JSON."""
        return {
            "name": self.name,
            "before": self.sizes[0],
            "after": self.sizes[1],
            **self.counts(),
            "changes": [
                {
                    "kind": change.kind,
                    "text": change.text,
                    "was": change.was,
                    "became": change.became,
                    "line": _line(change.node),
                    "nested": [inner.as_dict() for inner in change.nested],
                }
                for change in self.changes
            ],
        }


def diff(first: Graph, second: Graph) -> Diff:
    """The differences of the second graph from the first."""
    return _Matching(first, second, _Keys()).diff()


# --- matching ------------------------------------------------------------------------------------


class _Keys:
    """Numbers computations: equal computations get the same number, in both graphs."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._outputs: tuple[int, ...] = ()  # of the graph that was visited last

    def number(self, what: Hashable) -> int:
        return self._numbers.setdefault(what, len(self._numbers))

    def of(self, graph: Graph) -> dict[Node, int]:
        values: dict[Value, int] = {
            value: self.number(("input", i, value.type)) for i, value in enumerate(graph.inputs)
        }
        found: dict[Node, int] = {}
        for node in graph.nodes:
            given = in_order(node, [values.get(value, -1) for value in node.inputs])
            inner = tuple([self._whole(part) for part in node.graphs])
            key = self.number((call_key(node), given, inner))
            found[node] = key
            for i, value in enumerate(node.outputs):
                same = is_alias(node)  # its users are matched as if they used its input
                values[value] = given[0] if same else self.number((key, i))
        self._outputs = tuple([values.get(value, -1) for value in graph.outputs])
        return found

    def _whole(self, graph: Graph) -> int:
        self.of(graph)
        return self.number((tuple([v.type for v in graph.inputs]), self._outputs))


def is_alias(node: Node) -> bool:
    """Whether the result of a call is an alias of its operand."""
    return (
        node.op.alias
        and len(node.inputs) == len(node.outputs) == 1
        and node.inputs[0].type == node.outputs[0].type
    )


def in_order(node: Node, keys: Sequence[int]) -> tuple[int, ...]:
    """The operands; those of a commutative op in a canonical order."""
    return tuple(sorted(keys) if node.op.commutative else keys)


def call_key(node: Node) -> Hashable:
    """The key of a call without its operands."""
    return (node.op.name, attrs_key(node.attrs), tuple([value.type for value in node.outputs]))


class _Matching:
    def __init__(self, first: Graph, second: Graph, keys: _Keys) -> None:
        self.first, self.second, self.keys = first, second, keys
        self.pairs: Pairs = {}  # first graph -> second graph
        ours, theirs = keys.of(first), keys.of(second)
        self._match(lambda node: ours.get(node, theirs.get(node)))
        for same in (_alike, _roughly):
            self._match(same)
        self.back = {after: before for before, after in self.pairs.items()}
        #: The new values for values of the first graph: for a call that was merged with an equal
        #: one, the results of that; for an alias that was removed, its operand.
        self.values: dict[Value, Value] = dict(zip(first.inputs, second.inputs, strict=False))
        equal = {key: node for node, key in theirs.items()}
        for node in first.nodes:
            partner = self.pairs.get(node) or equal.get(ours[node])
            if partner is not None:
                self.values.update(zip(node.outputs, partner.outputs, strict=False))
            elif is_alias(node) and node.inputs[0] in self.values:
                self.values[node.outputs[0]] = self.values[node.inputs[0]]

    def _match(self, key: Callable[[Node], Hashable]) -> None:
        """Pair calls with equal keys that have no partner yet, in order."""
        taken = set(self.pairs.values())
        waiting: dict[Hashable, deque[Node]] = defaultdict(deque)
        for node in self.second.nodes:
            if node not in taken:
                waiting[key(node)].append(node)
        for node in self.first.nodes:
            if node not in self.pairs and waiting[key(node)]:
                self.pairs[node] = waiting[key(node)].popleft()

    def diff(self) -> Diff:
        names = value_names(self.second.values())
        self._own = {v: f"{name}'" for v, name in value_names(self.first.values()).items()}
        old = {value: names.get(self._now(value), name) for value, name in self._own.items()}
        self._place = {value: i for i, value in enumerate(names)}
        printer = Printer(AttributeText({}), False, False)
        changes = [
            self._change(node, names, old, printer)
            if node in self.back or kind == "added"
            else self._removed(node, old, printer)
            for kind, node in self._order()
        ]
        return Diff(self.second.name, (len(self.first.nodes), len(self.second.nodes)), changes)

    def _removed(self, node: Node, old: dict[Value, str], printer: Printer) -> Change:
        became = [old[value] for value in node.outputs if self._now(value) is not value]
        used = {value: old[value] for value in node.inputs if value in old}
        mine = {value: self._own[value] for value in node.outputs}
        text = printer.call_text(node, {**used, **mine})
        return Change("removed", node, None, text, became=", ".join(became))

    def _order(self) -> Iterator[tuple[str, Node]]:
        """The calls of the second graph, with removed calls of the first in between."""
        gone: dict[Node | None, list[Node]] = defaultdict(list)
        waiting: list[Node] = []
        for node in self.first.nodes:
            if node in self.pairs:
                gone[self.pairs[node]] += waiting
                waiting = []
            else:
                waiting.append(node)
        gone[None] = waiting
        for node in self.second.nodes:
            yield from (("removed", before) for before in gone[node])
            yield ("same" if node in self.back else "added"), node
        yield from (("removed", before) for before in gone[None])

    def _now(self, value: Value) -> Value:
        """The value of the second graph for a value of the first; itself, if there is none."""
        return self.values.get(value, value)

    def _change(
        self, node: Node, names: dict[Value, str], old: dict[Value, str], printer: Printer
    ) -> Change:
        text = printer.call_text(node, names)
        before = self.back.get(node)
        if before is None:
            return Change("added", None, node, text)
        nested = [
            _Matching(one, two, self.keys).diff()
            for one, two in zip(before.graphs, node.graphs, strict=False)
        ]
        nested = [inner for inner in nested if not inner.same]
        # By position: values have no order of their own.
        place = self._place
        then = in_order(node, [place.get(self._now(value), -1) for value in before.inputs])
        now = in_order(node, [place[value] for value in node.inputs])
        if call_key(before) == call_key(node) and then == now and not nested:
            return Change("same", before, node, text)
        was = printer.call_text(before, old).partition(" = ")
        return Change("changed", before, node, text, was[2] or was[0], nested=nested)


def _alike(node: Node) -> Hashable:
    """A key of op, types and line. Constants never match others."""
    kinds = tuple([value.type for value in node.outputs])
    return (node.op.name, kinds, _line(node), attrs_key(node.attrs) if not node.inputs else None)


def _roughly(node: Node) -> Hashable:
    """A key of op and line."""
    own = attrs_key(node.attrs) if not node.inputs else None
    return (node.op.name, len(node.graphs), _line(node), own)


def _line(node: Node) -> str:
    where = node.location
    return "" if where is None else where.short


# --- text ----------------------------------------------------------------------------------------


def _said(found: Diff) -> str:
    counts = found.counts()
    words = [f"{n} {kind}" for kind, n in counts.items() if n and kind != "same"]
    return f"{found.sizes[0]} → {found.sizes[1]} calls, {', '.join(words) or 'nothing changed'}"


def _lines(found: Diff, style: Style, indent: str) -> Iterator[str]:
    yield f"{indent}{style.head(f'graph @{found.name}')}  {style.dim(_said(found))}"
    same = 0
    for change in found.changes:
        if change.kind == "same":
            same += 1
            continue
        if same:
            yield f"{indent}  {style.dim(f'… {same} the same')}"
            same = 0
        line = f"{indent}{SIGNS[change.kind]} {change.text}".ljust(60)
        paint = {"removed": style.warn, "added": style.good, "changed": style.code}[change.kind]
        where = _line(change.node)
        became = f" → {change.became}" if change.became else ""
        yield paint(line) + (style.place(f"  # {where}") if where else "") + became
        if change.was and change.was != change.text.partition(" = ")[2]:
            yield f"{indent}    {style.dim(f'was {change.was}')}"
        for inner in change.nested:
            yield from _lines(inner, style, f"{indent}    ")
    if same:
        yield f"{indent}  {style.dim(f'… {same} the same')}"
