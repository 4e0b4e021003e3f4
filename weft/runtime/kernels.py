"""Calls the kernels of a program one by one, for `weft.compare(f, by="kernel")`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.codegen.arguments import arguments
from weft.codegen.cache import Code, cached
from weft.codegen.contract import RUN
from weft.codegen.machine import host
from weft.codegen.text import Module
from weft.ir.graph import Value
from weft.ir.types import TensorType
from weft.runtime.native import NativeProgram
from weft.runtime.threads import parallel_address, poll_address, pool_address
from weft.schedule.plan import Step

__all__ = ["Kernels"]

_KERNEL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class Kernels:
    """The code of a program, generated again with kernels that can be called one by one.

    code   the plan of the program
    """

    def __init__(self, program: NativeProgram) -> None:
        made, plan = program.generate(Module(host()))
        self.code = plan.root
        names = [name for _, code in self.code.walk() for name in code.kernels if name]
        for name in names:
            made.module.expose(name)
        self._library = cached(None, lambda: Code(made.module.text(), names)).library
        self._constants = [np.ascontiguousarray(literal.array) for literal in made.constants]
        addresses = [array.ctypes.data for array in self._constants] or [0]
        self._table = (ctypes.c_void_p * len(addresses))(*addresses)
        given = {
            "pool": pool_address(),
            "parallel": parallel_address(),
            "poll": poll_address(),
            "constants": ctypes.addressof(self._table),
        }
        self._run = (ctypes.c_void_p * len(RUN))(*[given.get(word, 0) for word in RUN])

    def call(
        self, step: Step, array_of: Callable[[Value], np.ndarray[Any, Any]]
    ) -> tuple[int, dict[Value, np.ndarray[Any, Any]]]:
        """Run the kernels of a step on the arrays of its operands.

        Returns the status of the kernel that failed, or 0, and the arrays of the results, which
        were filled with 0xFF before.
        """
        read = step.reads()
        held: list[Any] = []
        addresses: list[int] = []
        results: dict[Value, np.ndarray[Any, Any]] = {}
        for value in arguments(step.group, step.kernels):
            array: Any = None
            if value is RUN:
                addresses.append(ctypes.addressof(self._run))
                continue
            if value is None:
                array = np.full(step.room + 64, 0xFF, np.uint8)
            elif value in step.outputs or value in step.group.written:
                if value not in results:
                    results[value] = _unwritten(value)
                array = results[value]
            elif isinstance(value.type, TensorType) and value in read:  # other buffers are not read
                array = np.ascontiguousarray(array_of(value))
            held.append(array)
            addresses.append(0 if array is None else array.ctypes.data)
        args = (ctypes.c_void_p * len(addresses))(*addresses)
        for kernel in step.kernels:
            function = _KERNEL(self._library.address(kernel.name))
            status = function(ctypes.addressof(args), 0, kernel.items)
            if status:
                return status, results
        return 0, results


def _unwritten(value: Value) -> np.ndarray[Any, Any]:
    kind = value.tensor_type
    array = np.empty(kind.shape, kind.dtype.numpy)
    array.reshape(-1).view(np.uint8).fill(0xFF)
    return array
