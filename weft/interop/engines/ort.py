"""The device "ort": segments as sessions of ONNX Runtime. "ort:CUDAExecutionProvider" asks for a
provider; by default it is the CPU's."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from weft.base import dtypes
from weft.base.errors import DeviceError
from weft.interop.engines.onnx_segments import Frozen, computes_sizes, has_doubles, refusal
from weft.interop.onnx.library import onnx_library
from weft.ir.graph import Graph, Node
from weft.ops.cards import MAX_POOL, PROD, SUM
from weft.runtime.split.devices import Engine

__all__ = ["open_engine"]

_CPU = "CPUExecutionProvider"


def open_engine(name: str, provider: str) -> Engine:
    """The engine; an error says what is missing."""
    try:
        ort = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise DeviceError(
            f"the device {name!r} needs ONNX Runtime, which cannot be imported here: {error}",
            hint="pip install 'weft[ort]'",
        ) from None
    onnx_library()
    there = ort.get_available_providers()
    if provider and provider not in there:
        raise DeviceError(
            f"ONNX Runtime has no provider {provider!r} here", hint=f"there are {', '.join(there)}"
        )
    providers = [provider, _CPU] if provider and provider != _CPU else [_CPU]

    def session(model: bytes, exact: bool = False) -> Callable[[list[Any]], list[Any]]:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        if exact:  # only what keeps float64, and survives arrays without elements
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        made = ort.InferenceSession(model, options, providers=providers)
        names = [port.name for port in made.get_inputs()]

        def run(arrays: list[Any]) -> list[Any]:
            found: list[Any] = made.run(None, dict(zip(names, arrays, strict=True)))
            return found

        return run

    def compiled(graph: Graph) -> Any:
        exact = has_doubles(graph) or computes_sizes(graph)
        return Frozen(graph, lambda model: session(model, exact), finite=_has_pooling)

    return Engine(
        name,
        compiled,
        lambda node: refusal(node, session, _inexact),
        version=f"{ort.__version__} {providers}",
    )


def _has_pooling(graph: Graph) -> bool:
    """Whether a graph takes maxima of windows: ONNX Runtime passes over NaN there."""
    return any(node.op is MAX_POOL for part in graph.walk() for node in part.nodes)


def _inexact(node: Node) -> str:
    """Where ONNX Runtime computes something else than Weft does."""
    if node.op in (SUM, PROD) and node.inputs[0].tensor_type.dtype.kind != "float":
        narrow = node.inputs[0].tensor_type.dtype
        if narrow is not dtypes.bool:
            return "the engine adds up integers in floats"
    return ""
