"""What all functions of one source-captured run share: open journals, tokens, what went wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.base.errors import CaptureError
from weft.base.source import user_location
from weft.capture.effects import TextPart, TextParts
from weft.capture.journal import Entry, Journal, Variable, entry_for
from weft.capture.nested import NestedRecorder, graph_recorder
from weft.capture.recorder import GraphRecorder
from weft.core.number import Number
from weft.core.symbolic import symbolic
from weft.core.tensor import Tensor
from weft.ir.graph import Node
from weft.ir.op import Op
from weft.ir.types import TOKEN
from weft.ops.effects import FAIL, FIRST_TOKEN, Raised

if TYPE_CHECKING:
    from weft.capture.watch import Watch


class Flow:
    """One run."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.journals: list[Journal] = []
        self.tokens: dict[GraphRecorder, Tensor] = {}
        self.tries = 0  # how many `try` statements are open outside of the innermost branch
        self.poisoned: dict[int, tuple[Any, str]] = {}
        self.iterators: dict[int, tuple[Any, int]] = {}
        self.unrolled: list[tuple[str, Exception]] = []  # loops that Python ran, and why
        self._tries: list[int] = []

    # --- journals -----------------------------------------------------------------------------

    def open(self, journal: Journal, nested: NestedRecorder | None, here: GraphRecorder) -> None:
        self.journals.append(journal)
        self._tries.append(self.tries)

    def close(self, nested: NestedRecorder | None = None) -> None:
        self.journals.pop()
        self.tries = self._tries.pop()
        if nested is not None:
            self.tokens.pop(nested, None)

    @property
    def depth(self) -> int:
        return len(self.journals)

    def touch(self, obj: Any) -> None:
        """An object is about to be written: let all open journals know what it holds."""
        if self.journals and id(obj) not in self.journals[-1].entries:
            self.note(entry_for(obj))

    def touch_entry(self, entry: Entry) -> None:
        if self.journals and id(entry.obj) not in self.journals[-1].entries:
            self.note(entry)

    def note(self, entry: Entry) -> None:
        before = entry.parts()
        for journal in reversed(self.journals):
            if id(entry.obj) in journal.entries:
                break
            journal.add(entry, before)

    def touch_variable(self, cell: Any, name: str, outside: Any = None) -> None:
        self.touch_entry(Variable(cell, name, outside))

    def unmergeable(self, entry: Entry, message: str) -> None:
        """An object is not the same on two ways. It matters if it is used once more."""
        if entry.known(self.watch) is not None:
            raise CaptureError(message, hint="decide by a Python value, or do the same on both ways")
        self.poisoned[id(entry.obj)] = (entry.obj, message)

    def check(self, obj: Any) -> None:
        found = self.poisoned.get(id(obj))
        if found is not None:
            raise CaptureError(
                found[1], hint="decide by a Python value, or do the same on both ways"
            )

    # --- effects ------------------------------------------------------------------------------

    def token(self, recorder: GraphRecorder) -> Tensor | None:
        """What the next effect in a graph comes after."""
        found = self.tokens.get(recorder)
        if found is None and isinstance(recorder, NestedRecorder):
            return self.token(recorder.parent)
        return found

    def last_token(self, recorder: GraphRecorder) -> Tensor:
        """The same, made where there is none yet."""
        found = self.token(recorder)
        if found is not None:
            return found
        root = recorder
        while isinstance(root, NestedRecorder):
            root = root.parent
        node = Node(FIRST_TOKEN, [], {}, [TOKEN], (), user_location())
        root.graph.nodes.append(node)
        made = self.tokens[root] = symbolic(node.out, root)
        return made

    def effect(self, op: Op, tensors: list[Tensor], attrs: dict[str, Any]) -> list[Tensor]:
        """Record an effect, after those before it. Gives its results without the token."""
        here = graph_recorder()
        assert here is not None
        values = [here.value_of(x) for x in (self.last_token(here), *tensors)]
        types = op.infer(*[value.type for value in values], **attrs)
        kinds = types if isinstance(types, tuple) else (types,)
        node = Node(op, values, attrs, kinds, (), user_location())
        here.graph.nodes.append(node)
        made = [symbolic(value, here) for value in node.outputs]
        self.tokens[here] = made[0]
        return made[1:]

    def fail(self, error: Exception) -> None:
        """The graph raises an error here."""
        self.effect(FAIL, [], {"error": Raised(error)})


def standing_for(function: Any, like: Any) -> Any:
    """A function that errors take for another: they name its line, and the user's function."""
    code = like.__code__
    owner = code.co_qualname.split(".<locals>.__weft")[0].rpartition(".")[2]
    function.__code__ = function.__code__.replace(
        co_firstlineno=code.co_firstlineno, co_filename=code.co_filename, co_name=owner
    )
    return function


def templated(value: Any, tensors: list[Tensor]) -> Any:
    """A function of the tensors' values that makes a Python value with them in it again."""
    if isinstance(value, Tensor):
        index = len(tensors)
        tensors.append(value)
        if isinstance(value, Number):
            return lambda values: values[index].numpy().item()
        return lambda values: values[index]
    if isinstance(value, TextParts):
        parts = [_text_part(part, tensors) for part in value.parts]
        return lambda values: "".join([part(values) for part in parts])
    if type(value) in (list, tuple):
        made = [templated(part, tensors) for part in value]
        kind = type(value)
        return lambda values: kind([part(values) for part in made])
    if type(value) is dict:
        pairs = {key: templated(part, tensors) for key, part in value.items()}
        return lambda values: {key: part(values) for key, part in pairs.items()}
    return lambda values: value


def _text_part(part: Any, tensors: list[Tensor]) -> Any:
    if not isinstance(part, TextPart):
        return lambda values: part
    inner = templated(part.value, tensors)
    return lambda values: part.text(inner(values))
