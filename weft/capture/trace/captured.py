"""Captured functions: recorded on the first call, replayed afterwards.

A call follows the tree of recorded paths as far as guards and answers allow. If no branch fits, the
function is recorded again on the same arguments, and the new path is added to the tree.

Calls that write to something outside hold a lock, as recordings do: a call reads at its beginning
and writes at its end, so an update of another thread in between would be lost.
"""

from __future__ import annotations

import functools
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeAlias, TypeVar, overload

from weft.autodiff.transforms.levels import innermost_level
from weft.autodiff.transforms.vmap import is_mapped
from weft.base import store
from weft.base.asked_sizes import asking
from weft.base.bundle import bundled
from weft.base.errors import CaptureError
from weft.base.gc_pause import gc_paused
from weft.base.pytree import tree_leaves
from weft.base.source import capturing, warn_user
from weft.base.tracebacks import shorten
from weft.base.world import own_copy
from weft.capture.hooks import run_watched
from weft.capture.outside_numbers import ChangingNumbers
from weft.capture.trace.binding import parameter_names
from weft.capture.trace.data_sizes import Run, with_asked_sizes
from weft.capture.trace.fast_path import fast_path, has_fast_path
from weft.capture.trace.inspectable import Inspectable, Recording
from weft.capture.trace.inspectable import Policy as Policy
from weft.capture.trace.path_results import Numbers, finish
from weft.capture.trace.programs import Execute as Execute
from weft.capture.trace.programs import Prepare as Prepare
from weft.capture.trace.recompute_choice import budget_trouble
from weft.capture.trace.recorder import TraceRecorder
from weft.capture.trace.repeated import MANY, Cause, Miss, cause_of, is_rounding, said
from weft.capture.trace.second_sight import SecondSight, is_about_structure
from weft.capture.trace.segments import Ending, Segment, acts, answer_key
from weft.capture.trace.sizes import RecordedSizes, SizeHistory, SizePlan
from weft.capture.trace.tree import insert
from weft.capture.trace.under_transforms import call_for_all, run_inside, runs_inside
from weft.capture.watch.follow import FOLLOW, named_object
from weft.capture.watch.follow import policy as follow_policy
from weft.capture.watch.guards import Guard
from weft.capture.watch.origin import MISSING
from weft.capture.watch.refusals import NotKept
from weft.convert.convert import NoSource, Unconvertible, convert
from weft.convert.kept import is_kept, name_of
from weft.core.bind import recorder, recording
from weft.ir.graph import Graph, Value
from weft.ir.signature import OutputRouting
from weft.ops.effects import begin_call, called_before, done, end_call, show_now, showing_later

__all__ = ["CaptureWarning", "Compiled"]

P = ParamSpec("P")
R = TypeVar("R")


class CaptureWarning(UserWarning):
    """A function is recorded too often, or cannot be recorded."""


#: So often is a recording made again with what its code has asked of sizes; then they are fixed.
MOST_PLANS = 8

#: Returned by a replay that needs the lock: the path writes, and other threads may write, too.
_WRITES = object()

COMPILE = Policy()
TRACE = Policy(records=False)


_live: weakref.WeakSet[Captured[..., Any]] = weakref.WeakSet()


