"""A program's call as one function of Python's own kind, made of machine code.

Most of what a small function costs is Python between its kernels: finding addresses of arrays,
making arrays and tensors for results, calling through ctypes. Here all of that is generated code,
too. What Python sees is a builtin function that takes a list of tensors and gives one:

    call = direct(Plan(...))
    outputs = call(inputs)

It relies on what CPython and NumPy promise (their C interfaces), and on a few places inside of
lists, arrays and tensors that `places` finds by looking. Where they are not as expected, as on a
Python without the global lock, `direct` gives None, and the same is done in Python.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.codegen.cache import Code, Request, cached
from weft.codegen.target import host
from weft.codegen.text import Function, Module
from weft.core.tensor import Tensor
from weft.runtime.delivery import LISTED, VALUE
from weft.runtime.places import Places, places

__all__ = ["LAYOUT", "NO_ROOM", "TAKEN", "Plan", "Result", "direct", "lend"]

#: What `failed` is told where an input does not lie dense in C order, where another call is
#: running, and where there is no memory for a result.
LAYOUT = -8
TAKEN = -9
NO_ROOM = -10

#: The words of the table that a call reads: one for each of these names.
FIELDS = (
    *("entry", "run", "arena", "inputs", "outputs", "results", "listed"),
    *("tensor", "none", "failed", "empty", "spares"),
)
#: What is known of a result: the input in whose array it may be written, or -1; its axes, sizes
#: and dtype; what becomes of it, and the input that it goes to then; whether it is used again.
RESULT = ("in_place", "ndim", "sizes", "dtype", "role", "to", "again")
#: Of a result that is used again: the last two that were made, each a tensor and its array. One is
#: the gradient of a parameter, say, while the next is computed into the other.
SPARES = 4
#: Results up to so many bytes are used again once nobody holds them: to make a tensor and an array
#: and to free them costs as much as a small kernel, and keeping large ones would cost memory.
MOST_AGAIN = 32_768
_DENSE = 257  # NumPy's flags: in C order, and aligned
_WRITEABLE = 1024
#: The number of `PyArray_Empty` in NumPy's table of functions.
_EMPTY = 184

_API = (
    ("ptr", "PyList_New", "i64"),
    ("ptr", "PyType_GenericAlloc", "ptr, i64"),
    ("ptr", "PyEval_SaveThread", ""),
    ("void", "PyEval_RestoreThread", "ptr"),
    ("ptr", "PyLong_FromLong", "i64"),
    ("ptr", "PyObject_Vectorcall", "ptr, ptr, i64, ptr"),
    ("void", "Py_IncRef", "ptr"),
    ("void", "Py_DecRef", "ptr"),
    ("void", "PyErr_Clear", ""),
)


@dataclass(frozen=True, slots=True)
class Result:
    """An output: see RESULT."""

    shape: tuple[int, ...]
    dtype: Any
    in_place: int = -1
    role: int = LISTED
    to: int = -1


@dataclass(frozen=True, slots=True)
class Plan:
    """What a call needs to know.

    entry     the address of `i32 entry(ptr arrays, ptr arena, ptr run)`
    results   one for each output
    failed    is called with a status that is not 0 and the inputs: what it gives is the result
    """

    entry: int
    run: int
    inputs: int
    results: Sequence[Result]
    failed: Callable[[int, list[Any]], Any]


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_FASTCALL = 0x80
#: Functions point to theirs for as long as they live: none is ever given back.
_METHODS: list[_MethodDef] = []


def direct(plan: Plan) -> Callable[[list[Any]], list[Any]] | None:
    """The function that runs a program; None where it cannot be had."""
    ready = _ready()
    if ready is None:
        return None
    method, empty = ready
    rows = (ctypes.c_int64 * max(1, len(RESULT) * len(plan.results)))()
    table = (ctypes.c_int64 * len(FIELDS))()
    kept: list[Any] = [plan.failed, rows]
    for i, result in enumerate(plan.results):
        sizes = (ctypes.c_ssize_t * max(1, len(result.shape)))(*result.shape)
        kind = np.dtype(result.dtype)
        kept += [sizes, kind]
        place = (result.in_place, len(result.shape), ctypes.addressof(sizes), id(kind))
        size = math.prod(result.shape) * kind.itemsize
        again = result.role != VALUE and result.in_place < 0 and size <= MOST_AGAIN
        rows[i * len(RESULT) : (i + 1) * len(RESULT)] = [*place, result.role, result.to, again]
    spares: list[Any] = [None] * (SPARES * len(plan.results) + 1)  # of this length for good
    kept.append(spares)
    listed = sum(result.role == LISTED for result in plan.results)
    table[:] = [
        *(plan.entry, plan.run, 0, plan.inputs, len(plan.results)),
        *(ctypes.addressof(rows), listed, id(Tensor), id(None), id(plan.failed), empty, id(spares)),
    ]
    table.kept = kept  # type: ignore[attr-defined]  # as long as the function lives, so do they
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    made: Callable[[list[Any]], list[Any]] = new(ctypes.addressof(method), table, None)
    return made


def lend(call: Any, arena: int) -> None:
    """Give a call the address of memory to work in: before that, and while a run has it, further
    calls are `TAKEN`."""
    call.__self__[FIELDS.index("arena")] = arena


def call_request() -> list[Request]:
    """The code of calls, where it is not there yet."""
    found = None if _ready.cache_info().currsize else _request()
    return [] if found is None else [found]


def _request() -> Request | None:
    found = places()
    if found is None or sys.platform == "win32":
        return None
    return f"direct {found}".encode(), lambda: Code(_text(found), ["weft_call"], brief=True)


@functools.cache
def _ready() -> tuple[_MethodDef, int] | None:
    """The machine code as Python is told of it, and the address of NumPy's `empty`."""
    request = _request()
    if request is None:
        return None
    library = cached(*request).library
    library.keep()
    method = _MethodDef(b"call", library.address("weft_call"), _FASTCALL, b"Run a program.")
    _METHODS.append(method)
    return method, _numpy_function(_EMPTY)


