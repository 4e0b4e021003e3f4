"""`weft.make_graph`: the graph of one run of a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.autodiff.transforms.levels import innermost_level
from weft.base.dataclass import dataclass
from weft.base.device import as_device
from weft.base.dims import as_dim
from weft.base.dtypes import as_dtype, default_float, dtype_of_numpy
from weft.base.errors import CaptureError, DTypeError, ShapeError
from weft.base.pytree import TreeSpec, tree_flatten, tree_unflatten
from weft.base.source import capturing
from weft.core.bind import bind, new_tensor, recording
from weft.core.bind import written as announce_write
from weft.core.symbolic import symbolic
from weft.core.tensor import Tensor, labelled, type_of
from weft.ir.graph import Graph, Value
from weft.ir.interpret import interpret
from weft.ir.types import TensorType
from weft.record.control.nested import graph_recorder
from weft.record.control.node import call_node
from weft.record.control.on_level import call_graph
from weft.record.recorder import GraphRecorder

__all__ = ["make_graph", "spec"]


def spec(shape: Any, dtype: Any = None, *, device: Any = None) -> TensorType:
    """The type of a tensor without a value, for `make_graph`; sizes may be names.

    >>> print(weft.spec(("B", 4)), weft.spec(("2*N", 3), weft.int64))
    f32[B,4] i64[2*N,3]
    """
    sizes = shape if isinstance(shape, (tuple, list)) else (shape,)
    wanted = default_float() if dtype is None else as_dtype(dtype)
    return TensorType(wanted, tuple([as_dim(size, "spec") for size in sizes]), as_device(device))


class OutputLeaf:
    """A leaf of a result that is an output of the graph."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


class InputLeaf:
    """A leaf of the arguments that is an input of the graph."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


@dataclass(frozen=True, slots=True)
class Interface:
    """How to call a recorded graph like the function that it was recorded from.

    arguments   the structure of (args, kwargs)
    leaves      their leaves: an `InputLeaf`, or the Python value that must be given again
    captured    tensors from outside that the function reads: the inputs after the arguments
    result      the structure of the return value
    results     its leaves: an `OutputLeaf`, or a Python value
    written     tensors from outside that get a new value, and whether they get its history, too;
                the values are the outputs after the result
    graded      tensors from outside that get a new gradient, and its `OutputLeaf`, after those;
                None if the gradient is removed
    """

    arguments: TreeSpec
    leaves: tuple[Any, ...]
    captured: tuple[Tensor, ...]
    result: TreeSpec
    results: tuple[Any, ...]
    written: tuple[tuple[Tensor, bool], ...]
    graded: tuple[tuple[Tensor, OutputLeaf | None], ...]


class OnceRecorder(GraphRecorder):
    """Tensors from outside become inputs after the arguments."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.captured: list[Tensor] = []

    def lift(self, tensor: Tensor) -> Value:
        self.captured.append(tensor)
        return self.graph.add_input(type_of(tensor))

    def adopt(self, array: np.ndarray[Any, Any]) -> Tensor | None:
        return None


