"""What a program asks of a GPU: memory, modules, launches, products, captured graphs."""

from __future__ import annotations

import contextlib
import ctypes
import math
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from weft.base.dtypes import DType
from weft.codegen.cuda.convolution import Convolution
from weft.codegen.cuda.machine import GpuMachine
from weft.codegen.cuda.matrix import Gemm
from weft.core.call_errors import out_of_memory
from weft.runtime.cuda.branches import LANES, lanes
from weft.runtime.cuda.chosen_products import MANY, ChosenProducts
from weft.runtime.cuda.conditional import Conditional
from weft.runtime.cuda.convolutions import Dnn, is_there
from weft.runtime.cuda.modules import allow_shared, load
from weft.runtime.cuda.products import Blas

__all__ = ["CupyDriver", "Driver", "Flag"]


class Driver(Protocol):
    """`machine` is what code is made for; inside of `place`, the GPU is the current one.
    `seconds`: what the stages of the last `load` took."""

    seconds: dict[str, float]
    machine: GpuMachine
    place: AbstractContextManager[Any]

    def load(self, text: str, names: Sequence[str]) -> dict[str, Any]:
        """The functions of a module, from its LLVM IR."""

    def empty(self, shape: Sequence[int], dtype: Any) -> Any:
        """A new array."""

    def address(self, array: Any) -> int:
        """The address of an array's first element."""

    def launch(
        self,
        function: Any,
        blocks: int,
        threads: int,
        addresses: Sequence[int],
        shared: int = 0,
    ) -> None:
        """Start a kernel, with so many bytes of shared memory beside what it has."""

    def product(self, call: Gemm, dtype: DType, result: DType, addresses: Sequence[int]) -> None:
        """Start products of matrices of a dtype; their results may have a wider one."""

    def ahead(self) -> None:
        """Begin to load what products need, in a thread of its own."""

    def biased(self, call: Gemm, dtype: DType, addresses: Sequence[int]) -> None:
        """Start products to whose columns a bias is added, the third of the addresses."""

    def convolution(self, call: Convolution, addresses: Sequence[int]) -> None:
        """Start a convolution."""

    def prepare(self, call: Convolution) -> None:
        """Choose how a convolution is computed: not while work is captured."""

    def view(self, array: Any, offset: int, shape: Sequence[int], dtype: Any) -> Any:
        """A part of an array of bytes as another array."""

    def copy(self, to: int, source: int, size: int) -> None:
        """Start a copy of some bytes."""

    def clear(self, address: int, size: int) -> None:
        """Start to set some bytes to 0."""

    def number(self, address: int) -> int:
        """An int32 on the GPU; waits for all that was started."""

    def repeat(self, predicate: int, flag: int, run: Callable[[], None]) -> None:
        """What `run` starts again and again, while a byte is not 0, and a flag is."""

    def choose(
        self, predicate: int, flag: int, yes: Callable[[], None], no: Callable[[], None]
    ) -> None:
        """What one of two functions starts: the first where a byte is not 0."""

    def parts(self, after: Sequence[Sequence[int]], start: Callable[[int], None]) -> None:
        """Start `start(0)`, `start(1)`… While work is captured, each waits for those parts alone
        whose numbers `after` has."""

    def timed(self, runs: Sequence[Callable[[], None]]) -> list[tuple[int, int]]:
        """Start some work, one by one; when each began and ended on the GPU, in ns from the first
        start. Waits for all of it."""

    def in_turn(self, before: int) -> int:
        """The stream into which work goes now; waits for `before`, if that is another one."""

    def flag(self) -> Flag:
        """A number that kernels can set and the CPU can read."""

    def capture(self, run: Callable[[], None]) -> Callable[[], None] | None:
        """What launches again all that `run` starts, as one graph; None if it cannot."""


class Flag(Protocol):
    """Set to 0 by `clear`; `read` waits for all that was launched."""

    address: int

    def clear(self) -> None: ...

    def read(self) -> int: ...


