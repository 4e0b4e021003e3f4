"""Ops on stacks, and on lists that are stacks, emitted inline."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.base.dim_algebra import dim_max
from weft.base.dims import has_dims, is_zero
from weft.codegen.contract import ELEMENT, PAYLOAD, SUM, NotNative, Status
from weft.codegen.control.boxes import write_box
from weft.codegen.control.heap import heap
from weft.codegen.control.stacks import (
    copy,
    element_bytes,
    is_boxed,
    new_cell,
    only_cell,
    pop,
    push,
    set_only,
    size_of_type,
    zeros_cell,
)
from weft.codegen.index import Index, Ptr
from weft.codegen.text import Function
from weft.ir.graph import Node
from weft.ir.types import StackType, TensorType
from weft.schedule.late import BOX

__all__ = ["STACK_OPS"]

Check = Callable[[str], None]
Addresses = Sequence[Ptr]


def _top(address: Ptr) -> str:
    return address.of("ptr").load()


def _new(f: Function, _node: Node, _given: Addresses, out: Addresses, _check: Check) -> None:
    out[0].of("ptr").store("null")


def _zeros(f: Function, _node: Node, _given: Addresses, out: Addresses, _check: Check) -> None:
    out[0].of("ptr").store(zeros_cell(f.module))


def _push(f: Function, node: Node, given: Addresses, out: Addresses, _check: Check) -> None:
    kind = node.inputs[1].type
    size = size_of_type(kind)
    if not is_boxed(f.module, kind):
        out[0].of("ptr").store(push(f, _top(given[0]), given[1], size))
        return
    cell = new_cell(f, ELEMENT, _top(given[0]), "null", BOX + size)
    element = cell.bytes(PAYLOAD + BOX)
    write_box(f, cell.bytes(PAYLOAD), element, kind)
    copy(f, element, given[1], size)
    out[0].of("ptr").store(cell)


def _pop(f: Function, node: Node, given: Addresses, out: Addresses, check: Check) -> None:
    kind = node.inputs[0].type
    assert isinstance(kind, StackType)
    name = pop(f.module, kind.element)
    stack = _top(given[0])
    below, top = out
    if below.name == "null":
        below = f.var("i8", count=64)
    if top.name == "null":
        top = _room(f, element_bytes(f.module, kind.element))
    check(f(f"call i32 @{name}(ptr %run, ptr {stack}, ptr {below}, ptr {top})"))


def _room(f: Function, size: int) -> Ptr:
    """Memory for an element that nothing reads."""
    if not has_dims((size,)):
        return f.var("i8", count=size, align=16)
    made = f.ptr(f(f"call ptr @{heap(f.module)}(ptr %run, i64 {f.size(size)})"))
    with f.when(f(f"icmp eq ptr {made}, null")):
        f.do(f"ret i32 {Status.OUT_OF_MEMORY}")
        f.block(f.fresh("never"))
    return made


def _add(f: Function, _node: Node, given: Addresses, out: Addresses, _check: Check) -> None:
    out[0].of("ptr").store(new_cell(f, SUM, _top(given[0]), _top(given[1])))


def _fixed(f: Function, node: Node) -> None:
    """Lists whose elements have sizes that depend on data are left to the interpreter."""
    for value in (*node.inputs, *node.outputs):
        kind = value.type.element if isinstance(value.type, StackType) else value.type
        if isinstance(value.type, StackType) and is_boxed(f.module, kind):
            raise NotNative(f"{node.op.name} of values whose sizes depend on data")


def list_length(f: Function, node: Node, given: Addresses) -> Index:
    """The length of a list that `list_all` stacks."""
    return _integer(f, node, 1, given[1])


def _all(f: Function, node: Node, given: Addresses, out: Addresses, check: Check) -> None:
    count = node.out.tensor_type.shape[0]
    is_empty = f(f"icmp slt i64 {f.size(count)}, 1")
    check(f(f"select i1 {is_empty}, i32 {Status.FAILED}, i32 0"))
    _pop_rows(f, node, count, given, out, check)


def _only(f: Function, node: Node, given: Addresses, out: Addresses, _check: Check) -> None:
    _fixed(f, node)
    size = size_of_type(node.inputs[0].type)
    place = _integer(f, node, 1, given[1])
    cell = only_cell(f, place, size)
    element = cell.bytes(PAYLOAD)
    copy(f, element, given[0], size)
    set_only(cell, element)
    out[0].of("ptr").store(cell)


def _integer(f: Function, node: Node, at: int, address: Ptr) -> Index:
    kind = node.inputs[at].type
    assert isinstance(kind, TensorType)
    bits = kind.dtype.bits
    found = address.of(f"i{bits}").load()
    if bits < 64:
        found = f(f"{'sext' if kind.dtype.kind == 'int' else 'zext'} i{bits} {found} to i64")
    return f.index(found)


def _item(f: Function, node: Node, given: Addresses, out: Addresses, check: Check) -> None:
    _fixed(f, node)
    kind = node.inputs[0].type
    assert isinstance(kind, StackType)
    name = pop(f.module, kind.element)
    place = _integer(f, node, 1, given[1])
    negative = f(f"icmp slt i64 {place}, 0")
    check(f(f"select i1 {negative}, i32 {Status.FAILED}, i32 0"))
    stack = f.var("ptr", _top(given[0]))
    with f.loop(0, place + 1):
        now = stack.load()
        check(f(f"call i32 @{name}(ptr %run, ptr {now}, ptr {stack}, ptr {out[0]})"))


def _rows(f: Function, node: Node, given: Addresses, out: Addresses, check: Check) -> None:
    count = node.attrs["size"]
    if is_zero(count):
        check(str(Status.FAILED))
        return
    if f.module.sizes.is_late(count):
        is_empty = f(f"icmp slt i64 {f.size(count)}, 1")
        check(f(f"select i1 {is_empty}, i32 {Status.FAILED}, i32 0"))
    _pop_rows(f, node, count, given, out, check)


def _pop_rows(
    f: Function, node: Node, count: int, given: Addresses, out: Addresses, check: Check
) -> None:
    _fixed(f, node)
    kind = node.inputs[0].type
    assert isinstance(kind, StackType)
    name = pop(f.module, kind.element)
    size = size_of_type(kind.element)
    stack = f.var("ptr", _top(given[0]))
    with f.loop(0, count) as i:
        back = count - 1 - i
        row = out[0].bytes(back * size)
        now = stack.load()
        check(f(f"call i32 @{name}(ptr %run, ptr {now}, ptr {stack}, ptr {row})"))


def _of(f: Function, node: Node, given: Addresses, out: Addresses, _check: Check) -> None:
    _fixed(f, node)
    kind = node.inputs[0].type
    assert isinstance(kind, TensorType)
    count = kind.shape[0]
    size = size_of_type(kind) // dim_max(count, 1)
    stack = f.var("ptr", "null")
    with f.loop(0, count) as i:
        row = given[0].bytes(i * size)
        stack.store(push(f, stack.load(), row, size))
    out[0].of("ptr").store(stack.load())


def _nothing(f: Function, _node: Node, _given: Addresses, _out: Addresses, _check: Check) -> None:
    pass


#: By the name of the card: (f, node, addresses of operands, of results, check of a status).
STACK_OPS: dict[str, Callable[[Function, Node, Addresses, Addresses, Check], None]] = {
    "token": _nothing,
    "stack_new": _new,
    "stack_zeros": _zeros,
    "stack_push": _push,
    "stack_pop": _pop,
    "stack_add": _add,
    "list_only": _only,
    "list_all": _all,
    "list_item": _item,
    "list_rows": _rows,
    "list_of": _of,
}
