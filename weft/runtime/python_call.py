"""A program's call, step by step in Python, where it is not all machine code (`native_call`).

Programs that stacks go in or out of are called so, and a program that is called while it runs. How
the machine code is reached is one of two ways:

listed      generated code reads the addresses of arrays from the objects themselves
addressed   each array is asked for its address, and ctypes passes them: nothing is relied on but
            what Python and NumPy document
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

__all__ = ["Failed", "Start", "addressed", "by_hand", "listed"]

#: (arrays of inputs, arrays of outputs, address of the memory of a call) -> status
Start = Callable[[list[Any], list[Any], int], int]
#: (status, inputs) -> outputs, or raises
Failed = Callable[[int, list[Tensor]], list[Tensor]]

_RUN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


def by_hand(
    start: Start,
    classes: Sequence[type],
    outputs: Outputs,
    memory: Callable[[], tuple[int, Any]],
    failed: Failed,
) -> Call:
    """A call of a program whose inputs are of these classes, and have arrays.

    `memory` gives the memory of one call: its address, and who owns it; calls at the same time have
    one each.
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
        except DTypeError:  # a tensor that was never given an array
            return failed(Status.INPUTS, inputs)
        try:
            made = outputs.take(arrays)
        except (MemoryError, ValueError):  # which of them depends on how large it is
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
    """None where the contents of lists and arrays do not lie where they are expected."""
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
