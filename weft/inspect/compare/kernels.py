"""`weft.compare(f, by="kernel")`: compares each kernel of a program with the interpreter.

Native code and the interpreter differ by rounding, and a program may amplify that. So each kernel
runs alone, on operands from the interpreter, and its results are compared with the interpreter's:
they may differ by rounding (`bounds.py`), and no more. An error in one kernel does not reach the
next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.core.bind import bind
from weft.core.grad_mode import no_grad
from weft.core.tensor import Tensor, wrap
from weft.inspect.compare.bounds import SAMPLES, Bounds, epsilon, jittered
from weft.inspect.compare.close import Tolerance
from weft.inspect.compare.locate import Finding, first_difference
from weft.inspect.compare.runs import Event, GraphRun, replayed, silently
from weft.inspect.frames import loops_text
from weft.inspect.watch.nonfinite import summary
from weft.ir.graph import Graph, Node, Value
from weft.ir.interpret import run_node
from weft.ir.types import TensorType
from weft.runtime.machine_code import MachineCode
from weft.schedule.plan import GraphPlan, Step

__all__ = ["KernelComparison", "KernelRow", "compare_kernels"]

Array = np.ndarray[Any, Any]
#: The number of runs of a branch or body that are checked per run of its node.
MOST_ROUNDS = 64
#: Results of a whole program may differ by this multiple of what rounding of its inputs changes.
FAR = 64


@dataclass(slots=True)
class KernelRow:
    """One kernel.

    number   as in the scheduled graph: 0, or 1.0.2 in a nested graph
    ops      the ops that it computes
    runs     the number of runs that were checked
    ratio    the largest difference, divided by the bound; above 1 is wrong
    """

    number: str
    name: str
    ops: str
    runs: int = 0
    ratio: float = 0.0
    finding: Finding | None = None

    @property
    def status(self) -> str:
        if self.finding is not None:
            return "wrong"
        return "right" if self.runs else "not run"


@dataclass
class KernelComparison:
    """The result of `weft.compare(f, by="kernel")`; true if no kernel is wrong.

    notes   what was not checked, and why
    """

    name: str
    rows: list[KernelRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    whole: Finding | None = None

    @property
    def same(self) -> bool:
        return self.first is None

    @property
    def first(self) -> Finding | None:
        """The first wrong kernel, in execution order."""
        return next((row.finding for row in self.rows if row.finding is not None), self.whole)

    def __bool__(self) -> bool:
        return self.same

    def __str__(self) -> str:
        lines = [("kernel", "", "", "runs", "error / bound", "ops")]
        for row in self.rows:
            ratio = f"{row.ratio:.2g}" if row.runs else ""
            lines.append((row.number, row.name, row.status, str(row.runs), ratio, row.ops))
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        pairs = [zip(line, widths, strict=True) for line in lines]
        shown = ["  ".join(cell.ljust(width) for cell, width in pair).rstrip() for pair in pairs]
        shown.insert(0, f"{self.name}, kernel by kernel")
        shown += self.notes
        if self.first is not None:
            shown.append("the first that is wrong:" if self.whole is None else "wrong:")
            shown += [f"  {line}" for line in str(self.first).splitlines()]
        return "\n".join(shown)

    def __repr__(self) -> str:
        wrong = sum(row.finding is not None for row in self.rows)
        return f"<comparison of {self.name}: {len(self.rows)} kernels, {wrong} wrong>"


def compare_kernels(name: str, runs: Sequence[GraphRun]) -> KernelComparison:
    """Compare the kernels of all programs that a call ran."""
    report = KernelComparison(name)
    known: dict[int, _Checking] = {}
    for run in runs:
        program = run.executable.program.for_inputs(run.inputs)
        code = program.machine_code()
        if code is None:
            how = "is interpreted"
            if program.timed_steps() is not None:  # it has kernels, which cannot be run alone
                _compare_whole(report, run)
                how = "is compared as a whole"
            report.notes.append(f"{run.executable.name} {how}: {program.reason}")
            continue
        if _has_late_sizes(run.executable.graph()):
            report.notes.append(f"{run.executable.name} is not compared: its sizes depend on data")
            continue
        if id(program) not in known:
            prefix = f"{run.executable.name}: " if known else ""
            known[id(program)] = _Checking(code, report, prefix)
        known[id(program)].check(run)
    return report


def _compare_whole(report: KernelComparison, run: GraphRun) -> None:
    graph = run.executable.graph()
    wanted, _ = replayed(graph, run.inputs)
    difference = first_difference(wanted, run.outputs, Tolerance())
    if difference is not None and report.first is None:
        report.whole = Finding("code", "return", None, (), difference.text, "one of its kernels")


def _has_late_sizes(graph: Graph) -> bool:
    """Whether the run itself tells some sizes."""
    return any(node.op.data_shape for part in graph.walk() for node in part.nodes)


class _Checking:
    """Checks the kernels of one program."""

    def __init__(self, code: MachineCode, report: KernelComparison, prefix: str) -> None:
        self.kernels = code.kernels()
        self.report = report
        self.rows: dict[int, KernelRow] = {}
        for number, step in self.kernels.code.numbered():
            names = [kernel.name for kernel in step.kernels if kernel.name]
            if names:
                ops = " ".join(node.op.name for node in step.group.in_order())
                row = KernelRow(f"{prefix}{number}", ", ".join(names), ops)
                self.rows[id(step)] = row
                report.rows.append(row)

    def check(self, run: GraphRun) -> None:
        graph = self.kernels.code.graph
        wanted = self._graph(self.kernels.code, run.inputs, [])
        difference = first_difference(wanted, run.outputs, Tolerance())
        if difference is None or self.report.first is not None:
            return
        if not _explained(graph, run.inputs, wanted, run.outputs):
            note = "each kernel by itself is right: memory or control flow between them is not"
            self.report.whole = Finding("code", "return", None, (), difference.text, note)

    def _graph(
        self, code: GraphPlan, inputs: list[Any], loops: list[tuple[Node, int]]
    ) -> list[Any]:
        outputs, events = replayed(code.graph, inputs)
        numbers = _Numbers(code, inputs, [event for event in events if event.depth == 0])
        for step in code.steps:
            if id(step) in self.rows:
                self._step(step, numbers, loops)
            elif step.nested:
                self._nested(step, numbers.events[step.nodes[0]], loops)
        return outputs

    def _nested(self, step: Step, event: Event, loops: list[tuple[Node, int]]) -> None:
        by_graph = {code.graph: code for code in step.nested}
        rounds: dict[Any, int] = {}
        for graph, given in event.inner:
            count = rounds[graph] = rounds.get(graph, -1) + 1
            if graph not in by_graph or count >= MOST_ROUNDS:
                continue
            inside = [*loops, (event.node, count)] if event.node.op.loop else loops
            self._graph(by_graph[graph], given, inside)

    def _step(self, step: Step, numbers: _Numbers, loops: list[tuple[Node, int]]) -> None:
        row = self.rows[id(step)]
        row.runs += 1
        if row.finding is not None:
            return
        with silently():
            status, made = self.kernels.call(step, numbers.array)
            bounds = Bounds(step.group, numbers.array)
        where = [f"kernel {row.name} ({row.ops})", loops_text(loops)]
        note = "; ".join(part for part in where if part)
        if status:
            row.finding = _finding(step, step.nodes[0], numbers, f"it fails: status {status}", note)
            return
        for value, got in made.items():
            if value not in step.outputs:
                continue
            text = self._differs(row, numbers.array(value), got, bounds.of(value))
            if text:
                node = value.node or step.nodes[0]
                row.finding = _finding(step, node, numbers, text, note)
                return

    def _differs(self, row: KernelRow, wanted: Array, got: Array, bound: Array) -> str:
        """How a result is wrong; empty if rounding explains the difference."""
        floating = wanted.dtype.kind in "fcV"
        wide: Any = np.complex128 if wanted.dtype.kind == "c" else np.float64
        x, y = (wanted.astype(wide), got.astype(wide)) if floating else (wanted, got)
        with np.errstate(all="ignore"):
            same = (x == y) | (np.isnan(x) & np.isnan(y) if floating else False)
            apart = np.where(same, 0.0, np.abs(x.astype(wide) - y.astype(wide)))
            wrong = ~same & ~(apart <= bound)
            known = apart[(apart > 0) & (bound > 0)] / bound[(apart > 0) & (bound > 0)]
        if known.size:
            row.ratio = max(row.ratio, float(np.nanmax(known)))
        if not wrong.any():
            return ""
        row.ratio = max(row.ratio, np.inf if not known.size else row.ratio)
        first = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        at = f" at {[int(i) for i in first]}" if wrong.ndim else ""
        count = f"{int(wrong.sum())} of {wrong.size} elements: " if wrong.ndim else ""
        values = f"{wanted[first]!s} and {got[first]!s}{at}"
        return f"{count}{values}, where rounding explains {bound[first]:.2g}"


def _explained(
    graph: Graph, inputs: Sequence[Any], wanted: Sequence[Any], got: Sequence[Any]
) -> bool:
    """Whether rounding of the inputs, to the narrowest dtype in the graph, changes the results as
    much as they differ."""
    rng = np.random.default_rng(0)
    rounding = max((_epsilon(value) for part in graph.walk() for value in part.values()), default=0)

    def near(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        error = _apart(x._data, 0 * x._data) * rounding
        return wrap(jittered(rng, x._data, error if x._data.dtype.kind in "fcV" else None))

    pairs = [i for i, x in enumerate(wanted) if isinstance(x, Tensor)]
    spread = {i: np.zeros(wanted[i].shape) for i in pairs}
    with np.errstate(all="ignore"):
        for _ in range(SAMPLES):
            moved, _ = replayed(graph, [near(x) for x in inputs])
            for i in pairs:
                spread[i] = np.fmax(spread[i], _apart(wanted[i]._data, moved[i]._data))
        return all(
            bool((_apart(wanted[i]._data, got[i]._data) <= FAR * spread[i].max(initial=0)).all())
            for i in pairs
            if Tolerance().difference(wanted[i]._data, got[i]._data) is not None
        )


def _epsilon(value: Value) -> float:
    kind = value.type
    if not isinstance(kind, TensorType) or kind.dtype.kind not in ("float", "complex"):
        return 0.0
    return epsilon(kind.dtype.numpy)


def _apart(a: Array, b: Array) -> Array:
    wide: Any = np.complex128
    same = (a == b) | ((a != a) & (b != b))
    return np.where(same, 0.0, np.abs(a.astype(wide) - b.astype(wide)))


def _finding(step: Step, node: Node, numbers: _Numbers, text: str, note: str) -> Finding:
    roots = [value for value in step.reads() if isinstance(value.type, TensorType)]
    operands = tuple(summary(numbers.value(value)) for value in roots)
    location = node.location or step.nodes[0].location
    return Finding("code", node.op.name, location, operands, text, note)


class _Numbers:
    """The interpreter's results for the values of a graph, and for copies made by the schedule."""

    def __init__(self, code: GraphPlan, inputs: Sequence[Any], events: Sequence[Event]) -> None:
        self.events = {event.node: event for event in events}
        self._known: dict[Value, Any] = dict(zip(code.graph.inputs, inputs, strict=True))
        for event in events:
            self._known.update(zip(event.node.outputs, event.outputs, strict=True))

    def value(self, value: Value) -> Any:
        if value not in self._known:
            node = value.node
            assert node is not None
            with no_grad():
                made = run_node(node, [self.value(other) for other in node.inputs], bind)
            self._known.update(zip(node.outputs, made, strict=True))
        return self._known[value]

    def array(self, value: Value) -> Array:
        found = self.value(value)
        assert isinstance(found, Tensor)
        return np.asarray(found._data)
