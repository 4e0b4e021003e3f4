"""Runs graphs as machine code: one call for a whole graph."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.dims import has_dims
from weft.base.errors import WeftError
from weft.codegen.jit import build
from weft.codegen.program import RAISED, NotNative, Program
from weft.codegen.target import host
from weft.codegen.text import Module
from weft.core.bind import bind
from weft.core.tensor import Tensor, wrap
from weft.ir.graph import Graph
from weft.ir.interpret import Program as Interpreted
from weft.ir.interpret import located, run_node
from weft.ir.types import TensorType
from weft.passes.common import CommonSubexpressions
from weft.passes.dead_code import DeadCode
from weft.runtime.entry import LAYOUT, add_entry
from weft.runtime.threads import parallel_address, poll_address, pool_address
from weft.schedule.decompose import decompose
from weft.schedule.grouping import tensor_type

__all__ = ["InterpretedProgram", "NativeProgram", "native"]

_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p)
_ENTRY = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p
)


def native(graph: Graph) -> Callable[[list[Tensor]], list[Tensor]]:
    """What runs a graph: machine code, or the interpreter where there is none for it."""
    try:
        return NativeProgram(graph)
    except NotNative as reason:
        return InterpretedProgram(graph, str(reason))


class InterpretedProgram:
    """A graph run op by op, and why it is not machine code."""

    def __init__(self, graph: Graph, reason: str) -> None:
        self.graph = graph
        self.reason = reason
        self._program = Interpreted(graph)

    def __call__(self, inputs: list[Tensor]) -> list[Tensor]:
        slots = self._program.run(inputs, bind)
        return [slots[i] for i in self._program.outputs]


class NativeProgram:
    """A graph as machine code; call it with tensors."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        _check_static(graph)
        whole = DeadCode().run(CommonSubexpressions().run(decompose(graph)))
        module = Module(host())
        self.program = Program(module)
        self.code = self.program.graph(whole, "graph")
        add_entry(module, len(whole.inputs), len(whole.outputs))
        self.text = module.text()
        self.library = build(self.text, ["entry"])
        self._entry = _ENTRY(self.library.address("entry"))
        self._outputs = [
            (tensor_type(value).shape, tensor_type(value).dtype.numpy) for value in whole.outputs
        ]
        self._arenas: list[tuple[int, Any]] = []
        self._error: BaseException | None = None
        self._callback = _CALLBACK(self._call)
        constants = self.program.constants
        self._constants = (ctypes.c_void_p * max(1, len(constants)))(
            *[array.ctypes.data for array in constants]
        )
        run = (ctypes.c_void_p * 5)(
            ctypes.cast(self._callback, ctypes.c_void_p).value,
            pool_address(),
            parallel_address(),
            ctypes.addressof(self._constants),
            poll_address(),
        )
        self._run_table = run
        self._run = ctypes.addressof(run)
        self._interpreted: Interpreted | None = None

    def __call__(self, inputs: list[Tensor]) -> list[Tensor]:
        arrays = [x._data for x in inputs]
        made = [np.empty(shape, dtype) for shape, dtype in self._outputs]
        try:
            arena = self._arenas.pop()
        except IndexError:
            arena = _arena(self.code.arena)
        status = self._entry(id(arrays), id(made), arena[0], self._run)
        self._arenas.append(arena)
        if status:
            return self._failed(status, inputs, arrays)
        return [wrap(array) for array in made]

    def _failed(self, status: int, inputs: list[Tensor], arrays: list[Any]) -> list[Tensor]:
        if status == LAYOUT:
            return self(
                [wrap(np.ascontiguousarray(array).reshape(array.shape)) for array in arrays]
            )
        if status == RAISED and self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._interpreted is None:
            self._interpreted = Interpreted(self.graph)
        slots = self._interpreted.run(inputs, bind)  # it raises, with the user's line
        return [slots[i] for i in self._interpreted.outputs]

    def _call(self, number: int, args: int) -> int:
        """A node whose card is called: on arrays that lie where the generated code has them."""
        try:
            node = self.program.calls[number]
            pointers = ctypes.cast(args, ctypes.POINTER(ctypes.c_void_p))
            arrays = [
                _array(pointers[i] or 0, value.type)
                for i, value in enumerate((*node.inputs, *node.outputs))
            ]
            given = [None if array is None else wrap(array) for array in arrays[: len(node.inputs)]]
            outs = run_node(node, given, bind)
            for array, tensor in zip(arrays[len(node.inputs) :], outs, strict=True):
                if array is not None:
                    array[...] = tensor._data
        except WeftError as error:
            self._error = located(error, node)
            return RAISED
        except BaseException as error:
            self._error = error
            return RAISED
        return 0


def _check_static(graph: Graph) -> None:
    for part in graph.walk():
        for value in part.values():
            kind = value.type
            if isinstance(kind, TensorType):
                if has_dims(kind.shape):
                    raise NotNative(f"{value} has a size that is not known")
                if str(kind.device) != "cpu" or kind.layout != "dense":
                    raise NotNative(f"{value} does not lie dense on the CPU")
    for value in (*graph.inputs, *graph.outputs):
        if not isinstance(value.type, TensorType):
            raise NotNative(f"{value} is no tensor")


def _array(address: int, kind: Any) -> np.ndarray[Any, Any] | None:
    if not isinstance(kind, TensorType):
        return None  # a token
    size = kind.nbytes
    if size == 0:
        return np.empty(kind.shape, kind.dtype.numpy)
    memory = (ctypes.c_char * size).from_address(address)
    return np.frombuffer(memory, kind.dtype.numpy).reshape(kind.shape)


def _arena(size: int) -> tuple[int, Any]:
    """Memory that begins at a line of the cache, and who owns it."""
    memory = np.empty(size + 64, np.uint8)
    return -(-memory.ctypes.data // 64) * 64, memory