def _numpy_function(number: int) -> int:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype = ctypes.c_void_p
    get.argtypes = [ctypes.py_object, ctypes.c_char_p]
    numpy_core: Any = importlib.import_module("numpy._core._multiarray_umath")
    table = get(numpy_core._ARRAY_API, None)
    return int((ctypes.c_void_p * (number + 1)).from_address(table)[number] or 0)


# --- the code ------------------------------------------------------------------------------------


def _text(at: Places) -> str:
    module = Module(host())
    for result, name, params in _API:
        module.declare(result, name, params)
    taken = [("ptr", "self"), ("ptr", "args"), ("i64", "count")]
    f = module.function("weft_call", "ptr", taken, linkage="")
    table = _load(f, "ptr", "%self", at.buffer)
    known = {name: _load(f, "i64", table, 8 * i) for i, name in enumerate(FIELDS)}
    pointer = {name: f(f"inttoptr i64 {known[name]} to ptr") for name in FIELDS}
    given = _load(f, "ptr", "%args", 0)
    n_in, n_out = known["inputs"], known["outputs"]
    arrays = f(f"alloca ptr, i64 {f(f'add i64 {n_in}, {n_out}')}, align 16")
    objects = f(f"alloca ptr, i64 {f(f'add i64 {n_in}, {n_out}')}, align 16")
    tensors = f(f"alloca ptr, i64 {n_out}, align 16")

    _else_fail(f, f"icmp ne i64 {known['arena']}, 0", TAKEN, pointer["failed"], given)
    bits = f.var("i32", "-1")
    items = _load(f, "ptr", given, at.items)
    with f.loop("0", n_in) as i:
        tensor = f(f"load ptr, ptr {_item(f, items, i)}")
        array = _load(f, "ptr", tensor, at.tensor_data)
        f.do(f"store ptr {array}, ptr {_item(f, objects, i)}")
        f.do(f"store ptr {_load(f, 'ptr', array, at.data)}, ptr {_item(f, arrays, i)}")
        flags = _load(f, "i32", array, at.flags)
        f.set("i32", bits, f(f"and i32 {f.get('i32', bits)}, {flags}"))
    dense = f(f"and i32 {f.get('i32', bits)}, {_DENSE}")
    _else_fail(f, f"icmp eq i32 {dense}, {_DENSE}", LAYOUT, pointer["failed"], given)

    made = f(f"call ptr @PyList_New(i64 {known['listed']})")
    with f.when(f(f"icmp eq ptr {made}, null")):
        _leave(f, "null")
    spares = _load(f, "ptr", pointer["spares"], at.items)
    with f.loop("0", n_out) as i:
        row = _row(f, pointer["results"], i)
        f.do(f"store ptr null, ptr {_item(f, tensors, i)}")
        used = _used_again(f, at, row, _spares_of(f, spares, i), _item(f, tensors, i), pointer)
        array = _array(f, at, row, pointer["empty"], objects, used)
        f.do(f"store ptr {array}, ptr {_item(f, objects, f(f'add i64 {i}, {n_in}'))}")
        with f.when(f(f"icmp eq ptr {array}, null")):
            with f.loop("0", i) as j:
                _let_go(f, objects, f(f"add i64 {j}, {n_in}"))
                _let_go(f, tensors, j)
            f.do(f"call void @Py_DecRef(ptr {made})")
            f.do("call void @PyErr_Clear()")
            _fail(f, str(NO_ROOM), pointer["failed"], given)
        slot = _item(f, arrays, f(f"add i64 {i}, {n_in}"))
        f.do(f"store ptr {_load(f, 'ptr', array, at.data)}, ptr {slot}")

    # Others may let go of the inputs while the lock is released.
    with f.loop("0", n_in) as i:
        f.do(f"call void @Py_IncRef(ptr {f(f'load ptr, ptr {_item(f, objects, i)}')})")
    arena = f(f"getelementptr i64, ptr {table}, i64 {FIELDS.index('arena')}")
    f.do(f"store i64 0, ptr {arena}")
    state = f("call ptr @PyEval_SaveThread()")
    run = f"ptr {arrays}, ptr {pointer['arena']}, ptr {pointer['run']}"
    status = f(f"call i32 {pointer['entry']}({run})")
    f.do(f"call void @PyEval_RestoreThread(ptr {state})")
    f.do(f"store i64 {known['arena']}, ptr {arena}")
    with f.loop("0", n_in) as i:
        _let_go(f, objects, i)
    with f.when(f(f"icmp ne i32 {status}, 0")):
        with f.loop("0", n_out) as i:
            _let_go(f, objects, f(f"add i64 {i}, {n_in}"))
            _let_go(f, tensors, i)
        f.do(f"call void @Py_DecRef(ptr {made})")
        _fail(f, f(f"sext i32 {status} to i64"), pointer["failed"], given)
    room = f.var("ptr", _load(f, "ptr", made, at.items))
    with f.loop("0", n_out) as i:
        array = f(f"load ptr, ptr {_item(f, objects, f(f'add i64 {i}, {n_in}'))}")
        used = f(f"load ptr, ptr {_item(f, tensors, i)}")
        row, spare = _row(f, pointer["results"], i), _spares_of(f, spares, i)
        _deliver(f, at, row, array, used, spare, pointer, items, room, made)
    f.do(f"ret ptr {made}")
    return module.text()


