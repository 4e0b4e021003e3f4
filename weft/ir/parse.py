"""Text to graph: the inverse of `weft.ir.text`. `docs/ir.md` has the grammar."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from weft.base.dims import dim
from weft.base.errors import WeftError
from weft.base.lazy import Lazy
from weft.base.source import SourceLocation
from weft.ir.attribute_parse import AttributeParser, unquoted
from weft.ir.graph import Graph, Node, Stage, Value
from weft.ir.op import OPS, Op, card
from weft.ir.scan import QUOTED, Scanner
from weft.ir.types import TensorType, Type

__all__ = ["parse_graph"]

difflib = Lazy("difflib")

_WORD = rf"({QUOTED}|\S+)"
_LOCATION = re.compile(
    rf"{_WORD}:(\d+) in {_WORD}(?: of {_WORD})?(?: on {_WORD})?(?: (backward|update))?"
    rf"(?: of {_WORD})?( at .*)?"
)
_STAGE = re.compile(rf"#\s*after ({QUOTED}|[^,\n]+), (\S+) ms(?:: (.*\S))?\s*")


def parse_graph(text: str, constants: Mapping[str, Any] | None = None) -> Graph:
    """The graph that prints as this text; `constants` has the arrays it refers to, by digest.

    >>> g = weft.parse_graph('''
    ... graph @f(%x: f32[B,4]) {
    ...   %0: f32[B] = sum[axis=(1,), keepdims=False] %x
    ...   return %0
    ... }''')
    >>> g.nodes[0].out.type.shape
    (B,)
    """
    parser = GraphParser(text, constants or {})
    try:
        graph = parser.graph(parser.stages())
    except SyntaxError:  # of a name in quotes
        parser.scan.fail("the quoted name before this does not read")
    parser.stages()
    if parser.scan.stop < len(text) or parser.scan.text.strip():
        parser.scan.fail("expected nothing after the graph")
    return graph


class GraphParser:
    """Reads graphs at the position of the scanner."""

    def __init__(self, text: str, constants: Mapping[str, Any]) -> None:
        self.scan = Scanner(text)
        self.attributes = AttributeParser(self.scan, constants)
        self._located: dict[str, SourceLocation | None] = {}

    def stages(self) -> tuple[Stage, ...]:
        """Read comments, which are the history of the graph that follows, and skip empty lines."""
        scan = self.scan
        found: list[Stage] = []
        while scan.kind == "end" and scan.stop > scan.position:
            found += _stage(scan.text)
            scan.advance()
        return tuple(found)

    def graph(self, history: tuple[Stage, ...]) -> Graph:
        """graph @f(%x: f32[2]) { … }"""
        scan = self.scan
        scan.expect("graph")
        graph = Graph(unquoted(scan.take("at", "the name of the graph, as in @f")[1:]))
        if scan.accept("["):
            self._bounds()
        scan.expect("(")
        values: dict[str, Value] = {}
        results = self._results(")")
        graph.set_inputs([type for _, _, type in results], [_name(n) for _, n, _ in results])
        self._define(values, results, graph.inputs)
        scan.expect(")")
        scan.expect("{")
        graph.history = (*history, *_stage(self._end()))
        nodes = graph.nodes
        while True:
            if scan.kind == "end":
                if scan.stop == scan.position:
                    scan.fail("the graph has no end: expected a call, or return")
                scan.advance()
            elif scan.text == "return":
                break
            else:
                nodes.append(self._node(values))
        scan.advance()
        graph.outputs = tuple(self._uses(values))
        self._end()
        self.stages()
        scan.expect("}")
        return graph

    def _node(self, values: dict[str, Value]) -> Node:
        """%0: f32[2] = sum[axis=(0,)] %x"""
        scan = self.scan
        results: list[Result] = []
        if scan.kind == "value":
            results = self._results("=")
            scan.expect("=")
        op = self._op()
        known = None
        if op.creation and len(results) == 1:
            known = results[0][2]
        attrs: dict[str, Any] = {}
        if scan.accept("["):
            self._attrs(attrs, known)
        if isinstance(
            known, TensorType
        ):  # attributes that follow from the type of the result are not printed
            for name, said in (("dtype", known.dtype), ("device", known.device)):
                if name in op.attrs:
                    attrs.setdefault(name, said)
        inputs = self._uses(values)
        graphs: list[Graph] = []
        if scan.accept("{"):
            location = self._location(self._end())
            history = self.stages()
            while not scan.accept("}"):
                graphs.append(self.graph(history))
                self._end()
                history = self.stages()
            self._end()
        else:
            location = self._location(self._end())
        node = Node(op, inputs, attrs, [type for _, _, type in results], graphs, location)
        for value, (_, name, _) in zip(node.outputs, results, strict=True):
            value.name = _name(name)
        self._define(values, results, node.outputs)
        return node

    def _op(self) -> Op:
        scan = self.scan
        if scan.kind == "string":
            name = unquoted(scan.text)
        elif scan.kind == "word":
            name = scan.text
        else:
            scan.fail("expected a call, as in %1: f32[2] = add %x, %y; or return")
        op = card(name)
        if op is None:
            near = difflib.get_close_matches(name, OPS, 3)
            hint = f"did you mean {' or '.join(near)}?" if near else "ops of your own: custom_op"
            scan.fail(f"there is no op {name!r}", hint=hint)
        scan.advance()
        return op

    def _attrs(self, attrs: dict[str, Any], known: Type | None) -> None:
        scan = self.scan
        while not scan.accept("]"):
            if attrs:
                scan.expect(",")
            position = scan.position
            name = scan.take("word", "an attribute, as in axis=0")
            if name in attrs:
                scan.fail(f"the attribute {name} is given twice", position)
            scan.expect("=")
            attrs[name] = self.attributes.value(known)

    def _results(self, close: str) -> list[Result]:
        """%x: f32[2], %y: f32[3]; up to a closing sign."""
        scan = self.scan
        found: list[Result] = []
        while scan.text != close:
            if found:
                scan.expect(",")
            position = scan.position
            name = scan.take("value", "a value, as in %x")
            scan.expect(":")
            found.append((position, name, self.attributes.type()))
        return found

    def _uses(self, values: dict[str, Value]) -> list[Value]:
        """%x, %y"""
        scan = self.scan
        found: list[Value] = []
        while scan.kind == "value":
            value = values.get(scan.text)
            if value is None:
                scan.fail(
                    f"{scan.text} is not defined above",
                    hint="define it before; a nested graph sees only its own inputs",
                )
            found.append(value)
            scan.advance()
            if not scan.accept(","):
                break
            if scan.kind != "value":
                scan.fail("expected a value, as in %x")
        return found

    def _define(
        self, values: dict[str, Value], results: list[Result], made: tuple[Value, ...]
    ) -> None:
        for (position, name, _), value in zip(results, made, strict=True):
            if name in values:
                self.scan.fail(f"{name} is defined twice", position)
            values[name] = value

    def _bounds(self) -> None:
        """[B>=1, 2<=C<=8]"""
        scan = self.scan
        while True:
            position = scan.position
            low, high = 0, None
            if scan.kind == "int":
                low = int(scan.take("int", "a number"))
                scan.expect("<=")
            name = scan.take("word", "the name of a dimension")
            if scan.accept(">="):
                low = int(scan.take("int", "a number"))
            elif scan.accept("<="):
                high = int(scan.take("int", "a number"))
            try:
                self.attributes.names[name] = dim(name, low, high)
            except WeftError as error:
                scan.fail(error.message, position)
            if not scan.accept(","):
                break
        scan.expect("]")

    # --- comments -----------------------------------------------------------------------------

    def _end(self) -> str:
        """Read the comment at the end of a line, and go to the next line."""
        scan = self.scan
        if scan.kind != "end":
            scan.fail("expected the end of the line")
        text = scan.text
        scan.advance()
        return text

    def _location(self, comment: str) -> SourceLocation | None:
        if len(comment) < 2:
            return None
        if comment not in self._located:
            self._located[comment] = _location(comment[1:].strip())
        return self._located[comment]


Result = tuple[int, str, Type]  # its position, %name and type


def _name(token: str) -> str:
    """The name of a value; values that are printed as a number have none."""
    name = token[1:]
    return "" if name.isdecimal() else unquoted(name)


def _location(text: str) -> SourceLocation | None:
    match = _LOCATION.fullmatch(text)
    if match is None:
        return None
    module, device, role, of = (unquoted(part or "") for part in match.group(4, 5, 6, 7))
    forward = None
    if match[8]:
        forward = _location(match[8].removeprefix(" at "))
        if forward is None:
            return None
    place = unquoted(match[1]), int(match[2]), unquoted(match[3])
    return SourceLocation(*place, module, role, forward, of, device=device)


def _stage(comment: str) -> list[Stage]:
    match = _STAGE.fullmatch(comment)
    if match is None:
        return []
    try:
        seconds = float(match[2]) / 1e3
    except ValueError:
        return []
    return [Stage(unquoted(match[1]), seconds, unquoted(match[3] or ""))]
