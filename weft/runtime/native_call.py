"""The call of a program as a builtin function, made of machine code.

Most of the cost of a small function is Python around its kernels: finding addresses of arrays,
creating arrays and tensors for results, calling through ctypes. Here all of that is generated code
(`weft.runtime.call_code`). Python sees a builtin function that takes and returns a list of tensors:

    call = native_call(CallPlan(...))
    outputs = call(inputs)

It relies on the C interfaces of CPython and NumPy, and on the offsets of a few fields in lists,
arrays and tensors, which `places` finds by inspection. If they are not as expected, or on a Python
without the GIL, `native_call` returns None, and the call is done in Python.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.base.errors import InternalError
from weft.codegen.cache import Code, Request, cached
from weft.codegen.jit import CannotLoad
from weft.core.ownership import proven
from weft.core.tensor import Tensor, wrap
from weft.runtime.call_code import (
    CALL,
    EXPORTS,
    FIELDS,
    PLAN,
    REPLACES,
    SPARES,
    call_text,
    table_bytes,
)
from weft.runtime.memory import aligned_memory
from weft.runtime.object_layout import places
from weft.runtime.output_routing import GRADIENT, LISTED, VALUE
from weft.runtime.rungs import rung
from weft.runtime.sized_call_code import SIZED_CALL

__all__ = ["CallPlan", "Result", "builtin", "entry", "native_call", "provide_memory"]

#: The index of `PyArray_Empty` in NumPy's C API table.
_EMPTY = 184
#: From this many bytes on, a new gradient may be written over the one that it replaces, so that
#: there is one generation of them. If such a run fails, the gradient is None.
LARGE_GRADIENT = 1 << 20


@dataclass(frozen=True, slots=True)
class Result:
    """An output: see RESULT."""

    shape: tuple[int, ...]
    dtype: Any
    in_place: int = -1
    role: int = LISTED
    to: int = -1


@dataclass(frozen=True, slots=True)
class CallPlan:
    """The data of a call.

    entry     the address of `i32 entry(ptr arrays, ptr arena, ptr run)`
    results   one for each output
    failed    called with a nonzero status and the inputs; it returns the outputs, or raises
    keeps     whether results are kept, to use their arrays again
    """

    entry: int
    run: int
    inputs: int
    results: Sequence[Result]
    failed: Callable[[int, list[Any]], Any]
    keeps: bool = True


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_FASTCALL = 0x80
_ENTRY = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p
)
#: The tables of functions, which are never freed: functions refer to them as long as they live.
_METHODS: list[_MethodDef] = []


def native_call(
    plan: CallPlan, reuses: bool | None = None
) -> Callable[[list[Any]], list[Any]] | None:
    """The function that runs a program; None if it is not possible here.

    `reuses`: whether arrays of inputs and earlier results are reused. None: if a test shows that
    reference counts are reliable."""
    ready = _ready() if rung() == "machine" else None
    if ready is None:
        return None
    if reuses is None:
        reuses = _counts_are_reliable()
    empty = ready.empty
    words: list[int] = []  # of RESULT, for each result
    arrays: dict[tuple[int, ...], Any] = {}  # of sizes, by shape
    kept: list[Any] = [plan.failed, arrays]
    for result in plan.results:
        shape = result.shape
        sizes = arrays.get(shape)
        if sizes is None:
            sizes = arrays[shape] = (ctypes.c_ssize_t * max(1, len(shape)))(*shape)
        kind = np.dtype(result.dtype)
        kept.append(kind)
        in_place = result.in_place if reuses else -1
        words += (in_place, len(shape), ctypes.addressof(sizes), id(kind))
        again = int(reuses and plan.keeps and in_place < 0)
        if again and result.role == GRADIENT and math.prod(shape) * kind.itemsize >= LARGE_GRADIENT:
            again = REPLACES
        words += (result.role, result.to, again)
    rows = (ctypes.c_int64 * max(1, len(words)))(*words)
    kept.append(rows)
    table = (ctypes.c_int64 * len(FIELDS))()
    spares: list[Any] = [None] * (SPARES * len(plan.results) + 1)  # its length never changes
    kept.append(spares)
    listed = sum(result.role == LISTED for result in plan.results)
    tables = table_bytes(plan.inputs, len(plan.results))
    table[:] = [
        *(plan.entry, plan.run, 0, tables, plan.inputs, len(plan.results)),
        *(ctypes.addressof(rows), listed, id(Tensor), id(np.ndarray), id(None)),
        *(id(plan.failed), empty, id(spares)),
    ]
    table.kept = kept  # type: ignore[attr-defined]  # as long as the function lives, so do they
    return _new_builtin(ready.methods[CALL], table)


def builtin(name: str, table: Any) -> Callable[[list[Any]], list[Any]] | None:
    """A builtin function whose code is one of `EXPORTS`, and which reads a table; None if it is not
    possible here. What the table refers to must live as long as the table."""
    ready = _ready() if rung() == "machine" else None
    return None if ready is None else _new_builtin(ready.methods[name], table)


def _new_builtin(method: _MethodDef, table: Any) -> Callable[[list[Any]], list[Any]]:
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    made: Callable[[list[Any]], list[Any]] = new(ctypes.addressof(method), table, None)
    return made


def provide_memory(call: Any, memory: int) -> None:
    """Give a call the address of its memory, for its tables and the arena. Without it, and while a
    run uses it, calls return `TAKEN`."""
    call.__self__[FIELDS.index("memory")] = memory


def entry(
    run_code: int, run: int, inputs: int, outputs: int
) -> tuple[Callable[..., int], Any] | None:
    """A function `(plan, id(inputs), id(outputs), memory) -> status` that runs a program on two
    lists of arrays, and the plan whose address it takes; None if it is not possible here."""
    ready = _ready() if rung() == "machine" else None
    if ready is None:
        return None
    tables = table_bytes(inputs, outputs)
    plan = (ctypes.c_int64 * len(PLAN))(run_code, run, tables, inputs, outputs, id(np.ndarray))
    return ready.entry, plan


def call_request() -> list[Request]:
    """The request for the code of calls, if it is not loaded yet."""
    found = None if _ready.cache_info().currsize or rung() != "machine" else _request()
    return [] if found is None else [found]


def _request() -> Request | None:
    found = places()
    if found is None or sys.platform == "win32":
        return None
    return f"native call {found}".encode(), lambda: Code(call_text(found), EXPORTS, brief=True)


@dataclass(frozen=True, slots=True)
class _Ready:
    """The machine code as method definitions for Python, and the address of NumPy's `empty`."""

    methods: Mapping[str, _MethodDef]
    entry: Callable[..., int]
    nothing: int
    empty: int


