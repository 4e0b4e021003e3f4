"""Programs in check mode: see `weft.codegen.checks`.

Results and the arena are poisoned before each run. A kernel that accesses memory outside of its
buffers, leaves a part of a result unwritten or returns an unknown status raises an internal error
with the kernel, its op and the user's line, before any memory is damaged. Runs take several times
as long.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.base.errors import InternalError
from weft.codegen.checks.frames import ENTRIES, FAULTS, KERNEL, NOTED, OWN, UNWRITTEN
from weft.codegen.contract import CHECKS, RUN, Status
from weft.core.tensor import Tensor
from weft.ir.graph import Value
from weft.ir.interpret import located
from weft.ir.signature import OutputRouting
from weft.runtime.call_code import table_bytes
from weft.runtime.native import NativeProgram
from weft.runtime.output_routing import Call
from weft.runtime.outputs import Outputs
from weft.runtime.python_call import Start

__all__ = ["CheckedProgram"]


class PoisonedOutputs(Outputs):
    """New arrays in each run, filled with bytes that are NaN as floats, or arrays of inputs."""

    def __init__(
        self,
        kinds: Sequence[tuple[tuple[int, ...], Any]],
        in_place: Mapping[int, int],
        *,
        keeps: bool = False,
    ) -> None:
        super().__init__(kinds, in_place, keeps=False)

    def take(self, arrays: list[Any]) -> list[Any]:
        made = super().take(arrays)
        for i, array in enumerate(made):
            if not any(i == output and array is arrays[j] for output, j in self._in_place):
                array.reshape(-1).view(np.uint8).fill(0xFF)
        return made


class CheckedProgram(NativeProgram):
    """Machine code that checks its own memory accesses."""

    check = True
    outputs_class = PoisonedOutputs

    def routed_call(self, _routing: OutputRouting) -> Call | None:
        return None

    def _start(self) -> Start:
        start = super()._start()
        bytes_ = self.arena + table_bytes(len(self.captured.inputs), len(self._outputs.kinds))
        one_at_a_time = threading.RLock()
        self._noted = threading.local()  # what the guards noted in the last run of each thread

        def checked(arrays: list[Any], made: list[Any], memory: int) -> int:
            with one_at_a_time:
                ctypes.memset(memory, 0xFF, bytes_)
                status = start(arrays, made, memory)
                if status:
                    self._noted.words = {name: self._words(name) for name in CHECKS}
            return status

        return checked

    def _failed(self, status: int, inputs: list[Tensor]) -> list[Tensor]:
        if status == Status.CHECKED:
            raise self._fault()
        known = status in Status._value2member_map_
        if known and status != Status.FAILED:
            return super()._failed(status, inputs)
        made, _ = self.generate()
        assert made.checking is not None
        call = made.checking.calls[self._noted.words["check_call"][0]]
        if known:
            self._interpret(inputs)  # raises the error of the op
            raise _error(call, "reports a failure, but its op does not fail")
        raise _error(call, f"returns an unknown status, {status}")

    def _words(self, name: str) -> list[int]:
        start = self.library.address(name)
        count = 1 if name == "check_call" else NOTED
        return list((ctypes.c_int64 * count).from_address(start))

    def _fault(self) -> InternalError:
        """The error for what the guards have noted."""
        made, _ = self.generate()
        made.module.text()  # numbers the places
        checking: Any = made.checking
        number, *frame = self._noted.words["check_fault"]
        call = checking.calls[number]
        fault, address, size, at = frame[KERNEL + 1 : ENTRIES]
        if fault == UNWRITTEN:
            value = call.buffers[at]
            where = f"{_named(value)} at byte {address} of {value.type.nbytes}"
            how = ", or computed it of memory that it had not written"
            is_float = value.type.dtype.kind in ("float", "complex")
            return _error(call, f"has not written {where}{how if is_float else ''}")
        place = checking.module.places[at]
        verb = "writes" if _writes(place.instruction) else "reads"
        entries = [frame[i : i + 2] for i in range(ENTRIES, len(frame), 3)]
        known = [(value, *entry) for value, entry in zip(call.buffers, entries, strict=False)]
        where = _place(known, place.entry, address, size)
        text = f"{verb} {size} bytes {FAULTS[fault]}: {where}"
        return _error(call, f"{text}, in {place.function}: {place.instruction}", place.location)


def _writes(instruction: str) -> bool:
    return (
        "store" in instruction or "scatter" in instruction or "call void @llvm.mem" in instruction
    )


def _place(buffers: Sequence[tuple[Any, int, int]], entry: int, address: int, size: int) -> str:
    """Where an access is, relative to the buffer that it is meant for, or to the nearest one."""

    def away(buffer: tuple[Any, int, int]) -> int:
        _, first, beyond = buffer
        return max(first - address, address + size - beyond, 0)

    if entry >= OWN:
        return "an array of its function, or a constant"
    known = [buffer for buffer in buffers if buffer[1]]
    if entry:
        known = [buffers[entry - 1]]
    value, first, beyond = min(known, key=away)
    return f"at byte {address - first} of {_named(value)}, which has {beyond - first} bytes"


def _named(value: Any) -> str:
    if value is None:
        return "its own memory"
    if value is RUN:
        return "the run"
    assert isinstance(value, Value)
    name = f"%{value.name}: " if value.name else ""
    return f"{name}{value.type}"


def _error(call: Any, text: str, location: Any = None) -> InternalError:
    """An internal error about a kernel, with the user's line."""
    ops = ", ".join(dict.fromkeys(node.op.name for node in call.group.in_order()))
    name = ", ".join(filter(None, call.kernels)) or call.group.kind
    head = call.group.nodes[0]
    error = InternalError(
        f"kernel {name} ({ops}) {text}", hint="please report it: this is a bug in Weft"
    )
    made = located(error, head)
    assert isinstance(made, InternalError)
    if location is not None:
        made.location = location
    return made
