"""Ops on values in registers, built into loops over arrays, so that tests can call them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.base.dtypes import DType
from weft.codegen import elementwise
from weft.codegen.jit import Library, build
from weft.codegen.machine import Machine, host
from weft.codegen.text import Function, Module

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Call:
    """One op on operands of some dtypes, `lanes` elements at a time."""

    op: str
    inputs: tuple[DType, ...]
    result: DType
    lanes: int
    attrs: Mapping[str, Any] = field(default_factory=dict)
    write: Callable[[Function, Sequence[str]], str] | None = None  # instead of the op's emitter


class Loops:
    """The machine code of some calls."""

    def __init__(self, calls: Sequence[Call], target: Machine | None = None) -> None:
        target = target or host()
        module = Module(target)
        for number, call in enumerate(calls):
            _add_loop(module, f"loop{number}", call)
        self.calls = list(calls)
        self.library: Library = build(
            module.text(), [f"loop{i}" for i in range(len(calls))], target
        )

    def run(self, number: int, *arrays: Array) -> Array:
        """A call on flat arrays; the last vector is filled up with zeros."""
        call, size = self.calls[number], arrays[0].size
        padding = -size % call.lanes
        given = [np.concatenate([a, np.zeros(padding, a.dtype)]) for a in arrays]
        out = np.empty(size + padding, call.result.numpy)
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
        pointers = (ctypes.c_void_p * len(given))(*[a.ctypes.data for a in given])
        address = self.library.address(f"loop{number}")
        kind(address)(out.ctypes.data, ctypes.addressof(pointers), out.size)
        return out[:size]


def _add_loop(module: Module, name: str, call: Call) -> None:
    f = module.function(name, "void", [("ptr", "out"), ("ptr", "in"), ("i64", "n")], linkage="")
    given = f.ptr("%in", "ptr")
    bases = [
        (given + i).load_ptr(elementwise.memory_type(dtype)) for i, dtype in enumerate(call.inputs)
    ]
    out = f.ptr("%out", elementwise.memory_type(call.result))
    with f.loop(0, f.index("%n"), call.lanes) as i:
        values = [
            elementwise.load(f, dtype, base + i, call.lanes)
            for dtype, base in zip(call.inputs, bases, strict=True)
        ]
        if call.write is None:
            pairs = list(zip(call.inputs, values, strict=True))
            made = elementwise.emit(f, call.op, pairs, call.result, call.lanes, call.attrs)
        else:
            made = call.write(f, values)
        assert made is not None, call
        elementwise.store(f, call.result, out + i, made, call.lanes)
    f.do("ret void")
