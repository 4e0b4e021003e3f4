"""The road end to end: capture, passes, and what runs the graph."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

from weft.base import config
from weft.base.errors import DTypeError, RangeError
from weft.base.lazy import Lazy
from weft.capture.trace.captured import Captured, Policy
from weft.core.autocast import as_recorded
from weft.core.bind import bind
from weft.core.grad_mode import is_grad_enabled
from weft.core.tensor import Tensor
from weft.ir.contexts import is_lowered
from weft.ir.graph import Graph
from weft.ir.interpret import PreparedGraph
from weft.ir.signature import OutputRouting
from weft.ir.types import TensorType
from weft.record.make_graph import caller_of
from weft.runtime.dataflow.options import Dataflow
from weft.runtime.executable import Executable, Program
from weft.runtime.interpreted import InterpretedProgram
from weft.runtime.lazy_imports import code_maker, dataflow, make_ready, sharded, split
from weft.runtime.split.options import Split

if TYPE_CHECKING:
    from weft.passes import pipeline, sent, stop_gradient
    from weft.passes.contract import Pass
    from weft.passes.lowering import lift
else:  # programs that only run eagerly do not load the passes
    pipeline, sent = Lazy("weft.passes.pipeline"), Lazy("weft.passes.sent")
    stop_gradient, lift = Lazy("weft.passes.stop_gradient"), Lazy("weft.passes.lowering.lift")

__all__ = ["compile", "trace"]

P = ParamSpec("P")
R = TypeVar("R")
#: Which sizes are symbolic: "auto", True, False, or the shapes of arguments, by name.
Dynamic = str | bool | Mapping[str, Any]
#: What runs the graph: a name, or the dataflow executor with options, or that over segments.
Backend = str | Dataflow | Split


class Decorator(Protocol):
    """What `weft.compile(backend=...)` gives: it takes a function of any signature."""

    def __call__(self, function: Callable[P, R], /) -> Captured[P, R]: ...


@overload
def compile(
    function: Callable[P, R],
    *,
    capture: str = "source",
    backend: Backend | None = None,
    fallback: str = "error",
    limit: int = 64,
    memory_budget: float | None = None,
    check: bool | None = None,
    dynamic: Dynamic = "auto",
) -> Captured[P, R]: ...


@overload
def compile(
    function: None = None,
    *,
    capture: str = "source",
    backend: Backend | None = None,
    fallback: str = "error",
    limit: int = 64,
    memory_budget: float | None = None,
    check: bool | None = None,
    dynamic: Dynamic = "auto",
) -> Decorator: ...


def compile(
    function: Callable[..., Any] | None = None,
    *,
    capture: str = "source",
    backend: Backend | None = None,
    fallback: str = "error",
    limit: int = 64,
    memory_budget: float | None = None,
    check: bool | None = None,
    dynamic: Dynamic = "auto",
) -> Any:
    """`function` as a graph, control flow and all: recorded when it is first called.

    Its source is read and converted: a condition or a loop that depends on tensors becomes part of
    the graph, one that depends on Python values runs as Python does. All Python values that were
    read are guards, so that nothing is ever served stale.

    >>> @weft.compile
    ... def root(a):
    ...     x = a
    ...     while abs(x * x - a) > 1e-6 * a:
    ...         x = (x + a / x) / 2
    ...     return x
    >>> root(weft.tensor(2.0)), root(weft.tensor(81.0)), len(root.recordings)
    (tensor(1.4142135), tensor(9.), 1)

    A graph (`weft.make_graph`, `Graph.parse`) is compiled as it is, and called as the graph is.

    capture     "source", or "trace": then it is `weft.trace`
    backend     "native": machine code, "interpret": op by op, or "dataflow": each op when its
                inputs are there; or "split": segments on their devices, by that executor.
                `weft.Dataflow(...)` and `weft.Split(...)` have options. By default WEFT_BACKEND,
                else "native"
    fallback    what to do with calls of other libraries on tensors: "error", or "python", a call
                back into Python
    limit       maximum recordings; after that, unmatched calls run eagerly, with a warning
    memory_budget   recompute as much in the backward as is needed to keep the peak of memory
                below this fraction of the peak with everything saved; if that is impossible, a
                warning has the fraction that was reached. It also holds for a function that calls
                backward itself, such as a training step, unless Python asks for the value of a
                tensor
    check       whether machine code checks every load and store, poisons memory before each run and
                says which kernel did wrong, several times slower; else WEFT_CHECK says it
    dynamic     which sizes are symbolic, so that one recording serves all: "auto", those in which a
                call differs from earlier recordings; True, all axes of tensors in the arguments;
                False, none; or shapes by the names of arguments, {"x": ("B", "T", 64)}
    """
    backend = _checked(memory_budget, backend, "compile")
    if capture not in ("source", "trace"):
        raise RangeError(f"there is no capture {capture!r}", op="compile", hint='"source", "trace"')
    if fallback not in ("error", "python"):
        raise RangeError(f"no fallback {fallback!r}", op="compile", hint='"error", "python"')
    if function is None:
        return lambda found: compile(
            found,
            capture=capture,
            backend=backend,
            fallback=fallback,
            limit=limit,
            memory_budget=memory_budget,
            check=check,
            dynamic=dynamic,
        )
    _check_callable(function, "compile")
    if isinstance(function, Graph):
        return _of_graph(function, backend)
    if capture == "trace":
        return trace(
            function,
            backend=backend,
            limit=limit,
            memory_budget=memory_budget,
            check=check,
            dynamic=dynamic,
        )
    build = _builder(backend, check)
    policy = Policy(True, fallback, limit, memory_budget, _checked_dynamic(dynamic, function))
    return _expected(Captured(function, build, policy), backend)


@overload
def trace(
    function: Callable[P, R],
    *,
    backend: Backend | None = None,
    limit: int = 64,
    memory_budget: float | None = None,
    check: bool | None = None,
    dynamic: Dynamic = "auto",
) -> Captured[P, R]: ...


@overload
def trace(
    function: None = None,
    *,
    backend: Backend | None = None,
    limit: int = 64,
    memory_budget: float | None = None,
    check: bool | None = None,
    dynamic: Dynamic = "auto",
) -> Decorator: ...


def trace(
    function: Callable[..., Any] | None = None,
    *,
    backend: Backend | None = None,
    limit: int = 64,
    memory_budget: float | None = None,
    check: bool | None = None,
    dynamic: Dynamic = "auto",
) -> Any:
    """`function`, recorded when it is first called, and replayed as a graph afterwards.

    Where Python asks a tensor for its value, the answer is part of the recording: a call that
    answers differently records a path beside the first. All Python values that the run read are
    guards, so that nothing is ever served stale.

    >>> @weft.trace
    ... def f(x):
    ...     return x * 2 if x.sum() > 0 else -x
    >>> f(weft.tensor([1.0, 2.0])), f(weft.tensor([-1.0, -2.0]))
    (tensor([2., 4.]), tensor([1., 2.]))
    >>> len(f.recordings)
    2

    backend         as in `weft.compile`
    limit           maximum recordings; after that, unmatched calls run eagerly, with a warning
    memory_budget   as in `weft.compile`
    check           as in `weft.compile`
    dynamic         as in `weft.compile`
    """
    backend = _checked(memory_budget, backend, "trace")
    if function is None:
        return lambda found: trace(
            found,
            backend=backend,
            limit=limit,
            memory_budget=memory_budget,
            check=check,
            dynamic=dynamic,
        )
    _check_callable(function, "trace")
    build = _builder(backend, check)
    declared = _checked_dynamic(dynamic, function)
    policy = Policy(records=False, limit=limit, budget=memory_budget, dynamic=declared)
    return _expected(Captured(function, build, policy), backend)


def _checked_dynamic(dynamic: Dynamic, function: Any) -> Dynamic:
    if isinstance(dynamic, Mapping):
        _check_names(dynamic, function)
        return dynamic
    if isinstance(dynamic, bool) or dynamic == "auto":
        return dynamic
    raise RangeError(
        f"dynamic is {dynamic!r}",
        op="compile",
        hint='"auto", True, False, or shapes by the names of arguments: {"x": ("B", 64)}',
    )


def _check_names(dynamic: Mapping[str, Any], function: Any) -> None:
    """Shapes are for arguments that the function has."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return
    if any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters.values()):
        return
    for name in dynamic:
        if name not in parameters:
            raise RangeError(
                f"dynamic gives a shape for {name!r}, which is no argument",
                op="compile",
                hint=f"arguments are {', '.join(parameters) or 'none'}",
            )


