"""Generates the machine code of calls: the work around a run, on lists of tensors or of arrays.

    ptr @weft_call(ptr self, ptr args, i64 count)            a builtin function, see `native_call`
    i32 @weft_entry(ptr plan, ptr inputs, ptr outputs, ptr memory)
    ptr @weft_sized_call(ptr self, ptr args, i64 count)      see `weft.runtime.sized_call_code`
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

from collections.abc import Callable
from dataclasses import dataclass

from weft.codegen.contract import Status
from weft.codegen.index import Index, Ptr, Size
from weft.codegen.machine import host
from weft.codegen.text import Module
from weft.runtime.object_fields import field_at, item_at, leave, pointer_at
from weft.runtime.object_layout import Places
from weft.runtime.output_routing import LISTED, VALUE
from weft.runtime.outputs import KEPT
from weft.runtime.sized_call_code import SIZED_CALL, add_sized_call

__all__ = [
    "CALL",
    "EXPORTS",
    "FIELDS",
    "PLAN",
    "REPLACES",
    "RESULT",
    "SPARES",
    "call_text",
    "table_bytes",
]

CALL = "weft_call"
EXPORTS = [CALL, "weft_entry", "weft_nothing", SIZED_CALL]
#: The fields of the table that `weft_call` reads, one word each.
FIELDS = (
    *("entry", "run", "memory", "tables", "inputs", "outputs", "results", "listed"),
    *("tensor", "array", "none", "failed", "empty", "spares"),
)
#: The same for `weft_entry`.
PLAN = ("entry", "run", "tables", "inputs", "outputs", "array")
#: The fields of a result: the input whose array it may be written to, or -1; its axes, sizes and
#: dtype; its role, and the input that it goes to; whether its array is reused: 0, 1, or `REPLACES`:
#: even that of the gradient which this one replaces.
RESULT = ("in_place", "ndim", "sizes", "dtype", "role", "to", "again")
#: Words for the spares of a reused result: for each, its tensor (None if it became the value of an
#: input) and its array.
SPARES = 2 * KEPT
REPLACES = 2
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
    add_sized_call(module, at)
    run = [("ptr", "arrays"), ("ptr", "arena"), ("ptr", "run")]
    module.function("weft_nothing", "i32", run, linkage="").do(f"ret i32 {Status.DONE}")
    return module.text()


def _add_failed(module: Module) -> None:
    """@failed(ptr failed, i64 status, ptr given): call the Python function for a status."""
    params = [("ptr", "failed"), ("i64", "status"), ("ptr", "given")]
    f = module.function("failed", "ptr", params, "nounwind noinline cold")
    number = f("call ptr @PyLong_FromLong(i64 %status)")
    with f.when(f(f"icmp eq ptr {number}, null")):
        leave(f, "null")
    told = f.var("ptr", count=2)
    told.store(number)
    (told + 1).store("%given")
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
    reused    for each output, whether its tensor is reused: 0, 1, or `REPLACES`
    replaced  the objects that results have replaced
    """

    arrays: Ptr
    inputs: Ptr
    results: Ptr
    reused: Ptr
    replaced: Ptr

    @classmethod
    def at(cls, start: Ptr, n_in: Index, n_out: Index) -> Tables:
        arrays = start.of("ptr")
        inputs = arrays + (n_in + n_out)
        results = inputs + n_in
        reused = results + n_out
        return cls(arrays, inputs, results, reused, reused + n_out)


