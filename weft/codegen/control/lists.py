"""Ops on stacks, and on lists that are stacks, written where they stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.codegen.contract import ONLY, PAYLOAD, SUM, Status
from weft.codegen.control.stacks import copy, new_cell, pop, push, size_of_type, zeros_cell
from weft.codegen.text import Function
from weft.ir.graph import Node
from weft.ir.types import StackType, TensorType

__all__ = ["STACK_OPS"]

Check = Callable[[str], None]
Addresses = Sequence[str]


def _top(f: Function, address: str) -> str:
    return f(f"load ptr, ptr {address}")


def _new(f: Function, _node: Node, _given: Addresses, out: Addresses, _check: Check) -> None:
    f.do(f"store ptr null, ptr {out[0]}")


def _zeros(f: Function, _node: Node, _given: Addresses, out: Addresses, _check: Check) -> None:
    f.do(f"store ptr {zeros_cell(f.module)}, ptr {out[0]}")


def _push(f: Function, node: Node, given: Addresses, out: Addresses, _check: Check) -> None:
    size = size_of_type(node.inputs[1].type)
    f.do(f"store ptr {push(f, _top(f, given[0]), given[1], size)}, ptr {out[0]}")


def _pop(f: Function, node: Node, given: Addresses, out: Addresses, check: Check) -> None:
    kind = node.inputs[0].type
    assert isinstance(kind, StackType)
    name = pop(f.module, kind.element)
    stack = _top(f, given[0])
    below, top = (address if address != "null" else f.var("[64 x i8]") for address in out)
    if out[1] == "null":
        top = f.var(f"[{size_of_type(kind.element)} x i8]", align=16)
    check(f(f"call i32 @{name}(ptr %run, ptr {stack}, ptr {below}, ptr {top})"))


def _add(f: Function, _node: Node, given: Addresses, out: Addresses, _check: Check) -> None:
    cell = new_cell(f, SUM, _top(f, given[0]), _top(f, given[1]))
    f.do(f"store ptr {cell}, ptr {out[0]}")


def _only(f: Function, node: Node, given: Addresses, out: Addresses, _check: Check) -> None:
    size = size_of_type(node.inputs[0].type)
    place = _integer(f, node, 1, given[1])
    cell = new_cell(f, ONLY, "null", f(f"inttoptr i64 {place} to ptr"), size)
    element = f(f"getelementptr i8, ptr {cell}, i64 {PAYLOAD}")
    copy(f, element, given[0], size)
    f.do(f"store ptr {element}, ptr {f(f'getelementptr i8, ptr {cell}, i64 8')}")
    f.do(f"store ptr {cell}, ptr {out[0]}")


def _integer(f: Function, node: Node, at: int, address: str) -> str:
    kind = node.inputs[at].type
    assert isinstance(kind, TensorType)
    bits = kind.dtype.bits
    found = f(f"load i{bits}, ptr {address}")
    if bits == 64:
        return found
    return f(f"{'sext' if kind.dtype.kind == 'int' else 'zext'} i{bits} {found} to i64")


def _item(f: Function, node: Node, given: Addresses, out: Addresses, check: Check) -> None:
    kind = node.inputs[0].type
    assert isinstance(kind, StackType)
    name = pop(f.module, kind.element)
    place = _integer(f, node, 1, given[1])
    negative = f(f"icmp slt i64 {place}, 0")
    check(f(f"select i1 {negative}, i32 {Status.FAILED}, i32 0"))
    stack = f.var("ptr", _top(f, given[0]))
    with f.loop("0", f(f"add i64 {place}, 1")):
        now = f.get("ptr", stack)
        check(f(f"call i32 @{name}(ptr %run, ptr {now}, ptr {stack}, ptr {out[0]})"))


def _rows(f: Function, node: Node, given: Addresses, out: Addresses, check: Check) -> None:
    kind = node.inputs[0].type
    assert isinstance(kind, StackType)
    name = pop(f.module, kind.element)
    size, count = size_of_type(kind.element), int(node.attrs["size"])
    if not count:
        check(str(Status.FAILED))
        return
    stack = f.var("ptr", _top(f, given[0]))
    with f.loop("0", str(count)) as i:
        back = f(f"sub i64 {count - 1}, {i}")
        row = f(f"getelementptr i8, ptr {out[0]}, i64 {f(f'mul i64 {back}, {size}')}")
        now = f.get("ptr", stack)
        check(f(f"call i32 @{name}(ptr %run, ptr {now}, ptr {stack}, ptr {row})"))


def _of(f: Function, node: Node, given: Addresses, out: Addresses, _check: Check) -> None:
    kind = node.inputs[0].type
    assert isinstance(kind, TensorType)
    count = int(kind.shape[0])
    size = size_of_type(kind) // max(count, 1)
    stack = f.var("ptr", "null")
    with f.loop("0", str(count)) as i:
        row = f(f"getelementptr i8, ptr {given[0]}, i64 {f(f'mul i64 {i}, {size}')}")
        f.set("ptr", stack, push(f, f.get("ptr", stack), row, size))
    f.do(f"store ptr {f.get('ptr', stack)}, ptr {out[0]}")


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
    "list_item": _item,
    "list_rows": _rows,
    "list_of": _of,
}
