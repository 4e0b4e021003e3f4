"""A GPU that is the CPU: kernels of the CUDA target, compiled for the CPU and run thread by thread.

The code is that of the target but for how a kernel learns its numbers and waits (see
`weft.codegen.cuda.builder`). Threads of a block take turns: see `emulated_block.py`.
"""

from __future__ import annotations

import ctypes
import functools
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import fake_cupy
import numpy as np
from emulated_block import run_blocks

from weft.base.dtypes import DType
from weft.base.shapes import size_of
from weft.codegen.cuda.convolution import Convolution
from weft.codegen.cuda.machine import GpuMachine
from weft.codegen.cuda.matrix import Gemm
from weft.codegen.jit import build
from weft.ir.op import OPS

#: The runner of blocks has one memory.
_one = threading.Lock()


class EmulatedDriver:
    """See `weft.runtime.cuda.driver.Driver`. `log` has what was launched."""

    def __init__(self, threads: int = 16, blocks: int = 3, whole: bool = False) -> None:
        self.machine = GpuMachine(
            threads=threads,
            row=threads,
            warp=4,
            blocks=blocks,
            each=3,
            many=64,
            whole=whole,
            convolves=True,
            emulated=True,
        )
        self.place = fake_cupy._Device(0)
        self.seconds: dict[str, float] = {}
        self.log: list[str] = []
        self.prepared: set[Convolution] = set()
        self.random = random.Random(0)  # decides in which order parts run that do not wait
        self._libraries: list[Any] = []
        self._graphs: list[list[Callable[[], None]]] = []  # that are captured, the innermost last

    def load(self, text: str, names: Sequence[str]) -> dict[str, Any]:
        if not names:
            return {}
        library = build(text, names)
        self._libraries.append(library)
        waits = {name: _body(text, name).count("%wait") > 1 for name in names}
        return {name: (library.address(name), waits[name], name) for name in names}

    def empty(self, shape: Sequence[int], dtype: Any) -> Any:
        made = np.empty(tuple(shape), dtype=dtype)
        made.reshape(-1).view(np.uint8).fill(0xFF)
        return fake_cupy.ndarray(made)

    def address(self, array: Any) -> int:
        found: int = array._a.ctypes.data
        return found

    def view(self, array: Any, offset: int, shape: Sequence[int], dtype: Any) -> Any:
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        return fake_cupy.ndarray(
            array._a[offset : offset + size].view(dtype).reshape(tuple(shape)), array
        )

    def launch(
        self,
        function: Any,
        blocks: int,
        threads: int,
        addresses: Sequence[int],
        shared: int = 0,
    ) -> None:
        address, waits, name = function
        self.log.append(name)
        given = list(addresses)

        def run() -> None:
            with _one:
                run_blocks(address, given, blocks, threads, waits)

        self._start(run)

    def _start(self, work: Callable[[], None]) -> None:
        """Do some work now; or whenever the graph is launched that is captured now."""
        if self._graphs:
            self._graphs[-1].append(work)
        else:
            work()

    def _captured(self, run: Callable[[], None]) -> list[Callable[[], None]]:
        """What `run` starts: addresses are those of now, as in a CUDA graph."""
        self._graphs.append([])
        try:
            run()
        finally:
            made = self._graphs.pop()
        return made

    def ahead(self) -> None:
        pass

    def biased(self, call: Gemm, dtype: DType, addresses: Sequence[int]) -> None:
        self.log.append("product")
        a, b, bias, c = addresses
        self._start(lambda: self._product(call, dtype, dtype, (a, b, c), bias))

    def product(self, call: Gemm, dtype: DType, result: DType, addresses: Sequence[int]) -> None:
        self.log.append("product")
        self._start(lambda: self._product(call, dtype, result, addresses))

    def _product(
        self, call: Gemm, dtype: DType, result: DType, addresses: Sequence[int], bias: int = 0
    ) -> None:
        n, m, k = call.rows, call.columns, call.terms
        for number in range(call.count):
            a, b, c = (
                address + (place + number * step) * of.itemsize
                for address, place, step, of in zip(
                    addresses, call.offsets, call.steps, (dtype, dtype, result), strict=True
                )
            )
            left = _matrix(a, n, k, *call.left, dtype)
            right = _matrix(b, k, m, *call.right, dtype)
            wide = np.float64 if dtype.itemsize == 8 else np.float32
            out = _matrix(c, n, m, False, m, result)
            made = left.astype(wide) @ right.astype(wide)
            if bias:
                made += _matrix(bias, 1, m, False, m, dtype).astype(wide)
            out[...] = made.astype(result.numpy)

    def prepare(self, call: Convolution) -> None:
        self.prepared.add(call)

    def convolution(self, call: Convolution, addresses: Sequence[int]) -> None:
        self.log.append("convolution")
        self._start(lambda: self._convolution(call, addresses))

    def _convolution(self, call: Convolution, addresses: Sequence[int]) -> None:
        dtype = call.dtype
        *given, out = [
            _matrix(address, 1, size_of(shape), False, size_of(shape), dtype).reshape(shape)
            for address, shape in zip(addresses, call.shapes, strict=True)
        ]
        kernel = OPS[call.op].kernels[np.ndarray][dtype.numpy]
        out[...] = kernel(*given, **call.attrs)

    def copy(self, to: int, source: int, size: int) -> None:
        self.log.append("copy")
        self._start(lambda: ctypes.memmove(to, source, size) and None)

    def clear(self, address: int, size: int) -> None:
        self._start(lambda: ctypes.memset(address, 0, size) and None)

    def number(self, address: int) -> int:
        return ctypes.c_int32.from_address(address).value

    def repeat(self, predicate: int, flag: int, run: Callable[[], None]) -> None:
        body = self._captured(run)

        def loop() -> None:
            while _holds(predicate) and not self.number(flag):
                self.log.append("again")
                for work in body:
                    work()

        self._start(loop)

    def choose(
        self, predicate: int, flag: int, yes: Callable[[], None], no: Callable[[], None]
    ) -> None:
        sides = [self._captured(no), self._captured(yes)]

        def branch() -> None:
            for work in sides[_holds(predicate)] if not self.number(flag) else ():
                work()

        self._start(branch)

    def parts(self, after: Sequence[Sequence[int]], start: Callable[[int], None]) -> None:
        """Parts of a graph run in any order that they may: another one in each launch."""
        if not self._graphs:
            for number in range(len(after)):
                start(number)
            return
        made = [self._captured(functools.partial(start, number)) for number in range(len(after))]
        needed = [set(one) for one in after]

        def run() -> None:
            done: set[int] = set()
            while len(done) < len(made):
                ready = [i for i in range(len(made)) if i not in done and needed[i] <= done]
                number = self.random.choice(ready)
                for work in made[number]:
                    work()
                done.add(number)

        self._start(run)

    def timed(self, runs: Sequence[Callable[[], None]]) -> list[tuple[int, int]]:
        found, first = [], time.perf_counter_ns()
        for run in runs:
            start = time.perf_counter_ns()
            run()
            found.append((start - first, time.perf_counter_ns() - first))
        return found

    def in_turn(self, before: int) -> int:
        return before

    def flag(self) -> Any:
        return _Flag()

    def capture(self, run: Callable[[], None]) -> Callable[[], None] | None:
        self.log.append("capture")
        graph = self._captured(run)

        def launch() -> None:
            for work in graph:
                work()

        return launch


def _holds(predicate: int) -> bool:
    return ctypes.c_uint8.from_address(predicate).value != 0


class _Flag:
    def __init__(self) -> None:
        self._value = ctypes.c_int32()
        self.address = ctypes.addressof(self._value)

    def clear(self) -> None:
        self._value.value = 0

    def read(self) -> int:
        return self._value.value


def _matrix(
    address: int, rows: int, columns: int, turned: bool, leading: int, dtype: DType
) -> np.ndarray[Any, Any]:
    outer, inner = (columns, rows) if turned else (rows, columns)
    size = ((outer - 1) * leading + inner) * dtype.itemsize
    memory = (ctypes.c_char * size).from_address(address)
    flat = np.frombuffer(memory, dtype=dtype.numpy)
    steps = (leading * dtype.itemsize, dtype.itemsize)
    found = np.lib.stride_tricks.as_strided(flat, (outer, inner), steps)
    return found.T if turned else found


def _body(text: str, name: str) -> str:
    start = text.index(f"@{name}(")
    return text[start : text.index("\n}", start)]
