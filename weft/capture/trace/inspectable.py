"""What a captured function shows: its recordings, their graphs, guards and signatures."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from dataclasses import field
from types import FunctionType, MethodType
from typing import Any, NamedTuple

from weft.autodiff.split import BackwardSplit
from weft.base.dataclass import dataclass
from weft.base.errors import CaptureError
from weft.capture.notes import CaptureNotes
from weft.capture.trace.programs import Execute
from weft.capture.trace.recompute_choice import split_of
from weft.capture.trace.second_sight import SecondSight
from weft.capture.trace.segments import Segment
from weft.capture.trace.tree import describe
from weft.capture.watch.follow import Wrapper
from weft.convert.convert import NoSource, Unconvertible, transformed
from weft.ir.graph import Graph, extract
from weft.ir.signature import Signature

__all__ = ["CacheInfo", "Inspectable", "Policy", "Recording"]


@dataclass(frozen=True, slots=True)
class Recording:
    """One recording of the function: why, how long it took, and the outcome."""

    number: int
    reason: str
    seconds: float
    outcome: str
    notes: CaptureNotes = field(default_factory=CaptureNotes, repr=False, compare=False)
    prepared: float = 0.0  # seconds of these spent on making programs

    def __str__(self) -> str:
        return f"{self.number}: {self.reason} ({self.outcome}, {self.seconds * 1e3:.3g} ms)"


class CacheInfo(NamedTuple):
    """The result of `cache_info`: replayed calls, recordings, paths, and the limit of those."""

    hits: int
    recordings: int
    paths: int
    limit: int


@dataclass(frozen=True, slots=True)
class Policy:
    """How a function is captured.

    records    True (`weft.compile`): control flow on tensors becomes part of the graph, and what
               cannot be captured is an error. False (`weft.trace`): Python asks the tensor, and the
               answer becomes part of the path
    fallback   "error" or "python": how to call foreign code that gets tensors of the graph
    limit      the maximum number of recordings; after that, unmatched calls run eagerly
    budget     the fraction of the memory that a backward may keep
    dynamic    which sizes are symbolic: "auto", those that have changed; True, all of arguments;
               False, none; or the shapes of arguments, by name
    """

    records: bool = True
    fallback: str = "error"
    limit: int = 64
    budget: float | None = None
    dynamic: Any = "auto"


class Inspectable(Wrapper):
    """The part of a captured function that only reads recordings."""

    recordings: list[Recording]
    programs: list[Execute]  # executables of the recordings, made when needed
    policy: Policy
    _roots: list[Segment]
    _hits: int
    _sight: SecondSight

    def _plain_function(self) -> FunctionType | None:
        """The function that is recorded first; for a module, the method that a call runs."""
        function: Any = self.function
        if isinstance(function, MethodType):
            function = function.__func__
        if not isinstance(function, FunctionType):
            kind = type(function)
            function = getattr(kind, "forward", None) or kind.__call__
        return function if isinstance(function, FunctionType) else None

    def _name(self) -> str:
        name = getattr(self.function, "__name__", type(self.function).__name__)
        return "lambda" if name == "<lambda>" else str(name)

    def converted_source(self) -> str:
        """The rewritten source that is run to record the function."""
        function = self._plain_function()
        if function is None:
            raise CaptureError(f"{self._name()} cannot be converted: it is not written in Python")
        try:
            return ast.unparse(ast.fix_missing_locations(transformed(function)))
        except (NoSource, Unconvertible) as reason:
            raise CaptureError(f"{self._name()} cannot be converted: {reason}") from None

    @property
    def eager_calls(self) -> int:
        """How many calls ran as plain Python because the structure of their arguments was new."""
        return self._sight.calls

    @contextlib.contextmanager
    def recorded_at_first_sight(self) -> Iterator[None]:
        """As a context: calls are recorded, also those with a structure that is new."""
        before, self._sight.off = self._sight.off, True
        try:
            yield
        finally:
            self._sight.off = before

    def cache_info(self) -> CacheInfo:
        """The number of replayed calls and recordings, and the use of the cache."""
        paths = sum(segment.ending is not None for segment in self.segments())
        return CacheInfo(self._hits, len(self.recordings), paths, self.policy.limit)

    def tree(self) -> str:
        """The tree of recorded paths, as text."""
        return describe(self._roots)

    def paths(self) -> list[Graph]:
        """The graph of each recorded path, from the beginning to the result."""
        graphs: list[Graph] = []
        for path in self._ends():
            inputs = [value for part in path for value, _ in part.inputs]
            nodes = [node for part in path for node in part.nodes]
            ending = path[-1].ending
            assert ending is not None
            graphs.append(extract(self._name(), inputs, nodes, ending.made))
        return graphs

    def _ends(self) -> Iterator[list[Segment]]:
        """The segments of each recorded path, in order."""
        stack = [(root, [root]) for root in reversed(self._roots)]
        while stack:
            segment, path = stack.pop()
            if segment.ending is not None:
                yield path
            for kids in reversed(segment.children.values()):
                stack += [(kid, [*path, kid]) for kid in reversed(kids)]

    def signatures(self) -> list[Signature]:
        """What each recorded path takes, reads, writes and returns, in the order of `paths`."""
        return [path[-1].ending.signature for path in self._ends() if path[-1].ending]

    def graph(self, stage: str = "captured", program: int = -1) -> Graph:
        """One of the graphs that calls run (`programs`; the latest), at a stage.

        stage   "captured": as recorded; "optimized": after the passes; "scheduled": lowered to the
                ops of kernels
        """
        if not self.programs:
            raise CaptureError(
                f"{self._name()} has not been called: there is no graph yet",
                op="graph",
                hint="call it once with arguments of the kind that it is for",
            )
        return self.programs[program].graph(stage)

    def splits(self) -> list[BackwardSplit]:
        """For each path with a backward: what is saved for it, and what is recomputed."""
        endings = [segment.ending for segment in self.segments() if segment.ending is not None]
        found = [split_of(ending) for ending in endings]
        return [split for split in found if split is not None]

    def segments(self) -> Iterator[Segment]:
        """The segments of all recorded paths."""
        stack = list(self._roots)
        while stack:
            segment = stack.pop()
            yield segment
            for kids in segment.children.values():
                stack += kids

    def guards(self) -> list[str]:
        """All guards of all recordings, as text."""
        return [guard.description for part in self.segments() for guard in part.guards]
