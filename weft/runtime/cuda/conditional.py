"""Conditional nodes of CUDA graphs, by the driver's own functions: CuPy has none for them.

While work is captured, a loop or a branch is added to the graph at hand as a node with a graph of
its own, and what it runs is captured into that graph, on another stream. A kernel says whether it
runs: it calls `cudaGraphSetConditional`, which the driver provides.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from weft.base.errors import InternalError
from weft.codegen.cuda.machine import GpuMachine
from weft.runtime.cuda.modules import load

__all__ = ["Conditional"]

_KERNEL = "weft_choose"
#: Run where a byte is not 0 (`wanted` 1) or is 0 (0), and no kernel has failed.
_TEXT = f"""
declare void @cudaGraphSetConditional(i64, i32)
define ptx_kernel void @{_KERNEL}(ptr %predicate, ptr %flag, i64 %handle, i64 %wanted) {{
  %byte = load i8, ptr %predicate
  %holds = icmp ne i8 %byte, 0
  %number = zext i1 %holds to i64
  %same = icmp eq i64 %number, %wanted
  %status = load i32, ptr %flag
  %good = icmp eq i32 %status, 0
  %run = and i1 %same, %good
  %value = zext i1 %run to i32
  call void @cudaGraphSetConditional(i64 %handle, i32 %value)
  ret void
}}
"""
#: CU_GRAPH_NODE_TYPE_CONDITIONAL, kinds of such nodes, capture modes, what to do with dependencies.
_CONDITIONAL, IF, WHILE, _RELAXED, _SET = 13, 0, 1, 2, 1


class _Params(ctypes.Structure):
    """CUgraphNodeParams of a conditional node."""

    _fields_ = (
        *(("type", ctypes.c_int), ("none", ctypes.c_int * 3), ("handle", ctypes.c_uint64)),
        *(("kind", ctypes.c_int), ("size", ctypes.c_uint), ("graphs", ctypes.c_void_p)),
        *(("context", ctypes.c_void_p), ("rest", ctypes.c_int64 * 25), ("last", ctypes.c_int64)),
    )


class Conditional:
    """Adds such nodes to the graph that the current stream captures."""

    def __init__(self, cupy: Any, machine: GpuMachine) -> None:
        self._cupy = cupy
        self._cuda = ctypes.CDLL("libcuda.so.1")
        functions, _ = load(cupy, _TEXT, [_KERNEL], machine)
        self._function = functions[_KERNEL]
        self._streams: list[Any] = []
        self._depth = 0
        self._context = ctypes.c_void_p()
        self._check("cuCtxGetCurrent", ctypes.byref(self._context))

    def _check(self, name: str, *given: Any) -> None:
        status = getattr(self._cuda, name)(*given)
        if status:
            raise InternalError(f"{name} returned status {status}")

    def repeat(self, predicate: int, flag: int, run: Callable[[], None]) -> None:
        """Run again while a byte is not 0, and no kernel has failed."""
        handle = self._handle()
        self._ask(predicate, flag, handle, 1)

        def again() -> None:
            run()
            self._ask(predicate, flag, handle, 1)

        self._inside(self._node(handle, WHILE), again)

    def when(self, predicate: int, flag: int, wanted: int, run: Callable[[], None]) -> None:
        """Run once if a byte is not 0 (`wanted` 1), or is 0 (0), and no kernel has failed."""
        handle = self._handle()
        self._ask(predicate, flag, handle, wanted)
        self._inside(self._node(handle, IF), run)

    def _ask(self, predicate: int, flag: int, handle: int, wanted: int) -> None:
        given = map(self._cupy.uint64, (predicate, flag, handle, wanted))
        self._function((1,), (1,), tuple(given))

    def _stream(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._cupy.cuda.get_current_stream().ptr)

    def _captured(self) -> tuple[Any, Any, Any]:
        """The graph that is captured, and the nodes that the next one follows."""
        status, number = ctypes.c_int(), ctypes.c_uint64()
        graph, nodes, count = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
        found = [ctypes.byref(one) for one in (status, number, graph, nodes, count)]
        self._check("cuStreamGetCaptureInfo_v2", self._stream(), *found)
        return graph, nodes, count

    def _handle(self) -> int:
        handle = ctypes.c_uint64()
        graph, _, _ = self._captured()
        given = ctypes.byref(handle), graph, self._context, 0, 0
        self._check("cuGraphConditionalHandleCreate", *given)
        return handle.value

    def _node(self, handle: int, kind: int) -> ctypes.c_void_p:
        """A new node; returns its graph."""
        graph, nodes, count = self._captured()
        params = _Params(type=_CONDITIONAL, handle=handle, kind=kind, size=1, context=self._context)
        made = (ctypes.c_void_p * 1)()
        self._check("cuGraphAddNode", made, graph, nodes, count, ctypes.byref(params))
        given = self._stream(), made, ctypes.c_size_t(1), ctypes.c_uint(_SET)
        self._check("cuStreamUpdateCaptureDependencies", *given)
        return ctypes.c_void_p(ctypes.cast(params.graphs, ctypes.POINTER(ctypes.c_void_p))[0])

    def _inside(self, graph: ctypes.c_void_p, run: Callable[[], None]) -> None:
        """Capture what `run` starts into a graph."""
        if self._depth == len(self._streams):
            self._streams.append(self._cupy.cuda.Stream(non_blocking=True))
        stream = self._streams[self._depth]
        self._depth += 1
        at = ctypes.c_void_p(stream.ptr)
        try:
            given = at, graph, None, None, ctypes.c_size_t(0), _RELAXED
            self._check("cuStreamBeginCaptureToGraph", *given)
            try:
                with stream:
                    run()
            finally:
                self._check("cuStreamEndCapture", at, ctypes.byref(ctypes.c_void_p()))
        finally:
            self._depth -= 1
