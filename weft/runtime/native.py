"""Runs graphs as machine code: one call for a whole graph."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import functools
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base import config
from weft.base.dims import has_dims
from weft.base.errors import GraphError, UnknownSizeError
from weft.codegen.cache import Code, cached, prepare
from weft.codegen.contract import CHECKS, SHARED, SMALL_CONSTANT, TIMING, NotNative, Status
from weft.codegen.jit import CannotLoad, load_llvm
from weft.codegen.text import Module
from weft.core.tensor import Tensor, wrap
from weft.ir.concrete import concrete, late_names, names_of_inputs, sized_type, without_empty
from weft.ir.graph import Graph, Node, Value
from weft.ir.interpret import PreparedGraph
from weft.ir.literal import CONSTANT, Literal
from weft.ir.signature import OutputRouting
from weft.ir.sizes import size_names
from weft.ir.types import StackType, TensorType
from weft.ops.cards import ASSUME_SHAPE
from weft.ops.messages import abandon_messages
from weft.passes.pipeline import optimize
from weft.passes.unroll import Unroll
from weft.runtime.call_code import table_bytes
from weft.runtime.card_calls import CardCalls, unboxed
from weft.runtime.cuda.opening import driver
from weft.runtime.executable import Program
from weft.runtime.interpreted import InterpretedProgram, interpreted
from weft.runtime.keys import code_key
from weft.runtime.lazy_imports import checked_program, generators, gpu_programs, machine_code
from weft.runtime.memory import aligned_memory, graph_out_of_memory, stacks_out_of_memory
from weft.runtime.native_call import CallPlan, Result, call_request, native_call, provide_memory
from weft.runtime.output_routing import Call, deliver, role
from weft.runtime.outputs import Outputs
from weft.runtime.python_call import Start, addressed, listed, python_call
from weft.runtime.rungs import no_machine_code, rung, warn_no_machine_code
from weft.runtime.size_table import SizeTable
from weft.runtime.sized import SizedProgram
from weft.runtime.specialized import SpecializedProgram, may_specialize
from weft.runtime.stacks import NativeStack, Owner, any_interpreted, class_of
from weft.runtime.threads import (
    parallel_address,
    poll_address,
    pool_address,
    pool_request,
    raise_interrupt,
)
from weft.schedule.late import BOX, late_names_of

if TYPE_CHECKING:  # running a program does not need the generators
    from weft.codegen.program import CpuEmitter
    from weft.runtime.machine_code import MachineCode
    from weft.schedule.plan import ProgramPlan, Step

__all__ = ["NativeProgram", "make_ready", "native"]

_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p)
_GIVE_BACK = ctypes.CFUNCTYPE(None, ctypes.c_size_t)


def native(
    graph: Graph,
    written: Mapping[int, int] | None = None,
    optimized: Callable[[], Graph] | None = None,
    passes: bytes | None = None,
    check: bool | None = None,
    keeps_results: bool = True,
) -> Program:
    """The program that runs a graph: machine code, or the interpreter if there is none for it.

    `optimized` and `passes`: see `NativeProgram`. `check`: whether the code checks its memory
    accesses; None uses the default (`weft.base.config.check`). `keeps_results`: whether it keeps
    arrays of earlier results, to use them again (`weft.runtime.outputs`).
    """
    if any(map(_on_gpu, graph.values())):
        return gpu_program(optimized() if optimized else graph, written)
    if check is None:
        check = config.check()
    if rung() == "interpret":
        reason = no_machine_code() or "WEFT_CALL says so"
        return InterpretedProgram(optimized() if optimized else graph, reason)
    made = checked_program() if check else NativeProgram
    try:
        program = made(graph, written, optimized, passes, keeps_results)
        return SizedProgram(program) if names_of_inputs(graph) else program
    except UnknownSizeError as reason:  # something must know its sizes
        whole, why = optimized() if optimized else graph, reason.message
        if may_specialize(whole):
            return SpecializedProgram(whole, lambda sized: native(sized, written, check=check), why)
        if not late_names(whole):
            raise
        return InterpretedProgram(whole, why)
    except NotNative as reason:
        return InterpretedProgram(optimized() if optimized else graph, str(reason))
    except CannotLoad as reason:
        warn_no_machine_code(reason.message)
        return InterpretedProgram(optimized() if optimized else graph, reason.message)


#: Loops of known length are straight-line code on a GPU, where that is no more than this.
_LONG_UNROLL = Unroll(iterations=64, nodes=1500)


def _on_gpu(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.device.kind == "cuda"


def gpu_program(graph: Graph, written: Mapping[int, int] | None) -> Program:
    """The program of a graph on a GPU; the interpreter's where there is no code for it."""
    if any(node.op.loop for node in graph.nodes):  # a launch costs more than the code of a round
        unrolled = _LONG_UNROLL.run(graph)
        graph = optimize(unrolled) if unrolled is not graph else graph
    try:
        found = driver()
        with found.place:
            made: Program = gpu_programs().CudaProgram(graph, written, found)
    except NotNative as reason:
        return InterpretedProgram(graph, str(reason))
    return made