def _check_callable(function: Any, op: str) -> None:
    if callable(function):
        return
    given = f"a tensor ({function.type})" if isinstance(function, Tensor) else repr(function)[:60]
    raise DTypeError(
        f"a function or a module is needed, not {given}",
        op=op,
        hint=f"weft.{op}(f) gives a function to call: weft.{op}(f)(x), not weft.{op}(f(x))"
        + ("; weft.linalg.trace(x) sums a diagonal" if op == "trace" else ""),
    )


def _builder(backend: Backend, check: bool | None) -> Callable[..., Executable]:
    """What makes executables."""
    return functools.partial(_over_ranks, _on_one(backend, check))


def _over_ranks(
    make: Callable[..., Executable], graph: Graph, routing: OutputRouting | None = None
) -> Executable:
    """The executable of a graph; of one that lies over a mesh, that of this rank."""
    if _may_lie_over_ranks(graph) and sharded().is_sharded(graph):
        made: Executable = sharded().sharded(graph, routing, make)
        return made
    return make(graph, routing)


def _may_lie_over_ranks(graph: Graph) -> bool:
    """Whether a graph may say how a value lies over a mesh."""
    return any(
        isinstance(value.type, TensorType) and value.type.cuts is not None for value in graph.inputs
    ) or any(node.op.collective for part in graph.walk() for node in part.nodes)


