"""A graph as kernels on a GPU, launched as one CUDA graph where none of its nodes is called.

What the plan says is run in order: launches, products, and calls of cards that have no kernel yet,
which compute with CuPy's arrays. What is on the CPU (a learning rate) is computed first.

Without calls, the work is captured into a CUDA graph for the addresses of its inputs, and launched
again for the same ones. Results that replace inputs are written in their place, so parameters stay
where they are; inputs that come at ever new addresses are copied to a place of their own.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from weft.base.device import CPU
from weft.base.errors import InternalError
from weft.base.precision import rounds_to_tf32
from weft.codegen.contract import NotNative, Status
from weft.codegen.cuda.convolution import convolution_of
from weft.codegen.cuda.emitter import FLAG, Result, Work
from weft.codegen.cuda.loops import Launch
from weft.codegen.cuda.matrix import gemms, matrices
from weft.core.bind import bind
from weft.core.grad_mode import no_grad
from weft.core.ownership import alone_in_list, alone_in_tensor
from weft.core.tensor import Tensor, wrap
from weft.ir.dispatch import family_for
from weft.ir.graph import Graph, Node, Value
from weft.ir.interpret import PreparedGraph, run_node
from weft.ir.literal import Literal
from weft.ir.types import TensorType
from weft.ops.cards import MATMUL
from weft.passes.lowering.biased_products import MATMUL_BIAS
from weft.passes.lowering.on_device import on_device
from weft.passes.lowering.split_products import PRODUCT_OF_PARTS
from weft.runtime.cuda.branches import Part, waits
from weft.runtime.cuda.buffers import Buffers
from weft.runtime.cuda.driver import Driver, Flag
from weft.runtime.cuda.flow import run_flow
from weft.runtime.cuda.planning import check, device_of, lowered_for_gpu, planned
from weft.runtime.cuda.stacks import Stacks
from weft.runtime.executable import Program, StepTime
from weft.runtime.interpreted import interpreted
from weft.schedule.groups import Leaf
from weft.schedule.layouts import LINE

__all__ = ["CudaProgram"]

#: Sets of addresses for which graphs are kept, and graphs for one of them that give away their
#: results: those of the call before are mostly still held. One more keeps its own and copies them:
#: for callers that hold on to many results.
ADDRESSES, GRAPHS = 8, 2
#: Threads of a kernel that runs beside any other, and what larger ones write to run one by one.
SMALL, ONE_BY_ONE = 1 << 16, (2, 1)
#: An input that came at so many other addresses is copied to a place of its own.
MOVES = 2


class _Captured:
    """A CUDA graph with the arrays that it writes its results to; None: where an input lies."""

    def __init__(self, launch: Callable[[], None], outputs: list[Any]) -> None:
        self.launch = launch
        self.outputs = outputs

    def is_free(self) -> bool:
        """Whether nobody holds the results of its last run any more."""
        outputs = self.outputs
        return all(outputs[i] is None or alone_in_list(outputs, i) for i in range(len(outputs)))


class CudaProgram(Program):
    """A graph on one GPU; call it with tensors."""

    device = "cuda"

    def __init__(self, graph: Graph, written: Mapping[int, int] | None, driver: Driver) -> None:
        start = time.perf_counter()
        check(graph)
        if any(node.op is MATMUL for part in graph.walk() for node in part.nodes):
            driver.ahead()
        self._at = device_of(graph)
        #: Results on the CPU that kernels compute.
        whole, self._brought_back = on_device(lowered_for_gpu(graph, driver.machine), self._at)
        check(whole)
        self._graph = graph
        self._lowered = whole
        self._driver = driver
        self._plan, emitter = planned(whole, driver.machine)
        done = time.perf_counter()
        root = self._plan.root
        self.module = emitter.module
        self.work: list[Work] = emitter.work
        self._host_values = {value for value in whole.inputs if _is_host(value)}
        self._first: list[Work] = []
        for work in self.work:
            if self._on_host(work):
                self._first.append(work)
                self._host_values.update(work.step.nodes[0].outputs)
        self._rest = [work for work in self.work if work not in self._first]
        for work in self._rest:
            if any(isinstance(one, Result) for one in work.buffers):
                continue  # it is the whole program
            node = work.step.nodes[0]
            given = [value for value in node.inputs if _is_host(value)]
            brought = work.kind in ("launch", "flow") and self._host_values.issuperset(given)
            if any(map(_is_host, node.outputs)) or (given and not brought):
                raise NotNative("it computes on the CPU with what the GPU made")
        #: Results on the CPU, such as the state of a random generator.
        self._host_results = {
            number: root.results[number]
            for number, value in enumerate(whole.outputs)
            if _is_host(value)
        }
        if not self._host_values.issuperset(self._host_results.values()):
            raise NotNative("a result on the CPU is computed on the GPU")
        #: Results that kernels write, wherever they come from.
        self._written = {
            one.number for work in self.work for one in work.buffers if isinstance(one, Result)
        }
        #: Nodes that are called: each ends one launch.
        self.calls = [work.step.nodes[0] for work in self._rest if work.kind == "call"]
        #: Values on the CPU, or computed from such, that kernels read.
        self._uploaded = self._read_by_kernels()
        every = [part for work in self.work for part in work.all()]
        names = [launch.name for work in every for launch in work.launches]
        self.kernels = list(names)
        numbers = {value: number for number, value in enumerate(whole.inputs)}
        self._checks = [(numbers[value], launch) for value, launch in emitter.checks]
        self._flag: Flag | None = None
        self._may_fail = emitter.may_fail
        self._target = emitter.target
        names += [launch.name for _, launch in self._checks]
        self._functions = driver.load(emitter.module.text() if names else "", names)
        #: What its parts took to make, in seconds.
        self.seconds = {"plan": done - start, **driver.seconds}
        self._arena = driver.empty((max(256, root.arena),), np.uint8)
        self._base = driver.address(self._arena)
        self._family = family_for(self._at)
        self._failed = self._family.from_numpy(np.zeros(1, np.int32), self._at)
        self._stacks = Stacks(driver, self._family, self._at) if emitter.stacks else None
        self._constants: dict[str, Any] = {}
        self._fixed: dict[Value, Any] = {}
        self._texts: dict[Value, bytes] = {}
        wanted = written or {}
        self._in_place = {
            o: i for o, i in root.in_place if wanted.get(o) == i and not _is_host(whole.inputs[i])
        }
        self._captured: dict[tuple[int, ...], list[_Captured]] = {}
        self._made: dict[Value, Any] = {}  # what nodes without operands give
        self._lock = threading.RLock()
        self._stream = 0
        self._warm = False
        #: Inputs on the GPU, and whether results take their places.
        taken = set(self._in_place.values())
        self._on_gpu = [
            (number, number in taken)
            for number, value in enumerate(whole.inputs)
            if not _is_host(value)
        ]
        self._on_cpu = [number for number, value in enumerate(whole.inputs) if _is_host(value)]
        self._last_known: tuple[Any, dict[Value, Any]] = None, {}
        self._checked: dict[int, Any] = {}
        self._last = dict.fromkeys(range(len(whole.inputs)), 0)
        self._moves: dict[int, int] = {}
        self._staged: dict[int, Any] = {}
        self._products = {
            id(work): list(
                gemms(*matrices(work.views, work.step.nodes[0].outputs[0].tensor_type.shape))
            )
            for work in every
            if work.kind == "product"
        }
        #: Whether there are products on tensor cores, which are not to share the GPU.
        self._narrow = any(
            work.kind == "product" and work.step.nodes[0].inputs[0].tensor_type.dtype.itemsize < 4
            for work in every
        )
        self._convolutions = {
            id(work): made
            for work in every
            if work.kind == "convolution"
            and (made := convolution_of(work.step.nodes[0])) is not None
        }
        self._operands = {
            node: step.group.operands[node] for step in root.steps for node in step.group.operands
        }
        self.call = self.__call__
        self.reason = self._told()

    def _told(self) -> str:
        """How it runs, in words."""
        products = sum(len(calls) for calls in self._products.values())
        products += len(self._convolutions)
        said = f"{len(self.kernels)} kernels and {products} products on {self._at}"
        flows = sum(work.kind == "flow" for work in self.work)
        said += f", in {flows} loops or branches" if flows else ""
        if not self.calls:
            return f"{said}, launched as one CUDA graph"
        names = ", ".join(dict.fromkeys(node.op.name for node in self.calls))
        return f"{said}, launched one by one around what CuPy runs: {names}"

    def _read_by_kernels(self) -> list[Value]:
        made = {value for work in self._first for value in work.step.nodes[0].outputs}
        given = {value for value in self._lowered.inputs if _is_host(value)}
        read = {value for work in self._rest for value in self._reads(work)}
        read |= set(self._plan.root.results)
        return [value for value in (*given, *made) if value in read]

    @staticmethod
    def _reads(work: Work) -> list[Value]:
        found = [v for v in work.buffers if isinstance(v, Value)]
        return found or work.step.group.reads()

    def _constant(self, literal: Literal) -> Any:
        found = self._constants.get(literal.digest)
        if found is None:
            found = self._family.from_numpy(np.ascontiguousarray(literal.array), self._at)
            self._constants[literal.digest] = found
        return found

    @property
    def graph(self) -> Graph:
        return self._graph

    def plan(self) -> str:
        """The kernels as text, and the places of values in the arena."""
        return str(self._plan)

    def _on_host(self, work: Work) -> bool:
        """Whether it is computed from inputs on the CPU alone."""
        if work.kind != "call":
            return False
        operands = work.step.group.operands[work.step.nodes[0]]
        roots = [op.root for op in operands if isinstance(op, Leaf)]
        return all(root in self._host_values for root in roots)

    # --- a call ---------------------------------------------------------------------------------

    def __call__(self, inputs: list[Tensor]) -> list[Tensor]:
        return self._called(inputs, self._outputs)

    def timed_steps(self) -> Callable[[list[Tensor]], tuple[list[Tensor], list[StepTime]]]:
        return self._timed

    def _called(
        self, inputs: list[Tensor], run: Callable[[list[Tensor]], list[Any]]
    ) -> list[Tensor]:
        """The results of a run, which gives arrays."""
        # All calls share the arena, and so one stream at a time.
        with self._lock, self._driver.place:
            self._stream = self._driver.in_turn(self._stream)
            outputs = run(inputs)
            while self._may_fail and self._failed_run(inputs):
                outputs = run(inputs)
            for number, value in self._host_results.items():
                found = self._last_known[1][value]
                outputs[number] = found.reshape(self._lowered.outputs[number].tensor_type.shape)
            for number in self._brought_back:
                outputs[number] = self._family.to_numpy(outputs[number])
            return [wrap(array) for array in outputs]

    def _outputs(self, inputs: list[Tensor]) -> list[Any]:
        """The arrays of the results: by a captured graph where that is possible."""
        self._check_inputs(inputs)
        taken = self._may_take(inputs)
        known = self._known(inputs)
        if self.calls or not taken or not self._warm:
            self._warm = True
            arrays = {} if not taken else self._taken(inputs)
            return self._single(inputs, known, self._new_outputs(arrays))
        key = (int(rounds_to_tf32()), *self._addresses(inputs))
        entries = self._captured.pop(key, [])
        self._captured[key] = entries  # the most recent one comes last
        if len(self._captured) > ADDRESSES:
            del self._captured[next(iter(self._captured))]
        found = next((entry for entry in entries[:GRAPHS] if entry.is_free()), None)
        copies = found is None and len(entries) >= GRAPHS
        if found is None and len(entries) > GRAPHS:
            found = entries[-1]
        if found is None:
            found = self._capture(inputs, known)
            if found is None:
                return self._single(inputs, known, self._new_outputs(self._taken(inputs)))
            entries.append(found)
        found.launch()
        outputs = self._new_outputs(self._taken(inputs)) if copies else found.outputs
        for to, own in zip(outputs, found.outputs, strict=True) if copies else ():
            if own is not None:
                self._driver.copy(self._driver.address(to), self._driver.address(own), own.nbytes)
        return [
            inputs[self._in_place[number]]._data if number in self._in_place else array
            for number, array in enumerate(outputs)
        ]

    def _check_inputs(self, inputs: list[Tensor]) -> None:
        """Raise the error of the op that some input is not fit for."""
        todo = [
            one for one in self._checks if inputs[one[0]]._data is not self._checked.get(one[0])
        ]
        if not todo:
            return
        if self._flag is None:
            self._flag = self._driver.flag()
        self._flag.clear()
        for number, launch in todo:
            array = self._usual(inputs[number]._data)
            at = [self._driver.address(array), self._flag.address]
            self._driver.launch(self._functions[launch.name], launch.blocks, launch.threads, at)
        if self._flag.read():
            interpreted(PreparedGraph(self._graph), inputs)  # raises it, with the user's line
            raise InternalError("a check of inputs failed, and their op did not")
        # Nobody writes to an array that is held here.
        self._checked.update((number, inputs[number]._data) for number, _ in todo)

    def _failed_run(self, inputs: list[Tensor]) -> bool:
        """Wait for the run. If a node failed in it, raise its error; no input was written. If the
        memory of stacks was full, make it larger: then the run is to be repeated. A program without
        such nodes is not waited for."""
        status = self._driver.number(self._driver.address(self._failed))
        if not status:
            return False
        self._failed[...] = 0
        if status == Status.OUT_OF_MEMORY and self._stacks is not None:
            self._stacks.grow()
            return True
        interpreted(PreparedGraph(self._graph), inputs)  # raises it, with the user's line
        raise InternalError("a kernel failed, and its op did not")

    def _may_take(self, inputs: list[Tensor]) -> bool:
        """Whether the inputs that results replace are only held by their tensors."""
        for number in self._in_place.values():
            x = inputs[number]
            if x._data.base is not None or not self._lies(x._data):
                return False
            if not alone_in_tensor(x):
                return False
        return True

    def _lies(self, array: Any) -> bool:
        """Whether kernels can read an array where it is: in C order, aligned."""
        aligned = self._driver.address(array) % LINE == 0
        return aligned and bool(array.flags.c_contiguous)

    def _usual(self, array: Any) -> Any:
        return array if self._lies(array) else array.copy()

    def _taken(self, inputs: list[Tensor]) -> dict[int, Any]:
        return {output: inputs[number]._data for output, number in self._in_place.items()}

    def _addresses(self, inputs: list[Tensor]) -> tuple[int, ...]:
        """Where a graph reads the inputs: where they lie, or in places of their own."""
        address, last, staged = self._driver.address, self._last, self._staged
        found = []
        for number, settled in self._on_gpu:
            array = inputs[number]._data
            if number not in staged:
                at = address(array)
                usual = self._lies(array)
                if settled or (at == last[number] and usual):
                    found.append(at)
                    continue
                self._moves[number] = self._moves.get(number, -1) + 1 if usual else MOVES
                last[number] = at
                if self._moves[number] < MOVES:
                    found.append(at)
                    continue
                staged[number] = self._driver.empty(array.shape, array.dtype)
            staged[number][...] = array
            found.append(address(staged[number]))
        return tuple(found)

    def _known(self, inputs: list[Tensor]) -> dict[Value, Any]:
        """What only needs the CPU: values there; those for the GPU are brought to fixed places."""
        arrays = [inputs[number]._data for number in self._on_cpu]
        key = [array.tobytes() for array in arrays]
        if self._last_known[0] == key:
            return self._last_known[1]
        given_values = [self._lowered.inputs[number] for number in self._on_cpu]
        known: dict[Value, Any] = dict(zip(given_values, arrays, strict=True))
        for work in self._first:
            node = work.step.nodes[0]
            if not node.inputs and node.outputs[0] in self._made:
                known[node.outputs[0]] = self._made[node.outputs[0]]
                continue  # it gives the same each time
            given = [
                wrap(self._operand(node, i, known.__getitem__)) for i in range(len(node.inputs))
            ]
            with no_grad():
                found = run_node(node, given, bind)
            known.update((v, x._data) for v, x in zip(node.outputs, found, strict=True))
            if not node.inputs:
                self._made.update((v, known[v]) for v in node.outputs)
        for value in self._uploaded:
            if value in known:
                self._fix(value, known[value])
        self._last_known = key, known
        return known

    def _fix(self, value: Value, array: Any) -> None:
        """Bring a value to its fixed place on the GPU, unless it is there."""
        if isinstance(array, np.ndarray):
            text = array.tobytes()
            if self._texts.get(value) == text:
                return
            self._texts[value] = text
            array = self._family.from_numpy(array, self._at)
        place = self._fixed.get(value)
        if place is None:
            place = self._fixed[value] = self._driver.empty(array.shape, array.dtype)
        place[...] = array

    def _new_outputs(self, taken: Mapping[int, Any]) -> list[Any]:
        return [
            taken[number]
            if number in taken
            else None
            if number in self._host_results
            else self._driver.empty(value.tensor_type.shape, value.tensor_type.dtype.numpy)
            for number, value in enumerate(self._lowered.outputs)
        ]

    def _single(
        self, inputs: list[Tensor], known: dict[Value, Any], outputs: list[Any]
    ) -> list[Any]:
        """Kernel by kernel."""
        self._run(self._buffers(inputs, known, outputs))
        return outputs

    def _buffers(
        self, inputs: list[Tensor], known: dict[Value, Any], outputs: list[Any]
    ) -> Buffers:
        arrays = [
            x._data if _is_host(value) else self._usual(x._data)
            for value, x in zip(self._lowered.inputs, inputs, strict=True)
        ]
        return Buffers(self, arrays, outputs, known)

    def _timed(self, inputs: list[Tensor]) -> tuple[list[Tensor], list[StepTime]]:
        """The results, and what each part of the program took, launched one by one."""
        found: list[StepTime] = []

        def run(inputs: list[Tensor]) -> list[Any]:
            self._check_inputs(inputs)
            known = self._known(inputs)
            outputs = self._new_outputs(self._taken(inputs) if self._may_take(inputs) else {})
            buffers = self._buffers(inputs, known, outputs)
            parts = [functools.partial(self._launch, [work], buffers) for work in self._rest]
            times = self._driver.timed([*parts, lambda: self._copy_results(buffers)])
            found[:] = map(self._step_time, self._rest, times)
            return outputs

        return self._called(inputs, run), found

    def _step_time(self, work: Work, times: tuple[int, int]) -> StepTime:
        steps = [work.step]
        if any(isinstance(one, Result) for one in work.buffers):  # it is the whole program
            steps = [step for step in self._plan.root.steps if step.kind != "call"]
        nodes = [node for step in steps for node in step.nodes]
        parts = [step.work() for step in steps]
        whole = replace(
            parts[0],
            flops=sum(part.flops for part in parts),
            bytes=sum(part.bytes for part in parts),
        )
        return StepTime(nodes, "call" if work.kind == "call" else "kernel", *times, whole)

    def _capture(self, inputs: list[Tensor], known: dict[Value, Any]) -> _Captured | None:
        arrays = [self._staged.get(number, x._data) for number, x in enumerate(inputs)]
        taken = self._taken(inputs)
        for call in self._convolutions.values():
            self._driver.prepare(call)
        outputs = self._new_outputs(taken)
        buffers = Buffers(self, arrays, outputs, known)
        launch = self._driver.capture(lambda: self._run(buffers, apart=True))
        if launch is None:
            return None
        own = [None if number in taken else array for number, array in enumerate(outputs)]
        return _Captured(launch, own)

    # --- what runs ------------------------------------------------------------------------------

    def _run(self, buffers: Buffers, *, apart: bool = False) -> None:
        """`apart`: what does not wait for each other may run at the same time."""
        if apart:
            pieces = [piece for work in self._rest for piece in _pieces(work)]
            after = waits([self._part(buffers, *piece) for piece in pieces])
            self._driver.parts(after, lambda at: self._launch([pieces[at][0]], buffers))
        else:
            self._launch(self._rest, buffers)
        self._copy_results(buffers)

    def _part(self, buffers: Buffers, work: Work, touched: frozenset[Any] | None) -> Part:
        """What a piece reads and writes. Next to products on tensor cores, only what is small."""
        part = buffers.part(work, self._target, touched)
        size = sum(launch.blocks * launch.threads for launch in work.launches)
        if self._narrow and not (work.kind == "launch" and size <= SMALL):
            return replace(part, writes=[*part.writes, ONE_BY_ONE])
        return part

    def _copy_results(self, buffers: Buffers) -> None:
        """Results that are elsewhere."""
        for number, value in enumerate(self._plan.root.results):
            if number in self._host_results or number in self._written:
                continue
            if value in self._fixed or self._plan.root.outputs.get(value) != number:
                out, array = buffers.outputs[number], buffers.array(value)
                to, source = self._driver.address(out), self._driver.address(array)
                self._driver.copy(to, source, value.tensor_type.nbytes)

    def _start(self, launch: Launch, addresses: Sequence[int]) -> None:
        function = self._functions[launch.name]
        grid = launch.blocks, launch.threads
        self._driver.launch(function, *grid, addresses, launch.shared)

    def _launch(self, works: Sequence[Work], buffers: Any) -> None:
        """Start some work. `buffers` says where values lie."""
        driver = self._driver
        for work in works:
            if work.kind == "call":
                self._call_card(work, buffers)
                continue
            if work.kind == "flow":
                run_flow(self, work, buffers)
                continue
            at = [buffers.address(value, work) for value in work.buffers]
            if work.kind == "product":
                node = work.step.nodes[0]
                given, made = (v.tensor_type.dtype for v in (node.inputs[0], node.out))
                if work.launches and not rounds_to_tf32():
                    self._start(work.launches[0], at)
                    continue
                if node.op is PRODUCT_OF_PARTS:
                    at = [*at[:2], at[8]]
                for one in self._products[id(work)]:
                    if node.op is MATMUL_BIAS:
                        driver.biased(one, given, at)
                    else:
                        driver.product(one, given, made, at)
                continue
            if work.kind == "convolution":
                driver.convolution(self._convolutions[id(work)], at)
                continue
            for launch in work.launches:
                self._start(launch, at)

    def _call_card(self, work: Work, buffers: Buffers) -> None:
        node = work.step.nodes[0]
        given = [wrap(self._operand(node, i, buffers.array)) for i in range(len(node.inputs))]
        with no_grad():
            found = run_node(node, given, bind)
        for value, tensor in zip(node.outputs, found, strict=True):
            if self._plan.root.place(value) is not None:
                buffers.array(value)[...] = tensor._data.reshape(value.tensor_type.shape)

    def _operand(self, node: Node, number: int, array: Callable[[Value], Any]) -> Any:
        """An operand of a node whose card is called."""
        operand = self._operands[node][number]
        kind = node.inputs[number].tensor_type
        if not isinstance(operand, Leaf):
            made = np.full(kind.shape, operand.number, kind.dtype.numpy)  # type: ignore[union-attr]
            return family_for(kind.device).from_numpy(made, kind.device)
        found = array(operand.root)
        if isinstance(found, np.ndarray) and kind.device != CPU:
            found = family_for(kind.device).from_numpy(found, kind.device)
        return found.reshape(kind.shape)


def _pieces(work: Work) -> list[tuple[Work, frozenset[Any] | None]]:
    """Some work, or its first kernel and those that add up what this left in scratch memory, with
    what these touch: what else the first one writes is there before them."""
    if work.step.kind != "loop" or len(work.launches) < 2:
        return [(work, None)]
    sums = frozenset({None, FLAG, *work.step.group.after})
    first, *rest = work.launches
    return [(replace(work, launches=(first,)), None), (replace(work, launches=(*rest,)), sums)]


def _is_host(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.device == CPU
