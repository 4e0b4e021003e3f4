"""The call of a program in Python, for programs whose call is not machine code (`native_call`).

It is used for programs with stacks among inputs or outputs, and for a program that is called while
it runs. There are two ways to start the machine code:

listed      generated code reads the addresses of arrays from the objects themselves
addressed   Python asks each array for its address and passes them through ctypes; this relies only
            on documented behaviour of Python and NumPy
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.errors import DTypeError
from weft.codegen.contract import Status
from weft.core.tensor import Tensor, wrap
from weft.runtime.call_code import table_bytes
from weft.runtime.native_call import entry
from weft.runtime.output_routing import Call
from weft.runtime.outputs import Outputs

__all__ = ["Failed", "Start", "addressed", "listed", "python_call"]

#: (arrays of inputs, arrays of outputs, address of the memory of a call) -> status
Start = Callable[[list[Any], list[Any], int], int]
#: (status, inputs) -> outputs, or raises
Failed = Callable[[int, list[Tensor]], list[Tensor]]

_RUN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


def python_call(
    start: Start,
    classes: Sequence[type],
    outputs: Outputs,
    memory: Callable[[], tuple[int, Any]],
    failed: Failed,
) -> Call:
    """The call of a program with inputs of these classes.

    `memory` returns the memory of one call: its address and its owner. Concurrent calls get
    different memory.
    """
    free: list[tuple[int, Any]] = []
    count = len(classes)

    def call(inputs: list[Tensor]) -> list[Tensor]:
        if inputs.__class__ is not list or len(inputs) != count:
            return failed(Status.INPUTS, inputs)
        if not all(map(isinstance, inputs, classes)):
            return failed(Status.INPUTS, inputs)
        try:
            arrays = [x._data for x in inputs]
        except DTypeError:  # a tensor without an array
            return failed(Status.INPUTS, inputs)
        try:
            made = outputs.take(arrays)
        except (MemoryError, ValueError):  # which of them depends on the size
            return failed(Status.NO_ROOM, inputs)
        try:
            own = free.pop()
        except IndexError:
            own = memory()
        status = start(arrays, made, own[0])
        free.append(own)
        outputs.give(made)
        if status:
            return failed(status, inputs)
        return [wrap(array) for array in made]

    return call


def listed(run_code: int, run: int, inputs: int, outputs: int) -> Start | None:
    """The first way; None if the layout of lists and arrays is not as expected."""
    found = entry(run_code, run, inputs, outputs)
    if found is None:
        return None
    function, plan = found
    address = ctypes.addressof(plan)

    def start(arrays: list[Any], made: list[Any], memory: int, _plan: Any = plan) -> int:
        return function(address, id(arrays), id(made), memory)

    return start


def addressed(run_code: int, run: int, inputs: int, outputs: int) -> Start:
    function, tables = _RUN(run_code), table_bytes(inputs, outputs)
    table_type = ctypes.c_void_p * max(1, inputs + outputs)

    def start(arrays: list[Any], made: list[Any], memory: int) -> int:
        for array in arrays:
            if array.__class__ is not np.ndarray:
                return Status.LAYOUT
            flags = array.flags
            if not (flags.c_contiguous and flags.aligned):
                return Status.LAYOUT
        table = table_type(*[array.ctypes.data for array in (*arrays, *made)])
        return int(function(ctypes.addressof(table), memory + tables, run))

    return start