def make_ready(compiles: bool = False) -> None:
    """Load what every program needs before it runs, and LLVM if it must be compiled."""
    if rung() == "interpret":
        return
    with contextlib.suppress(CannotLoad):  # a program that needs it will raise
        _load_common()
    if compiles:
        generators()
        load_llvm()


def _load_common() -> None:
    with contextlib.suppress(CannotLoad):  # calls also work without it
        prepare([*pool_request(), *call_request()])
    pool_address()


class NativeProgram(Program):
    """A graph as machine code; call it with tensors."""

    #: The clock that times the kernels (`weft.runtime.timed`); None: they are not timed.
    clock: int | None = None
    #: Whether memory accesses are checked (`weft.runtime.checked`).
    check = False
    outputs_class: type[Outputs] = Outputs
    _program: CpuEmitter | None = None  # only where the code was not found on disk

    def __init__(
        self,
        graph: Graph,
        written: Mapping[int, int] | None = None,
        optimized: Callable[[], Graph] | None = None,
        passes: bytes | None = None,
        keeps_results: bool = True,
    ) -> None:
        """`written`: outputs that replace inputs, by number. They are written to the input's array
        if the code allows it and nobody else holds the array.

        `optimized`: returns the graph to run, if that is not `graph` itself, with the same inputs
        and outputs. It is not called if the code is in the cache. `passes`: the names of the passes
        that produce it, if all are Weft's own."""
        self.captured = graph
        self._optimized = optimized
        self._keeps_results = keeps_results
        late = late_names(graph)
        #: The outputs whose size the run tells.
        self._boxed = {
            i: value.type
            for i, value in enumerate(graph.outputs)
            if isinstance(value.type, TensorType) and late_names_of(value.type, late)
        }
        stacks = any(isinstance(value.type, StackType) for value in graph.outputs)
        self._keeps = stacks or bool(self._boxed)
        #: The time to schedule and generate the code, to compile it, and to load it.
        self.seconds = {"text": 0.0, "llvm": 0.0, "load": 0.0}
        key = None if self.clock is not None else code_key(graph, optimized, passes)
        if self.check and key is not None:
            key = b"checked\n" + key
        _load_common()
        loaded = cached(key, self._code)
        self.seconds |= loaded.seconds
        self.library = loaded.library
        self.arena, self.lower_bound, self.kernels, calls, digests, in_place, sizes = loaded.meta
        wanted = written or {}
        self.in_place = [(i, j) for i, j in in_place if wanted.get(i) == j]
        # Calls into Python and large constants exist only in this process, not in the cache.
        literals = _literals(graph)
        if self._program is None and (calls or not all(digest in literals for digest in digests)):
            self._code()
        made = self._program
        if made is not None:
            literals = {literal.digest: literal for literal in made.constants}
        self._constant_arrays = [np.ascontiguousarray(literals[digest].array) for digest in digests]
        self.calls: list[Node] = made.calls if made else []
        self._constants = (ctypes.c_void_p * max(1, len(self._constant_arrays)))(
            *[array.ctypes.data for array in self._constant_arrays]
        )
        self._interpreted: PreparedGraph | None = None
        self._table = None if sizes is None else SizeTable(sizes)
        self._late: dict[str, int] = {} if sizes is None else sizes["late"]
        self._sizes: dict[str, int] = {}
        self._cards = CardCalls(self.calls, self._late, graph, lambda: self._empty_steps)
        if self._table is None:
            self._prepare(None)
        elif not names_of_inputs(graph):  # all its sizes are told by the run
            filled = self._table.filled({})
            self.arena = self.lower_bound = filled.arena
            self._prepare(filled.table)

    def fits(self, sizes: Mapping[str, int]) -> bool:
        """Whether its code serves these sizes."""
        return self._table is not None and self._table.fits(sizes)

    def for_sizes(self, sizes: Mapping[str, int]) -> NativeProgram:
        """The program for one set of sizes: the same code, with memory and results of these
        sizes."""
        assert self._table is not None
        made = copy.copy(self)
        made.__dict__.pop("_alone", None)  # of this program, if somebody has looked at it
        filled = self._table.filled(sizes)
        made.arena = made.lower_bound = filled.arena
        made._sizes = dict(sizes)
        made._prepare(filled.table)
        return made

    def _prepare(self, table: np.ndarray[Any, Any] | None) -> None:
        """Get ready to be called; `table` has what the code reads of the sizes of a run."""
        kinds = [_array_kind(sized_type(v.type, self._sizes)) for v in self.captured.outputs]
        for i in self._boxed:
            kinds[i] = ((BOX // 8,), np.int64)
        if self._keeps:
            kinds.append(((1,), np.uint64))
            self._give_back = _GIVE_BACK(self.library.address("give_back"))
        self._outputs = self.outputs_class(kinds, dict(self.in_place), keeps=self._keeps_results)
        self._direct = (ctypes.c_void_p * max(1, len(self.calls)))()
        self._callback = _CALLBACK(functools.partial(self._cards.call, self._sizes, self._direct))
        run = (ctypes.c_void_p * (SHARED + 1))(
            ctypes.cast(self._callback, ctypes.c_void_p).value,
            pool_address(),
            parallel_address(),
            ctypes.addressof(self._constants),
            poll_address(),
            ctypes.addressof(self._direct),
            0 if table is None else table.ctypes.data,
        )
        self._run_table = run, table
        self._run = ctypes.addressof(run)
        self.__dict__.pop("call", None)  # of the program for other sizes

    @functools.cached_property
    def call(self) -> Call:  # type: ignore[override]  # a routed call is made where it is asked for
        """The call: machine code too, unless stacks go in or out."""
        if self._keeps or any(isinstance(v.type, StackType) for v in self.captured.inputs):
            return self._with_stacks(self._in_python())
        return self.routed_call(OutputRouting()) or self._in_python()

    @property
    def graph(self) -> Graph:
        """The graph that runs."""
        return self.captured if self._optimized is None else self._optimized()

    def generate(self, module: Module | None = None) -> tuple[CpuEmitter, ProgramPlan]:
        """Generate the program again: its module and its plan."""
        _check_static(self.graph)
        graph = without_empty(self.graph)
        made: tuple[CpuEmitter, ProgramPlan] = generators().generated(
            graph, self._keeps, self.clock, module, check=self.check
        )
        return made

    def _code(self) -> Code:
        """The module of the graph, and the data that a call needs."""
        start = time.perf_counter()
        made, plan = self.generate()
        self._program = made
        digests = [literal.digest for literal in made.constants]
        root = plan.root
        text = made.module.text() if self.check else made.module.compact()
        arena, least, sizes = root.arena, root.lower_bound, generators().recipe_of(made, plan)
        if sizes is not None:
            arena = least = 0
        meta = [arena, least, root.kernels, len(made.calls), digests, root.in_place, sizes]
        self.seconds["text"] += time.perf_counter() - start
        exports = ["run", *(["give_back"] if self._keeps else [])]
        exports += [*(TIMING if self.clock is not None else ()), *(CHECKS if self.check else ())]
        return Code(text, exports, meta)

    def scheduled(self) -> Graph:
        """The graph after lowering, in the order of its kernels."""
        found: Graph = generators().scheduled(self.generate()[1].root)
        return found

    def machine_code(self) -> MachineCode:
        return machine_code(self._alone)

    @functools.cached_property
    def _alone(self) -> NativeProgram:
        """What tools look at: the program itself, or one that is made for its sizes alone."""
        if not self._sizes:
            return self
        return NativeProgram(optimize(concrete(self.graph, self._sizes)), dict(self.in_place))

    def plan(self) -> str:
        """The kernels as text, and the places of values in the arena."""
        return str(self.generate()[1])

    @property
    def text(self) -> str:
        """The LLVM IR."""
        return self.generate()[0].module.text()

    def __call__(self, inputs: list[Tensor]) -> list[Tensor]:
        """`call` with a check of the inputs."""
        wanted = [sized_type(value.type, self._sizes) for value in self.captured.inputs]
        if [x.type for x in inputs] != wanted:
            raise self._wrong_inputs()
        return self.call(inputs)

    def _wrong_inputs(self) -> GraphError:
        wanted = [value.type for value in self.captured.inputs]
        return GraphError(f"graph @{self.captured.name} takes {', '.join(map(str, wanted))}")

    def routed_call(self, routing: OutputRouting) -> Call | None:
        """A call in machine code that also delivers the outputs; None if there is none."""
        if self._keeps:
            return None
        memory: list[Any] = []
        in_place = dict(self.in_place)
        results = [
            Result(*kind, in_place.get(i, -1), *role(routing, i))
            for i, kind in enumerate(self._outputs.kinds)
        ]
        in_python = self._in_python()

        def failed(status: int, inputs: list[Tensor]) -> list[Tensor]:
            if status == Status.TAKEN and call is not None and not memory:  # the first call
                address, held = self._new_memory()
                memory.append(held)
                provide_memory(call, address)
                return call(inputs)
            # The memory is taken by another thread, or by an outer call of this program.
            other = in_python(inputs) if status == Status.TAKEN else self._failed(status, inputs)
            return deliver(routing, inputs, other)

        run = self.library.address("run")
        inputs = len(self.captured.inputs)
        call = native_call(CallPlan(run, self._run, inputs, results, failed, self._keeps_results))
        return call

    def _new_memory(self) -> tuple[int, Any]:
        """The memory of one call: its tables and the arena."""
        tables = table_bytes(len(self.captured.inputs), len(self._outputs.kinds))
        try:
            return aligned_memory(tables + self.arena)
        except (MemoryError, ValueError):
            raise graph_out_of_memory(self.graph) from None

    def _in_python(self) -> Call:
        """The call written in Python."""
        classes = [class_of(value.type) for value in self.captured.inputs]
        return python_call(self._start(), classes, self._outputs, self._new_memory, self._failed)

    def _start(self) -> Start:
        """The function that starts the machine code."""
        sizes = len(self.captured.inputs), len(self._outputs.kinds)
        run_code = self.library.address("run")
        return listed(run_code, self._run, *sizes) or addressed(run_code, self._run, *sizes)

    def _with_stacks(self, call: Callable[[list[Any]], list[Any]]) -> Callable[..., list[Any]]:
        """A call with stacks among its inputs or outputs."""
        kinds = [sized_type(value.type, self._sizes) for value in self.captured.outputs]
        stacks = [i for i, v in enumerate(self.captured.inputs) if isinstance(v.type, StackType)]

        def call_with_stacks(inputs: list[Any]) -> list[Any]:
            if any_interpreted(inputs, stacks):
                return self._interpret(inputs)
            found: list[Any] = call(inputs)
            if not self._keeps or len(found) == len(kinds):
                return found
            others = [inputs[i].owner for i in stacks]
            chunk = int(found.pop()._data[0])
            owner = Owner(chunk, self._give_back, self.library, others)
            for i, kind in self._boxed.items():
                found[i] = unboxed(found[i]._data, kind)
            return [
                NativeStack(x._data, kind, owner) if isinstance(kind, StackType) else x
                for x, kind in zip(found, kinds, strict=True)
            ]

        return call_with_stacks

    def _failed(self, status: int, inputs: list[Tensor]) -> list[Tensor]:
        if any(node.op.collective for node in self.calls):
            abandon_messages(self.captured)
        if status == Status.LAYOUT and all(isinstance(x._data, np.ndarray) for x in inputs):
            return self.call([_dense(x) for x in inputs])
        if status in (Status.INPUTS, Status.LAYOUT):
            raise self._wrong_inputs()
        if status == Status.INTERRUPTED:
            raise_interrupt()
        if status == Status.NO_ROOM:
            raise graph_out_of_memory(self.graph)
        if status == Status.OUT_OF_MEMORY:
            raise stacks_out_of_memory(self.graph)
        if status == Status.RAISED:
            raise self._cards.errors.pop(threading.get_ident())
        return self._interpret(inputs)  # raises the error, with the user's line

    def _interpret(self, inputs: list[Any]) -> list[Any]:
        if self._interpreted is None:
            self._interpreted = PreparedGraph(self.graph)
        return interpreted(self._interpreted, inputs)

    @functools.cached_property
    def _empty_steps(self) -> list[tuple[Step, list[Any]]]:
        """The steps in which a tensor may be empty, which cards run then."""
        made = self._program or self.generate()[0]
        return made.empty


def _dense(x: Any) -> Any:
    """A tensor with contiguous elements, as generated code needs it."""
    if isinstance(x, NativeStack):
        return x
    return wrap(np.require(x._data, None, ["C_CONTIGUOUS", "ALIGNED"]).view(np.ndarray))


def _literals(graph: Graph) -> dict[str, Literal]:
    """The constants of a graph, by their digest."""
    found = [
        node.attrs["value"]
        for part in graph.walk()
        for node in part.nodes
        if node.op is CONSTANT and node.attrs["value"].array.nbytes > SMALL_CONSTANT
    ]
    return {literal.digest: literal for literal in found}


def _check_static(graph: Graph) -> None:
    """Raise an error where one program cannot serve all calls of a graph: NotNative, or
    UnknownSizeError if one for each set of sizes can."""
    known = names_of_inputs(graph)
    for part in graph.walk():
        for node in part.nodes:
            if node.op is ASSUME_SHAPE and has_dims(node.inputs[0].tensor_type.shape):
                shape = node.attrs["shape"]
                raise UnknownSizeError(
                    f"what follows {node.inputs[0]} was recorded for the shape {shape}"
                )
        for value in part.values():
            kind = value.type
            if isinstance(kind, StackType):
                kind = kind.innermost
            if isinstance(kind, TensorType) and not _is_dense(kind):
                raise NotNative(f"{value} is not a dense tensor on the CPU")
    for value in (*graph.inputs, *graph.outputs):
        if not isinstance(value.type, (TensorType, StackType)):
            raise NotNative(f"{value} is neither a tensor nor a stack")
        if isinstance(value.type, StackType) and size_names([value]) - known:
            raise NotNative(f"{value} leaves the program, and its elements have no known size")


def _is_dense(kind: TensorType) -> bool:
    return str(kind.device) == "cpu" and kind.layout == "dense"


def _array_kind(kind: Any) -> tuple[tuple[int, ...], Any]:
    """Shape and dtype of the array of a result; a stack is the address of its top."""
    return (kind.shape, kind.dtype.numpy) if isinstance(kind, TensorType) else ((1,), np.uint64)
