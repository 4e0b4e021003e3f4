"""Generates the machine code that finds the call for the sizes of some inputs.

    ptr @weft_sized_call(ptr self, ptr args, i64 count)

is a builtin function that takes a list of tensors, as `weft_call` does. It finds the call that was
kept for the shapes of these tensors in a table, and makes it; if there is none, it calls a Python
function. It checks that it has seen what it reads: any other object is left to that function.

The table has `SLOTS` slots, found by a hash of the sizes. A slot has a call (or 0), a number that
is stored where the program keeps which sizes ran last, and the sizes.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.codegen.index import Index, Ptr
from weft.codegen.text import Function, Module
from weft.runtime.object_fields import field_at, item_at, leave, pointer_at
from weft.runtime.object_layout import Places

__all__ = ["SIZED_CALL", "SIZED_FIELDS", "SLOTS", "hashed", "slot_words"]

SIZED_CALL = "weft_sized_call"
#: The fields of the table that it reads, one word each: the number of inputs; how many of them have
#: sizes of the run, and for each its place and its number of axes; the words of a slot; the slots;
#: the classes of tensors and arrays; the Python function; where to store the number.
SIZED_FIELDS = (
    *("inputs", "sized", "rows", "words", "slots"),
    *("tensor", "array", "missed", "latest"),
)
_BITS = 8
SLOTS = 1 << _BITS
#: An odd number with bits everywhere (2**64 over the golden ratio).
_FACTOR = 0x9E3779B97F4A7C15


def slot_words(axes: int) -> int:
    return 2 + axes


def hashed(sizes: Iterable[int]) -> int:
    """The slot of some sizes."""
    found = 0
    for size in sizes:
        found = (found ^ size) * _FACTOR & ((1 << 64) - 1)
    return found >> (64 - _BITS)


def add_sized_call(module: Module, at: Places) -> None:
    params = [("ptr", "self"), ("ptr", "args"), ("i64", "count")]
    f = module.function(SIZED_CALL, "ptr", params, linkage="")
    table = pointer_at(f.ptr("%self"), at.buffer).of("i64")
    known = {name: (table + i).load_index() for i, name in enumerate(SIZED_FIELDS)}
    address = {
        name: f.ptr(f(f"inttoptr i64 {known[name]} to ptr"))
        for name in ("rows", "slots", "tensor", "array", "missed", "latest")
    }

    def unless(condition: str) -> None:
        """Call the Python function unless this i1 holds."""
        with f.when(f(f"xor i1 {condition}, true")):
            _hand_on(f, address["missed"])

    unless(f("icmp eq i64 %count, 1"))
    given = pointer_at(f.ptr("%args"))
    size = f(f"call i64 @PyList_Size(ptr {given})")
    with f.when(f(f"icmp ne i64 {size}, {known['inputs']}")):
        f.do("call void @PyErr_Clear()")  # no list
        _hand_on(f, address["missed"])
    items = pointer_at(given, at.items)

    def sizes_of(i: Index) -> tuple[Ptr, Index]:
        """The sizes of an input, and how many there are."""
        row = address["rows"].of("i64") + i * 2
        place, axes = (row + 0).load_index(), (row + 1).load_index()
        array = pointer_at(item_at(items, place), at.tensor_data)
        return pointer_at(array, at.shape).of("i64"), axes

    found = f.var("i64", 0)
    with f.loop(0, known["sized"]) as i:
        row = address["rows"].of("i64") + i * 2
        tensor = item_at(items, row.load_index())
        unless(f(f"icmp eq ptr {pointer_at(tensor, at.kind)}, {address['tensor']}"))
        array = pointer_at(tensor, at.tensor_data)
        unless(f(f"icmp ne ptr {array}, null"))
        unless(f(f"icmp eq ptr {pointer_at(array, at.kind)}, {address['array']}"))
        axes = f(f"sext i32 {field_at('i32', array, at.ndim)} to i64")
        unless(f(f"icmp eq i64 {axes}, {(row + 1).load()}"))
        sizes, count = sizes_of(i)
        with f.loop(0, count) as axis:
            mixed = f(f"xor i64 {found.load()}, {(sizes + axis).load()}")
            found.store(f(f"mul i64 {mixed}, {_FACTOR - (1 << 64)}"))
    number = f.index(f(f"lshr i64 {found.load()}, {64 - _BITS}"))
    slot = address["slots"].of("i64") + number * known["words"]
    call = f.ptr(f(f"inttoptr i64 {slot.load()} to ptr"))
    unless(f(f"icmp ne ptr {call}, null"))
    word = f.var("i64", 2)
    with f.loop(0, known["sized"]) as i:
        sizes, count = sizes_of(i)
        with f.loop(0, count) as axis:
            at_word = word.load_index()
            unless(f(f"icmp eq i64 {(sizes + axis).load()}, {(slot + at_word).load()}"))
            word.store(at_word + 1)
    address["latest"].of("i64").store((slot + 1).load())
    f.do(f"call void @Py_IncRef(ptr {call})")  # another thread may forget it meanwhile
    made = f(f"call ptr @PyObject_Vectorcall(ptr {call}, ptr %args, i64 1, ptr null)")
    f.do(f"call void @Py_DecRef(ptr {call})")
    f.do(f"ret ptr {made}")


def _hand_on(f: Function, to: Ptr) -> None:
    leave(f, f(f"call ptr @PyObject_Vectorcall(ptr {to}, ptr %args, i64 %count, ptr null)"))
