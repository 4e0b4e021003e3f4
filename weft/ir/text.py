"""A graph as text. `weft.ir.parse` reads it back; `docs/ir.md` has the grammar."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from weft.base.source import SourceLocation
from weft.ir.attribute_text import WORD, AttributeText, Table, word
from weft.ir.literal import Literal
from weft.ir.types import TensorType

if TYPE_CHECKING:
    from weft.ir.graph import Graph, Node, Stage, Value

_COMMENTS = 46  # the column of comments, unless the line is longer
_BARE_VALUE = re.compile(r"(?!\d+\Z)[\w.]+")  # digits alone are values without a name
_BARE_FILE = re.compile(r"[^\s'\"]\S*")
_BARE_STAGE = re.compile(r"[^\s,'\"](?:[^\n,]*[^\s,])?")
_BARE_NOTE = re.compile(r"[^\s'\"](?:.*\S)?")
#: Words that do not start a call.
_STARTS = ("graph", "return")


def graph_text(
    graph: Graph,
    *,
    constants: Table | None = None,
    locations: bool = True,
    history: bool = True,
) -> str:
    """The text of a graph; large constants are added to the table `constants`, by digest."""
    printer = Printer(AttributeText({} if constants is None else constants), locations, history)
    return "\n".join(printer.lines(graph))


def graph_constants(graph: Graph) -> Table:
    """The constants that the text of a graph refers to, by digest."""
    table: Table = {}
    graph_text(graph, constants=table, locations=False, history=False)
    return table


def location_text(location: SourceLocation) -> str:
    """model.py:12 in f of Model.blocks.0; train.py:30 in step backward of matmul at model.py…"""
    text = f"{_bare(location.file)}:{location.line} in {_bare(location.function)}"
    if location.module:
        text += f" of {_bare(location.module)}"
    if location.device:
        text += f" on {_bare(location.device)}"
    if location.role:
        text += f" {location.role}"
    if location.of:
        text += f" of {_bare(location.of)}"
    if location.forward is not None:
        text += f" at {location_text(location.forward)}"
    return text


def _bare(text: str) -> str:
    return text if _BARE_FILE.fullmatch(text) and text.isprintable() else repr(text)


def value_names(values: Iterable[Value]) -> dict[Value, str]:
    """The printed name of each value: %name, or a number if it has none."""
    names: dict[Value, str] = {}
    taken: set[str] = set()
    number = 0
    for value in values:
        name = value.name
        if name and name not in taken:
            taken.add(name)
            bare = _BARE_VALUE.fullmatch(name)
            names[value] = f"%{name}" if bare else f"%{name!r}"
        else:
            names[value] = f"%{number}"
            number += 1
    return names


class Printer:
    """Prints graphs line by line."""

    def __init__(self, attributes: AttributeText, locations: bool, history: bool) -> None:
        self.attributes = attributes
        self.locations = locations
        self.history = history
        self._located: dict[SourceLocation, str] = {}

    def lines(self, graph: Graph, indent: str = "") -> list[str]:
        names = value_names(graph.values())
        type_of = self.attributes.type
        inputs = ", ".join([f"{names[value]}: {type_of(value.type)}" for value in graph.inputs])
        body: list[str] = []
        for node in graph.nodes:
            if self.locations and node in graph.notes:
                body.append(f"{indent}  # {graph.notes[node]}")
            body += self.node_lines(node, names, f"{indent}  ")
        outputs = ", ".join([_name(names, value) for value in graph.outputs])
        stages = graph.history if self.history else ()
        lines = [f"{indent}# {_stage_text(stage)}" for stage in stages[:-1]]
        # The dimensions are known when all is printed; the outermost head lists them.
        bounds = "" if indent else self.bounds()
        head = f"{indent}graph @{word(graph.name)}{bounds}({inputs}) {{"
        lines.append(_commented(head, _stage_text(stages[-1])) if stages else head)
        lines += body
        lines.append(f"{indent}  return {outputs}".rstrip())
        lines.append(f"{indent}}}")
        return lines

    def node_lines(self, node: Node, names: dict[Value, str], indent: str) -> list[str]:
        line = f"{indent}{self.call_text(node, names)}"
        if node.graphs:
            line += " {"
        if self.locations and node.location is not None:
            comment = self._located.get(node.location)
            if comment is None:
                comment = self._located[node.location] = location_text(node.location)
            line = _commented(line, comment)
        lines = [line]
        if node.graphs:
            for graph in node.graphs:
                lines += self.lines(graph, f"{indent}  ")
            lines.append(f"{indent}}}")
        return lines

    def call_text(self, node: Node, names: dict[Value, str]) -> str:
        """%0: f32[2] = sum[axis=(0,)] %x"""
        type_of = self.attributes.type
        name = node.op.name
        text = name if WORD.fullmatch(name) and name not in _STARTS else repr(name)
        if node.outputs:
            results = [f"{names[value]}: {type_of(value.type)}" for value in node.outputs]
            text = f"{', '.join(results)} = {text}"
        if node.attrs:
            attrs = self.attrs_text(node)
            text += f"[{attrs}]" if attrs else ""
        if node.inputs:
            text += f" {', '.join([_name(names, value) for value in node.inputs])}"
        return text

    def attrs_text(self, node: Node) -> str:
        """The attributes, without those that follow from the type of the result."""
        value_text = self.attributes.value
        known = created_type(node)
        if known is None:
            return ", ".join([f"{name}={value_text(value)}" for name, value in node.attrs.items()])
        said = {"dtype": known.dtype, "device": known.device}
        return ", ".join(
            f"{name}={self.attributes.literal(value, known)}"
            if isinstance(value, Literal)
            else f"{name}={value_text(value)}"
            for name, value in node.attrs.items()
            if said.get(name) != value
        )

    def bounds(self) -> str:
        """The bounds of the named dimensions: [B>=1, 2<=C<=8]"""
        found = []
        for name, (low, high) in sorted(self.attributes.bounds.items()):
            if high is not None:
                found.append(f"{low or 0}<={name}<={high}")
            elif low:
                found.append(f"{name}>={low}")
        return f"[{', '.join(found)}]" if found else ""


def created_type(node: Node) -> TensorType | None:
    """The type of the result of a CREATION op, which tells its dtype and device."""
    if node.op.creation and len(node.outputs) == 1:
        type = node.outputs[0].type
        return type if isinstance(type, TensorType) else None
    return None


def _name(names: dict[Value, str], value: Value) -> str:
    # A value of another graph breaks the rules, but is shown.
    return names.get(value, "%?")


def _commented(line: str, comment: str) -> str:
    return f"{line.ljust(_COMMENTS)}  # {comment}"


def _stage_text(stage: Stage) -> str:
    """after cse, 0.2 ms: merged 3"""
    name = stage.name if _BARE_STAGE.fullmatch(stage.name) else repr(stage.name)
    text = f"after {name}, {stage.seconds * 1e3:.3g} ms"
    if not stage.note:
        return text
    bare = _BARE_NOTE.fullmatch(stage.note) and stage.note.isprintable()
    return f"{text}: {stage.note if bare else repr(stage.note)}"
