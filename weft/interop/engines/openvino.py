"""The device "openvino": segments as compiled models of OpenVINO. "openvino:GPU" and "openvino:NPU"
ask for a device of its own; by default it is the CPU."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import DeviceError
from weft.interop.engines.onnx_segments import Frozen, alone, is_small, refusal
from weft.interop.onnx.library import onnx_library
from weft.interop.onnx.model import prepared
from weft.ir.graph import Graph, Node
from weft.runtime.split.devices import Engine

__all__ = ["open_engine"]


def open_engine(name: str, unit: str) -> Engine:
    """The engine; an error says what is missing."""
    try:
        openvino = importlib.import_module("openvino")
    except ImportError as error:
        raise DeviceError(
            f"the device {name!r} needs OpenVINO, which cannot be imported here: {error}",
            hint="pip install 'weft[openvino]'",
        ) from None
    onnx_library()
    core = openvino.Core()
    unit = unit or "CPU"
    if not any(found.partition(".")[0] == unit for found in core.available_devices):
        raise DeviceError(
            f"OpenVINO has no device {unit!r} here",
            hint=f"there are {', '.join(core.available_devices)}",
        )
    #: Results in the dtypes of the model, not in what is fastest.
    exact = {"INFERENCE_PRECISION_HINT": "f32"}

    def session(model: bytes, small: bool = True) -> Callable[[list[Any]], list[Any]]:
        # A small one runs in the thread that calls it: a graph may have many segments.
        options = {**exact, "NUM_STREAMS": "0"} if small and unit == "CPU" else exact
        made = core.compile_model(core.read_model(model), unit, options)
        count = len(made.outputs)
        # Inputs that only told sizes are none of the compiled model's: it has taken shapes over.
        used = [int(port.get_any_name().removeprefix("x")) for port in made.inputs]

        def run(arrays: list[Any]) -> list[Any]:
            request = made.create_infer_request()  # runs in several threads are apart
            given = [arrays[i] if arrays[i].ndim else np.array(arrays[i]) for i in used]
            found = request.infer(given, share_inputs=True)
            return [np.array(found[i]) for i in range(count)]

        return run

    def compiled(graph: Graph) -> Any:
        made = functools.partial(session, small=is_small(graph))
        return Frozen(graph, made, finite=lambda _graph: True, once=True)

    return Engine(
        name,
        compiled,
        lambda node: refusal(node, session, _inexact),
        version=f"{openvino.__version__} {unit}",
    )


#: What OpenVINO computes as Weft does, for finite float32. It counts int64 in int32, takes NaN for
#: a number in many ops, and mixes up a square constant that is read as it is and transposed.
_TAKEN = {
    "add", "broadcast_to", "concat", "constant", "conv", "conv_bias", "conv_input", "divide", "erf",
    "exp", "full", "getitem", "identity", "linear", "log_softmax", "matmul", "max_pool", "multiply",
    "negative", "permute_dims", "reciprocal", "relu", "reshape", "rsqrt", "sigmoid", "softmax",
    "sqrt", "square", "subtract", "sum", "sum_pool", "tanh",
}  # fmt: skip


def _inexact(node: Node) -> str:
    """What OpenVINO computes otherwise than Weft does, or may not survive."""
    for value in (*node.inputs, *node.outputs):
        if value.tensor_type.dtype is not dtypes.float32:
            return f"the engine is given float32 only, not {value.tensor_type.dtype.name}"
    for inner in prepared(alone(node)).nodes:
        if inner.op.name not in _TAKEN:
            return f"{inner.op.name} is none of the ops that this engine is given"
    return ""
