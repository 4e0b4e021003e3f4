"""Traced functions: recorded on the first call, replayed afterwards.

A call goes along the tree of recorded paths as far as guards and answers allow. Where it finds no
way on, the function is recorded anew, on the same arguments, and the new path put into the tree.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from weft.autodiff.call import link
from weft.autodiff.node import freed, tensor_of
from weft.autodiff.split import Split
from weft.base.errors import CaptureError
from weft.base.pytree import tree_unflatten
from weft.base.source import warn_user
from weft.capture.trace.new_leaves import make_leaves
from weft.capture.trace.parting import budget_trouble, split_of
from weft.capture.trace.recorder import TraceRecorder, array_tensor
from weft.capture.trace.segments import Ending, Given, Made, Segment, acts, answer_key
from weft.capture.trace.tree import backward_inputs, describe, insert
from weft.capture.watch.effects import replay
from weft.core.bind import bind, recorder, recording
from weft.core.grad_mode import mode
from weft.core.number import Number
from weft.core.tensor import Tensor, wrap
from weft.ir.graph import Graph, Value, extract
from weft.ir.interpret import Program

__all__ = ["CaptureWarning"]

Numbers = dict[Value, Tensor]
Execute = Callable[[list[Tensor]], Sequence[Tensor]]
Prepare = Callable[[Graph], Execute]  # a graph in the form in which it is run


class CaptureWarning(UserWarning):
    """A function that is recorded again and again, or that cannot be recorded."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One time that the function was recorded: why, how long it took, and what came of it."""

    number: int
    reason: str
    seconds: float
    outcome: str

    def __str__(self) -> str:
        return f"{self.number}: {self.reason} ({self.outcome}, {self.seconds * 1e3:.3g} ms)"


class CacheInfo(NamedTuple):
    """What `cache_info` tells: calls replayed, recordings made, paths kept, the limit of those."""

    hits: int
    recordings: int
    paths: int
    limit: int


class _Miss:
    """Where a call found no recorded way on: how far it came, and why it ended there."""

    __slots__ = ("reason", "taken")

    def __init__(self, taken: list[Segment], reason: str) -> None:
        self.taken = taken
        self.reason = reason