@functools.cache
def _ready() -> _Ready | None:
    request = _request()
    if request is None:
        return None
    try:
        empty = _numpy_function(_EMPTY)
        library = cached(*request).library
    except (CannotLoad, ImportError, AttributeError, ValueError):  # NumPy has no such table
        return None
    library.keep()
    methods = {
        name: _MethodDef(b"call", library.address(name), _FASTCALL, b"Run a program.")
        for name in (CALL, SIZED_CALL)
    }
    _METHODS.extend(methods.values())
    made = _ENTRY(library.address("weft_entry"))
    return _Ready(methods, made, library.address("weft_nothing"), empty)


def _numpy_function(number: int) -> int:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype = ctypes.c_void_p
    get.argtypes = [ctypes.py_object, ctypes.c_char_p]
    numpy_core: Any = importlib.import_module("numpy._core._multiarray_umath")
    table = get(numpy_core._ARRAY_API, None)
    return int((ctypes.c_void_p * (number + 1)).from_address(table)[number] or 0)


# --- whether it tells right who holds an array ---------------------------------------------------


@functools.cache
def _counts_are_reliable() -> bool:
    """Whether calls count references correctly, for arrays of inputs, earlier results and their
    arrays: tested with a program that does nothing."""
    paths = (
        *(_written_in_place, _tensor_used_again, _array_used_again, _array_taken_out),
        *(_gradient_replaced, _gradient_array_replaced),
    )
    return all(map(proven, paths))


def _tried(inputs: int, result: Result) -> tuple[Callable[[list[Any]], list[Any]], Any]:
    """A call, and the objects that it refers to."""
    ready = _ready()
    assert ready is not None

    def failed(status: int, _inputs: list[Any]) -> Any:
        raise InternalError(f"a call that does nothing gives {status}")

    call = native_call(CallPlan(ready.nothing, 0, inputs, [result], failed), reuses=True)
    memory, owner = aligned_memory(table_bytes(inputs, 1))
    provide_memory(call, memory)
    assert call is not None
    return call, owner


def _written_in_place(others: int) -> bool:
    call, _owner = _tried(1, Result((1,), np.float64, 0, VALUE, 0))
    tensor = wrap(np.empty(1))
    held, before = [tensor._data] * others, id(tensor._data)
    call([tensor])
    del held
    return id(tensor._data) == before


def _tensor_used_again(others: int) -> bool:
    call, _owner = _tried(0, Result((1,), np.float64))
    found = call([])
    held, before = [found[0]] * others, id(found[0])
    del found
    again = id(call([])[0]) == before
    del held
    return again


def _array_used_again(others: int) -> bool:
    call, _owner = _tried(0, Result((1,), np.float64))
    found = call([])
    held, before = [found[0]._data] * others, id(found[0]._data)
    del found
    again = id(call([])[0]._data) == before
    del held
    return again


def _gradient_replaced(others: int) -> bool:
    call, _owner = _tried(1, Result((LARGE_GRADIENT // 8,), np.float64, -1, GRADIENT, 0))
    tensor = wrap(np.empty(1))
    call([tensor])
    held, before = [tensor._grad] * others, id(tensor._grad)
    call([tensor])
    del held
    return id(tensor._grad) == before


def _gradient_array_replaced(others: int) -> bool:
    call, _owner = _tried(1, Result((LARGE_GRADIENT // 8,), np.float64, -1, GRADIENT, 0))
    tensor: Any = wrap(np.empty(1))
    call([tensor])
    held, before = [tensor._grad._data] * others, id(tensor._grad._data)
    call([tensor])
    del held
    return id(tensor._grad._data) == before


def _array_taken_out(others: int) -> bool:
    call, _owner = _tried(0, Result((1,), np.float64))
    found = call([])
    held, before = [found[0]._data] * others, id(found[0]._data)
    found[0]._data = np.empty(1)
    again = id(call([])[0]._data) == before
    del held
    return again
