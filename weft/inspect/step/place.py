"""The place where a run has stopped: its variables, and its position."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

from weft.base.errors import DTypeError, RangeError
from weft.base.source import SourceLocation
from weft.core.operands import as_tensor
from weft.core.tensor import Tensor, wrap
from weft.inspect.frames import Frame, loops_text
from weft.inspect.step.names import Held, Names, Note, Ref, Scope
from weft.ir.graph import Graph, Node, Value
from weft.ir.text import value_names

__all__ = ["Place"]

MISSING = object()
_tables: WeakKeyDictionary[Graph, dict[Any, Value | None]] = WeakKeyDictionary()


def _table(graph: Graph) -> dict[Any, Value | None]:
    """The values of a graph by name, and by location of their node; None if ambiguous."""
    found = _tables.get(graph)
    if found is None:
        found = _tables[graph] = {}
        for value in graph.values():
            where = None if value.node is None else value.node.location
            for key in (value.name, (id(where), value.index)):
                if key and (where is not None or key is value.name):
                    found[key] = None if key in found else value
    return found


class Place:
    """The position of a stopped run: before `node`, or right after it."""

    def __init__(
        self,
        names: Names,
        frames: list[Frame],
        loops: list[tuple[Node, int]],
        node: Node | None,
        is_after: bool = False,
        is_captured: bool = True,
    ) -> None:
        self.names_noted = names
        self.is_captured = is_captured  # no pass has replaced nodes
        self.frames = frames
        self.loops = loops
        self.node = node
        self.is_after = is_after

    @property
    def location(self) -> SourceLocation | None:
        return None if self.node is None else self.node.location

    @property
    def iteration(self) -> int | None:
        """The iteration of the innermost loop, from 0; None outside of loops."""
        found = self.frames[-1].iteration
        return None if found < 0 else found

    def inputs(self) -> list[Any]:
        """The operands of the node."""
        return [] if self.node is None else self.frames[-1].given(self.node)

    def outputs(self) -> list[Any]:
        """The results of the node; empty before it has run."""
        if self.node is None or not self.is_after:
            return []
        return [self.frames[-1].number(value) for value in self.node.outputs]

    # --- names --------------------------------------------------------------------------------

    def notes(self) -> list[Note]:
        """The recorded variables here; for a backward step, those of the forward line first."""
        names, where = self.names_noted, self.location
        if self.node is None:
            found = [names.last]
        else:
            assert where is None or isinstance(where, SourceLocation)
            found = [names.at(where.forward)] if where is not None and where.forward else []
            found.append(names.at(where))
        return [note for note in found if note is not None]

    def scopes(self) -> Iterator[Scope]:
        """The functions whose variables are visible, the innermost first."""
        where = self.location
        for note in self.notes():
            yield from note.scopes
        if where is not None and where.forward is not None:
            forward = self.names_noted.at(where.forward)
            for scope in forward.scopes if forward is not None else ():
                yield self.names_noted.in_the_end(scope)  # the forward has finished

    def variables(self) -> dict[str, Any]:
        """The visible variables, as they were recorded."""
        found: dict[str, Any] = {}
        for scope in self.scopes():
            for name, noted in scope.variables.items():
                found.setdefault(name, noted)
        return found

    def value(self, noted: Any) -> Any:
        """The value of a recorded variable in this run; MISSING if it is not available."""
        if isinstance(noted, Held):
            ref = noted.ref(self.names_noted)
            at = None if ref is None else self.find(ref)
            return noted.tensor if at is None else wrap(at[0].slots[at[1]]._data)
        if isinstance(noted, Ref):
            found = self.find(noted)
            if found is None:
                return MISSING
            number = wrap(found[0].slots[found[1]]._data)
            return number.numpy().item() if noted.is_number else number
        if noted.__class__ is dict:
            made = {key: self.value(part) for key, part in noted.items()}
            return MISSING if any(v is MISSING for v in made.values()) else made
        if noted.__class__ in (list, tuple):
            parts = [self.value(part) for part in noted]
            return MISSING if any(v is MISSING for v in parts) else noted.__class__(parts)
        return noted

    def find(self, ref: Ref, live: bool = False) -> tuple[Frame, int] | None:
        """The frame and slot of a value that is computed. `live`: only if it is still used."""
        over = [] if live else self.names_noted.finished
        for frame in reversed([*over, *self.frames]):
            table = _table(frame.program.graph)
            value = table.get(ref.name)
            if value is None and self.is_captured and ref.location is not None:
                value = table.get((id(ref.location), ref.index))
            if value is not None:
                place = frame.program.place[value]
                if place < len(frame.slots) and isinstance(frame.slots[place], Tensor):
                    return frame, place
        return None

    def named(self, name: str) -> Any:
        """The value of a variable."""
        variables = self.variables()
        if name not in variables:
            known = ", ".join(sorted(variables)) or "none"
            raise RangeError(
                f"there is no variable {name!r} here", op="step", hint=f"the variables are: {known}"
            )
        found = self.value(variables[name])
        if found is MISSING:
            raise RangeError(
                f"{name!r} has no value here in this graph",
                op="step",
                hint="it is computed later, or passes removed it: stage='captured' keeps all",
            )
        return found

    def assign(self, name: str, new: Any) -> None:
        """Replace the value of a variable from here on."""
        noted = self.variables().get(name, MISSING)
        ref = noted.ref(self.names_noted) if isinstance(noted, Held) else noted
        found = self.find(ref, live=True) if isinstance(ref, Ref) else None
        if found is None:
            self.named(name)  # raises an error for a wrong name
            raise RangeError(
                f"{name!r} is no value of the graph that runs here",
                op="step",
                hint="Python values, and those of a graph that has ended, cannot be changed",
            )
        frame, place = found
        frame.slots[place] = like(new, frame.slots[place], name)

    def gradient(self, name: str) -> Any:
        """The gradient of a variable, once the backward has computed it."""
        names, where = self.names_noted, self.location
        bound = [scope.variables[name] for scope in self.scopes() if name in scope.variables]
        values = [noted for noted in bound if isinstance(noted, Ref)]
        refs = [ref for value in values for ref in names.gradients_of(value)]
        if where is not None and names.variables.get(id(where.forward)) == name:
            refs = (
                names.gradients_at(where.forward) + refs
            )  # the value that is being differentiated
        for ref in refs:
            found = self.find(ref)
            if found is not None:
                return found[0].slots[found[1]]
        if not bound:
            self.named(name)  # raises an error that lists the names
        raise RangeError(
            f"there is no gradient of {name!r} here",
            op="step",
            hint="go on into the backward of the op that made it",
        )

    def evaluate(self, expression: str) -> Any:
        """The value of a Python expression of the variables."""
        names = {key: self.value(noted) for key, noted in self.variables().items()}
        known = {key: value for key, value in names.items() if value is not MISSING}
        scope = next(iter(self.scopes()), None)
        with self._placed():
            found = eval(expression, scope.globals if scope else {}, known)
            return found.detach() if isinstance(found, Tensor) else found

    @contextlib.contextmanager
    def _placed(self) -> Iterator[None]:
        """Inside, tensors that the function writes to have their values at this place."""
        undo: list[tuple[Tensor, Any, Any]] = []
        for note in self.notes()[:1]:
            for tensor, now, grad in note.written:
                undo.append((tensor, tensor._data, getattr(tensor, "_grad", None)))
                value, slope = self.value(now), self.value(grad)
                if isinstance(value, Tensor):
                    tensor._data = value._data
                if slope is None or isinstance(slope, Tensor):
                    tensor._grad = slope
        try:
            yield
        finally:
            for tensor, data, grad in undo:
                tensor._data, tensor._grad = data, grad

    # --- as text ------------------------------------------------------------------------------

    def title(self) -> str:
        """The node in one line: its op and its types."""
        if self.node is None:
            return f"at the end of {self.frames[-1].program.graph.name}"
        given = ", ".join(str(value.type) for value in self.node.inputs)
        made = ", ".join(str(value.type) for value in self.node.outputs)
        where = self.location
        text = f"{'after' if self.is_after else 'before'} {self.node.op.name}({given}) -> {made}"
        if where is not None and where.role == "backward":
            text += f", in the backward of {where.of}"
            variable = self.names_noted.variables.get(id(where.forward))
            text += f": gradient of {variable}" if variable else ""
        return text

    def __str__(self) -> str:
        where = self.location
        lines = [self.title()]
        if where is not None:
            if where.forward is not None:
                lines.append(f"  forward: {where.forward}")
            lines.append(f"  at {where}")
        if self.loops:
            lines.append(f"  {loops_text(self.loops)}")
        return "\n".join(lines)

    def where(self) -> str:
        """The stack of the user's functions, outermost first, then the loops and graphs."""
        lines = [f"  {caller}" for caller in self.names_noted.callers]
        seen: set[tuple[str, int]] = set()
        for note in reversed(self.notes()):
            for scope in reversed(note.scopes):
                if (scope.file, scope.line) not in seen:
                    seen.add((scope.file, scope.line))
                    at = SourceLocation(scope.file, scope.line, scope.function)
                    lines.append(f"  {at}")
        graphs = " > ".join(f"@{frame.program.graph.name}" for frame in self.frames)
        lines.append(f"graph {graphs}")
        return "\n".join([*lines, str(self)])

    def graph_text(self, around: int = 5) -> str:
        """The text of the graph around the node, with an arrow at it."""
        graph = self.frames[-1].program.graph
        names = value_names(graph.values())
        nodes = graph.nodes
        here = len(nodes) if self.node is None else nodes.index(self.node)
        first, last = max(0, here - around), min(len(nodes), here + around + 1)
        lines = [f"graph @{graph.name}, {len(nodes)} nodes"]
        lines += [_line(nodes[n], names, n == here) for n in range(first, last)]
        if here == len(nodes):
            lines.append(f"-> return {', '.join(names[value] for value in graph.outputs)}")
        return "\n".join(lines)


def _line(node: Node, names: dict[Value, str], here: bool) -> str:
    made = ", ".join(f"{names[value]}: {value.type}" for value in node.outputs)
    given = ", ".join(names[value] for value in node.inputs)
    nested = " {…}" if node.graphs else ""
    at = node.location
    where = "" if at is None else f"  # {at.file.rpartition('/')[2]}:{at.line}"
    return f"{'->' if here else '  '} {made} = {node.op.name} {given}{nested}{where}"


def like(new: Any, old: Tensor, name: str) -> Tensor:
    """A value converted to the type of the old one."""
    if isinstance(new, Tensor):
        made = new
    else:
        made = as_tensor(new, "step").astype(old.dtype)
        if made.shape == () and old.shape != ():
            made = made.expand(*old.shape)
    if made.type != old.type:
        raise DTypeError(f"{name!r} is {old.type}, and cannot become {made.type}", op="step")
    return made.detach()
