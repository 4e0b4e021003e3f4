"""The device "ort": segments as sessions of ONNX Runtime. "ort:CUDAExecutionProvider" asks for a
provider; by default it is the CPU's."""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable
from typing import Any

from weft.base import dtypes
from weft.base.errors import DeviceError
from weft.interop.engines.onnx_segments import (
    Frozen,
    computes_sizes,
    has_doubles,
    is_small,
    refusal,
)
from weft.interop.onnx.library import onnx_library
from weft.ir.graph import Graph, Node
from weft.ops.cards import MAX_POOL, PROD, SUM
from weft.runtime.split.devices import Engine

__all__ = ["open_engine"]

_CPU = "CPUExecutionProvider"
Session = Callable[[list[Any]], list[Any]]


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

    def session(
        model: bytes, exact: bool = False, long: bool = False, small: bool = True
    ) -> Session:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        if small:  # runs in the thread that calls it: a graph may have many segments
            options.intra_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if exact:  # only what keeps float64, and survives arrays without elements
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        made = ort.InferenceSession(model, options, providers=providers)
        names = [port.name for port in made.get_inputs()]

        def run(arrays: list[Any]) -> list[Any]:
            given = dict(zip(names, arrays, strict=True))
            if long and threading.current_thread() is threading.main_thread():
                return _interruptible(made, given, ort.RunOptions())
            found: list[Any] = made.run(None, given)
            return found

        return run

    def compiled(graph: Graph) -> Any:
        exact = has_doubles(graph) or computes_sizes(graph)
        long = any(node.op.loop for part in graph.walk() for node in part.nodes)
        made = functools.partial(session, exact=exact, long=long, small=is_small(graph))
        return Frozen(graph, made, finite=_has_pooling)

    return Engine(
        name,
        compiled,
        lambda node: refusal(node, session, _inexact),
        version=f"{ort.__version__} {providers}",
    )


def _interruptible(session: Any, given: dict[str, Any], options: Any) -> list[Any]:
    """A run with a loop, which Ctrl-C ends: it goes on in a thread, and this one waits."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(session.run(None, given, options))
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, name="weft-ort", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.05)
    except BaseException:
        options.terminate = True
        thread.join()
        raise
    if isinstance(found[0], BaseException):
        raise found[0]
    made: list[Any] = found[0]
    return made


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
