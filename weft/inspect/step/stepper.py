"""`weft.step`: runs a compiled function op by op, or line by line."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from weft.base.errors import RangeError
from weft.base.source import warn_user
from weft.capture.trace.captured import Captured
from weft.core.bind import bind
from weft.core.grad_mode import no_grad
from weft.core.tensor import Tensor
from weft.inspect.frames import Frame
from weft.inspect.step.breaks import Break, Condition, parse_place, value_condition
from weft.inspect.step.intercept import intercepted, names_of
from weft.inspect.step.place import Place
from weft.inspect.step.prompt import open_prompt
from weft.inspect.step.queries import Queries
from weft.inspect.step.runs import Run, line_key
from weft.inspect.step.worker import Quit, Worker
from weft.ir.graph import Node
from weft.ir.interpret import PreparedGraph
from weft.runtime.executable import Executable, instrumented

__all__ = ["Stepper", "step"]


class Stepper(Queries):
    """The result of `weft.step`: advances a run, and inspects it where it stops.

    `start` or `begin` start a run and stop before its first op. `next`, `line`, `over`, `out`,
    `run` and `finish` resume it; they return the place where it stops next, or None at the end. A
    compiled function that is called normally inside of `with` runs to the end, and calls `on_stop`
    at breakpoints; by default that opens a prompt on the terminal.
    """

    def __init__(self, function: Any = None, stage: str = "captured") -> None:
        if stage not in ("captured", "optimized"):
            raise RangeError(
                f"there is no stage {stage!r}", op="step", hint='"captured", "optimized"'
            )
        self.function = _traced(function)
        self.stage = stage
        self.breaks: list[Break] = []
        self.on_stop: Callable[[Stepper], Any] | None = None
        self.place = None
        self.reason: Break | None = None  # why it stopped
        self.error: Exception | None = None  # raised by the current op
        self._handling = False  # whether `on_stop` is running
        self._mode = "run"
        #: Where the last command began: the number of running graphs, the line, the inner graph.
        self._from: tuple[int, Any, Frame] | None = None
        self._programs: WeakKeyDictionary[Executable, PreparedGraph] = WeakKeyDictionary()
        self._worker: Worker | None = None
        self._open = contextlib.ExitStack()

    # --- the block ----------------------------------------------------------------------------

    def __enter__(self) -> Stepper:
        wanted = self.function
        self._open.enter_context(intercepted(lambda f: wanted is None or f is wanted))
        self._open.enter_context(instrumented(self._run))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> bool:
        if self._worker is not None:
            self._worker.abandon()
        self._worker = None
        self._open.close()
        missed = [b for b in self.breaks if b.line and not b.passed]
        if missed and kind is None:
            listed = ", ".join(map(str, missed))
            warn_user(f"no op was run at the line of a breakpoint: {listed}")
        return kind is Quit

    # --- breakpoints --------------------------------------------------------------------------

    def break_at(
        self,
        place: str | int,
        *,
        iteration: int | None = None,
        backward: bool | None = False,
        when: Condition | None = None,
        do: Callable[[Stepper], Any] | None = None,
    ) -> Break:
        """Stop at a line, "model.py:12" or 12 in the function's own file, before its first op.

        iteration   only in this iteration of the innermost loop, from 0
        backward    True: only in the backward of the line; None: in both
        when        only after an op of the line whose result satisfies when(value, node)
        do          call this with the stepper instead of stopping
        """
        file, line = parse_place(place, self._file)
        text = f"{os.path.basename(file)}:{line}"
        text += "" if iteration is None else f" in iteration {iteration}"
        return self._add(
            Break(file, line, "", iteration, backward, when, do, text + _side(backward))
        )

    def break_on(
        self,
        op: str,
        *,
        iteration: int | None = None,
        backward: bool | None = None,
        do: Callable[[Stepper], Any] | None = None,
    ) -> Break:
        """Stop before each call of an op: "matmul", "*pool*"."""
        text = f"op {op}{_side(backward)}"
        return self._add(Break(op=op, iteration=iteration, backward=backward, do=do, text=text))

    def break_when(
        self,
        condition: Condition | None = None,
        *,
        nan: bool = False,
        inf: bool = False,
        norm_above: float | None = None,
        shape: tuple[int, ...] | None = None,
        op: str = "",
        backward: bool | None = None,
        do: Callable[[Stepper], Any] | None = None,
    ) -> Break:
        """Stop right after an op whose result satisfies condition(value, node)."""
        made, text = value_condition(nan, inf, norm_above, shape, condition)
        text += f" from {op}" if op else ""
        return self._add(
            Break(op=op, backward=backward, condition=made, do=do, text=text + _side(backward))
        )

    def _add(self, made: Break) -> Break:
        self.breaks.append(made)
        return made

    def _file(self) -> str:
        function: Any = getattr(self.function, "function", None)
        function = getattr(function, "forward", function)
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if code is None:
            raise RangeError("the file is not known", op="break_at", hint='say "model.py:12"')
        return str(code.co_filename)

    # --- moving -------------------------------------------------------------------------------

    def start(self, *args: Any, **kwargs: Any) -> Place | None:
        """Call the function and stop before its first op."""
        function = self.function
        if function is None:
            raise RangeError(
                "there is no function to call", op="start", hint="weft.step(f), or begin(...)"
            )
        return self.begin(lambda: function(*args, **kwargs))

    def begin(self, work: Callable[[], Any]) -> Place | None:
        """Call `work`, which calls the compiled function, and stop before its first op."""
        if self._worker is not None and not self._worker.done:
            self._worker.abandon()
        self._mode = "op"
        self._worker = Worker(work)
        self._worker.start()
        return self._moved()

    def next(self) -> Place | None:
        """Go to the next op, into branches and bodies."""
        return self._move("op")

    def over(self) -> Place | None:
        """Go to the next op of this graph, over branches and bodies."""
        return self._move("over")

    def line(self) -> Place | None:
        """Go to the next line of the user's code."""
        return self._move("line")

    def out(self) -> Place | None:
        """Go to the end of this branch or body."""
        return self._move("out")

    def run(self) -> Place | None:
        """Go to the next breakpoint."""
        return self._move("run")

    def until(self, condition: Callable[[Stepper], Any]) -> Place | None:
        """Go on until a condition holds at a place, or to the next breakpoint."""
        while (found := self._move("op")) is not None and self.reason is None:
            if condition(self):
                break
        return found

    def finish(self) -> Any:
        """Run to the end, ignoring breakpoints; returns the result of the function."""
        while self._worker is not None and not self._worker.done:
            self._move("free")
        return self.result

    @property
    def result(self) -> Any:
        """The result of the function."""
        if self._worker is None or not self._worker.done:
            raise RangeError("the function has not ended", op="step", hint="s.finish()")
        return self._worker.result()

    @property
    def done(self) -> bool:
        """Whether the run has ended."""
        return self._worker is None or self._worker.done

    def _move(self, mode: str) -> Place | None:
        if self._handling:  # it resumes when the handler returns
            self.set_mode(mode)
            return None
        if self._worker is None:
            raise RangeError("nothing is running", op="step", hint="s.start(*arguments)")
        if self._worker.done:
            return None
        self.set_mode(mode)
        self._worker.go_on()
        return self._moved()

    def _moved(self) -> Place | None:
        assert self._worker is not None
        self._worker.wait()
        if self._worker.done:
            self._worker.result()  # raises an error of the function; the place is kept
            self.place = None
        return self.place

    def set_mode(self, mode: str) -> None:
        """Set how far to go from here."""
        self._mode = mode
        place = self.place
        if place is not None:
            self._from = (len(place.frames), line_key(place.location), place.frames[-1])

    # --- the run ------------------------------------------------------------------------------

    def _run(
        self,
        executable: Executable,
        inputs: list[Tensor],
        proceed: Callable[[list[Tensor]], list[Tensor]],
    ) -> list[Tensor]:
        names = names_of(executable)
        if names is None or self._mode == "free":
            return proceed(inputs)
        program = self._programs.get(executable)
        if program is None:
            program = self._programs[executable] = PreparedGraph(executable.graph(self.stage))
        watch = Run(self, names, names.ends_with(executable.captured))
        with no_grad():
            slots = program.run(list(inputs), bind, watch=watch)
        return [slots[i] for i in program.outputs]

    def stops_before(self, run: Run, node: Node, arrives: bool) -> bool:
        """Whether to stop before a node."""
        self.reason = None
        if self._mode == "free":
            return False
        frame = run.frames[-1]
        hit = [b for b in self.breaks if b.condition is None and b.is_here(node, frame, arrives)]
        return self._hit(hit, run, node, False) or self._has_come(run, node, arrives)

    def _has_come(self, run: Run, node: Node, arrives: bool) -> bool:
        """Whether the current command ends here."""
        if self._mode in ("run", "free"):
            return False
        if self._mode == "op" or self._from is None:
            return self._mode != "line" or arrives
        depth, line, _ = self._from
        if self._mode == "over":
            return len(run.frames) <= depth
        if self._mode == "out":
            return len(run.frames) < depth
        # Another line, or the same line in the next iteration.
        return arrives and (line_key(node.location) != line or self._is_new(run.frames[-1]))

    def _is_new(self, frame: Frame) -> bool:
        return self._from is None or frame is not self._from[2]

    def stops_after(self, run: Run, node: Node, outputs: list[Any]) -> bool:
        """Whether to stop because of the results of a node."""
        self.reason = None
        if self._mode == "free":
            return False
        frame = run.frames[-1]
        hit = [
            b
            for b in self.breaks
            if b.condition is not None and b.is_here(node, frame, False) and b.finds(node, outputs)
        ]
        return self._hit(hit, run, node, True)

    def stops_at_end(self) -> bool:
        """Whether to stop at the end of the function."""
        self.reason = None
        return self._mode in ("op", "line", "over", "out")

    def _hit(self, hit: list[Break], run: Run, node: Node, is_after: bool) -> bool:
        """Count breakpoints that were hit and call their `do`; whether one of them stops."""
        for found in hit:
            found.hits += 1
            if found.do is not None:
                before, self.place = self.place, run.place(node, is_after)
                try:
                    found.do(self)
                finally:
                    self.place = before
        stopping = [found for found in hit if found.do is None]
        self.reason = stopping[0] if stopping else None
        return bool(stopping)

    def stop(self, place: Place) -> None:
        """Stop at a place; called by the run."""
        self.place = place
        if self._worker is not None and self._worker.is_current():
            self._worker.pause()
            return
        if self.on_stop is not None:
            self._mode = "run"
            self._handling = True
            try:
                self.on_stop(self)
            finally:
                self._handling = False

    def failed(self, place: Place, error: Exception) -> None:
        """The run ended with an error at this place."""
        self.place, self.error = place, error
        if self._worker is None or not self._worker.is_current():
            self.stop(place)


