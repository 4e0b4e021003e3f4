"""What the executor runs: one `Task` for each node of a graph.

An op is a task, and so is all else that has inputs and outputs: a sunk segment, a transfer, a
message. Whoever has such a node registers how a task is made from it:

    @task_for(SEGMENT)                      # a card of an op
    def segment(node: Node) -> Task:
        session = ...                       # compiled once, when the graph is prepared
        return Task(lambda values, env: session.run(values), device="ort", seconds=2e-3)

`call(values, env)` gets the values of the inputs in order, in a list that is its own. It returns
the value of the one output, or a tuple of as many values as there are outputs. Values between
tasks are raw arrays (NumPy's on the CPU), or whatever the task that takes them understands: a
transfer may return an object of its device. A task must not write to its inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft.base.dims import bind_all, dims_in, has_dims, substitute, typical
from weft.base.errors import GraphError
from weft.core.bind import bind
from weft.core.call_errors import cause, explained
from weft.core.tensor import wrap
from weft.ir.graph import Node
from weft.ir.interpret import Runner
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType
from weft.ops.flow import FLOW_START
from weft.runtime.dataflow.arrays import Env, asarray, call_op, ndarray, outside, unwrapped

__all__ = ["Task", "task_for", "task_of"]

Call = Callable[[list[Any], Env], Any]

#: What the schedulers count with, where nothing is measured: of one core, in one second.
FLOPS, BYTES = 4e9, 8e9
#: What one call costs besides.
CALL_SECONDS = 1e-6
#: A call of Python code, or of an op whose card says nothing: it is never cheap.
UNKNOWN_SECONDS = 1e-3
#: A node that takes less is not worth another thread.
CHEAP_SECONDS = 50e-6


@dataclass(eq=False, slots=True)
class Task:
    """One node, ready to run.

    call      (values, env) -> the value of the output, or a tuple of the values of several
    device    whose queue it waits in: "cpu", or the name of another device, which has a thread
    seconds   the time that one call takes, roughly
    at_home   whether it must run in the thread that called the program: effects do
    """

    call: Call
    device: str = "cpu"
    seconds: float = CALL_SECONDS
    at_home: bool = False

    @property
    def is_cheap(self) -> bool:
        """Whether it runs in the thread that made it ready."""
        return self.seconds < CHEAP_SECONDS and self.device == "cpu" and not self.at_home


Make = Callable[[Node], Task]
_MAKERS: dict[Op, Make] = {}


def task_for(op: Op) -> Callable[[Make], Make]:
    """Register what makes tasks from the nodes of an op."""

    def register(make: Make) -> Make:
        _MAKERS[op] = make
        return make

    return register


def task_of(node: Node) -> Task:
    """The task of a node."""
    make = _MAKERS.get(node.op)
    if make is not None:
        return make(node)
    if node.op.nested:
        raise GraphError(
            "the dataflow executor has no task for this node",
            op=node.op.name,
            hint="register one with weft.runtime.dataflow.tasks.task_for",
        )
    return Task(_call_of(node), "cpu", seconds_of(node), at_home=node.op.effect)


def seconds_of(node: Node) -> float:
    """The time that a node takes on one core, by its card; symbolic sizes count as likely ones."""
    op = node.op
    if Trait.PYTHON in op.traits or (op.cost is None and is_users(op)):
        return UNKNOWN_SECONDS
    if Trait.STACK in op.traits or op.view:
        return CALL_SECONDS
    given = tuple([value.tensor_type for value in node.inputs])
    made = tuple([value.tensor_type for value in node.outputs])
    cost = op.estimate(given, made, **node.attrs)
    work = typical(cost.flops) * (op.cycles if op.elementwise else 1.0)
    return CALL_SECONDS + work / FLOPS + typical(cost.bytes) / BYTES


def is_users(op: Op) -> bool:
    """Whether a user made the card: its cost is not known."""
    rule = next(iter(op.eval.values())) if isinstance(op.eval, dict) else op.eval
    module = getattr(rule, "__module__", None) or ""
    return callable(rule) and not module.startswith(("weft.", "numpy"))


# --- ops ---------------------------------------------------------------------------------------


def _call_of(node: Node) -> Call:
    op, attrs, count = node.op, node.attrs, len(node.outputs)
    symbolic = bool(list(dims_in(attrs)))
    if Trait.STACK in op.traits:
        return _on_stacks(node, symbolic)
    if not attrs and len(node.inputs) in (1, 2) and count == 1 and not op.dispatch_on:
        return _one_array(op) if len(node.inputs) == 1 else _two_arrays(op)

    def call(values: list[Any], env: Env) -> Any:
        given = substitute(attrs, env.sizes) if symbolic else attrs
        out = call_op(op, values, given, env.quiet)
        return out[0] if count == 1 and out.__class__ is tuple else out

    return call


def _one_array(op: Op) -> Call:
    """`call_op` in one frame, for an op of one array without attributes."""
    kernels = op.kernels

    def call(values: list[Any], env: Env) -> Any:
        (a,) = values
        if a.__class__ is not ndarray:
            return call_op(op, values, {}, env.quiet)
        try:
            out = env.quiet(kernels[ndarray][a.dtype], a)
        except Exception as error:
            raise explained(op, (wrap(a),), {}, error) from cause(error)
        return out if out.__class__ is ndarray else asarray(out)

    return call


def _two_arrays(op: Op) -> Call:
    kernels = op.kernels

    def call(values: list[Any], env: Env) -> Any:
        a, b = values
        if a.__class__ is not ndarray or b.__class__ is not ndarray:
            return call_op(op, values, {}, env.quiet)
        try:
            out = env.quiet(kernels[ndarray][a.dtype], a, b)
        except Exception as error:
            raise explained(op, (wrap(a), wrap(b)), {}, error) from cause(error)
        return out if out.__class__ is ndarray else asarray(out)

    return call


def _on_stacks(node: Node, symbolic: bool) -> Call:
    """Ops on stacks and tokens, and effects. They get tensors, as from the interpreter: stacks hold
    tensors in all executors, as one may pop what another pushed."""
    op, attrs, count = node.op, node.attrs, len(node.outputs)
    evaluate: Any = op.eval

    def call(values: list[Any], env: Env) -> Any:
        given = substitute(attrs, env.sizes, partly=True) if symbolic else attrs
        made = evaluate(Runner(bind, env.sizes), *map(outside, values), **given)
        out = unwrapped(made)
        return out[0] if count == 1 else out

    return call


@task_for(FLOW_START)
def _started(node: Node) -> Task:
    """A node that starts when control comes; further inputs tell its sizes."""
    (graph,) = node.graphs
    (inner,) = graph.nodes
    task = task_of(inner)
    run, count = task.call, len(inner.inputs)
    if not list(dims_in(inner.attrs)):
        return Task(
            lambda values, env: run(values[:count], env), task.device, task.seconds, task.at_home
        )
    tellers = [
        (i, value.type.shape)
        for i, value in enumerate(graph.inputs)
        if i >= count and isinstance(value.type, TensorType) and has_dims(value.type.shape)
    ]

    def call(values: list[Any], env: Env) -> Any:
        sizes = dict(env.sizes)
        told = [(shape, tuple(values[i].shape), "") for i, shape in tellers]
        bind_all(told, sizes, partly=True)
        local = Env.__new__(Env)
        local.quiet, local.sizes = env.quiet, sizes
        return run(values[:count], local)

    return Task(call, task.device, task.seconds, task.at_home)