class Traced:
    """A function that is recorded along each path it takes. Made by `weft.trace`."""

    captures = True  # inside of another recording, the function itself is followed
    recorder_class: type[TraceRecorder] = TraceRecorder
    strict = False  # is it an error if the function cannot be recorded?

    def __init__(
        self,
        function: Callable[..., Any],
        prepare: Prepare,
        limit: int = 64,
        budget: float | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.recordings: list[Recording] = []
        self.limit = limit
        self._prepare = prepare
        self._budget = budget
        self._told_of_budget = False
        self._roots: list[Segment] = []
        self._lock = threading.RLock()
        self._uncacheable = 0
        self._hits = 0
        self._warned = False

    # --- calls --------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if recorder() is not None:  # part of a larger recording
            return self.function(*args, **kwargs)
        result = self._replay(args, kwargs)
        if result.__class__ is not _Miss:
            self._hits += 1
            return result
        with self._lock:
            result = self._replay(args, kwargs)  # another thread may have recorded it meanwhile
            if result.__class__ is not _Miss:
                return result
            if self._may_record():
                result = self._record(args, kwargs, result)
        return self.function(*args, **kwargs) if result.__class__ is _Miss else result

    def __get__(self, obj: Any, kind: type | None = None) -> Any:
        return self if obj is None else functools.partial(self, obj)

    def __repr__(self) -> str:
        return f"<traced {self._name()}: {len(self.recordings)} recordings>"

    # --- replaying ----------------------------------------------------------------------------

    def _replay(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        numbers: Numbers = {}
        taken: list[Segment] = []
        candidates: Sequence[Segment] = self._roots
        while True:
            for segment in candidates:
                if segment.check(args, kwargs) < 0:
                    break
            else:
                return _Miss(taken, self._why(taken, candidates, args, kwargs))
            self._run(segment, numbers, args, kwargs)
            taken.append(segment)
            question = segment.question
            if question is None:
                return self._end(segment, taken, numbers, args, kwargs)
            answer = question.answer(numbers[question.value])
            found = segment.children.get(answer_key(answer))
            if found is None:
                where = f" at {question.location}" if question.location else ""
                known = ", ".join(f"{a!r:.30}" for a in list(segment.answers.values())[:4])
                reason = f"{question.kind} of a tensor{where} was {answer!r:.60}, recorded: {known}"
                return _Miss(taken, reason)
            candidates = found

    def _run(
        self, segment: Segment, numbers: Numbers, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Compute a segment: what is used after it is added to `numbers`."""
        for value, origin in segment.inputs:
            given = origin.evaluate(args, kwargs)
            numbers[value] = given if isinstance(given, Tensor) else array_tensor(given)
        ready = segment.ready
        if ready is None:
            ready = segment.ready = self._ready(segment)
        execute, inputs, wanted = ready
        if execute is None:
            return
        before = mode.enabled
        mode.enabled = False
        try:
            found = execute([numbers[value] for value in inputs])
        finally:
            mode.enabled = before
        numbers.update(zip(wanted, found, strict=True))

    def _ready(self, segment: Segment) -> tuple[Any, list[Value], list[Value]]:
        graph, inputs, wanted = segment.graph(self._name())
        if not wanted and not acts(graph):
            return None, inputs, wanted
        return self._prepare(graph), inputs, wanted

    def _end(
        self,
        segment: Segment,
        path: list[Segment],
        numbers: Numbers,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """The result of a path; what the function wrote is written now."""
        ending = segment.ending
        assert ending is not None
        made = [wrap(numbers[value]._data) for value in ending.made]
        make_leaves(ending.new_leaves, made, args, kwargs)
        if ending.backward is not None:
            self._link(ending, path, numbers, made)
        leaves: list[Any] = []
        for leaf in ending.leaves:
            if leaf.__class__ is Made:
                found = made[leaf.index]
                leaves.append(found.numpy().item() if leaf.is_number else found)
            elif leaf.__class__ is Given:
                leaves.append(leaf.origin.evaluate(args, kwargs))
            else:
                leaves.append(leaf)
        if ending.writes or ending.effects:
            self._write(ending, made, args, kwargs)
        return tree_unflatten(ending.result, leaves)

    def _write(
        self, ending: Ending, made: list[Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        targets = [write.target.evaluate(args, kwargs) for write in ending.writes]
        grads = [
            write.grad if isinstance(write.grad, (int, str)) else write.grad.evaluate(args, kwargs)
            for write in ending.writes
        ]
        for write, target, grad in zip(ending.writes, targets, grads, strict=True):
            if write.value is not None:
                target._data = made[write.value]._data
                if write.history:
                    target._node = made[write.value]._node
            if grad != "same":
                target._grad = (
                    None if grad == "none" else made[grad] if isinstance(grad, int) else grad
                )

        def this_call(tensor: Tensor) -> Any:
            place = ending.places[id(tensor)]
            found = made[place] if isinstance(place, int) else place.evaluate(args, kwargs)
            return found.numpy().item() if tensor.__class__ is Number else found

        replay(ending.effects, args, kwargs, this_call)

    def _link(
        self, ending: Ending, path: list[Segment], numbers: Numbers, made: list[Tensor]
    ) -> None:
        """Make the call one node of the dynamic graph."""
        backward = ending.backward
        assert backward is not None
        own = [made[leaf.place] for leaf in ending.new_leaves if leaf.learns]
        inner = backward.sources[: len(backward.sources) - len(own)]
        sources = [numbers[value] for value in inner] + own
        saved = backward_inputs(backward)
        kept = [_plain(numbers[value]) for value in saved]
        places = [i for i, value in enumerate(backward.gradients) if value is not None]
        open_ = [i for i in places if backward.there[i] is not None]
        wanted = [backward.gradients[i] for i in places] + [backward.there[i] for i in open_]

        def spread(found: Sequence[Tensor]) -> list[Tensor | None]:
            grads: list[Tensor | None] = [None] * len(sources)
            for i, g in zip(places, found, strict=False):
                grads[i] = g
            for i, there in zip(open_, found[len(places) :], strict=True):
                if not there:
                    grads[i] = None
            return grads

        if backward.freed:

            def gone(_cotangents: Sequence[Tensor]) -> Sequence[Tensor | None]:
                raise freed(f"{self._name().capitalize()}Backward")

            link(self._name().capitalize(), sources, [made[i] for i in ending.tracked], gone, gone)
            return

        def run_backward(
            cotangents: Sequence[Tensor], release: bool = False
        ) -> Sequence[Tensor | None]:
            if backward.ready is None:
                graph = extract(
                    f"{self._name()}_backward",
                    [*saved, *backward.cotangents],
                    backward.nodes,
                    wanted,  # type: ignore[arg-type]
                )
                backward.ready = self._prepare(graph)
            return spread(backward.ready(_given(kept, cotangents, release)))

        inputs = [value for segment in path for value, _ in segment.inputs]
        edges = dict(zip(inner, [x._node for x in sources], strict=False))
        given = [(numbers[value]._data, edges.get(value)) for value in inputs]

        def differentiable(cotangents: Sequence[Tensor]) -> Sequence[Tensor | None]:
            again = set() if backward.split is None else set(backward.split.recomputed)
            nodes = [node for segment in path for node in segment.nodes]
            nodes += [node for node in backward.nodes if node not in again]
            graph = extract(self._name(), [*inputs, *backward.cotangents], nodes, wanted)  # type: ignore[arg-type]
            program = Program(graph)
            tensors = [tensor_of(data, node) for data, node in given]
            slots = program.run([*tensors, *cotangents], bind)
            return spread([slots[i] for i in program.outputs])

        results = [made[i] for i in ending.tracked]
        release = functools.partial(run_backward, release=True)
        link(self._name().capitalize(), sources, results, run_backward, differentiable, release)

    # --- recording ----------------------------------------------------------------------------

    def _may_record(self) -> bool:
        if self._uncacheable >= 2:
            return False
        if len(self.recordings) < self.limit:
            return True
        if not self._warned:
            self._warned = True
            last = self.recordings[-1].reason
            warn_user(
                f"{self._name()} was recorded {self.limit} times; from now on, calls that no "
                f"recording fits run as plain Python. The last was recorded because: {last}. "
                "`traced.recordings` lists all; weft.trace(fn, limit=...) sets the limit",
                CaptureWarning,
            )
        return False

    def _record(self, args: tuple[Any, ...], kwargs: dict[str, Any], miss: _Miss) -> Any:
        """Record one run, and finish this call from the recording."""
        start = time.perf_counter()
        recorded = self.recorder_class(args, kwargs)
        watch = recorded.watch
        ending: Ending | None = None
        trouble: list[str] = []
        try:
            with recording(recorded):
                result = watch.run(self.function, args, kwargs)
                ending = recorded.finish(result)
        except CaptureError as error:
            if self.strict:
                raise
            trouble.append(str(error))
        finally:
            recorded.restore()
            watch.rollback()
        trouble += [*watch.uncacheable, *recorded.refusals]
        if ending is not None and not trouble:
            path = insert(self._roots, miss.taken, recorded.segments, ending, self._budget)
            self._warn_of_budget(path)
        seconds = time.perf_counter() - start
        outcome = f"not kept: {trouble[0]}" if trouble else f"{len(recorded.graph.nodes)} ops"
        self.recordings.append(Recording(len(self.recordings), miss.reason, seconds, outcome))
        if trouble:
            self._uncacheable += 1
            if self._uncacheable == 1:
                warn_user(
                    f"{self._name()} cannot be kept as a graph and runs as plain Python: "
                    f"{trouble[0]}",
                    CaptureWarning,
                )
        if not trouble:
            return self._replay(args, kwargs)
        if ending is None or not recorded.usable:
            return miss
        # This call has been made already: what it read from a clock or a file is not read twice.
        path = insert([], [], recorded.segments, ending, self._budget)
        numbers: Numbers = {}
        for segment in path:
            self._run(segment, numbers, args, kwargs)
        return self._end(path[-1], path, numbers, args, kwargs)

    def _warn_of_budget(self, path: list[Segment]) -> None:
        if self._budget is None or self._told_of_budget:
            return
        trouble = budget_trouble(path)
        if trouble:
            self._told_of_budget = True
            warn_user(f"{self._name()}: {trouble}", CaptureWarning)

    def _why(
        self,
        taken: list[Segment],
        candidates: Sequence[Segment],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> str:
        if not candidates:
            return "the first call"
        segment = candidates[-1]
        failed = segment.check(args, kwargs)
        return str(segment.guards[failed].found(args, kwargs))

    def _name(self) -> str:
        name = getattr(self.function, "__name__", type(self.function).__name__)
        return "lambda" if name == "<lambda>" else str(name)

    # --- to look into -------------------------------------------------------------------------

    def cache_info(self) -> CacheInfo:
        """How often calls were replayed and recorded, and how much of the cache is used."""
        paths = sum(segment.ending is not None for segment in self._segments())
        return CacheInfo(self._hits, len(self.recordings), paths, self.limit)

    def tree(self) -> str:
        """The tree of recorded paths, as text."""
        return describe(self._roots)

    def paths(self) -> list[Graph]:
        """The graph of each recorded path, from the beginning to the result."""
        graphs: list[Graph] = []
        stack = [(root, [root]) for root in reversed(self._roots)]
        while stack:
            segment, path = stack.pop()
            if segment.ending is not None:
                inputs = [value for part in path for value, _ in part.inputs]
                nodes = [node for part in path for node in part.nodes]
                graphs.append(extract(self._name(), inputs, nodes, segment.ending.made))
            for kids in reversed(segment.children.values()):
                stack += [(kid, [*path, kid]) for kid in reversed(kids)]
        return graphs

    def splits(self) -> list[Split]:
        """For each path with a backward: what is saved for it, and what is run once more."""
        endings = [segment.ending for segment in self._segments() if segment.ending is not None]
        found = [split_of(ending) for ending in endings]
        return [split for split in found if split is not None]

    def _segments(self) -> Iterator[Segment]:
        stack = list(self._roots)
        while stack:
            segment = stack.pop()
            yield segment
            for kids in segment.children.values():
                stack += kids

    def guards(self) -> list[str]:
        """All guards of all recordings, as text."""
        return [guard.description for part in self._segments() for guard in part.guards]


def _given(kept: list[Any], cotangents: Sequence[Tensor], release: bool) -> list[Any]:
    """The inputs of a backward; with `release` nobody else holds on to what was kept."""
    given = [*kept, *cotangents]
    if release:
        kept.clear()
    return given


def _plain(value: Any) -> Any:
    """What is kept for backward, without its history; a stack of tensors is kept as it is."""
    return wrap(value._data) if isinstance(value, Tensor) else value
