"""Generates the machine code of calls: the work around a run, on lists of tensors or of arrays.

    ptr @weft_call(ptr self, ptr args, i64 count)            a builtin function, see `native_call`
    i32 @weft_entry(ptr plan, ptr inputs, ptr outputs, ptr memory)
    i32 @weft_nothing(ptr arrays, ptr arena, ptr run)        a run that does nothing, to test calls

The memory of a call holds its tables (`Tables`), followed by the arena of the run: nothing whose
size depends on the program lies on the thread's stack. A call must claim the memory before it uses
it. The steps of a call:

1. Check the inputs and claim the memory. No Python code runs before that.
2. Reuse or create arrays and tensors for the results. From here on Python code may run (in a
   garbage collection), and so may other threads.
3. Run the program. If it fails, release everything.
4. Deliver the results, and note the objects that they replace.
5. Release the replaced objects, which may run any Python code, and then the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from weft.codegen.contract import Status
from weft.codegen.machine import host
from weft.codegen.text import Function, Module
from weft.runtime.object_layout import Places
from weft.runtime.output_routing import LISTED, VALUE
from weft.runtime.outputs import KEPT

__all__ = ["EXPORTS", "FIELDS", "PLAN", "RESULT", "SPARES", "call_text", "table_bytes"]

EXPORTS = ["weft_call", "weft_entry", "weft_nothing"]
#: The fields of the table that `weft_call` reads, one word each.
FIELDS = (
    *("entry", "run", "memory", "tables", "inputs", "outputs", "results", "listed"),
    *("tensor", "array", "none", "failed", "empty", "spares"),
)
#: The same for `weft_entry`.
PLAN = ("entry", "run", "tables", "inputs", "outputs", "array")
#: The fields of a result: the input whose array it may be written to, or -1; its axes, sizes and
#: dtype; its role, and the input that it goes to; whether its array is reused.
RESULT = ("in_place", "ndim", "sizes", "dtype", "role", "to", "again")
#: Words for the spares of a reused result: for each, its tensor (None if it became the value of an
#: input) and its array.
SPARES = 2 * KEPT
_DENSE = 257  # NumPy's flags: C order and aligned
_WRITEABLE = 1024
#: The objects that a result can replace: the old value, and either a node and a gradient, or a
#: spare and its array.
_REPLACED = 3

_API = (
    ("ptr", "PyList_New", "i64"),
    ("i64", "PyList_Size", "ptr"),
    ("i32", "PyType_IsSubtype", "ptr, ptr"),
    ("ptr", "PyType_GenericAlloc", "ptr, i64"),
    ("ptr", "PyEval_SaveThread", ""),
    ("void", "PyEval_RestoreThread", "ptr"),
    ("ptr", "PyLong_FromLong", "i64"),
    ("ptr", "PyObject_Vectorcall", "ptr, ptr, i64, ptr"),
    ("void", "Py_IncRef", "ptr"),
    ("void", "Py_DecRef", "ptr"),
    ("void", "PyErr_Clear", ""),
)


def table_bytes(inputs: int, outputs: int) -> int:
    """The bytes of a call's tables; the arena follows, aligned to a cache line."""
    words = 2 * inputs + (3 + _REPLACED) * outputs
    return -(-8 * words // 64) * 64


def call_text(at: Places) -> str:
    """The module, for objects with this layout."""
    module = Module(host())
    for result, name, params in _API:
        module.declare(result, name, params)
    _add_failed(module)
    _Call(module, at).write()
    _add_entry(module, at)
    run = [("ptr", "arrays"), ("ptr", "arena"), ("ptr", "run")]
    module.function("weft_nothing", "i32", run, linkage="").do(f"ret i32 {Status.DONE}")
    return module.text()


def _add_failed(module: Module) -> None:
    """@failed(ptr failed, i64 status, ptr given): call the Python function for a status."""
    params = [("ptr", "failed"), ("i64", "status"), ("ptr", "given")]
    f = module.function("failed", "ptr", params, "nounwind noinline cold")
    number = f("call ptr @PyLong_FromLong(i64 %status)")
    with f.when(f(f"icmp eq ptr {number}, null")):
        _leave(f, "null")
    told = f.var("[2 x ptr]")
    f.do(f"store ptr {number}, ptr {told}")
    f.do(f"store ptr %given, ptr {_item(f, told, '1')}")
    result = f(f"call ptr @PyObject_Vectorcall(ptr %failed, ptr {told}, i64 2, ptr null)")
    f.do(f"call void @Py_DecRef(ptr {number})")
    f.do(f"ret ptr {result}")


@dataclass(frozen=True, slots=True)
class Tables:
    """Offsets of the tables of a call, in 8-byte words.

    arrays    addresses of the data of inputs, then of outputs: the argument of the run
    inputs    the arrays of inputs; the call holds references to them during the run
    results   for each output, the object that the call holds: its array if it becomes the value of
              an input, else its tensor
    reused    for each output, whether its tensor is reused
    replaced  the objects that results have replaced
    """

    arrays: str
    inputs: str
    results: str
    reused: str
    replaced: str

    @classmethod
    def at(cls, f: Function, start: str, n_in: str, n_out: str) -> Tables:
        inputs = _item(f, start, f(f"add i64 {n_in}, {n_out}"))
        results = _item(f, inputs, n_in)
        reused = _item(f, results, n_out)
        return cls(start, inputs, results, reused, _item(f, reused, n_out))


class _Call:
    """Emits `weft_call`, step by step."""

    def __init__(self, module: Module, at: Places) -> None:
        self.at = at
        params = [("ptr", "self"), ("ptr", "args"), ("i64", "count")]
        self.f = f = module.function("weft_call", "ptr", params, linkage="")
        self.table = _load(f, "ptr", "%self", at.buffer)
        self.known = {name: _load(f, "i64", self.table, 8 * i) for i, name in enumerate(FIELDS)}
        self.pointer = {name: f(f"inttoptr i64 {self.known[name]} to ptr") for name in FIELDS}

    def write(self) -> None:
        f, known, pointer = self.f, self.known, self.pointer
        with f.when(f("icmp ne i64 %count, 1")):
            self._fail(Status.INPUTS, pointer["none"])
        self.given = _load(f, "ptr", "%args", 0)
        size = f(f"call i64 @PyList_Size(ptr {self.given})")
        with f.when(f(f"icmp ne i64 {size}, {known['inputs']}")):
            f.do("call void @PyErr_Clear()")  # no list
            self._fail(Status.INPUTS)
        with f.when(f(f"icmp eq i64 {known['memory']}, 0")):
            self._fail(Status.TAKEN)
        self.n_in, self.n_out = known["inputs"], known["outputs"]
        self.tables = Tables.at(f, pointer["memory"], self.n_in, self.n_out)
        self.items = _load(f, "ptr", self.given, self.at.items)
        self._look_at_inputs()
        self.claim = f(f"getelementptr i64, ptr {self.table}, i64 {FIELDS.index('memory')}")
        f.do(f"store i64 0, ptr {self.claim}")

        made = self._make_results()
        arena = f(f"getelementptr i8, ptr {pointer['memory']}, i64 {known['tables']}")
        state = f("call ptr @PyEval_SaveThread()")
        run = f"ptr {self.tables.arrays}, ptr {arena}, ptr {pointer['run']}"
        status = f(f"call i32 {pointer['entry']}({run})")
        f.do(f"call void @PyEval_RestoreThread(ptr {state})")
        with f.when(f(f"icmp ne i32 {status}, 0")):
            self._undo(made, self.n_out, f(f"sext i32 {status} to i64"))
        replaced = self._deliver(made)
        self._drop_all(self.tables.inputs, self.n_in)
        with f.loop("0", replaced) as i:
            self._drop(f(f"load ptr, ptr {_item(f, self.tables.replaced, i)}"))
        f.do(f"store i64 {known['memory']}, ptr {self.claim}")
        f.do(f"ret ptr {made}")

    # --- what it is given -----------------------------------------------------------------------

    def _look_at_inputs(self) -> None:
        """Check that inputs are tensors with dense arrays, and hold references to the arrays."""
        f, at, pointer = self.f, self.at, self.pointer
        bits = f.var("i32", "-1")
        other = f.var("ptr", pointer["tensor"])  # the tensor class that was seen last
        with f.loop("0", self.n_in) as i:
            tensor = f(f"load ptr, ptr {_item(f, self.items, i)}")
            kind = _load(f, "ptr", tensor, at.kind)
            plain = f(f"icmp eq ptr {kind}, {pointer['tensor']}")
            seen = f(f"icmp eq ptr {kind}, {f.get('ptr', other)}")
            with f.when(f(f"xor i1 {f(f'or i1 {plain}, {seen}')}, true")):
                self._fail_unless_subtype(kind, pointer["tensor"])
                f.set("ptr", other, kind)
            array = _load(f, "ptr", tensor, at.tensor_data)
            with f.when(f(f"icmp eq ptr {array}, null")):
                self._fail(Status.INPUTS)
            family = _load(f, "ptr", array, at.kind)
            with f.when(f(f"icmp ne ptr {family}, {pointer['array']}")):
                self._fail_unless_subtype(family, pointer["array"])
            f.do(f"store ptr {array}, ptr {_item(f, self.tables.inputs, i)}")
            data = _load(f, "ptr", array, at.data)
            f.do(f"store ptr {data}, ptr {_item(f, self.tables.arrays, i)}")
            flags = _load(f, "i32", array, at.flags)
            f.set("i32", bits, f(f"and i32 {f.get('i32', bits)}, {flags}"))
        dense = f(f"and i32 {f.get('i32', bits)}, {_DENSE}")
        with f.when(f(f"icmp ne i32 {dense}, {_DENSE}")):
            self._fail(Status.LAYOUT)
        with f.loop("0", self.n_in) as i:
            array = f(f"load ptr, ptr {_item(f, self.tables.inputs, i)}")
            self._hold(array)

    def _fail_unless_subtype(self, kind: str, of: str) -> None:
        f = self.f
        found = f(f"call i32 @PyType_IsSubtype(ptr {kind}, ptr {of})")
        with f.when(f(f"icmp eq i32 {found}, 0")):
            self._fail(Status.INPUTS)

    # --- results --------------------------------------------------------------------------------

    def _make_results(self) -> str:
        """Create the returned list, and arrays and tensors of results that nobody else sees yet."""
        f, at = self.f, self.at
        made = f(f"call ptr @PyList_New(i64 {self.known['listed']})")
        with f.when(f(f"icmp eq ptr {made}, null")):
            f.do("call void @PyErr_Clear()")
            self._undo(made, "0", str(Status.NO_ROOM))
        with f.loop("0", self.n_out) as i:
            row = _row(f, self.pointer["results"], i)
            array, tensor = f.var("ptr"), f.var("ptr")
            f.set("ptr", array, "null")
            f.set("ptr", tensor, "null")
            with f.when(f(f"icmp ne i64 {row['again']}, 0")):
                self._use_again(self._spares(i), array, tensor)
            reused = f(f"icmp ne ptr {f.get('ptr', tensor)}, null")
            f.do(
                f"store i64 {f(f'zext i1 {reused} to i64')}, ptr {_item(f, self.tables.reused, i)}"
            )
            with f.when(f(f"icmp sge i64 {row['in_place']}, 0")):
                self._use_input(row["in_place"], array)
            with f.when(f(f"icmp eq ptr {f.get('ptr', array)}, null")):
                kind, shape = (f(f"inttoptr i64 {row[name]} to ptr") for name in ("dtype", "sizes"))
                f.do(f"call void @Py_IncRef(ptr {kind})")  # NumPy takes ownership
                axes = f(f"trunc i64 {row['ndim']} to i32")
                args = f"i32 {axes}, ptr {shape}, ptr {kind}, i32 0"
                f.set("ptr", array, f(f"call ptr {self.pointer['empty']}({args})"))
            found = f.get("ptr", array)
            with f.when(f(f"icmp eq ptr {found}, null")):
                f.do("call void @PyErr_Clear()")
                self._undo(made, i, str(Status.NO_ROOM))
            data = _load(f, "ptr", found, at.data)
            place = f(f"add i64 {self.n_in}, {i}")
            f.do(f"store ptr {data}, ptr {_item(f, self.tables.arrays, place)}")
            is_value = f(f"icmp eq i64 {row['role']}, {VALUE}")
            with f.when(is_value):
                f.set("ptr", tensor, found)
            with f.when(f(f"icmp eq ptr {f.get('ptr', tensor)}, null")):
                self._new_tensor(found, tensor, made, i)
            f.do(f"store ptr {f.get('ptr', tensor)}, ptr {_item(f, self.tables.results, i)}")
        return made

    def _use_again(self, spares: str, array: str, tensor: str) -> None:
        """Reuse an earlier result that nobody else holds; the call holds a reference to it.

        If only the array is free, because its tensor has another array now or is still in use, the
        array is taken out of the spares and gets a new tensor.
        """
        f, at, none = self.f, self.at, self.pointer["none"]
        for number in range(0, SPARES, 2):
            spare_at, own_at = (_item(f, spares, str(k)) for k in (number, number + 1))
            missing = f(f"icmp eq ptr {f.get('ptr', array)}, null")
            own = f(f"load ptr, ptr {own_at}")
            there = f(f"icmp ne ptr {own}, {none}")
            with f.when(f(f"and i1 {missing}, {there}")):
                spare = f(f"load ptr, ptr {spare_at}")
                holders = _load(f, "i64", own, at.count)
                both = f(
                    f"icmp eq i64 {holders}, 2"
                )  # references from its tensor and from the spares
                alone = f(f"icmp eq i64 {_load(f, 'i64', spare, at.count)}, 1")  # None never is
                with f.when(f(f"and i1 {both}, {alone}")):
                    same = f(f"icmp eq ptr {_load(f, 'ptr', spare, at.tensor_data)}, {own}")
                    unseen = f(f"icmp eq ptr {_load(f, 'ptr', spare, at.tensor_weak)}, null")
                    with f.when(f(f"and i1 {same}, {unseen}")):
                        self._hold(spare)
                        f.set("ptr", tensor, spare)
                        f.set("ptr", array, own)
                with f.when(f(f"icmp eq i64 {holders}, 1")):
                    f.do(f"call void @Py_IncRef(ptr {none})")
                    f.do(f"store ptr {none}, ptr {own_at}")
                    f.set("ptr", array, own)

    def _use_input(self, number: str, array: str) -> None:
        """Use the array of an input, if only its tensor and this call hold it."""
        f, at = self.f, self.at
        old = f(f"load ptr, ptr {_item(f, self.tables.inputs, number)}")
        alone = f(f"icmp eq i64 {_load(f, 'i64', old, at.count)}, 2")
        writeable = f(f"and i32 {_load(f, 'i32', old, at.flags)}, {_WRITEABLE}")
        with f.when(f(f"and i1 {alone}, {f(f'icmp ne i32 {writeable}, 0')}")):
            self._hold(old)
            f.set("ptr", array, old)

    def _new_tensor(self, array: str, tensor: str, made: str, i: str) -> None:
        """Create a tensor that takes ownership of an array."""
        f = self.f
        none = self.pointer["none"]
        new = f(f"call ptr @PyType_GenericAlloc(ptr {self.pointer['tensor']}, i64 0)")
        with f.when(f(f"icmp eq ptr {new}, null")):
            f.do("call void @PyErr_Clear()")
            self._drop(array)
            self._undo(made, i, str(Status.NO_ROOM))
        _store(f, array, new, self.at.tensor_data)
        f.do(f"call void @Py_IncRef(ptr {none})")
        _store(f, none, new, self.at.tensor_node)
        f.set("ptr", tensor, new)

    def _deliver(self, made: str) -> str:
        """Deliver the results; returns the number of objects that they replaced."""
        f, at, none = self.f, self.at, self.pointer["none"]
        count = f.var("i64", "0")

        def replace(place: str, new: str) -> None:
            number = f.get("i64", count)
            old = f(f"load ptr, ptr {place}")
            f.do(f"store ptr {old}, ptr {_item(f, self.tables.replaced, number)}")
            f.do(f"store ptr {new}, ptr {place}")
            f.set("i64", count, f(f"add i64 {number}, 1"))

        room = f.var("ptr", _load(f, "ptr", made, at.items))
        slot = f.var("ptr")
        with f.loop("0", self.n_out) as i:
            row = _row(f, self.pointer["results"], i)
            result = f(f"load ptr, ptr {_item(f, self.tables.results, i)}")
            with f.when(f(f"icmp ne i64 {row['again']}, 0")):
                reused = f(f"load i64, ptr {_item(f, self.tables.reused, i)}")
                with f.when(f(f"icmp ne i64 {reused}, 0")):
                    for place, new in ((at.tensor_node, none), (at.tensor_grad, "null")):
                        old = _load(f, "ptr", result, place)
                        with f.when(f(f"icmp ne ptr {old}, {new}")):
                            f.do(f"call void @Py_IncRef(ptr {new})")
                            replace(f(f"getelementptr i8, ptr {result}, i64 {place}"), new)
                with f.when(f(f"icmp eq i64 {reused}, 0")):
                    self._keep(i, row["role"], result, replace)
            listed = f(f"icmp eq i64 {row['role']}, {LISTED}")
            with f.when(listed):
                f.set("ptr", slot, f.get("ptr", room))
                f.set("ptr", room, _item(f, f.get("ptr", room), "1"))
            with f.when(f(f"xor i1 {listed}, true")):
                to = f(f"load ptr, ptr {_item(f, self.items, row['to'])}")
                is_value = f(f"icmp eq i64 {row['role']}, {VALUE}")
                where = f(f"select i1 {is_value}, i64 {at.tensor_data}, i64 {at.tensor_grad}")
                f.set("ptr", slot, f(f"getelementptr i8, ptr {to}, i64 {where}"))
            replace(f.get("ptr", slot), result)
        return f.get("i64", count)

    def _keep(self, i: str, role: str, result: str, replace: Callable[[str, str], None]) -> None:
        """Make a new result the first spare. The last spare is dropped, or the first one if it has
        no array any more."""
        f, none = self.f, self.pointer["none"]
        tensor, array = f.var("ptr", none), f.var("ptr", result)
        with f.when(f(f"icmp ne i64 {role}, {VALUE}")):
            f.set("ptr", tensor, result)
            f.set("ptr", array, _load(f, "ptr", result, self.at.tensor_data))
        spares = self._spares(i)
        first_array = f(f"load ptr, ptr {_item(f, spares, '1')}")
        empty = f(f"icmp eq ptr {first_array}, {none}")
        goes = f(f"select i1 {empty}, i64 0, i64 {SPARES - 2}")
        for number, kept in ((0, tensor), (1, array)):
            first = _item(f, spares, str(number))
            thing = f.get("ptr", kept)
            f.do(f"call void @Py_IncRef(ptr {thing})")
            replace(_item(f, first, goes), f(f"load ptr, ptr {first}"))
            f.do(f"store ptr {thing}, ptr {first}")

    def _spares(self, i: str) -> str:
        f = self.f
        items = _load(f, "ptr", self.pointer["spares"], self.at.items)
        return _item(f, items, f(f"mul i64 {i}, {SPARES}"))

    # --- ways out -------------------------------------------------------------------------------

    def _undo(self, made: str, results: str, status: str) -> None:
        """Release everything, including this many results, and return what `failed` returns."""
        f = self.f
        self._drop_all(self.tables.results, results)
        self._drop(made)
        self._drop_all(self.tables.inputs, self.n_in)
        f.do(f"store i64 {self.known['memory']}, ptr {self.claim}")
        self._fail(status)

    def _fail(self, status: str | int, given: str | None = None) -> None:
        f = self.f
        args = f"ptr {self.pointer['failed']}, i64 {status}, ptr {given or self.given}"
        _leave(f, f(f"call ptr @failed({args})"))

    def _hold(self, thing: str) -> None:
        """`Py_IncRef` of an array or a tensor: neither is ever immortal."""
        f, place = self.f, self.at.count
        count = f(f"add i64 {_load(f, 'i64', thing, place)}, 1")
        f.do(f"store i64 {count}, ptr {f(f'getelementptr i8, ptr {thing}, i64 {place}')}")

    def _drop_all(self, things: str, count: str) -> None:
        f = self.f
        with f.loop("0", count) as i:
            self._drop(f(f"load ptr, ptr {_item(f, things, i)}"))

    def _drop(self, thing: str) -> None:
        self.f.do(f"call void @Py_DecRef(ptr {thing})")  # may be null


def _add_entry(module: Module, at: Places) -> None:
    """Emits `weft_entry`, which runs without the GIL on lists that only the caller has."""
    params = [("ptr", "plan"), ("ptr", "inputs"), ("ptr", "outputs"), ("ptr", "memory")]
    f = module.function("weft_entry", "i32", params, linkage="")
    known: Mapping[str, str] = {
        name: _load(f, "i64", "%plan", 8 * i) for i, name in enumerate(PLAN)
    }
    entry, run, array_type = (
        f(f"inttoptr i64 {known[name]} to ptr") for name in ("entry", "run", "array")
    )
    all_good = f.var("i1", "true")
    for side, first in (("inputs", "0"), ("outputs", known["inputs"])):
        items = _load(f, "ptr", f"%{side}", at.items)
        with f.loop("0", known[side]) as i:
            array = f(f"load ptr, ptr {_item(f, items, i)}")
            same = f(f"icmp eq ptr {_load(f, 'ptr', array, at.kind)}, {array_type}")
            f.set("i1", all_good, f(f"and i1 {f.get('i1', all_good)}, {same}"))
            with f.when(same):
                flags = f(f"and i32 {_load(f, 'i32', array, at.flags)}, {_DENSE}")
                dense = f(f"icmp eq i32 {flags}, {_DENSE}")
                f.set("i1", all_good, f(f"and i1 {f.get('i1', all_good)}, {dense}"))
                data = _load(f, "ptr", array, at.data)
                f.do(f"store ptr {data}, ptr {_item(f, '%memory', f(f'add i64 {i}, {first}'))}")
    with f.when(f(f"xor i1 {f.get('i1', all_good)}, true")):
        f.do(f"ret i32 {Status.LAYOUT}")
        f.block(f.fresh("never"))
    arena = f(f"getelementptr i8, ptr %memory, i64 {known['tables']}")
    f.do(f"ret i32 {f(f'call i32 {entry}(ptr %memory, ptr {arena}, ptr {run})')}")


# --- pieces --------------------------------------------------------------------------------------


def _row(f: Function, rows: str, i: str) -> dict[str, str]:
    row = f(f"getelementptr i64, ptr {rows}, i64 {f(f'mul i64 {i}, {len(RESULT)}')}")
    return {name: _load(f, "i64", row, 8 * j) for j, name in enumerate(RESULT)}


def _leave(f: Function, result: str) -> None:
    f.do(f"ret ptr {result}")
    f.block(f.fresh("never"))


def _load(f: Function, kind: str, base: str, at: int) -> str:
    return f(f"load {kind}, ptr {f(f'getelementptr i8, ptr {base}, i64 {at}')}")


def _store(f: Function, value: str, base: str, at: int) -> None:
    f.do(f"store ptr {value}, ptr {f(f'getelementptr i8, ptr {base}, i64 {at}')}")


def _item(f: Function, base: str, i: str) -> str:
    return f(f"getelementptr ptr, ptr {base}, i64 {i}")