def step(function: Any = None, *, stage: str = "captured") -> Stepper:
    """Run a compiled function op by op or line by line: `with weft.step(f) as s:`

    >>> @weft.compile
    ... def f(x):
    ...     h = x * 2
    ...     return h.exp()
    >>> with weft.step(f) as s:
    ...     place = s.start(weft.asarray([0.0, 1.0]))
    ...     while s.op != "exp":
    ...         place = s.next()
    ...     print(s["h"])
    ...     s["h"] = weft.zeros(2)
    ...     print(s.finish())
    tensor([0., 2.])
    tensor([1., 1.])

    function    the compiled function; None: all of them
    stage       the graph to run: "captured" or "optimized"

    The call is recorded again with the names of the user's variables; the compiled function itself
    is not changed. A function that is called normally inside of `with` opens a prompt at a
    breakpoint, or calls `s.on_stop`.
    """
    made = Stepper(function, stage)
    made.on_stop = open_prompt
    return made


def _side(backward: bool | None) -> str:
    return " in backward" if backward else ""


def _traced(function: Any) -> Captured[..., Any] | None:
    """The compiled function itself, or that of a bound method."""
    if function is None or isinstance(function, Captured):
        return function
    inner = getattr(function, "func", None)
    if isinstance(inner, Captured):
        return inner
    raise RangeError(
        f"{function!r:.60} is not a compiled function", op="step", hint="weft.step(weft.compile(f))"
    )
