"""Draws a static graph; its nested graphs become scopes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from weft.base.dims import dims_in
from weft.inspect.view.drawing import Drawing, Item
from weft.inspect.view.roles import assign_roles
from weft.ir.attribute_text import AttributeText
from weft.ir.graph import Graph, Node, Value
from weft.ir.literal import CONSTANT, Literal
from weft.ir.text import value_names
from weft.ir.types import TensorType, Type
from weft.ops.cards import FULL, WHILE

__all__ = ["Source", "Walk", "draw_with"]

#: An item, and the number of one of its results.
Source = tuple[int, int]


def draw_with(
    walk: type[Walk],
    graph: Graph,
    *,
    stage: str = "",
    recording: str = "",
    arguments: Collection[str] = (),
) -> Drawing:
    """The drawing of a graph. `arguments`: the names of inputs that the caller gives."""
    drawing = Drawing(graph.name, "static graph", stage, recording)
    drawing.notes = [str(step) for step in graph.history]
    drawing.scope(graph.name, -1)
    walk(drawing).graph(graph, 0, None, "")
    for item, value in zip(drawing.items, graph.inputs, strict=False):
        item.argument = value.name in arguments
    joined = {end for edge in drawing.edges for end in edge[:2]}
    for number, item in enumerate(drawing.items):
        if item.kind == "control" and number not in joined:
            item.hidden = True  # its fold shows the same
    assign_roles(drawing)
    return drawing


class Walk:
    def __init__(self, drawing: Drawing) -> None:
        self.drawing = drawing
        self.texts = AttributeText({})

    def graph(
        self, graph: Graph, scope: int, given: list[list[Source]] | None, role: str
    ) -> list[list[Source]]:
        """Draw a graph; `given` are the sources of its inputs. Returns the sources of its results.

        `role` is the role of the op of control flow around it.
        """
        names = value_names(graph.values())
        sources: dict[Value, list[Source]] = {}
        self.inputs(graph, scope, given, role, names, sources)
        for node in graph.nodes:
            if node.graphs:
                self._control(node, scope, names, sources, role)
            else:
                at = self.op(node, scope, names, sources, role)
                sources.update((value, [(at, i)]) for i, value in enumerate(node.outputs))
        return self.results(graph, scope, role, names, sources)

    def inputs(
        self,
        graph: Graph,
        scope: int,
        given: list[list[Source]] | None,
        role: str,
        names: dict[Value, str],
        sources: dict[Value, list[Source]],
    ) -> None:
        drawing = self.drawing
        for number, value in enumerate(graph.inputs):
            title = names[value][1:]
            if given is not None and not value.name and given[number]:
                title = drawing.items[given[number][0][0]].title  # clearer than a number
            pill = Item("input", title, scope, role, self.texts.type(value.type))
            pill.outputs = [self._output(names[value], value.type)]
            at = drawing.add(pill)
            for start, result in given[number] if given is not None else ():
                drawing.edges.append((start, at, result))
            sources[value] = [(at, 0)]

    def results(
        self,
        graph: Graph,
        scope: int,
        role: str,
        names: dict[Value, str],
        sources: dict[Value, list[Source]],
    ) -> list[list[Source]]:
        drawing = self.drawing
        results: list[list[Source]] = []
        for number, value in enumerate(graph.outputs):
            title = "result" if len(graph.outputs) == 1 else f"result {number}"
            pill = Item("result", title, scope, role, self.texts.type(value.type))
            pill.outputs = [self._output(names.get(value, "%?"), value.type)]
            at = drawing.add(pill)
            for start, result in sources.get(value, ()):
                drawing.edges.append((start, at, result))
            results.append([(at, 0)])
        return results

    def op(
        self,
        node: Node,
        scope: int,
        names: dict[Value, str],
        sources: dict[Value, list[Source]],
        role: str,
        started: Node | None = None,
    ) -> int:
        """Draw a call; `started`: the `flow.start` that it stands for."""
        outer = started or node
        item = self._item(node, scope, names, role, outer)
        item.kind = "constant" if _is_constant(node) else "op"
        if item.kind == "constant":
            text = item.attrs["value"].strip("{}")
            item.title = "constant" if text.startswith("@") else _short(text, 18)
            item.note = self.texts.type(node.outputs[0].type)
            item.hidden = _is_number(node.outputs[0].type)
        else:
            item.note = _short(", ".join([*self._numbers(node), *_telling(item.attrs)]))
        at = self.drawing.add(item)
        for value in outer.inputs[1:] if node.op.flow == "next" else outer.inputs:
            for start, result in sources.get(value, ()):
                self.drawing.edges.append((start, at, result))
        return at

    def _control(
        self,
        node: Node,
        scope: int,
        names: dict[Value, str],
        sources: dict[Value, list[Source]],
        role: str,
    ) -> None:
        """Connect operands to the inputs of the nested graphs; other operands, such as the
        condition of an `if`, to the head."""
        drawing = self.drawing
        item = self._item(node, scope, names, role)
        item.kind = "control"
        at = drawing.add(item)
        inner = item.scope = drawing.scope(node.op.name, scope, at)
        most = max(len(graph.inputs) for graph in node.graphs)
        own = max(len(node.inputs) - most, 0)
        for value in node.inputs[:own]:
            for start, result in sources.get(value, ()):
                drawing.edges.append((start, at, result))
        results: list[list[Source]] = [[] for _ in node.outputs]
        for number, graph in enumerate(node.graphs):
            operands = node.inputs[len(node.inputs) - len(graph.inputs) :]
            given = [sources.get(value, []) for value in operands]
            nested = drawing.scope(_graph_label(node, number), inner)
            made = self.graph(graph, nested, given, item.role)
            for place, found in zip(_result_places(node, number), made, strict=False):
                results[place] += found
        for place, value in enumerate(node.outputs):
            sources[value] = results[place] or [(at, place)]

    def _item(
        self,
        node: Node,
        scope: int,
        names: dict[Value, str],
        role: str,
        outer: Node | None = None,
    ) -> Item:
        where = node.location
        item = Item("op", node.op.name, scope, (where.role if where else "") or role)
        item.location = where
        made_by = outer or node
        item.outputs = [self._output(names[value], value.type) for value in made_by.outputs]
        item.attrs = {
            name: self.texts.literal(value, node.outputs[0].type)
            if isinstance(value, Literal) and len(node.outputs) == 1
            else self.texts.value(value)
            for name, value in node.attrs.items()
        }
        given = [value.type for value in node.inputs]
        made = [value.type for value in node.outputs]
        if not node.graphs and all(map(_is_known, [*given, *made])):
            cost = node.op.estimate(tuple(given), tuple(made), **node.attrs)  # type: ignore[arg-type]
            item.flops, item.moved = int(cost.flops), int(cost.bytes)
        return item

    def _numbers(self, node: Node) -> list[str]:
        """The operands that are constant numbers, as text."""
        found = []
        for value in node.inputs:
            made = value.node
            if made is not None and _is_constant(made) and _is_number(value.type):
                number = made.attrs["value"]
                if isinstance(number, Literal):
                    found.append(self.texts.literal(number, value.type).strip("{}"))
                else:
                    found.append(self.texts.value(number))
        return found

    def _output(self, name: str, type: Type) -> tuple[str, str, int | None]:
        known = type.nbytes if isinstance(type, TensorType) and _is_known(type) else None
        return name, self.texts.type(type), known


def _graph_label(node: Node, number: int) -> str:
    """What a nested graph is called in its op, and by the user's own function."""
    name = node.graphs[number].name
    known = node.op.graph_names
    plain = known[number] if number < len(known) else f"case {number}"
    if name.startswith(plain):
        return name
    return plain if name == "lambda" else f"{plain}: {name}"


def _result_places(node: Node, number: int) -> Sequence[int]:
    """The results of a node of control flow that come from its nested graph of this number."""
    if node.op is not WHILE:
        return range(len(node.outputs))
    if number == 0:
        return ()  # the condition is not a result
    carries = len(node.inputs) - int(node.attrs["consts"])
    # The number of iterations is between the carries and the stacks.
    return [i for i in range(len(node.outputs)) if i != carries]


def _is_constant(node: Node) -> bool:
    return node.op in (CONSTANT, FULL) and not node.inputs and len(node.outputs) == 1


def _is_number(type: Type) -> bool:
    return isinstance(type, TensorType) and type.shape == ()


def _is_known(type: Type) -> bool:
    return isinstance(type, TensorType) and not any(True for _ in dims_in(type.shape))


#: Attributes that are not shown: internal ones, or those that the result type shows.
_QUIET = frozenset({"keepdims=False", "shape", "dtype", "device", "consts", "counted", "copy"})


def _telling(attrs: dict[str, str]) -> list[str]:
    return [
        f"{name}={value}"
        for name, value in attrs.items()
        if name not in _QUIET and f"{name}={value}" not in _QUIET
    ]


def _short(text: str, most: int = 26) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