def _row(f: Function, rows: str, i: str) -> dict[str, str]:
    row = f(f"getelementptr i64, ptr {rows}, i64 {f(f'mul i64 {i}, {len(RESULT)}')}")
    return {name: _load(f, "i64", row, 8 * j) for j, name in enumerate(RESULT)}


def _spares_of(f: Function, spares: str, i: str) -> str:
    return _item(f, spares, f(f"mul i64 {i}, {SPARES}"))


def _used_again(
    f: Function, at: Places, row: dict[str, str], spares: str, slot: str, pointer: dict[str, str]
) -> str:
    """The array of an earlier result that nobody has any more, whose tensor is put in a slot; null
    where there is none. Both are held, as new ones would be."""
    array = f.var("ptr", "null")
    f.set("ptr", array, "null")
    with f.when(f(f"icmp ne i64 {row['again']}, 0")):
        for number in range(0, SPARES, 2):
            missing = f(f"icmp eq ptr {f.get('ptr', array)}, null")
            tensor = f(f"load ptr, ptr {_item(f, spares, str(number))}")
            there = f(f"icmp ne ptr {tensor}, {pointer['none']}")
            with f.when(f(f"and i1 {missing}, {there}")):
                own = f(f"load ptr, ptr {_item(f, spares, str(number + 1))}")
                facts = [
                    f"icmp eq i64 {_load(f, 'i64', tensor, at.count)}, 1",  # of the spares
                    f"icmp eq i64 {_load(f, 'i64', own, at.count)}, 2",  # and of its tensor
                    f"icmp eq ptr {_load(f, 'ptr', tensor, at.tensor_data)}, {own}",
                    f"icmp eq ptr {_load(f, 'ptr', tensor, at.tensor_weak)}, null",
                ]
                free = f(facts[0])
                for fact in facts[1:]:
                    free = f(f"and i1 {free}, {f(fact)}")
                with f.when(free):
                    f.do(f"call void @Py_IncRef(ptr {tensor})")
                    f.do(f"call void @Py_IncRef(ptr {own})")
                    f.do(f"store ptr {tensor}, ptr {slot}")
                    f.set("ptr", array, own)
                    f.do(f"call void @Py_IncRef(ptr {pointer['none']})")
                    for new, place in ((pointer["none"], at.tensor_node), ("null", at.tensor_grad)):
                        old = _load(f, "ptr", tensor, place)
                        _store(f, new, tensor, place)
                        f.do(f"call void @Py_DecRef(ptr {old})")
    return f.get("ptr", array)