class _Call:
    """Emits `weft_call`, step by step."""

    def __init__(self, module: Module, at: Places) -> None:
        self.at = at
        params = [("ptr", "self"), ("ptr", "args"), ("i64", "count")]
        self.f = f = module.function(CALL, "ptr", params, linkage="")
        self.table = pointer_at(f.ptr("%self"), at.buffer).of("i64")
        self.known = {name: (self.table + i).load_index() for i, name in enumerate(FIELDS)}
        self.pointer = {
            name: f.ptr(f(f"inttoptr i64 {self.known[name]} to ptr")) for name in FIELDS
        }

    def write(self) -> None:
        f, known, pointer = self.f, self.known, self.pointer
        with f.when(f("icmp ne i64 %count, 1")):
            self._fail(Status.INPUTS, pointer["none"])
        self.given = pointer_at(f.ptr("%args"))
        size = f(f"call i64 @PyList_Size(ptr {self.given})")
        with f.when(f(f"icmp ne i64 {size}, {known['inputs']}")):
            f.do("call void @PyErr_Clear()")  # no list
            self._fail(Status.INPUTS)
        with f.when(f(f"icmp eq i64 {known['memory']}, 0")):
            self._fail(Status.TAKEN)
        self.n_in, self.n_out = known["inputs"], known["outputs"]
        self.tables = Tables.at(pointer["memory"], self.n_in, self.n_out)
        self.items = pointer_at(self.given, self.at.items)
        self._look_at_inputs()
        self.claim = self.table + FIELDS.index("memory")
        self.claim.store(0)

        made = self._make_results()
        arena = pointer["memory"].bytes(known["tables"])
        state = f("call ptr @PyEval_SaveThread()")
        run = f"ptr {self.tables.arrays}, ptr {arena}, ptr {pointer['run']}"
        status = f(f"call i32 {pointer['entry']}({run})")
        f.do(f"call void @PyEval_RestoreThread(ptr {state})")
        with f.when(f(f"icmp ne i32 {status}, 0")):
            self._clear_gradients()
            self._undo(made, self.n_out, f(f"sext i32 {status} to i64"))
        replaced = self._deliver(made)
        self._drop_all(self.tables.inputs, self.n_in)
        with f.loop(0, replaced) as i:
            self._drop(item_at(self.tables.replaced, i))
        self.claim.store(known["memory"])
        f.do(f"ret ptr {made}")

    # --- what it is given -----------------------------------------------------------------------

    def _look_at_inputs(self) -> None:
        """Check that inputs are tensors with dense arrays, and hold references to the arrays."""
        f, at, pointer = self.f, self.at, self.pointer
        bits = f.var("i32", "-1")
        other = f.var("ptr", pointer["tensor"])  # the tensor class that was seen last
        with f.loop(0, self.n_in) as i:
            tensor = item_at(self.items, i)
            kind = pointer_at(tensor, at.kind)
            plain = f(f"icmp eq ptr {kind}, {pointer['tensor']}")
            seen = f(f"icmp eq ptr {kind}, {other.load_ptr()}")
            with f.when(f(f"xor i1 {f(f'or i1 {plain}, {seen}')}, true")):
                self._fail_unless_subtype(kind, pointer["tensor"])
                other.store(kind)
            array = pointer_at(tensor, at.tensor_data)
            with f.when(f(f"icmp eq ptr {array}, null")):
                self._fail(Status.INPUTS)
            family = pointer_at(array, at.kind)
            with f.when(f(f"icmp ne ptr {family}, {pointer['array']}")):
                self._fail_unless_subtype(family, pointer["array"])
            (self.tables.inputs + i).store(array)
            data = pointer_at(array, at.data)
            (self.tables.arrays + i).store(data)
            flags = field_at("i32", array, at.flags)
            bits.store(f(f"and i32 {bits.load()}, {flags}"))
        dense = f(f"and i32 {bits.load()}, {_DENSE}")
        with f.when(f(f"icmp ne i32 {dense}, {_DENSE}")):
            self._fail(Status.LAYOUT)
        with f.loop(0, self.n_in) as i:
            array = item_at(self.tables.inputs, i)
            self._hold(array)

    def _fail_unless_subtype(self, kind: Ptr, of: Ptr) -> None:
        f = self.f
        found = f(f"call i32 @PyType_IsSubtype(ptr {kind}, ptr {of})")
        with f.when(f(f"icmp eq i32 {found}, 0")):
            self._fail(Status.INPUTS)

    # --- results --------------------------------------------------------------------------------

    def _make_results(self) -> Ptr:
        """Create the returned list, and arrays and tensors of results that nobody else sees yet."""
        f, at = self.f, self.at
        made = f.ptr(f(f"call ptr @PyList_New(i64 {self.known['listed']})"))
        with f.when(f(f"icmp eq ptr {made}, null")):
            f.do("call void @PyErr_Clear()")
            self._undo(made, 0, Status.NO_ROOM)
        with f.loop(0, self.n_out) as i:
            row = _row(self.pointer["results"], i)
            array, tensor = f.var("ptr"), f.var("ptr")
            array.store("null")
            tensor.store("null")
            with f.when(f(f"icmp ne i64 {row['again']}, 0")):
                self._use_again(self._spares(i), array, tensor)
            reused = f(f"icmp ne ptr {tensor.load_ptr()}, null")
            (self.tables.reused.of("i64") + i).store(f(f"zext i1 {reused} to i64"))
            with (
                f.when(f(f"icmp eq i64 {row['again']}, {REPLACES}")),
                f.when(f(f"icmp eq ptr {array.load_ptr()}, null")),
            ):
                self._use_replaced(i, row["to"], array, tensor)
            with f.when(f(f"icmp sge i64 {row['in_place']}, 0")):
                self._use_input(row["in_place"], array)
            with f.when(f(f"icmp eq ptr {array.load_ptr()}, null")):
                kind, shape = (f(f"inttoptr i64 {row[name]} to ptr") for name in ("dtype", "sizes"))
                f.do(f"call void @Py_IncRef(ptr {kind})")  # NumPy takes ownership
                axes = f(f"trunc i64 {row['ndim']} to i32")
                args = f"i32 {axes}, ptr {shape}, ptr {kind}, i32 0"
                array.store(f(f"call ptr {self.pointer['empty']}({args})"))
            found = array.load_ptr()
            with f.when(f(f"icmp eq ptr {found}, null")):
                f.do("call void @PyErr_Clear()")
                self._undo(made, i, Status.NO_ROOM)
            data = pointer_at(found, at.data)
            (self.tables.arrays + (self.n_in + i)).store(data)
            is_value = f(f"icmp eq i64 {row['role']}, {VALUE}")
            with f.when(is_value):
                tensor.store(found)
            with f.when(f(f"icmp eq ptr {tensor.load_ptr()}, null")):
                self._new_tensor(found, tensor, made, i)
            (self.tables.results + i).store(tensor.load())
        return made

    def _use_again(self, spares: Ptr, array: Ptr, tensor: Ptr) -> None:
        """Reuse an earlier result that nobody else holds; the call holds a reference to it.

        If only the array is free, because its tensor has another array now or is still in use, the
        array is taken out of the spares and gets a new tensor.
        """
        f, at, none = self.f, self.at, self.pointer["none"]
        for number in range(0, SPARES, 2):
            spare_at, own_at = spares + number, spares + (number + 1)
            missing = f(f"icmp eq ptr {array.load()}, null")
            own = own_at.load_ptr()
            there = f(f"icmp ne ptr {own}, {none}")
            with f.when(f(f"and i1 {missing}, {there}")):
                spare = spare_at.load_ptr()
                holders = field_at("i64", own, at.count)
                both = f(f"icmp eq i64 {holders}, 2")  # its tensor and the spares
                alone = f(f"icmp eq i64 {field_at('i64', spare, at.count)}, 1")  # None never is
                with f.when(f(f"and i1 {both}, {alone}")):
                    same = f(f"icmp eq ptr {pointer_at(spare, at.tensor_data)}, {own}")
                    unseen = f(f"icmp eq ptr {pointer_at(spare, at.tensor_weak)}, null")
                    with f.when(f(f"and i1 {same}, {unseen}")):
                        self._hold(spare)
                        tensor.store(spare)
                        array.store(own)
                with f.when(f(f"icmp eq i64 {holders}, 1")):
                    f.do(f"call void @Py_IncRef(ptr {none})")
                    own_at.store(none)
                    array.store(own)

    def _use_replaced(self, i: Index, to: Index, array: Ptr, tensor: Ptr) -> None:
        """Reuse the gradient that this result replaces, if it is the first spare, and nobody else
        holds it. The program does not read it: inputs are held."""
        f, at = self.f, self.at
        spares = self._spares(i)
        spare, own = spares.load_ptr(), (spares + 1).load_ptr()
        gradient = pointer_at(item_at(self.items, to), at.tensor_grad)
        there = f(f"icmp ne ptr {own}, {self.pointer['none']}")
        is_gradient = f(f"icmp eq ptr {gradient}, {spare}")
        with f.when(f(f"and i1 {there}, {is_gradient}")):
            counts = ((spare, 2), (own, 2))  # the input and the spares; the tensor and the spares
            alone = [f(f"icmp eq i64 {field_at('i64', x, at.count)}, {n}") for x, n in counts]
            same = f(f"icmp eq ptr {pointer_at(spare, at.tensor_data)}, {own}")
            unseen = f(f"icmp eq ptr {pointer_at(spare, at.tensor_weak)}, null")
            both, free = f(f"and i1 {alone[0]}, {alone[1]}"), f(f"and i1 {same}, {unseen}")
            with f.when(f(f"and i1 {both}, {free}")):
                self._hold(spare)
                tensor.store(spare)
                array.store(own)
                (self.tables.reused.of("i64") + i).store(REPLACES)

    def _clear_gradients(self) -> None:
        """Remove gradients that a run has perhaps overwritten before it failed."""
        f = self.f
        with f.loop(0, self.n_out) as i:
            reused = (self.tables.reused.of("i64") + i).load()
            with f.when(f(f"icmp eq i64 {reused}, {REPLACES}")):
                to = item_at(self.items, _row(self.pointer["results"], i)["to"])
                place = to.bytes(self.at.tensor_grad).of("ptr")
                self._drop(place.load_ptr())  # the call holds it, too
                place.store("null")

    def _use_input(self, number: Index, array: Ptr) -> None:
        """Use the array of an input, if only its tensor and this call hold it."""
        f, at = self.f, self.at
        old = item_at(self.tables.inputs, number)
        alone = f(f"icmp eq i64 {field_at('i64', old, at.count)}, 2")
        writeable = f(f"and i32 {field_at('i32', old, at.flags)}, {_WRITEABLE}")
        with f.when(f(f"and i1 {alone}, {f(f'icmp ne i32 {writeable}, 0')}")):
            self._hold(old)
            array.store(old)

    def _new_tensor(self, array: Ptr, tensor: Ptr, made: Ptr, i: Index) -> None:
        """Create a tensor that takes ownership of an array."""
        f = self.f
        none = self.pointer["none"]
        new = f.ptr(f(f"call ptr @PyType_GenericAlloc(ptr {self.pointer['tensor']}, i64 0)"))
        with f.when(f(f"icmp eq ptr {new}, null")):
            f.do("call void @PyErr_Clear()")
            self._drop(array)
            self._undo(made, i, Status.NO_ROOM)
        new.bytes(self.at.tensor_data).of("ptr").store(array)
        f.do(f"call void @Py_IncRef(ptr {none})")
        new.bytes(self.at.tensor_node).of("ptr").store(none)
        tensor.store(new)

    def _deliver(self, made: Ptr) -> Index:
        """Deliver the results; returns the number of objects that they replaced."""
        f, at, none = self.f, self.at, self.pointer["none"]
        count = f.var("i64", 0)

        def replace(place: Ptr, new: Ptr) -> None:
            number, place = count.load_index(), place.of("ptr")
            (self.tables.replaced + number).store(place.load())
            place.store(new)
            count.store(number + 1)

        room = f.var("ptr", pointer_at(made, at.items))
        slot = f.var("ptr")
        with f.loop(0, self.n_out) as i:
            row = _row(self.pointer["results"], i)
            result = item_at(self.tables.results, i)
            with f.when(f(f"icmp ne i64 {row['again']}, 0")):
                reused = (self.tables.reused.of("i64") + i).load()
                with f.when(f(f"icmp ne i64 {reused}, 0")):
                    for place, new in ((at.tensor_node, none), (at.tensor_grad, f.ptr("null"))):
                        old = pointer_at(result, place)
                        with f.when(f(f"icmp ne ptr {old}, {new}")):
                            f.do(f"call void @Py_IncRef(ptr {new})")
                            replace(result.bytes(place), new)
                with f.when(f(f"icmp eq i64 {reused}, 0")):
                    self._keep(i, row["role"], result, replace)
            listed = f(f"icmp eq i64 {row['role']}, {LISTED}")
            with f.when(listed):
                slot.store(room.load_ptr())
                room.store(room.load_ptr("ptr") + 1)
            with f.when(f(f"xor i1 {listed}, true")):
                to = item_at(self.items, row["to"])
                is_value = f(f"icmp eq i64 {row['role']}, {VALUE}")
                where = f(f"select i1 {is_value}, i64 {at.tensor_data}, i64 {at.tensor_grad}")
                slot.store(to.bytes(f.index(where)))
            replace(slot.load_ptr(), result)
        return count.load_index()

    def _keep(
        self, i: Index, role: Index, result: Ptr, replace: Callable[[Ptr, Ptr], None]
    ) -> None:
        """Make a new result the first spare. The last spare is dropped, or the first one if it has
        no array any more."""
        f, none = self.f, self.pointer["none"]
        tensor, array = f.var("ptr", none), f.var("ptr", result)
        with f.when(f(f"icmp ne i64 {role}, {VALUE}")):
            tensor.store(result)
            array.store(pointer_at(result, self.at.tensor_data))
        spares = self._spares(i)
        empty = f(f"icmp eq ptr {item_at(spares, 1)}, {none}")
        goes = f.index(f(f"select i1 {empty}, i64 0, i64 {SPARES - 2}"))
        for number, kept in ((0, tensor), (1, array)):
            first, thing = spares + number, kept.load_ptr()
            f.do(f"call void @Py_IncRef(ptr {thing})")
            replace(first + goes, first.load_ptr())
            first.store(thing)

    def _spares(self, i: Index) -> Ptr:
        items = pointer_at(self.pointer["spares"], self.at.items)
        return items.of("ptr") + i * SPARES

    # --- ways out -------------------------------------------------------------------------------

    def _undo(self, made: Ptr, results: Size, status: str | int) -> None:
        """Release everything, including this many results, and return what `failed` returns."""
        self._drop_all(self.tables.results, results)
        self._drop(made)
        self._drop_all(self.tables.inputs, self.n_in)
        self.claim.store(self.known["memory"])
        self._fail(status)

    def _fail(self, status: str | int, given: Ptr | None = None) -> None:
        f = self.f
        args = f"ptr {self.pointer['failed']}, i64 {status}, ptr {given or self.given}"
        leave(f, f(f"call ptr @failed({args})"))

    def _hold(self, thing: Ptr) -> None:
        """`Py_IncRef` of an array or a tensor: neither is ever immortal."""
        count = thing.bytes(self.at.count).of("i64")
        count.store(count.load_index() + 1)

    def _drop_all(self, things: Ptr, count: Size) -> None:
        f = self.f
        with f.loop(0, count) as i:
            self._drop(item_at(things, i))

    def _drop(self, thing: Ptr) -> None:
        self.f.do(f"call void @Py_DecRef(ptr {thing})")  # may be null