def make_graph(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Graph:
    """The graph of one run of `function` on symbolic tensors of the arguments' types.

    Arguments are tensors, or `weft.spec(shape, dtype)`, in any tree; other values are passed
    unchanged. Tensors from outside that the function reads become inputs after the arguments.
    Those that it writes become outputs after the result; they themselves are not changed.

    >>> print(weft.make_graph(lambda x, y: x * y + x.sum(), weft.spec(2), weft.spec(2)))
    graph @lambda(%x: f32[2], %y: f32[2]) {
      %0: f32[2] = multiply %x, %y
      %1: f32[] = sum[axis=(0,), keepdims=False] %x
      %2: f32[2] = add %0, %1
      return %2
    }
    """
    graph = Graph(_name(function))
    recorder = OnceRecorder(graph)
    leaves, arguments = tree_flatten((args, kwargs))
    given: list[Any] = []
    stands: list[Any] = []
    names = argument_names(function, arguments)
    for leaf, name in zip(leaves, names, strict=True):
        if not isinstance(leaf, (Tensor, TensorType, np.ndarray)):
            given.append(leaf)
            stands.append(leaf)
            continue
        stands.append(InputLeaf(len(graph.inputs)))
        given.append(_symbolic_input(graph, recorder, leaf, name))
    called, named = tree_unflatten(arguments, given)
    try:
        with capturing(), recording(recorder):
            result = function(*called, **named)
            _finish(graph, recorder, result, arguments, stands)
    finally:
        recorder.restore()
    return graph


def _symbolic_input(graph: Graph, recorder: GraphRecorder, leaf: Any, name: str) -> Tensor:
    if isinstance(leaf, TensorType):
        return symbolic(graph.add_input(leaf, name), recorder)
    if isinstance(leaf, np.ndarray):
        kind = TensorType(dtype_of_numpy(leaf.dtype), leaf.shape)
        return symbolic(graph.add_input(kind, name), recorder)
    made = symbolic(graph.add_input(type_of(leaf), name), recorder)
    made = labelled(made, leaf._result_class)
    if leaf.requires_grad:
        made.requires_grad = True
    return made


def _finish(
    graph: Graph, recorder: OnceRecorder, result: Any, arguments: TreeSpec, stands: list[Any]
) -> None:
    """Set the outputs and the interface."""
    leaves, structure = tree_flatten(result)
    outputs: list[Value] = []
    results: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            results.append(OutputLeaf(len(outputs)))
            outputs.append(recorder.value_of(leaf))
        else:
            results.append(leaf)
    written = [
        (entry.tensor, entry.tensor._node is not entry.node)
        for entry in recorder.written.values()
        if entry.tensor._data is not entry.data
    ]
    outputs += [recorder.value_of(tensor) for tensor, _ in written]
    graded: list[tuple[Tensor, OutputLeaf | None]] = []
    for entry in recorder.written.values():
        grad = getattr(entry.tensor, "_grad", None)
        if grad is entry.grad:
            continue
        graded.append((entry.tensor, None if grad is None else OutputLeaf(len(outputs))))
        outputs += [] if grad is None else [recorder.value_of(grad)]
    graph.outputs = tuple(outputs)
    graph.interface = Interface(
        arguments,
        tuple(stands),
        tuple(recorder.captured),
        structure,
        tuple(results),
        tuple(written),
        tuple(graded),
    )


def _name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return "lambda" if name == "<lambda>" else name


def argument_names(function: Callable[..., Any], arguments: TreeSpec) -> list[str]:
    """A name for each leaf of (args, kwargs): the parameter's name and the path inside of it."""
    code = getattr(function, "__code__", None)
    count = 0 if code is None else code.co_argcount
    parameters = [] if code is None else list(code.co_varnames[:count])
    if parameters and getattr(function, "__self__", None) is not None:
        parameters = parameters[1:]
    names: list[str] = []
    positional, keywords = arguments.children
    for i, child in enumerate(positional.children):
        base = parameters[i] if i < len(parameters) else f"arg{i}"
        names += [_plain(base + path) for path in child.paths()]
    for key, child in zip(keywords.what, keywords.children, strict=True):
        names += [_plain(key + path) for path in child.paths()]
    taken: set[str] = set()
    for i, name in enumerate(names):
        while name in taken:
            name = f"{name}_"
        taken.add(name)
        names[i] = name
    return names


def _plain(path: str) -> str:
    """x['a'][0].b -> x_a_0_b"""
    kept = "".join(c if c.isalnum() or c == "_" else " " for c in path)
    return "_".join(kept.split())


# --- running it ----------------------------------------------------------------------------------


def run_graph(graph: Graph, *args: Any, **kwargs: Any) -> Any:
    """Call a graph like the function it was recorded from, or with one tensor per input."""
    return run_graph_by(_outputs, graph, args, kwargs)


def run_graph_by(
    run: Callable[[Graph, list[Tensor]], list[Any]],
    graph: Graph,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """The same, where `run` gives the outputs, unless the call is part of a recording."""
    if graph_recorder() is not None or innermost_level() is not None:
        run = _outputs
    interface = graph.interface
    if interface is None:
        if kwargs or len(args) != len(graph.inputs):
            raise CaptureError(
                f"graph @{graph.name} takes {len(graph.inputs)} tensors, not {len(args)}"
                + (f" and {', '.join(kwargs)}" if kwargs else "")
            )
        tensors = [_fitting(graph, i, arg) for i, arg in enumerate(args)]
        outputs = run(graph, tensors)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)
    leaves, structure = tree_flatten((args, kwargs))
    if structure != interface.arguments:
        raise CaptureError(
            f"the graph @{graph.name} was recorded for arguments of the form "
            f"{interface.arguments}, not {structure}"
        )
    inputs: list[Any] = []
    for leaf, stand in zip(leaves, interface.leaves, strict=True):
        if isinstance(stand, InputLeaf):
            inputs.append(_fitting(graph, stand.index, leaf))
        elif leaf is not stand and leaf != stand:
            raise CaptureError(f"the graph @{graph.name} was recorded for {stand!r}, not {leaf!r}")
    outputs = run(graph, [*inputs, *interface.captured])
    first = sum(isinstance(leaf, OutputLeaf) for leaf in interface.results)
    for (target, history), value in zip(interface.written, outputs[first:], strict=False):
        announce_write(target)
        target._data = value._data
        if history:
            target._node = value._node
    for target, grad in interface.graded:
        target.grad = None if grad is None else outputs[grad.index]
    return tree_unflatten(
        interface.result,
        [outputs[r.index] if isinstance(r, OutputLeaf) else r for r in interface.results],
    )


def caller_of(graph: Graph, run: Callable[[list[Tensor]], list[Any]]) -> Callable[..., Any]:
    """A function that is called as a graph is, where `run` gives the outputs."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return run_graph_by(lambda _, inputs: run(inputs), graph, args, kwargs)

    call.__name__ = call.__qualname__ = graph.name
    return call


def _outputs(graph: Graph, inputs: list[Tensor]) -> list[Any]:
    """Run the graph; while another graph is recorded, its control flow becomes nodes of that."""
    if innermost_level() is not None:
        return call_graph(graph, inputs)
    control = None if graph_recorder() is None else call_node
    return interpret(graph, inputs, bind, control=control)


def _tensor(graph: Graph, arg: Any) -> Tensor:
    if isinstance(arg, Tensor):
        return arg
    if isinstance(arg, np.ndarray):
        return new_tensor(arg.astype(dtype_of_numpy(arg.dtype).numpy), as_device(None))
    raise DTypeError(f"graph @{graph.name} takes tensors, not {arg!r:.60}")


def _fitting(graph: Graph, index: int, leaf: Any) -> Tensor:
    value = graph.inputs[index]
    tensor = _tensor(graph, leaf)
    wanted = value.tensor_type
    same = tensor.dtype is wanted.dtype and len(tensor.shape) == len(wanted.shape)
    if not same or any(
        isinstance(n, int) and n != m for n, m in zip(wanted.shape, tensor.shape, strict=True)
    ):
        raise ShapeError(
            f"argument {value.name or index} of graph @{graph.name} is {wanted}, not {tensor.type}"
        )
    return tensor