def _on_one(backend: Backend, check: bool | None) -> Callable[..., Executable]:
    """What makes executables for one machine; only machine code has something to check."""
    if isinstance(backend, Dataflow):
        return functools.partial(_dataflow, options=backend)
    if isinstance(backend, Split):
        return functools.partial(_split, options=backend)
    if check is None or backend != "native":
        return BACKENDS[backend]
    return functools.partial(_native, check=check)


def _expected(captured: Captured[..., Any], backend: Backend) -> Captured[..., Any]:
    """A function that will be called: its first call shall not wait for what can be loaded now.
    That is LLVM, too, where no process has captured the function as it is."""
    if backend == "native":
        make_ready(compiles=not captured.is_kept())
    return captured


def _checked(memory_budget: float | None, backend: Backend | None, op: str) -> Backend:
    chosen = config.backend() if backend is None else backend
    if isinstance(chosen, (Dataflow, Split)):
        dataflow().scheduler_named(chosen.scheduler)
        if isinstance(chosen, Split):
            split().check(chosen)
    elif chosen not in BACKENDS:
        known = ", ".join(f'"{name}"' for name in BACKENDS)
        raise RangeError(f"there is no backend {chosen!r}", op=op, hint=known)
    if memory_budget is not None and not 0 <= memory_budget <= 1:
        raise RangeError(
            f"memory_budget is {memory_budget}, not in 0 … 1",
            op=op,
            hint="0.5 asks for half of the peak that comes of saving everything",
        )
    if chosen == "native":
        code_maker()  # the first call shall not wait for what can be loaded now
    return chosen


def builder_of(backend: Backend | None = None) -> Callable[..., Executable]:
    """What makes executables for a backend; None: the one that the settings say."""
    return _builder(_checked(None, backend, "compile"), None)


def run_passes() -> list[Pass]:
    """What is done to a graph that is run: it is never differentiated itself, as its backward is a
    graph of its own."""
    return [stop_gradient.DropStopGradient(), *pipeline.passes()]