def _add_entry(module: Module, at: Places) -> None:
    """Emits `weft_entry`, which runs without the GIL on lists that only the caller has."""
    params = [("ptr", "plan"), ("ptr", "inputs"), ("ptr", "outputs"), ("ptr", "memory")]
    f = module.function("weft_entry", "i32", params, linkage="")
    plan = f.ptr("%plan", "i64")
    known = {name: (plan + i).load_index() for i, name in enumerate(PLAN)}
    entry, run, array_type = (
        f(f"inttoptr i64 {known[name]} to ptr") for name in ("entry", "run", "array")
    )
    all_good = f.var("i1", "true")
    for side, first in (("inputs", 0), ("outputs", known["inputs"])):
        items = pointer_at(f.ptr(f"%{side}"), at.items)
        with f.loop(0, known[side]) as i:
            array = item_at(items, i)
            same = f(f"icmp eq ptr {pointer_at(array, at.kind)}, {array_type}")
            all_good.store(f(f"and i1 {all_good.load()}, {same}"))
            with f.when(same):
                flags = f(f"and i32 {field_at('i32', array, at.flags)}, {_DENSE}")
                dense = f(f"icmp eq i32 {flags}, {_DENSE}")
                all_good.store(f(f"and i1 {all_good.load()}, {dense}"))
                data = pointer_at(array, at.data)
                (f.ptr("%memory", "ptr") + (i + first)).store(data)
    with f.when(f(f"xor i1 {all_good.load()}, true")):
        f.do(f"ret i32 {Status.LAYOUT}")
        f.block(f.fresh("never"))
    arena = f.ptr("%memory").bytes(known["tables"])
    f.do(f"ret i32 {f(f'call i32 {entry}(ptr %memory, ptr {arena}, ptr {run})')}")


def _row(rows: Ptr, i: Index) -> dict[str, Index]:
    row = rows.of("i64") + i * len(RESULT)
    return {name: (row + j).load_index() for j, name in enumerate(RESULT)}
