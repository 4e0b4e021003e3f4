"""Models in ONNX, run by onnxruntime, against Weft."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from op_calls import flat, function, tensors
from samples.table import Row

import weft
from weft.base.dtypes import DType, as_dtype, float_info
from weft.errors import GraphError
from weft.interop.onnx.model import model_of, prepared, unsupported_nodes


def session(model: Any) -> Any:
    """A session of onnxruntime; `onnxruntime` is asked for by the tests that use it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # What more it does to graphs of float64, it does with factors in float32.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def run(model: Any, *arrays: Any) -> list[Any]:
    """The results of a model for arrays, in the order of its inputs: of onnxruntime, or of the
    evaluator of the library onnx where that has no kernel, or no exact one."""
    import onnxruntime
    from onnx.reference import ReferenceEvaluator

    names = [port.name for port in model.graph.input]
    given = dict(zip(names, arrays, strict=True))
    try:
        made = ReferenceEvaluator(model) if sums_integers(model) else session(model)
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        made = ReferenceEvaluator(model)
    with np.errstate(all="ignore"):
        return list(made.run(None, given))


def sums_integers(model: Any) -> bool:
    """Whether a model adds up int64: onnxruntime does that in floats."""
    integers = {v.name for v in model.graph.input if v.type.tensor_type.elem_type == 7}
    return any(n.op_type == "ReduceSum" and n.input[0] in integers for n in model.graph.node)


def graph_of_call(row: Row, args: Any, kwargs: Any) -> Any:
    """The graph of one call of a public function, whose tensors are its inputs."""
    leaves = flat((args, kwargs))

    def call(*given: Any) -> Any:
        left = iter(given)

        def put(value: Any) -> Any:
            if isinstance(value, weft.Tensor):
                return next(left)
            if isinstance(value, (list, tuple)):
                return type(value)(map(put, value))
            if isinstance(value, dict):
                return {key: put(part) for key, part in value.items()}
            return value

        return tuple(flat(function(row.name)(*put(args), **put(kwargs))))

    return prepared(weft.make_graph(call, *[x.detach() for x in leaves]))


def compared(row: Row, dtype: DType, most: int | None) -> tuple[int, set[str], list[str]]:
    """Samples of a row, `most` of them or all: how many were compared, which ops had no operator,
    and what differed, in words."""
    samples = list(row.samples(dtype))
    step = 1 if most is None else max(1, -(-len(samples) // most))
    count, refused, wrong = 0, set(), []
    for sample in samples[::-step]:
        args, kwargs = tensors(sample.args), tensors(sample.kwargs)
        leaves = flat((args, kwargs))
        want = flat(function(row.name)(*args, **kwargs)) if leaves else []
        if not want or any(x.dtype.kind == "complex" for x in (*leaves, *want)):
            continue
        graph = graph_of_call(row, args, kwargs)
        missing = refused_ops(graph)
        refused |= missing
        if missing:
            continue
        model = model_of(graph, input_names=[f"x{i}" for i in range(len(leaves))])
        got = run(model, *[x.numpy() for x in leaves])
        count += 1
        for mine, theirs in zip(want, got, strict=True):
            found = differs(mine.numpy(), np.asarray(theirs), 4 * row.rtol)
            if found:
                wrong.append(f"{row.name} of {dtype.name}: {found} {str(sample)[:160]}")
    return count, refused, wrong


def compared_on(engine: Any, row: Row, dtype: DType, most: int, finite: bool = False) -> list[str]:
    """What differs for samples of a row on an engine, in words, as far as it takes their nodes."""
    samples = list(row.samples(dtype))
    wrong = []
    for sample in samples[:: max(1, -(-len(samples) // most))]:
        args, kwargs = tensors(sample.args), tensors(sample.kwargs)
        leaves = flat((args, kwargs))
        want = flat(function(row.name)(*args, **kwargs)) if leaves else []
        if not want:
            continue
        graph = graph_of_call(row, args, kwargs)
        if any(engine.refuses(node) for node in graph.nodes):
            continue
        if finite and not all(np.isfinite(x.numpy()).all() for x in (*leaves, *want)):
            continue
        got = engine.compile(graph)([x.numpy() for x in leaves])
        for mine, theirs in zip(want, got, strict=True):
            found = differs(mine.numpy(), np.asarray(theirs), 8 * row.rtol)
            if found:
                wrong.append(f"{row.name} on {engine.name}: {found} {str(sample)[:160]}")
    return wrong


class onnx_session:
    """A model as a function of a list of arrays."""

    def __init__(self, model: bytes) -> None:
        import onnxruntime

        self._made = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        self.names = [port.name for port in self._made.get_inputs()]

    def __call__(self, arrays: list[Any]) -> list[Any]:
        return list(self._made.run(None, dict(zip(self.names, arrays, strict=True))))


def refused_ops(graph: Any) -> set[str]:
    """The ops for which a model of a graph is refused."""
    found = {node.op.name for node in unsupported_nodes(graph)}
    if not found:
        try:
            model_of(graph)
        except GraphError as error:
            return {error.message.split()[0]}
    return found


def differs(mine: Any, theirs: Any, factor: float) -> str:
    """In which way an array is not another, up to `factor` times the rounding of its dtype."""
    if (mine.dtype, mine.shape) != (theirs.dtype, theirs.shape):
        return f"{theirs.dtype}{theirs.shape} for {mine.dtype}{mine.shape}"
    if mine.dtype.kind != "f":
        same = mine == theirs
    else:
        bound = factor * float_info(as_dtype(mine.dtype)).eps
        largest = np.abs(mine[np.isfinite(mine)]).max(initial=1.0)
        same = np.isclose(theirs, mine, rtol=bound, atol=bound * largest, equal_nan=True)
    return "" if np.all(same) else f"{theirs[~same][:3]} for {mine[~same][:3]}"


def check_model(name: str, f: Callable[..., Any], specs: Any, args: Any, factor: float) -> None:
    """Export a function or module, check the model, and compare its results."""
    import onnx

    model = weft.onnx.model(f, *specs)
    onnx.checker.check_model(model, full_check=True)
    with weft.no_grad():
        want = flat(f(*args))
    got = run(model, *[x.numpy() for x in args])
    for mine, theirs in zip(want, got, strict=True):
        wrong = differs(mine.numpy(), theirs, factor)
        assert not wrong, f"{name}: {wrong}"