def _interpreted(graph: Graph, routing: OutputRouting | None = None) -> Executable:
    todo = run_passes()

    def build(_graph: Graph, _values: Mapping[int, int], optimized: Callable[[], Graph]) -> Program:
        return InterpretedProgram(optimized())

    return Executable(graph, lambda found: pipeline.optimize(found, todo), build, routing)


def _dataflow(
    graph: Graph,
    routing: OutputRouting | None = None,
    options: Dataflow | None = None,
    todo: list[Pass] | None = None,
) -> Executable:
    steps = run_passes() if todo is None else todo
    chosen = options or Dataflow()

    def build(_graph: Graph, _values: Mapping[int, int], optimized: Callable[[], Graph]) -> Program:
        made: Program = dataflow().DataflowProgram(optimized(), chosen)
        return made

    return Executable(graph, lambda found: pipeline.optimize(found, steps), build, routing)


def _split(
    graph: Graph, routing: OutputRouting | None = None, options: Split | None = None
) -> Executable:
    todo: list[Pass] = [sent.FollowSent(), *run_passes()]
    chosen = options or Split()

    def build(_graph: Graph, _values: Mapping[int, int], optimized: Callable[[], Graph]) -> Program:
        made: Program = split().SplitProgram(optimized(), chosen)
        return made

    return Executable(graph, lambda found: pipeline.optimize(found, todo), build, routing)


def _native(
    graph: Graph, routing: OutputRouting | None = None, check: bool | None = None
) -> Executable:
    todo = run_passes()
    known = None if pipeline.has_registered() else ",".join(step.name for step in todo).encode()
    build = functools.partial(code_maker(), passes=known, check=check)
    return Executable(graph, lambda found: pipeline.optimize(found, todo), build, routing)


class GraphProgram:
    """A graph that was not captured from a function: a declared one, or one made by hand. It is
    compiled, unless the results need gradients: then its ops are called one by one and recorded on
    the tape. `backend`: by default the one that the settings say at each call."""

    def __init__(self, graph: Graph, backend: Backend | None = None) -> None:
        self.graph = graph
        self.backend = backend
        self._ops: PreparedGraph | None = None
        self._executables: dict[Any, Executable] = {}  # by their backends

    def run(self, inputs: list[Tensor]) -> list[Tensor]:
        if not (is_grad_enabled() and any(x.requires_grad for x in inputs)):
            return self._executable().call(inputs)
        if self._ops is None:
            self._ops = PreparedGraph(pipeline.optimize(lift.LiftControlFlow().run(self.graph)))
        with as_recorded():
            slots = self._ops.run(inputs, bind)
        return [slots[i] for i in self._ops.outputs]

    def _executable(self) -> Executable:
        backend = self.backend or config.backend()
        key = backend if isinstance(backend, str) else id(backend)
        if key not in self._executables:
            self._executables[key] = self._made(_checked(None, backend, "Session"))
        return self._executables[key]

    def _made(self, backend: Backend) -> Executable:
        if backend == "dataflow" or isinstance(backend, Dataflow):
            options = backend if isinstance(backend, Dataflow) else None
            if is_lowered(self.graph):  # in the very primitives that it has, passes or not
                return _dataflow(self.graph, options=options, todo=[])
        return _builder(backend, None)(lift.LiftControlFlow().run(self.graph))


def _of_graph(graph: Graph, backend: Backend) -> Callable[..., Any]:
    """What `weft.compile` gives for a graph: a function to be called as the graph is."""
    graph.verify()
    return caller_of(lift.LiftControlFlow().run(graph), GraphProgram(graph, backend).run)


def without_passes(
    graph: Graph, routing: OutputRouting | None = None, native: bool = False
) -> Executable:
    """A graph as it is, run op by op or as machine code: what tools compare with."""

    def build(given: Graph, values: Mapping[int, int], _optimized: Any) -> Program:
        return code_maker()(given, values) if native else InterpretedProgram(given)

    return Executable(graph, lambda same: same, build, routing)


BACKENDS: dict[str, Callable[..., Executable]] = {
    "native": _native,
    "interpret": _interpreted,
    "dataflow": _dataflow,
    "split": _split,
}