def _keep(f: Function, spares: str, tensor: str, array: str) -> None:
    """A new result becomes the first of the spares; the last of them goes."""
    gone = []
    for number, thing in ((0, tensor), (1, array)):
        first, last = (_item(f, spares, str(at)) for at in (number, number + 2))
        gone.append(f(f"load ptr, ptr {last}"))
        f.do(f"store ptr {f(f'load ptr, ptr {first}')}, ptr {last}")
        f.do(f"call void @Py_IncRef(ptr {thing})")
        f.do(f"store ptr {thing}, ptr {first}")
    for thing in gone:
        f.do(f"call void @Py_DecRef(ptr {thing})")


def _array(
    f: Function, at: Places, row: dict[str, str], empty: str, objects: str, used: str
) -> str:
    """The array that an output is written to: one that is used again, that of an input, or a new
    one; null: no memory."""
    array = f.var("ptr", "null")
    f.set("ptr", array, used)
    with f.when(f(f"icmp sge i64 {row['in_place']}, 0")):
        old = f(f"load ptr, ptr {_item(f, objects, row['in_place'])}")
        alone = f(f"icmp eq i64 {_load(f, 'i64', old, at.count)}, 1")  # its tensor has it
        writeable = f(f"and i32 {_load(f, 'i32', old, at.flags)}, {_WRITEABLE}")
        both = f(f"and i1 {alone}, {f(f'icmp ne i32 {writeable}, 0')}")
        with f.when(both):
            f.do(f"call void @Py_IncRef(ptr {old})")
            f.set("ptr", array, old)
    with f.when(f(f"icmp eq ptr {f.get('ptr', array)}, null")):
        kind, shape = (f(f"inttoptr i64 {row[name]} to ptr") for name in ("dtype", "sizes"))
        f.do(f"call void @Py_IncRef(ptr {kind})")  # NumPy takes it over
        axes = f(f"trunc i64 {row['ndim']} to i32")
        args = f"i32 {axes}, ptr {shape}, ptr {kind}, i32 0"
        f.set("ptr", array, f(f"call ptr {empty}({args})"))
    return f.get("ptr", array)