class _PinnedFlag:
    """Memory of the CPU that kernels reach."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._memory = cupy.cuda.alloc_pinned_memory(4)
        self.address = int(self._memory.ptr)
        self._value = ctypes.c_int32.from_address(self.address)

    def clear(self) -> None:
        self._value.value = 0

    def read(self) -> int:
        self._cupy.cuda.get_current_stream().synchronize()
        return self._value.value


#: Waits for some cycles of a clock.
_DELAY = """
declare i64 @llvm.nvvm.read.ptx.sreg.clock64()
define ptx_kernel void @weft_delay(i64 %cycles) {
entry:
  %start = call i64 @llvm.nvvm.read.ptx.sreg.clock64()
  br label %again
again:
  %now = call i64 @llvm.nvvm.read.ptx.sreg.clock64()
  %spent = sub i64 %now, %start
  %more = icmp ult i64 %spent, %cycles
  br i1 %more, label %again, label %done
done:
  ret void
}
"""
#: What LLVM makes code for: newer GPUs run the code of older ones.
_ARCHES = (70, 75, 80, 86, 89, 90)


def _arch(cupy: Any) -> str:
    own = int(cupy.cuda.Device(0).compute_capability)
    if own == 90:
        return "sm_90a"  # with the instructions of 9.0 alone
    return f"sm_{max((one for one in _ARCHES if one <= own), default=_ARCHES[0])}"


class CupyDriver:
    """A GPU through CuPy."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._dnn: Dnn | None = None
        self.machine = GpuMachine(_arch(cupy), convolves=is_there())
        self.seconds: dict[str, float] = {}
        several = cupy.cuda.runtime.getDeviceCount() > 1
        self.place = cupy.cuda.Device(0) if several else contextlib.nullcontext()
        self._libraries: tuple[Blas, ChosenProducts] | None = None
        self._opening: threading.Thread | None = None
        self._captures = False
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._nodes: Conditional | None = None
        self._conditional: Conditional | None = None  # while work is captured
        self._lanes = [self._stream]
        self._delay: Any = None
        self._with_room: dict[int, Any] = {}  # functions that may have more than 48 KiB shared

    def load(self, text: str, names: Sequence[str]) -> dict[str, Any]:
        if not names:
            return {}
        found, self.seconds = load(self._cupy, text, names, self.machine)
        return found

    def empty(self, shape: Sequence[int], dtype: Any) -> Any:
        try:
            return self._cupy.empty(shape, dtype=dtype)
        except MemoryError:
            nbytes = math.prod(shape) * np.dtype(dtype).itemsize
            raise out_of_memory("compiled function", tuple(shape), nbytes) from None

    def address(self, array: Any) -> int:
        found: int = array.data.ptr
        return found

    def launch(
        self,
        function: Any,
        blocks: int,
        threads: int,
        addresses: Sequence[int],
        shared: int = 0,
    ) -> None:
        if shared and id(function) not in self._with_room:
            allow_shared(function.ptr, shared)
            self._with_room[id(function)] = function
        function((blocks,), (threads,), tuple(map(np.uint64, addresses)), shared)

    def product(self, call: Gemm, dtype: DType, result: DType, addresses: Sequence[int]) -> None:
        size = call.rows * call.columns * call.terms * call.count
        if dtype is result and dtype.itemsize == 2 and size >= MANY:
            a, b, c = addresses
            self.biased(call, dtype, (a, b, 0, c))
            return
        blas, _ = self._products()
        self._use(blas)
        blas.product(call, dtype, result, addresses)

    def ahead(self) -> None:
        if self._libraries is None and self._opening is None:
            self._opening = threading.Thread(target=self._open_ahead, daemon=True)
            self._opening.start()

    def _open_ahead(self) -> None:
        with contextlib.suppress(Exception):  # who needs the libraries opens them again
            self._cupy.cuda.Device(0).use()
            self._libraries = Blas(self._cupy), ChosenProducts(self._cupy)

    def _products(self) -> tuple[Blas, ChosenProducts]:
        if self._libraries is None and self._opening is not None:
            self._opening.join()
        if self._libraries is None:
            self._libraries = Blas(self._cupy), ChosenProducts(self._cupy)
        return self._libraries

    def _use(self, blas: Blas) -> int:
        """Let products go into the current stream, with the memory of its lane; its address."""
        stream: int = self._cupy.cuda.get_current_stream().ptr
        blas.use(stream, next((i for i, x in enumerate(self._lanes) if x.ptr == stream), 0))
        return stream

    def biased(self, call: Gemm, dtype: DType, addresses: Sequence[int]) -> None:
        blas, chosen = self._products()
        stream = self._use(blas)
        chosen.product(call, dtype, addresses, stream, blas.room, timed=not self._captures)

    def convolution(self, call: Convolution, addresses: Sequence[int]) -> None:
        dnn = self._dnn or self._open_dnn()
        dnn.use(self._cupy.cuda.get_current_stream().ptr)
        dnn.run(call, addresses)

    def prepare(self, call: Convolution) -> None:
        (self._dnn or self._open_dnn()).prepare(call)

    def _open_dnn(self) -> Dnn:
        self._dnn = Dnn(self._cupy)
        return self._dnn

    def view(self, array: Any, offset: int, shape: Sequence[int], dtype: Any) -> Any:
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        return array[offset : offset + size].view(dtype).reshape(tuple(shape))

    def copy(self, to: int, source: int, size: int) -> None:
        if to != source and size:
            runtime, stream = self._cupy.cuda.runtime, self._cupy.cuda.get_current_stream()
            runtime.memcpyAsync(to, source, size, runtime.memcpyDeviceToDevice, stream.ptr)

    def clear(self, address: int, size: int) -> None:
        stream = self._cupy.cuda.get_current_stream()
        self._cupy.cuda.runtime.memsetAsync(address, 0, size, stream.ptr)

    def repeat(self, predicate: int, flag: int, run: Callable[[], None]) -> None:
        if self._conditional is not None:
            self._conditional.repeat(predicate, flag, run)
            return
        while self._holds(predicate, flag):
            run()

    def choose(
        self, predicate: int, flag: int, yes: Callable[[], None], no: Callable[[], None]
    ) -> None:
        if self._conditional is not None:
            self._conditional.when(predicate, flag, 1, yes)
            self._conditional.when(predicate, flag, 0, no)
        elif self._holds(predicate, flag):
            yes()
        else:
            no()

    def _holds(self, predicate: int, flag: int) -> bool:
        """Whether a byte on the GPU is not 0, and no kernel has failed."""
        byte, status = ctypes.c_uint8(), ctypes.c_int32()
        self._bring((byte, predicate), (status, flag))
        return byte.value != 0 and status.value == 0

    def number(self, address: int) -> int:
        found = ctypes.c_int32()
        self._bring((found, address))
        return found.value

    def _bring(self, *pairs: tuple[Any, int]) -> None:
        """Copy numbers from the GPU, each from its address; waits for all that was started."""
        runtime, stream = self._cupy.cuda.runtime, self._cupy.cuda.get_current_stream()
        for number, address in pairs:
            kind, size = runtime.memcpyDeviceToHost, ctypes.sizeof(number)
            runtime.memcpyAsync(ctypes.addressof(number), address, size, kind, stream.ptr)
        stream.synchronize()

    def parts(self, after: Sequence[Sequence[int]], start: Callable[[int], None]) -> None:
        if self._conditional is None:
            for number in range(len(after)):
                start(number)
            return
        done: dict[int, Any] = {}
        begin, used = self._recorded(self._stream), {0: -1}  # the last part of each lane
        for number, (lane, others) in enumerate(lanes(after)):
            stream = self._lanes[lane]
            if lane not in used:
                stream.wait_event(begin)
            for one in others:
                stream.wait_event(done[one])
            with stream:
                start(number)
            done[number], used[lane] = self._recorded(stream), number
        for lane in used.keys() - {0}:
            self._stream.wait_event(done[used[lane]])

    def timed(self, runs: Sequence[Callable[[], None]]) -> list[tuple[int, int]]:
        cuda = self._cupy.cuda
        if self._delay is None:
            self._delay = load(self._cupy, _DELAY, ["weft_delay"], self.machine)[0]["weft_delay"]
        # The GPU waits until most is started: else times between launches would count.
        cycles = min(len(runs) * 40_000, 40_000_000)
        self._delay((1,), (1,), (self._cupy.uint64(cycles),))
        events = []
        for run in runs:
            start, stop = cuda.Event(), cuda.Event()
            start.record()
            run()
            stop.record()
            events.append((start, stop))
        cuda.get_current_stream().synchronize()
        first = events[0][0]
        return [
            tuple(int(cuda.get_elapsed_time(first, at) * 1e6) for at in pair)  # type: ignore[misc]
            for pair in events
        ]

    def _recorded(self, stream: Any) -> Any:
        event = self._cupy.cuda.Event(disable_timing=True)
        event.record(stream)
        return event

    def in_turn(self, before: int) -> int:
        now: int = self._cupy.cuda.get_current_stream().ptr
        if now != before:
            self._cupy.cuda.Device().synchronize()
        return now

    def flag(self) -> Flag:
        return _PinnedFlag(self._cupy)

    def capture(self, run: Callable[[], None]) -> Callable[[], None] | None:
        cuda, stream = self._cupy.cuda, self._stream
        before = cuda.get_current_stream()
        before.synchronize()
        if self._nodes is None:
            self._nodes = Conditional(self._cupy, self.machine)
        while len(self._lanes) < LANES:
            self._lanes.append(cuda.Stream(non_blocking=True))
        if self._libraries is not None or self._opening is not None:
            self._products()[0].prepare(LANES)
        with stream:
            stream.begin_capture()
            self._conditional, self._captures = self._nodes, True
            try:
                run()
            finally:
                self._conditional, self._captures = None, False
                graph = stream.end_capture()
        graph.upload(stream)
        stream.synchronize()

        def launch() -> None:
            graph.launch(cuda.get_current_stream())

        return launch
