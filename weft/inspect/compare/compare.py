"""`weft.compare`: runs a function in every mode from the same state, and finds the first op that
differs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

import numpy as np

from weft.base.errors import RangeError, WeftError
from weft.base.pytree import tree_flatten
from weft.capture.trace.captured import TRACE, Captured
from weft.compile import BACKENDS, without_passes
from weft.core.tensor import Tensor
from weft.inspect.compare.close import Tolerance, distance
from weft.inspect.compare.eager import Stream, forward_finding, gradient_finding
from weft.inspect.compare.kernels import KernelComparison, compare_kernels
from weft.inspect.compare.locate import Finding, in_code, in_passes
from weft.inspect.compare.report import Comparison, Row
from weft.inspect.compare.runs import GraphRun, recorded_runs, replayed
from weft.inspect.compare.state import State, arrays_of
from weft.inspect.step.names import Names, caller

__all__ = ["compare"]

Function = Callable[..., Any]


#: For each mode, how to make a function run in it.
MODES: dict[str, Callable[[Function], Function]] = {
    "eager": lambda function: function,
    "trace": lambda function: Captured(function, BACKENDS["interpret"], TRACE),
    "source": lambda function: Captured(function, without_passes),
    "interpret": lambda function: Captured(function, BACKENDS["interpret"]),
    "native": lambda function: Captured(function, BACKENDS["native"]),
}


@overload
def compare(
    function: Function,
    *args: Any,
    by: Literal["mode"] = "mode",
    backends: Sequence[str] = ...,
    rtol: float | None = ...,
    atol: float | None = ...,
    **kwargs: Any,
) -> Comparison: ...


@overload
def compare(
    function: Function, *args: Any, by: Literal["kernel"], **kwargs: Any
) -> KernelComparison: ...


def compare(
    function: Function,
    *args: Any,
    by: str = "mode",
    backends: Sequence[str] = tuple(MODES),
    rtol: float | None = None,
    atol: float | None = None,
    **kwargs: Any,
) -> Comparison | KernelComparison:
    """Run a function in several modes, and name the first op whose results differ, with its line.

    Each mode starts from the same state: arguments, parameters, optimizers, random generators and
    everything else that the function can reach is restored. The results and the state afterwards
    are compared.

    eager       as plain Python
    trace       `weft.trace`, interpreted
    source      `weft.compile`: the captured graph, interpreted
    interpret   the graph after all passes, interpreted
    native      the same graph as machine code

    >>> def f(x):
    ...     while x.sum() < 10:
    ...         x = x * 2
    ...     return x.exp()
    >>> report = weft.compare(f, weft.asarray([0.5, 1.0]))
    >>> report.same
    True
    >>> [row.mode for row in report.rows]
    ['eager', 'trace', 'source', 'interpret', 'native']

    by          "mode"; or "kernel": each kernel of the native program runs alone, on operands from
                the interpreter, and the first one with a difference beyond rounding is named
    backends    the modes; the first one is the reference
    rtol, atol  tolerances; by default they allow for rounding in the dtype

    `print` shows a table. The result is true if all modes agree: `assert weft.compare(f, x)`.
    """
    unknown = [name for name in backends if name not in MODES]
    if unknown or len(backends) < 2:
        known = ", ".join(f'"{name}"' for name in MODES)
        raise RangeError(f"not two known modes: {unknown or backends}", op="compare", hint=known)
    if by not in ("mode", "kernel"):
        raise RangeError(f"cannot compare by {by!r}", op="compare", hint='"mode", "kernel"')
    plain = function.function if isinstance(function, Captured) else function
    comparing = _Comparing(plain, args, kwargs, Tolerance(rtol, atol))
    return comparing.kernels() if by == "kernel" else comparing.run(backends)


class _Outcome:
    """The results of a run, and the state after it."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.error: Exception | None = None
        self.runs: list[GraphRun] = []
        self.seconds = 0.0