def _deliver(
    f: Function,
    at: Places,
    row: dict[str, str],
    array: str,
    used: str,
    spares: str,
    pointer: dict[str, str],
    items: str,
    room: str,
    made: str,
) -> None:
    """Put an output where it goes."""
    new, slot = f.var("ptr"), f.var("ptr")
    f.set("ptr", new, array)
    is_new = f(f"icmp eq ptr {used}, null")
    with f.when(f(f"xor i1 {is_new}, true")):
        f.do(f"call void @Py_DecRef(ptr {array})")  # its tensor has it
        f.set("ptr", new, used)
        f.set("ptr", slot, f.get("ptr", room))
    no_value = f(f"icmp ne i64 {row['role']}, {VALUE}")
    with f.when(f(f"and i1 {is_new}, {no_value}")):
        tensor = f(f"call ptr @PyType_GenericAlloc(ptr {pointer['tensor']}, i64 0)")
        with f.when(f(f"icmp eq ptr {tensor}, null")):
            f.do(f"call void @Py_DecRef(ptr {made})")
            _leave(f, "null")
        _store(f, array, tensor, at.tensor_data)
        f.do(f"call void @Py_IncRef(ptr {pointer['none']})")
        _store(f, pointer["none"], tensor, at.tensor_node)
        with f.when(f(f"icmp ne i64 {row['again']}, 0")):
            _keep(f, spares, tensor, array)
        f.set("ptr", new, tensor)
        f.set("ptr", slot, f.get("ptr", room))
    listed = f(f"icmp eq i64 {row['role']}, {LISTED}")
    with f.when(listed):
        f.set("ptr", room, _item(f, f.get("ptr", room), "1"))
    with f.when(f(f"xor i1 {listed}, true")):
        to = f(f"load ptr, ptr {_item(f, items, row['to'])}")
        is_value = f(f"icmp eq i64 {row['role']}, {VALUE}")
        where = f(f"select i1 {is_value}, i64 {at.tensor_data}, i64 {at.tensor_grad}")
        f.set("ptr", slot, f(f"getelementptr i8, ptr {to}, i64 {where}"))
    place = f.get("ptr", slot)
    old = f(f"load ptr, ptr {place}")
    f.do(f"store ptr {f.get('ptr', new)}, ptr {place}")
    f.do(f"call void @Py_DecRef(ptr {old})")  # null, too


def _let_go(f: Function, objects: str, i: str) -> None:
    f.do(f"call void @Py_DecRef(ptr {f(f'load ptr, ptr {_item(f, objects, i)}')})")


def _else_fail(f: Function, condition: str, status: int, failed: str, given: str) -> None:
    with f.when(f(f"xor i1 {f(condition)}, true")):
        _fail(f, str(status), failed, given)


def _fail(f: Function, status: str, failed: str, given: str) -> None:
    """Leave with what Python makes of a status."""
    number = f(f"call ptr @PyLong_FromLong(i64 {status})")
    with f.when(f(f"icmp eq ptr {number}, null")):
        _leave(f, "null")
    told = f.var("[2 x ptr]")
    f.do(f"store ptr {number}, ptr {told}")
    f.do(f"store ptr {given}, ptr {_item(f, told, '1')}")
    args = f"ptr {failed}, ptr {told}, i64 2, ptr null"
    result = f(f"call ptr @PyObject_Vectorcall({args})")
    f.do(f"call void @Py_DecRef(ptr {number})")
    _leave(f, result)


def _leave(f: Function, result: str) -> None:
    f.do(f"ret ptr {result}")
    f.block(f.fresh("never"))


def _load(f: Function, kind: str, base: str, at: int) -> str:
    return f(f"load {kind}, ptr {f(f'getelementptr i8, ptr {base}, i64 {at}')}")


def _store(f: Function, value: str, base: str, at: int) -> None:
    f.do(f"store ptr {value}, ptr {f(f'getelementptr i8, ptr {base}, i64 {at}')}")


def _item(f: Function, base: str, i: str) -> str:
    return f(f"getelementptr ptr, ptr {base}, i64 {i}")
