"""Kernels of matrix products built for a test."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.codegen.jit import Library, build
from weft.codegen.kernel import PARAMS, Kernel
from weft.codegen.machine import Machine, host
from weft.codegen.text import Module

Array = np.ndarray[Any, Any]


_CALL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


_GUARD = 64  # bytes around what a kernel writes, to see writes beyond it


#: What widths of vectors a target loses its features for.
_LESS = {64: "", 32: "avx512", 16: "avx512 avx2 avx fma f16c"}


def narrower(width: int) -> Machine:
    """The machine at hand, less the vectors that are wider."""
    target = host()
    lost = _LESS[width].split()
    features = [
        f"-{word[1:]}"
        if word[1:] in lost or (word[1:].startswith("avx512") and "avx512" in lost)
        else word
        for word in target.features.split(",")
    ]
    return dataclasses.replace(
        target, features=",".join(features), vector_bytes=min(width, target.vector_bytes)
    )


WIDTHS = [width for width in (64, 32, 16) if width <= host().vector_bytes]


class Built:
    """Nodes whose kernels were written into one module, to be called as a run would."""

    def __init__(self, target: Machine | None = None) -> None:
        self.module = Module(target or host())
        self.nodes: list[list[Kernel]] = []
        self.library: Library | None = None

    def add(self, write: Callable[[Module, str], list[Kernel] | None]) -> int:
        """The number of a node whose kernels `write` gives."""
        kernels = write(self.module, f"k{len(self.nodes)}")
        assert kernels is not None
        for kernel in kernels:
            f = self.module.function(f"call.{kernel.name}", "i32", PARAMS, linkage="")
            f.do(f"ret i32 {f(f'call i32 @{kernel.name}(ptr %args, i64 %begin, i64 %end)')}")
        self.nodes.append(kernels)
        return len(self.nodes) - 1

    def run(
        self, node: int, inputs: Sequence[Array], results: Sequence[Array], pieces: int = 1
    ) -> list[Array]:
        """Copies of `results` that the kernels wrote over, their items cut into pieces."""
        if self.library is None:
            names = [f"call.{kernel.name}" for kernels in self.nodes for kernel in kernels]
            self.library = build(self.module.text(), names, self.module.machine)
        kernels = self.nodes[node]
        rooms = [np.full(r.nbytes + 2 * _GUARD, 0xA5, np.uint8) for r in results]
        for room, result in zip(rooms, results, strict=True):
            room[_GUARD : _GUARD + result.nbytes] = np.frombuffer(result.tobytes(), np.uint8)
        scratch = np.full(max([k.scratch for k in kernels], default=0) + 1, 0xFF, np.uint8)
        pointers = [a.ctypes.data for a in inputs] + [room.ctypes.data + _GUARD for room in rooms]
        pointers.append(scratch.ctypes.data)
        args = (ctypes.c_void_p * len(pointers))(*pointers)
        for kernel in kernels:
            assert kernel.items > 0
            assert kernel.cost > 0
            call = _CALL(self.library.address(f"call.{kernel.name}"))
            cuts = [kernel.items * i // pieces for i in range(pieces + 1)]
            for i in reversed(range(pieces)):
                if cuts[i] < cuts[i + 1]:
                    assert call(ctypes.cast(args, ctypes.c_void_p), cuts[i], cuts[i + 1]) == 0
        for room in rooms:
            assert (room[:_GUARD] == 0xA5).all()
            assert (room[-_GUARD:] == 0xA5).all()
        return [
            room[_GUARD : _GUARD + r.nbytes].view(r.dtype).reshape(r.shape)
            for room, r in zip(rooms, results, strict=True)
        ]


def lying(array: Array) -> tuple[int, ...]:
    return tuple(step // array.itemsize for step in array.strides)