def _forked() -> None:
    """In a forked process: replace locks that threads of the parent may hold."""
    for captured in _live:
        captured._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Captured(Inspectable, Generic[P, R]):
    """A function that is recorded at its first call and then replayed. Made by `weft.compile`.

    Its public name is `weft.Compiled`; for type checkers it has the signature of the function.
    """

    function: Callable[P, R]

    def __init__(
        self, function: Callable[P, R], prepare: Prepare, policy: Policy = COMPILE
    ) -> None:
        # Attributes of a module are looked up in the module: see __getattr__.
        plain = isinstance(function, (FunctionType, MethodType))
        functools.update_wrapper(self, function, updated=("__dict__",) if plain else ())
        self.function = function
        self.recordings: list[Recording] = []
        self.policy = policy
        self.make_recorder: Callable[[tuple[Any, ...], dict[str, Any]], TraceRecorder] = (
            functools.partial(TraceRecorder, records=policy.records, fallback=policy.fallback)
        )
        self.programs: list[Execute] = []  # executables of the recordings, made when needed
        self._make = prepare
        self._told_of_budget = False
        self._roots: list[Segment] = []
        self._inner: list[Segment] = []  # the same for calls inside of vmap
        #: Functions for all elements of a vmap, by which arguments are mapped.
        self._mapped: dict[str, Captured[..., Any]] = {}
        self._lock = threading.RLock()
        _live.add(self)
        self._sizes = SizeHistory()
        self._fixed_data: set[str] = set()  # calls whose size depends on data and is asked for
        self._prepared = 0.0  # seconds spent on making programs
        self._uncacheable = 0
        self._defers_calls = True
        self._changing = ChangingNumbers()
        self._causes: list[Cause] = []  # of the recordings after the first
        self._told = False
        self._sight = SecondSight()
        self._latest: Segment | None = None  # the last segment that was run by its fast path
        self._hits = 0
        self._warned = False
        self._writes = False  # whether some recorded path writes to something outside

    def __getattr__(self, name: str) -> Any:
        if name == "function" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.function, name)

    # --- calls --------------------------------------------------------------------------------

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            segment = self._latest  # most calls take the same path as the last one
            if segment is not None and recorder() is None:
                if segment.writes:
                    with self._lock:
                        given = segment.enter(args, kwargs)
                        if given.__class__ is list:
                            self._hits += 1
                            return segment.fast_path(given, args, kwargs)  # type: ignore[no-any-return]
                else:
                    given = segment.enter(args, kwargs)
                    if given.__class__ is list:
                        self._hits += 1
                        return segment.fast_path(given, args, kwargs)  # type: ignore[no-any-return]
            return self._call(args, kwargs)  # type: ignore[no-any-return]
        except BaseException as error:
            shorten(error, leaving=True)
            raise  # without another frame in the traceback

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        mine = own_copy(self, self.alike)
        if mine is not self:
            return mine(*args, **kwargs)
        if recorder() is not None:  # inside of another recording or a transform
            found = self._inside(args, kwargs) if self.policy.records else MISSING
            return self.function(*args, **kwargs) if found is MISSING else found
        outer = begin_call()  # in which no effect runs twice
        try:
            result = self._played(args, kwargs)
        finally:
            calls, back = end_call(outer)
        if result.__class__ is not Miss:
            return result
        for set_back in back:  # Python draws these numbers again
            set_back()
        start = time.perf_counter()
        try:
            with called_before(calls):
                return self.function(*args, **kwargs)
        finally:
            self._sight.seconds += result.waits * (time.perf_counter() - start)

    def _played(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a recording, perhaps a new one; a Miss if none can be made."""
        if not self._writes:
            result = self._replay(args, kwargs)
            if result.__class__ is not Miss and result is not _WRITES:
                self._hits += 1
                return result
        with self._lock:
            result = self._replay(args, kwargs, alone=True)  # recorded meanwhile by another thread?
            if result.__class__ is not Miss:
                self._hits += 1
                return result
            if self._may_record():
                result.waits = self._waits(args, kwargs, result)
                if not result.waits:
                    start, before = time.perf_counter(), self._sight.calls
                    result = self._record(args, kwargs, result)
                    if before:
                        self._sight.recordings.append(time.perf_counter() - start)
        return result

    def _waits(self, args: tuple[Any, ...], kwargs: dict[str, Any], miss: Miss) -> bool:
        """Whether a structure is seen for the first time that may never come again."""
        sight = self._sight
        if not miss.taken and sight.waits(args, kwargs, tree=True):
            return True
        guard = None if miss.reason else self._why(miss, args, kwargs)
        if guard is not None and is_about_structure(guard) and sight.is_unused(self._hits):
            return sight.waits(args, kwargs, tree=False)
        sight.recorded(guard, self._hits)
        return False

    def _inside(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result for mapped arguments of `vmap`; MISSING if the function itself must run."""
        if innermost_level() is None or not any(map(is_mapped, tree_leaves((args, kwargs)))):
            return MISSING
        found = call_for_all(self, args, kwargs)
        if found is not MISSING:
            return found
        with self._lock:
            for _ in range(2):
                for segment in self._inner:
                    given = segment.enter(args, kwargs)
                    if given.__class__ is list:
                        return run_inside(segment, given) if runs_inside(segment) else MISSING
                if not self._may_record():
                    break
                self._record(args, kwargs, Miss([], "a call inside of vmap"), inside=True)
        return MISSING

    def alike(
        self, function: Callable[..., Any] | None = None, prepare: Prepare | None = None
    ) -> Captured[..., Any]:
        """Another function (or a fresh capture of this one) with the same options."""
        return Captured(function or self.function, prepare or self._make, self.policy)

    @overload
    def __get__(self, obj: None, kind: type | None = None) -> Captured[P, R]: ...

    @overload
    def __get__(self, obj: object, kind: type | None = None) -> Callable[..., R]: ...

    def __get__(self, obj: Any, kind: type | None = None) -> Any:
        return self if obj is None else functools.partial(self, obj)

    def __reduce__(self) -> Any:
        """Pickle the function: a copy has no recordings. If a module holds it, pickle its name."""
        if named_object(self.function) is self:
            return self.__qualname__
        return Captured, (self.function, self._make, self.policy)

    def __repr__(self) -> str:
        kind, name = "traced", self._name()
        if self.policy.records:
            kind, name = "compiled", str(getattr(self, "__qualname__", self.function))
        return f"<{kind} {name}: {len(self.recordings)} recordings>"

    # --- replaying ----------------------------------------------------------------------------

    def _replay(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        alone: bool = False,
        answers: Sequence[Any] = (),
    ) -> Any:
        """Run a recorded path.

        alone    this thread holds the lock, and so may write
        answers  what this call's recording was told where Python asked for a value: the program
                 may round it in another way
        """
        with showing_later():  # perhaps there is no path for this call, and Python runs it
            return self._run_path(args, kwargs, alone, answers)

    def _run_path(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], alone: bool, answers: Sequence[Any]
    ) -> Any:
        numbers: Numbers = {}
        taken: list[Segment] = []
        forms: list[Any] = []  # what was run for each of them
        candidates: Sequence[Segment] = self._roots
        done.next = 0
        while True:
            for segment in candidates:
                given = segment.enter(args, kwargs)
                if given.__class__ is list:
                    break
            else:
                return Miss(taken, candidates=candidates)
            if not alone and self._writes:  # another thread has just recorded such a path
                return _WRITES
            if segment.question is None:
                show_now()
            if segment.fast_path is not None:
                self._latest = segment
                return segment.fast_path(given, args, kwargs)
            places = segment.places()
            numbers.update((value, given[places[id(o)]]) for value, o in segment.inputs)
            forms.append(self._run(segment, numbers))
            taken.append(segment)
            question = segment.question
            if question is None:
                prepare = functools.partial(self._prepare, segment.recording)
                return finish(taken, numbers, args, kwargs, self._name(), prepare)
            answer = question.answer(numbers[question.value])
            found = segment.children.get(answer_key(answer))
            if found is None and len(taken) <= len(answers):
                recorded = answers[len(taken) - 1]
                if is_rounding(answer, recorded):
                    found = segment.children.get(answer_key(recorded))
            if found is None:
                where = f" at {question.location}" if question.location else ""
                known = ", ".join(f"{a!r:.30}" for a in list(segment.answers.values())[:4])
                reason = f"{question.kind} of a tensor{where} was {answer!r:.60}, recorded: {known}"
                return Miss(taken, reason, cause_of(question))
            for part, form in zip(taken, forms, strict=True):
                if part.ready is not form:
                    # Another thread has just recorded a path that uses more of this segment.
                    return self._replay(args, kwargs, alone, answers)
            candidates = found

    def _run(self, segment: Segment, numbers: Numbers) -> Any:
        """Run a segment; adds values that later ones use to `numbers`. Returns the executable."""
        ready = segment.ready
        if ready is None:
            with self._lock:  # no path is added to the tree now
                ready = segment.ready = segment.ready or self._ready(segment)
        execute, inputs, wanted = ready
        if execute is not None:
            found = execute.call([numbers[value] for value in inputs])
            numbers.update(zip(wanted, found, strict=True))
        return ready

    def _ready(self, segment: Segment) -> tuple[Any, list[Value], list[Value]]:
        graph, inputs, wanted = segment.graph(self._name())
        if not wanted and not acts(graph):
            return None, inputs, wanted
        return self._prepare(segment.recording, graph), inputs, wanted

    def _prepare(self, recording: int, graph: Graph, *routing: OutputRouting) -> Execute:
        start = time.perf_counter()
        made = self._make(graph, *routing)
        made.recording = recording
        self._prepared += time.perf_counter() - start
        self.programs.append(made)
        return made

    # --- recording ----------------------------------------------------------------------------

    def _may_record(self) -> bool:
        if self._uncacheable >= 2:
            return False
        if len(self.recordings) < self.policy.limit:
            return True
        if not self._warned:
            self._warned = True
            last = self.recordings[-1].reason
            warn_user(
                f"{self._name()} was recorded {self.policy.limit} times; from now on, calls that "
                f"no recording fits run as plain Python. The last was recorded because: {last}. "
                f"`{self._name()}.recordings` lists all; limit=... of "
                f"{self._way()} sets the limit",
                CaptureWarning,
            )
        return False

    def _way(self) -> str:
        """How the user has captured the function."""
        return f"weft.{'compile' if self.policy.records else 'trace'}"

    def _has_source(self) -> bool:
        """Whether the source of the function is available; warns if not."""
        function = self._plain_function()
        if function is None or follow_policy(function.__code__.co_filename) != FOLLOW:
            return True
        try:
            convert(function)
        except NoSource as reason:
            file = function.__code__.co_filename
            why = f" ({file})" if file.startswith("<") else f": {reason}"
            warn_user(
                f"{self._name()} has no source{why}, so it is not compiled and runs as plain "
                "Python: the same results, op by op. Define it in a file to compile it",
                CaptureWarning,
            )
            return False
        except Unconvertible:
            pass  # the recording raises it, with the line
        return True

    def _record(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], miss: Miss, inside: bool = False
    ) -> Any:
        """Record one run, and replay it for this call, unless it is `inside`."""
        start, prepared = time.perf_counter(), self._prepared
        with gc_paused(), bundled(self._bundle()):
            if self.policy.records and not self.recordings and not self._has_source():
                self._uncacheable = 2
                return miss
            recorded, _, trouble = self._captured(args, kwargs, miss, inside)
        watch = recorded.watch
        if watch.deferred is not None and watch.deferred.clash:
            self._defers_calls = False  # from now on such calls are followed
            return self._record(args, kwargs, miss, inside)
        seconds = time.perf_counter() - start
        outcome = f"not kept: {trouble[0]}" if trouble else f"{len(recorded.graph.nodes)} ops"
        prepared = self._prepared - prepared
        self.recordings.append(
            Recording(len(self.recordings), miss.reason, seconds, outcome, watch.notes, prepared)
        )
        if miss.cause is not None:
            self._causes.append(miss.cause)
            name, way = self._name(), self._way()
            why = "" if self._told else said(name, self._causes, way, self.recordings)
            if why:
                self._told = True
                warn_user(why, CaptureWarning)
        if trouble:
            self._uncacheable += 1
            if self._uncacheable == 1:
                warn_user(
                    f"{self._name()} cannot be kept as a graph and runs as plain Python: "
                    f"{trouble[0]}",
                    CaptureWarning,
                )
        if inside or trouble:
            return miss  # nothing has been done: Python does it
        try:
            answers = [part.answer for part in recorded.segments if part.question is not None]
            return self._replay(args, kwargs, True, answers)
        except BaseException:
            watch.undo_first_calls()
            raise

    def _captured(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], miss: Miss, inside: bool
    ) -> Run:
        """Record one run and add it to the tree, unless that is refused."""
        plan = self._size_plan(args, kwargs, miss)
        error: Exception | None = None
        why = ""
        for _ in range(MOST_PLANS):
            if plan is None:
                break
            try:
                recorded, ending, trouble = self._run_recorded(args, kwargs, inside, plan)
            except Exception as raised:  # with the sizes of this call there may be none
                error = raised
            else:
                assert recorded.sizes is not None
                asked, error = recorded.sizes.asked, None
                holds = not asked.relations and recorded.holds_together()
                if ending is None and trouble and not asked.relations:
                    break  # it may be possible with the number itself
                if holds and not recorded.sizes.trouble:
                    recorded.watch.notes.sizes.update(recorded.sizes.told())
                    return self._kept((recorded, ending, trouble), miss, inside)
                why = f"it needs {[*asked.unsolved, recorded.sizes.trouble][0]}"
            plan = None if plan.asked is None else plan.related(plan.asked)
        fixed = self._run_recorded(args, kwargs, inside, None)
        if error is not None:
            self._sizes.failed(error)
            why = self._sizes.failure
        if why:
            fixed[0].watch.notes.sizes["fixed"] = "", f"all are fixed: {why}"
        return self._kept(fixed, miss, inside)

    def _size_plan(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], miss: Miss
    ) -> SizePlan | None:
        """Which sizes are symbolic in a recording of this call."""
        if self.policy.dynamic is False or self._uncacheable:
            return None
        numbers = bool(self._changing.places)
        if miss.taken:
            plan = miss.taken[0].sizes or self._sizes.of_numbers(numbers)
            return plan and plan.in_call(self._sizes.origins, args, kwargs)
        names = parameter_names(self.function, len(args))
        return self._sizes.plan(self.policy.dynamic, names, args, kwargs, numbers)

    def _run_recorded(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], inside: bool, plan: SizePlan | None
    ) -> Run:
        """One run, recorded: and how it ended, and what is wrong with it."""
        run = functools.partial(self._run_once, args, kwargs, inside, plan)
        return with_asked_sizes(self._fixed_data, lambda: self.make_recorder(args, kwargs), run)

    def _run_once(
        self, args: Any, kwargs: Any, inside: bool, plan: SizePlan | None, recorded: TraceRecorder
    ) -> Run:
        watch = recorded.watch
        if plan is not None:
            recorded.sizes = RecordedSizes(plan, watch, recorded.data_sizes)
        watch.defers_calls = self._defers_calls
        watch.changing = self._changing
        recorded.differentiated = not inside  # inside of vmap the tape sees each op
        recorded.name = self._name()
        watch.parameters = parameter_names(self.function, len(args))
        ending: Ending | None = None
        trouble: list[str] = []
        failed = False
        done.next = 0
        try:
            with capturing(), recording(recorded), asking(recorded.asked):
                result = run_watched(watch, self.function, args, kwargs)
                ending = recorded.finish(result)
                if watch.deferred is not None:
                    watch.deferred.end(recorded)
        except NotKept as reason:
            trouble.append(str(reason))
        except CaptureError as error:
            if self.policy.records:
                failed = True
                raise
            trouble.append(str(error))
        except BaseException:
            failed = True
            raise
        finally:
            recorded.restore()
            watch.rollback()
            if failed:
                watch.undo_first_calls()
        trouble += [why for why in (*watch.uncacheable, *recorded.refusals) if why not in trouble]
        return recorded, ending, trouble

    def _kept(self, run: Run, miss: Miss, inside: bool) -> Run:
        """Put a recording into the tree, unless there is trouble."""
        recorded, ending, trouble = run
        watch = recorded.watch
        self._sizes.add(recorded.seen_sizes)
        if recorded.sizes is not None:
            self._sizes.recorded(recorded.sizes.plan)
        clashes = watch.deferred is not None and watch.deferred.clash
        if ending is not None and not trouble and not clashes:
            roots = self._inner if inside else self._roots
            self._writes |= ending.writes  # before other threads can find the path
            number = len(self.recordings)
            path = insert(roots, miss.taken, recorded.segments, ending, self.policy.budget, number)
            path[0].sizes = None if recorded.sizes is None else recorded.sizes.plan
            if len(path) == 1 and has_fast_path(path[0]) and not inside:
                path[0].writes = ending.writes
                prepare = functools.partial(self._prepare, number)
                path[0].fast_path = fast_path(path[0], self._name(), prepare)
            self._warn_of_budget(path)
        return recorded, ending, trouble

    def _warn_of_budget(self, path: list[Segment]) -> None:
        if self.policy.budget is None or self._told_of_budget:
            return
        trouble = budget_trouble(path)
        if trouble:
            self._told_of_budget = True
            warn_user(f"{self._name()}: {trouble}", CaptureWarning)

    def _why(self, miss: Miss, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Guard | None:
        """Find out why no recording was usable: the guard of the last one that failed."""
        candidates = miss.candidates
        if not candidates:
            miss.reason = "the first call"
            return None
        for segment in candidates[-MANY:]:
            self._changing.learn(segment.guards, args, kwargs)
        segment = candidates[-1]
        failed = segment.check(args, kwargs)
        guard: Guard = segment.guards[failed]
        miss.reason, miss.cause = str(guard.found(args, kwargs)), cause_of(guard)
        return guard

    def is_kept(self) -> bool:
        """Whether the cache on disk has a capture of the function as it is now."""
        function = self._plain_function()
        return function is not None and is_kept(function)

    def _bundle(self) -> str | None:
        """The name of the cache entry that holds everything recordings of the function need."""
        function = self._plain_function()
        name = None if function is None else name_of(function)
        return None if name is None else store.name_of(b"recording 1", name.encode())


if TYPE_CHECKING:
    Compiled: TypeAlias = Captured[P, R]
else:
    Compiled = Captured
