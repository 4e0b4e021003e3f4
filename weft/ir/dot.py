"""A graph as text for Graphviz: `dot -Tsvg`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.ir.attribute_text import AttributeText
from weft.ir.text import Printer, value_names

if TYPE_CHECKING:
    from weft.ir.graph import Graph, Value

_LONGEST = 40  # characters of attributes in a box
_FILL = 'style=filled, fillcolor="#cfe8cf"'


def graph_dot(graph: Graph) -> str:
    """Boxes are calls, arrows are values, nested graphs are frames next to their call."""
    drawing = _Drawing()
    lines = ["digraph {", '  rankdir=TB; node [shape=box, fontname="monospace"];']
    lines += drawing.draw(graph, "  ")
    return "\n".join([*lines, "}"])


class _Drawing:
    def __init__(self) -> None:
        self.printer = Printer(AttributeText({}), False, False)
        self.count = 0

    def box(self) -> str:
        self.count += 1
        return f"n{self.count - 1}"

    def draw(self, graph: Graph, indent: str) -> list[str]:
        """The lines of one graph, nested ones included."""
        names = value_names(graph.values())
        boxes: dict[Value, str] = {}
        lines: list[str] = []
        arrows: list[str] = []
        for value in graph.inputs:
            box = boxes[value] = self.box()
            label = f"{names[value]}\n{value.type}"
            lines.append(f"{indent}{box} [label={_quoted(label)}, {_FILL}];")
        for node in graph.nodes:
            box = self.box()
            boxes.update(dict.fromkeys(node.outputs, box))
            attrs = self.printer.attrs_text(node)
            shown = attrs if len(attrs) <= _LONGEST else f"{attrs[:_LONGEST]}…"
            label = f"{node.op.name}\n{shown}" if shown else node.op.name
            lines.append(f"{indent}{box} [label={_quoted(label)}];")
            for nested in node.graphs:
                first = f"n{self.count}"
                lines.append(f"{indent}subgraph cluster_{first} {{")
                lines.append(f"{indent}  label={_quoted(f'@{nested.name} of {node.op.name}')};")
                lines += self.draw(nested, f"{indent}  ")
                lines.append(f"{indent}}}")
                arrows.append(f"{indent}{box} -> {first} [style=dotted, arrowhead=none];")
            arrows += [self.arrow(boxes, names, value, box, indent) for value in node.inputs]
        result = self.box()
        lines.append(f'{indent}{result} [label="return", style=rounded];')
        arrows += [self.arrow(boxes, names, value, result, indent) for value in graph.outputs]
        return [*lines, *arrows]

    def arrow(
        self, boxes: dict[Value, str], names: dict[Value, str], value: Value, to: str, indent: str
    ) -> str:
        source = boxes.get(value, "unknown")
        if value.node is None:
            return f"{indent}{source} -> {to};"
        label = _quoted(f"{names.get(value, '%?')}: {value.type}")
        return f"{indent}{source} -> {to} [label={label}];"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
