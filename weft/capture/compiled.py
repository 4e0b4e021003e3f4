"""Functions captured from their source: recorded with their control flow, and replayed."""

from __future__ import annotations

import ast
import functools
import types
from typing import Any

from weft.base.errors import CaptureError
from weft.capture.convert import NoSource, Unconvertible, transformed
from weft.capture.grown import settle
from weft.capture.merge import Maybe, one_level, undefined
from weft.capture.segments import Ending, Write
from weft.capture.source_hooks import SourceWatch
from weft.capture.structured import Structured
from weft.capture.trace import Prepare, Traced
from weft.capture.trace_recorder import TraceRecorder
from weft.core.bind import bind
from weft.core.grad_mode import no_grad
from weft.core.tensor import StateTensor, Tensor
from weft.ir.graph import Value
from weft.ir.interpret import Program, Runner
from weft.ir.literal import CONSTANT, constant_attrs
from weft.ir.op import Trait
from weft.ops.effects import muted


class SourceRecorder(TraceRecorder):
    """Records one run whose control flow on tensors becomes part of the graph."""

    watch_class = SourceWatch
    watch: SourceWatch

    def __init__(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], fallback: str = "error"
    ) -> None:
        super().__init__(args, kwargs)
        self.watch.flow.fallback = fallback

    def _compute(self, value: Value) -> Tensor:
        numbers = self._numbers
        nodes = self.graph.nodes
        before, muted.on = muted.on, True
        try:
            with no_grad():
                while self._computed < len(nodes):
                    node = nodes[self._computed]
                    given = [numbers[v] for v in node.inputs]
                    if node.graphs:
                        programs = tuple([Program(graph) for graph in node.graphs])
                        evaluate: Any = node.op.eval
                        out = evaluate(Runner(bind, {}), *given, graphs=programs, **node.attrs)
                    elif Trait.STACK in node.op.traits:
                        evaluate = node.op.eval
                        out = evaluate(Runner(bind, {}), *given, **node.attrs)
                    else:
                        out = bind(node.op, *given, **node.attrs)
                    parts = out if isinstance(out, (tuple, list)) else (out,)
                    numbers.update(zip(node.outputs, parts, strict=True))
                    self._computed += 1
        finally:
            muted.on = before
        return numbers[value]

    def lift(self, tensor: Tensor) -> Value:
        if isinstance(tensor, StateTensor) and self.watch.origin_of(tensor) is None:
            # The state of a generator that the function makes: the same in each call.
            attrs = constant_attrs(tensor.numpy(), tensor.device)
            return self.value_of(self.emit(CONSTANT, [], attrs)[0])
        return super().lift(tensor)

    def _writes(self, entry: Any, place: Any) -> list[Write]:
        if isinstance(entry.tensor, StateTensor) and self.watch.origin_of(entry.tensor) is None:
            return []
        return super()._writes(entry, place)

    def finish(self, result: Any) -> Ending:
        if isinstance(result, Maybe):
            raise undefined("the result", result.why)
        _settle_lists(result, set())
        return super().finish(result)


def _settle_lists(tree: Any, seen: set[int]) -> None:
    """Lists of the graph that are returned: Python asks for their lengths."""
    if id(tree) in seen or isinstance(tree, Tensor):
        return
    seen.add(id(tree))
    if isinstance(tree, list):
        settle(tree)
    found = one_level(tree)
    for part in found[0] if found is not None else ():
        _settle_lists(part, seen)


_OWN = frozenset(
    {
        *("function", "recordings", "limit", "fallback", "recorder_class"),
        *("_budget", "_told_of_budget", "_prepare", "_roots", "_lock", "_uncacheable", "_warned"),
    }
)


class Compiled(Traced):
    """A function whose control flow on tensors is part of its graph. Made by `weft.compile`."""

    captures = True
    strict = True

    def __init__(
        self,
        function: Any,
        prepare: Prepare,
        limit: int = 64,
        fallback: str = "error",
        budget: float | None = None,
    ) -> None:
        super().__init__(function, prepare, limit, budget)
        self.fallback = fallback
        self.recorder_class = functools.partial(SourceRecorder, fallback=fallback)  # type: ignore[assignment]
        if not isinstance(function, (types.FunctionType, types.MethodType)):
            for name in vars(function):  # a module: its attributes are its own, see __getattr__
                if name not in _OWN:
                    self.__dict__.pop(name, None)

    def __getattr__(self, name: str) -> Any:
        if name == "function" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.function, name)

    def converted_source(self) -> str:
        """The code that is run to record the function."""
        function: Any = self.function
        if isinstance(function, types.MethodType):
            function = function.__func__
        if not isinstance(function, types.FunctionType):
            call = type(function).__call__
            method = getattr(type(function), "forward", None) or call
            function = method
        try:
            return ast.unparse(ast.fix_missing_locations(transformed(function, Structured)))
        except (NoSource, Unconvertible) as reason:
            raise CaptureError(f"{self._name()} cannot be converted: {reason}") from None

    def __repr__(self) -> str:
        name = getattr(self, "__qualname__", self.function)
        return f"<compiled {name}: {len(self.recordings)} recordings>"

