"""Runs graphs as machine code: one call for a whole graph."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from weft.base.dims import has_dims
from weft.base.errors import GraphError, WeftError
from weft.codegen.cache import Code, cached
from weft.codegen.control.stacks import OUT_OF_MEMORY
from weft.codegen.program import RAISED, SMALL_CONSTANT, NotNative, Program
from weft.codegen.target import host
from weft.codegen.text import Module
from weft.core.bind import bind
from weft.core.tensor import Tensor, wrap
from weft.ir.graph import Graph, Node
from weft.ir.interpret import Program as Interpreted
from weft.ir.interpret import located, run_node
from weft.ir.literal import Literal
from weft.ir.op import Trait
from weft.ir.types import StackType, TensorType
from weft.passes.common import CommonSubexpressions
from weft.passes.dead_code import DeadCode
from weft.runtime.entry import LAYOUT, add_entry
from weft.runtime.outputs import Outputs
from weft.runtime.pool.poll import INTERRUPTED
from weft.runtime.stacks import NativeStack, Owner
from weft.runtime.threads import parallel_address, poll_address, pool_address, raise_interrupt
from weft.schedule.decompose import decompose

__all__ = ["InterpretedProgram", "NativeProgram", "native"]

_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p)
_GIVE_BACK = ctypes.CFUNCTYPE(None, ctypes.c_size_t)
_ENTRY = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p
)


def native(
    graph: Graph, written: Mapping[int, int] | None = None
) -> NativeProgram | InterpretedProgram:
    """What runs a graph: machine code, or the interpreter where there is none for it."""
    try:
        return NativeProgram(graph, written)
    except NotNative as reason:
        return InterpretedProgram(graph, str(reason))


class InterpretedProgram:
    """A graph run op by op, and why it is not machine code."""

    def __init__(self, graph: Graph, reason: str = "it was asked for") -> None:
        self.graph = graph
        self.reason = reason
        self.call = self.__call__
        self._program = Interpreted(graph)

    def __call__(self, inputs: list[Tensor]) -> list[Tensor]:
        handed = [inputs]
        del inputs  # the run lets go of each input after its last use: nobody else may hold them
        slots = self._program.run(handed.pop(), bind)
        return [slots[i] for i in self._program.outputs]


class NativeProgram:
    """A graph as machine code; call it with tensors."""

    def __init__(self, graph: Graph, written: Mapping[int, int] | None = None) -> None:
        """`written`: outputs that will take the place of inputs, by their numbers. Where the code
        allows it and nobody else holds an input's array, they are written there."""
        self.graph = graph
        _check_static(graph)
        self._keeps = any(isinstance(value.type, StackType) for value in graph.outputs)
        self._made: Program | None = None
        self._steps: list[str] = []
        loaded = cached(_key(graph), self._code)
        self.library = loaded.library
        self.arena, self.lower_bound, self.kernels, calls, digests, in_place = loaded.meta
        wanted = written or {}
        self.in_place = [(i, j) for i, j in in_place if wanted.get(i) == j]
        # Calls into Python and large constants are of this process: they are found anew.
        literals = _literals(graph)
        if self._generated() is None and (
            calls or not all(digest in literals for digest in digests)
        ):
            self._code()
        made = self._generated()
        if made is not None:
            literals = {literal.digest: literal for literal in made.constants}
        self._constant_arrays = [np.ascontiguousarray(literals[digest].array) for digest in digests]
        self.calls: list[Node] = made.calls if made else []
        self._entry = _ENTRY(self.library.address("entry"))
        kinds = [_array_kind(value.type) for value in graph.outputs]
        if self._keeps:
            kinds.append(((1,), np.uint64))
            self._give_back = _GIVE_BACK(self.library.address("give_back"))
        self._outputs = Outputs(kinds, [i for i, _ in self.in_place])
        self._arenas: list[tuple[int, Any]] = []
        self._errors: dict[int, BaseException] = {}  # by thread: what a call into Python raised
        self._callback = _CALLBACK(self._call)
        self._constants = (ctypes.c_void_p * max(1, len(self._constant_arrays)))(
            *[array.ctypes.data for array in self._constant_arrays]
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
        self.call = self._caller()

    def _generated(self) -> Program | None:
        """The program, where it was generated here and not found on disk."""
        return self._made

    def _code(self) -> Code:
        """The module of the graph, and what must be known to call it."""
        whole = DeadCode().run(CommonSubexpressions().run(decompose(self.graph)))
        module = Module(host())
        self._made = made = Program(module)
        code = made.graph(whole, "graph")
        add_entry(module, len(whole.inputs), len(whole.outputs), self._keeps)
        self._steps = code.steps
        digests = [literal.digest for literal in made.constants]
        meta = [code.arena, code.lower_bound, code.kernels, len(made.calls), digests, code.in_place]
        return Code(module.text(), ["entry", *(["give_back"] if self._keeps else [])], meta)

    def plan(self) -> str:
        """What runs, kernel by kernel, and where values lie in the memory of a run."""
        self._code()
        head = f"{self.arena} bytes of memory, {self.lower_bound} at least"
        return "\n".join([head, *self._steps])

    @property
    def text(self) -> str:
        """The LLVM IR."""
        return self._code().text

    def __call__(self, inputs: list[Tensor]) -> list[Tensor]:
        """`call`, which trusts its caller, for those who may be wrong."""
        wanted = [value.type for value in self.graph.inputs]
        if [x.type for x in inputs] != wanted:
            raise GraphError(f"graph @{self.graph.name} takes {', '.join(map(str, wanted))}")
        return self.call(inputs)

    def _caller(self) -> Callable[[list[Tensor]], list[Tensor]]:
        """What a call does. All it needs is at hand: this is the price of small functions."""
        entry, run, arenas, size = self._entry, self._run, self._arenas, self.arena
        outputs, failed = self._outputs, self._failed
        in_place = self.in_place
        plain = outputs.kinds if not (outputs.keeps or in_place) else None
        empty, count = np.empty, sys.getrefcount

        def call(inputs: list[Tensor]) -> list[Tensor]:
            arrays = [x._data for x in inputs]
            if plain is not None:
                made = [empty(*kind) for kind in plain]
            else:
                made = outputs.take()
                for i, j in in_place:
                    array = arrays[j]
                    # Its tensor, `arrays`, this name and the argument of the count: nobody else.
                    if count(array) == 4 and array.flags.writeable:
                        made[i] = array
                    else:
                        made[i] = empty(*outputs.kinds[i])
            try:
                arena = arenas.pop()
            except IndexError:
                arena = _arena(size)
            status = entry(id(arrays), id(made), arena[0], run)
            arenas.append(arena)
            if plain is None:
                outputs.give(made)
            if status:
                return failed(status, inputs, arrays)
            return [wrap(array) for array in made]

        if not self._keeps and not any(
            isinstance(value.type, StackType) for value in self.graph.inputs
        ):
            return call
        return self._with_stacks(call)

    def _with_stacks(self, call: Callable[[list[Any]], list[Any]]) -> Callable[..., list[Any]]:
        """A call that stacks go into or come out of."""
        kinds = [value.type for value in self.graph.outputs]
        stacks = [i for i, v in enumerate(self.graph.inputs) if isinstance(v.type, StackType)]

        def call_with_stacks(inputs: list[Any]) -> list[Any]:
            if not all(isinstance(inputs[i], NativeStack) for i in stacks):
                return self._interpret(inputs)  # made by the interpreter
            found: list[Any] = call(inputs)
            if not self._keeps or len(found) == len(kinds):
                return found
            others = [inputs[i].owner for i in stacks]
            chunk = int(found.pop()._data[0])
            owner = Owner(chunk, self._give_back, self.library, others)
            return [
                NativeStack(x._data, kind, owner) if isinstance(kind, StackType) else x
                for x, kind in zip(found, kinds, strict=True)
            ]

        return call_with_stacks

    def _failed(self, status: int, inputs: list[Tensor], arrays: list[Any]) -> list[Tensor]:
        if status == LAYOUT:
            dense = [np.ascontiguousarray(array).reshape(array.shape) for array in arrays]
            return self.call([wrap(array) for array in dense])
        if status == INTERRUPTED:
            raise_interrupt()
        if status == OUT_OF_MEMORY:
            raise MemoryError(f"no memory for the stacks of a loop in {self.graph.name}")
        if status == RAISED:
            raise self._errors.pop(threading.get_ident())
        return self._interpret(inputs)  # it raises, with the user's line

    def _interpret(self, inputs: list[Any]) -> list[Any]:
        if self._interpreted is None:
            self._interpreted = Interpreted(self.graph)
        slots = self._interpreted.run(inputs, bind)
        return [slots[i] for i in self._interpreted.outputs]

    def _call(self, number: int, args: int) -> int:
        """A node whose card is called: on arrays that lie where the generated code has them."""
        try:
            node = self.calls[number]
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
            self._errors[threading.get_ident()] = located(error, node)
            return RAISED
        except BaseException as error:
            self._errors[threading.get_ident()] = error
            return RAISED
        return 0


def _key(graph: Graph) -> bytes | None:
    """What a graph's code depends on, without making it; None where a graph holds Python objects
    that text cannot tell apart."""
    parts = [graph.text(locations=False, history=False)]
    for part in graph.walk():
        for node in part.nodes:
            if Trait.EFFECT in node.op.traits or node.op.name.startswith("function_"):
                return None
            if node.op.name == "constant":
                parts.append(node.attrs["value"].digest)
    return "\n".join(parts).encode()


def _literals(graph: Graph) -> dict[str, Literal]:
    """The constants of a graph, by their digest."""
    found = [
        node.attrs["value"]
        for part in graph.walk()
        for node in part.nodes
        if node.op.name == "constant" and node.attrs["value"].array.nbytes > SMALL_CONSTANT
    ]
    return {literal.digest: literal for literal in found}


def _check_static(graph: Graph) -> None:
    for part in graph.walk():
        for value in part.values():
            kind = value.type
            if isinstance(kind, StackType):
                kind = kind.innermost
            if isinstance(kind, TensorType):
                if has_dims(kind.shape):
                    raise NotNative(f"{value} has a size that is not known")
                if str(kind.device) != "cpu" or kind.layout != "dense":
                    raise NotNative(f"{value} does not lie dense on the CPU")
    for value in (*graph.inputs, *graph.outputs):
        if not isinstance(value.type, (TensorType, StackType)):
            raise NotNative(f"{value} is neither a tensor nor a stack")


def _array(address: int, kind: Any) -> np.ndarray[Any, Any] | None:
    if not isinstance(kind, TensorType):
        return None  # a token
    size = kind.nbytes
    if size == 0:
        return np.empty(kind.shape, kind.dtype.numpy)
    memory = (ctypes.c_char * size).from_address(address)
    array: np.ndarray[Any, Any] = np.ndarray(kind.shape, kind.dtype.numpy, memoryview(memory))
    return array


def _array_kind(kind: Any) -> tuple[tuple[int, ...], Any]:
    """The array that a result is written to; a stack is the address of its top."""
    return (kind.shape, kind.dtype.numpy) if isinstance(kind, TensorType) else ((1,), np.uint64)


def _arena(size: int) -> tuple[int, Any]:
    """Memory that begins at a line of the cache, and who owns it."""
    memory = np.empty(size + 64, np.uint8)
    return -(-memory.ctypes.data // 64) * 64, memory
