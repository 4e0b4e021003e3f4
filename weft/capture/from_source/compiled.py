"""Functions captured from their source: recorded with their control flow, and replayed."""

from __future__ import annotations

import ast
import functools
from typing import Any

from weft.base.errors import CaptureError
from weft.capture.convert.convert import NoSource, Unconvertible, transformed
from weft.capture.convert.structured import Structured
from weft.capture.from_source.dynamic_list import settle
from weft.capture.from_source.hooks import SourceWatch
from weft.capture.from_source.merge import Maybe, one_level, undefined
from weft.capture.from_source.split import resolve_all
from weft.capture.trace.recorder import TraceRecorder
from weft.capture.trace.segments import Ending
from weft.capture.trace.traced import Prepare, Traced
from weft.core.tensor import Tensor
from weft.ir.graph import Value
from weft.ops.effects import silently


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
        # What it prints is printed when it is replayed. What a call back into Python reads and
        # writes is its own business.
        watch = self.watch
        before, watch.active = watch.active, False
        noted = set(watch._noted)  # what is not guarded now is to be guarded when it is read again
        try:
            with silently():
                return super()._compute(value)
        finally:
            watch.active, watch._noted = before, noted

    def write(self, target: Tensor) -> None:
        self.watch.flow.mixed.check(target)
        super().write(target)

    def finish(self, result: Any) -> Ending:
        if isinstance(result, Maybe):
            raise undefined("the result", result.why)
        flow = self.watch.flow
        if flow.splits:
            resolve_all(flow, [result], set())
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


class Compiled(Traced):
    """A function whose control flow on tensors is part of its graph. Made by `weft.compile`."""

    captures = True
    strict = True
    _rewriter = Structured

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

    def _alike(self, function: Any) -> Compiled:
        return Compiled(function, self._make, self.limit, self.fallback, self._budget)

    def converted_source(self) -> str:
        """The code that is run to record the function."""
        function = self._plain_function()
        if function is None:
            raise CaptureError(f"{self._name()} cannot be converted: it is not written in Python")
        try:
            return ast.unparse(ast.fix_missing_locations(transformed(function, Structured)))
        except (NoSource, Unconvertible) as reason:
            raise CaptureError(f"{self._name()} cannot be converted: {reason}") from None

    def __repr__(self) -> str:
        name = getattr(self, "__qualname__", self.function)
        return f"<compiled {name}: {len(self.recordings)} recordings>"