class _Comparing:
    """One comparison."""

    def __init__(
        self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], close: Tolerance
    ) -> None:
        self.function = function
        self.args, self.kwargs = args, kwargs
        self.close = close
        self.roots = {"args": args, "kwargs": kwargs, _name(function): function}
        self.state = State(self.roots)
        self.stream: Stream | None = None

    def run(self, modes: Sequence[str]) -> Comparison:
        report = Comparison(_name(self.function))
        reference = self._outcome(modes[0])
        report.rows.append(Row(modes[0], "reference", reference.seconds, error=reference.error))
        for mode in modes[1:]:
            found = self._outcome(mode)
            row = self._row(mode, reference, found)
            if row.status == "differs":
                row.finding = self._located(mode, found, "eager" in modes)
            report.rows.append(row)
        self.state.restore()
        return report

    def kernels(self) -> KernelComparison:
        """Compare each kernel of the native programs."""
        found = self._outcome("native")
        if found.error is not None and not found.runs:
            raise found.error
        report = compare_kernels(_name(self.function), found.runs)
        self.state.restore()
        if found.error is not None:
            report.notes.append(f"the call raises {type(found.error).__name__}: {found.error}")
        return report

    def _outcome(self, mode: str) -> _Outcome:
        """Restore the state and run in a mode."""
        self.state.restore()
        made = MODES[mode](self.function)
        outcome = _Outcome()
        start = time.perf_counter()
        try:
            with recorded_runs() as outcome.runs:
                result = made(*self.args, **self.kwargs)
            outcome.seconds = time.perf_counter() - start
            outcome.values = _values(result)
        except Exception as error:
            outcome.seconds = time.perf_counter() - start
            outcome.error = error
        outcome.values.update(arrays_of(self.roots))
        return outcome

    def _row(self, mode: str, reference: _Outcome, found: _Outcome) -> Row:
        if found.error is not None or reference.error is not None:
            same = type(found.error) is type(reference.error)
            row = Row(mode, "same" if same else "error", found.seconds)
            if not same:
                row.error = found.error or reference.error
                row.finding = _of_error(row.error)
            return row
        row = Row(mode, "same", found.seconds)
        for place in [*reference.values, *found.values]:
            if place not in reference.values or place not in found.values:
                there = mode if place in found.values else "the reference"
                return Row(mode, "differs", found.seconds, place, np.inf, f"only {there} has it")
            one, two = reference.values[place], found.values[place]
            difference = self._difference(one, two)
            if difference is not None and row.status == "same":
                row = Row(mode, "differs", found.seconds, place, difference[0], difference[1])
            elif row.status == "same":
                row.size = max(row.size, distance(one, two))
        return row

    def _difference(self, a: Any, b: Any) -> tuple[float, str] | None:
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            found = self.close.difference(a, b)
            return None if found is None else (found.size, found.text)
        if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
            return np.inf, f"{a!r:.60} and {b!r:.60}"
        numbers = isinstance(a, (int, float)) and isinstance(b, (int, float))
        if numbers and type(a) is type(b):
            return self._difference(np.asarray(a), np.asarray(b))
        return None if a is b or a == b else (np.inf, f"{a!r:.60} and {b!r:.60}")

    # --- where --------------------------------------------------------------------------------

    def _located(self, mode: str, found: _Outcome, with_eager: bool) -> Finding | None:
        """The first op that differs, searched in the last layer first."""
        for run in found.runs:
            if mode == "native":
                inside = in_code(run, self.close)
                if inside is not None:
                    return inside
            if mode in ("trace", "interpret", "native"):
                inside = in_passes(run, self.close)
                if inside is not None:
                    return inside
        return self._in_capture(found) if with_eager else None

    def _in_capture(self, found: _Outcome) -> Finding | None:
        if self.stream is None:
            self.stream = Stream()
            self.state.restore()
            with self.stream.noting():
                self.function(*self.args, **self.kwargs)
        events = [
            event
            for run in found.runs
            for event in replayed(run.executable.captured, run.inputs)[1]
        ]
        return forward_finding(self.stream, events, self.close) or self._in_gradients()

    def _in_gradients(self) -> Finding | None:
        """Record again with variable names, which connect values with their gradients."""
        assert self.stream is not None
        names = Names(caller())
        made = Captured(self.function, without_passes)
        make = made.make_recorder
        made.make_recorder = lambda *given: names.begin(make(*given))
        self.state.restore()
        with recorded_runs() as runs, names.noting():
            made(*self.args, **self.kwargs)
        values: dict[str, Any] = {}
        for run in runs:
            graph = run.executable.captured
            for value, number in zip(graph.inputs, run.inputs, strict=True):
                values.setdefault(value.name, number)
            for event in replayed(graph, run.inputs)[1]:
                for value, number in zip(event.node.outputs, event.outputs, strict=True):
                    values.setdefault(value.name, number)
        values.pop("", None)
        return gradient_finding(self.stream, names, values, self.close)


def _of_error(error: BaseException | None) -> Finding | None:
    if not isinstance(error, WeftError) or error.location is None:
        return None
    return Finding("capture", error.op or "error", error.location, error.operands, error.message)


def _values(result: Any) -> dict[str, Any]:
    """The leaves of a result by path; tensors as arrays."""
    leaves, structure = tree_flatten(result)
    paths = structure.paths()
    return {
        f"result{path}": leaf.numpy().copy() if isinstance(leaf, Tensor) else leaf
        for path, leaf in zip(paths, leaves, strict=True)
    }


def _name(function: Any) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return "lambda" if name == "<lambda>" else str(name)
