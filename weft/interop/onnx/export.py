"""`weft.onnx.export`: a function, a module or a program as an ONNX file."""

from __future__ import annotations

import os
import re
from typing import Any

from weft.base.errors import CaptureError
from weft.interop.files import replacing
from weft.interop.onnx.library import onnx_library
from weft.interop.onnx.model import model_of, prepared
from weft.interop.programs.export import export as program_of
from weft.interop.programs.program import Program
from weft.ir.graph import Builder, Graph
from weft.ir.signature import Given, Made
from weft.passes.pipeline import optimize, passes
from weft.passes.stop_gradient import DropStopGradient

__all__ = ["export", "model"]

#: A file of protobuf holds less than 2 GiB; what is larger has its weights in a file beside it.
MOST_BYTES = 2**31 - 2**20


def model(function: Any, /, *specs: Any, **named: Any) -> Any:
    """The `onnx.ModelProto` of a function, a module or a program: opset 20, IR version 10.

    >>> made = weft.onnx.model(weft.nn.Linear(4, 2), weft.spec(("B", 4)))   # doctest: +SKIP
    >>> [node.op_type for node in made.graph.node]                          # doctest: +SKIP
    ['Gemm', 'Identity']

    function        what `weft.export` takes, with the types of its arguments in `specs` and
                    `named`; or a program, which has them
    """
    onnx_library()  # if it is missing, say so before all work
    program = function if isinstance(function, Program) else program_of(function, *specs, **named)
    _check(program)
    graph = optimize(_results(program), [DropStopGradient(), *passes()])
    return _model(program, prepared(graph))


def export(function: Any, path: str | os.PathLike[str], /, *specs: Any, **named: Any) -> None:
    """Write the ONNX model of a function, a module or a program to a file.

    >>> model = weft.nn.Sequential(weft.nn.Linear(4, 2), weft.nn.ReLU())
    >>> weft.onnx.export(model, "model.onnx", weft.spec(("B", 4)))          # doctest: +SKIP

    The inputs have the names of the parameters of the function, the weights those of its state.
    Weights beyond 2 GiB are written to a file beside it, `model.onnx.data`. See docs/onnx.md.
    """
    made = model(function, *specs, **named)
    if made.ByteSize() > MOST_BYTES:
        _write_large(made, path)
        return
    content = made.SerializeToString()
    with replacing(path) as file:
        file.write(content)


def _write_large(made: Any, path: Any) -> None:
    """The weights go to a file beside the model, which is written first."""
    name = f"{os.path.basename(os.fspath(path))}.data"
    with replacing(f"{os.fspath(path)}.data") as file:
        at = 0
        for tensor in made.graph.initializer:
            data = tensor.raw_data
            if len(data) < 1024:
                continue
            for key, value in (("location", name), ("offset", at), ("length", len(data))):
                entry = tensor.external_data.add()
                entry.key, entry.value = key, str(value)
            tensor.data_location = onnx_library().TensorProto.EXTERNAL
            tensor.ClearField("raw_data")
            file.write(data)
            at += len(data)
            padding = -at % 64
            file.write(bytes(padding))
            at += padding
    content = made.SerializeToString()
    with replacing(path) as file:
        file.write(content)


def _check(program: Program) -> None:
    for entry in program.state_entries:
        if entry.name == "random":
            raise CaptureError(
                "the function draws random numbers, and generators of ONNX give other ones",
                op="onnx.export",
                hint="call model.eval(), or take the numbers as an argument",
            )
        if entry.output is not None or entry.grad is not None:
            what = "a new gradient" if entry.output is None else "a new value"
            raise CaptureError(
                f"the function gives {entry.name} {what}, and a model in ONNX has no state",
                op="onnx.export",
                hint="call model.eval(); or weft.export it, which keeps state",
            )


def _results(program: Program) -> Graph:
    """The graph of a program with the tensors of its result as outputs, in their order."""
    signature, old = program.routine.signature, program.graph()
    builder = Builder(old)
    for node in old.nodes:
        builder.copy(node)
    graph = builder.finish()
    by_place = {place: graph.inputs[i] for i, place in enumerate(signature.inputs)}
    outputs = []
    for leaf in signature.leaves:
        if isinstance(leaf, Made):
            outputs.append(graph.outputs[leaf.output])
        elif isinstance(leaf, Given):
            outputs.append(by_place[leaf.place])
    if not outputs:
        raise CaptureError(
            "the function gives no tensor, and a model in ONNX gives some",
            op="onnx.export",
            hint="return what the model computes",
        )
    graph.outputs = tuple(outputs)
    return graph


def _model(program: Program, graph: Graph) -> Any:
    signature = program.routine.signature
    inputs = len(program.inputs)
    constants, names, open_names = {}, {}, []
    for value, place in zip(graph.inputs, signature.inputs, strict=True):
        name = signature.places[place].name
        if place < inputs:
            open_names.append(plain_name(name))
            continue
        constants[value] = program.state[name]._data
        names[value] = name
    results = [plain_name(port.name) for port in program.results]
    return model_of(
        graph,
        constants=constants,
        constant_names=names,
        input_names=open_names,
        output_names=_different(results, set(open_names)),
    )


def plain_name(name: str) -> str:
    """batch["x"][0] -> batch_x_0: a name that all engines take."""
    return "_".join(re.findall(r"\w+", name)) or "x"


def _different(names: list[str], taken: set[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        made, count = name, 1
        while made in taken:
            count += 1
            made = f"{name}_{count}"
        taken.add(made)
        found.append(made)
    return found
