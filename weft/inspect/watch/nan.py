"""`weft.detect_nan`: finds the op and the line that create the first NaN or infinity.

The results of eager op calls are checked at once. While the search is on, compiled functions run op
by op from their captured graph, so that each NaN has a line: forward, backward and in iterations of
loops.
"""

from __future__ import annotations

import contextlib
from typing import Any
from weakref import WeakKeyDictionary

from weft.autodiff.tape import anomaly
from weft.base.errors import NonFiniteError, RangeError
from weft.base.frames import through
from weft.base.source import SourceLocation, warn_user
from weft.core.bind import Recorder, bind, recorder, recording
from weft.core.grad_mode import no_grad
from weft.core.tensor import Tensor, type_of
from weft.inspect.frames import Frames, loops_text
from weft.inspect.watch.nonfinite import A, count_text, created, summary, worst
from weft.ir.graph import Node
from weft.ir.interpret import PreparedGraph
from weft.ir.op import Op
from weft.runtime.executable import Executable, instrumented

__all__ = ["detect_nan"]

HINT = "look at the values there: a logarithm or a root of 0, 0/0, inf - inf, an exp of a large \
number"


class Search(Recorder):
    """An active search: it checks op calls of its thread, and runs of compiled functions."""

    observes = True

    def __init__(self, inf: bool, stage: str) -> None:
        self.inf = inf
        self.stage = stage
        self.resting = False  # while a graph runs, its nodes are checked one by one
        self._programs: WeakKeyDictionary[Executable, PreparedGraph] = WeakKeyDictionary()
        self._told: set[str] = set()

    def call(self, op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any]) -> Any:
        out = bind(op, *inputs, **attrs)
        if not self.resting and recorder() is None:
            outputs = out if isinstance(out, tuple) else (out,)
            what = created(inputs, outputs, self.inf)
            if what:
                raise _error(op.name, what, inputs, outputs, "")
        return out

    def run(self, executable: Executable, inputs: list[Tensor], proceed: Any) -> list[Tensor]:
        """Run a graph op by op, as an instrument."""
        program = self._programs.get(executable)
        if program is None:
            program = self._programs[executable] = PreparedGraph(executable.graph(self.stage))
        self._look_at_inputs(program, inputs)
        before, self.resting = self.resting, True
        try:
            with no_grad():
                slots = program.run(list(inputs), bind, watch=_Checks(self.inf))
        finally:
            self.resting = before
        return [slots[i] for i in program.outputs]

    def _look_at_inputs(self, program: PreparedGraph, inputs: list[Tensor]) -> None:
        """Note NaNs in the inputs: results computed from them are not findings."""
        name = program.graph.name
        for value, given in zip(program.graph.inputs, inputs, strict=True):
            label = f"{name}.{value.name or value.index}"
            if worst([given]) == "NaN" and label not in self._told:
                self._told.add(label)
                count = count_text([given], "NaN")
                what = value.name or f"input {value.index}"
                warn_user(f"detect_nan: {what} of {name} holds NaN when it is called ({count})")


class _Checks(Frames):
    """Checks the results of each node of a run.

    The derivative of an op may compute a NaN that it masks out itself. So of a backward step, only
    values that leave the derivative of its op count.
    """

    def __init__(self, inf: bool) -> None:
        super().__init__()
        self.inf = inf
        #: NaNs of backward steps, by id of the tensor, which is kept alive.
        self.held: dict[int, tuple[Any, SourceLocation, NonFiniteError]] = {}

    def after(self, node: Node, slots: list[Any]) -> None:
        super().after(node, slots)
        if node.graphs:
            return
        outputs = slots[len(slots) - len(node.outputs) :]
        if not worst(outputs):
            return
        inputs = self.frames[-1].given(node)
        where = node.location
        forward = None if where is None or where.role != "backward" else where.forward
        for given in inputs:
            held = self.held.get(id(given))
            if held is not None:
                if forward is not held[1]:
                    raise held[2]
                self._hold(outputs, held[1], held[2])
                return
        what = created(inputs, outputs, self.inf)
        if not what:
            return
        error = _error(node.op.name, what, inputs, outputs, loops_text(self.loops()), where)
        if forward is None:
            raise error
        self._hold(outputs, forward, error)

    def _hold(self, outputs: list[Any], forward: SourceLocation, error: NonFiniteError) -> None:
        for output in outputs:
            if worst([output]):
                self.held[id(output)] = (output, forward, error)

    def end(self, program: PreparedGraph, slots: list[Any]) -> None:
        super().end(program, slots)
        for place in program.outputs:
            held = self.held.get(id(slots[place]))
            if held is not None:
                raise held[2]


def _error(
    op: str,
    what: str,
    inputs: Any,
    outputs: Any,
    loops: str,
    where: SourceLocation | None = None,
) -> NonFiniteError:
    source = " from infinities" if worst(inputs) == "inf" else ""
    text = f"it creates {A[what]}{source}: {count_text(outputs, what)} of {_type(outputs)}"
    if loops:
        text += f"\n  {loops}"
    error = NonFiniteError(text, op=op, operands=[summary(x) for x in inputs], hint=HINT)
    if where is not None:
        error.location = where
        through(error, where)
    return error


def _type(outputs: Any) -> str:
    return ", ".join(str(type_of(x)) for x in outputs if isinstance(x, Tensor))


class detect_nan:
    """Raise an error when an op creates a NaN or an infinity; it names the op and the user's line.

    It covers forward and backward, eager code and compiled functions, and names the iteration of a
    loop. It is on from the call on, or with `with`, only inside:

    >>> with weft.detect_nan():
    ...     weft.log(weft.asarray([1.0, 0.0]))
    Traceback (most recent call last):
        ...
    weft.errors.NonFiniteError: log: it creates an inf: 1 of 2 elements of f32[2]
      operands: f32[2] in [0, 1] (1 zeros)
      ...

    on      False switches it off
    inf     whether an infinity from finite numbers is an error, too; a NaN always is
    stage   the graph of compiled functions that is run: "captured" or "optimized"

    Compiled functions run op by op while it is on: use it to find a bug, not for training.
    """

    def __init__(self, on: bool = True, *, inf: bool = True, stage: str = "captured") -> None:
        if stage not in ("captured", "optimized"):
            raise RangeError(
                f"there is no stage {stage!r}", op="detect_nan", hint='"captured", "optimized"'
            )
        self._before = _now.search
        _now.switch(Search(inf, stage) if on else None)

    def __enter__(self) -> detect_nan:
        return self

    def __exit__(self, *_exc: object) -> None:
        _now.switch(self._before)


class _Now:
    """The active search."""

    search: Search | None = None

    def __init__(self) -> None:
        self._open = contextlib.ExitStack()

    def switch(self, search: Search | None) -> None:
        self._open.close()
        self.search = search
        if search is not None:
            self._open.enter_context(instrumented(search.run))
            self._open.enter_context(recording(search))
            self._open.enter_context(_gradients(search.inf))


@contextlib.contextmanager
def _gradients(inf: bool) -> Any:
    """Check the gradients of backward passes."""
    before = anomaly.on, anomaly.inf, anomaly.error
    anomaly.on, anomaly.inf, anomaly.error = True, inf, NonFiniteError
    try:
        yield
    finally:
        anomaly.on, anomaly.inf, anomaly.error = before


_now = _Now()
