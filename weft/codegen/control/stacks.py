"""Stacks in generated code: linked cells, so that a push does not change the stack below.

A stack is the address of its top cell; null if it is empty:

    0   kind    an element, endless zeros, the sum of two stacks, or one element among zeros
    8   a       the cell below; a summand; the address of the one element
    16  b       the other summand; how many zeros are above the one element
    64  the element
"""

from __future__ import annotations

from weft.base.dim_algebra import Dim
from weft.base.dims import has_dims
from weft.codegen.contract import ELEMENT, ONLY, PAYLOAD, SUM, ZEROS, Status
from weft.codegen.control.heap import heap
from weft.codegen.elementwise import emit, has_emitter, load, memory_type, store
from weft.codegen.index import Ptr, Size
from weft.codegen.text import Function, Module
from weft.ir.types import StackType, TensorType, Type
from weft.schedule.late import BOX
from weft.schedule.memory import size_of_type

__all__ = ["element_bytes", "is_boxed", "new_cell", "only_cell", "pop", "push", "set_only"]
__all__ += ["size_of_type", "zeros_cell"]

_POP = [("ptr", "run"), ("ptr", "stack"), ("ptr", "below"), ("ptr", "top")]


def zeros_cell(module: Module) -> str:
    """The address of the stack that pops zeros forever."""
    module.variable("zeros_cell", "[8 x i64]", f"[i64 {ZEROS}{', i64 0' * 7}]")
    return "@zeros_cell"


def new_cell(f: Function, kind: int, a: str, b: str, size: int = 0) -> Ptr:
    """A cell with space for `size` bytes of an element; the function returns if memory runs out."""
    name = heap(f.module)
    cell = f.ptr(f(f"call ptr @{name}(ptr %run, i64 {f.size(PAYLOAD + size)})"))
    with f.when(f(f"icmp eq ptr {cell}, null")):
        f.do(f"ret i32 {Status.OUT_OF_MEMORY}")
        f.block(f.fresh("never"))
    cell.of("i64").store(kind)
    _first(cell).store(a)
    _second(cell).store(b)
    return cell


def element_bytes(module: Module, kind: Type) -> int:
    """Bytes of an element in its cell: a value whose size depends on data is a box."""
    return BOX if is_boxed(module, kind) else size_of_type(kind)


def is_boxed(module: Module, kind: Type) -> bool:
    return isinstance(kind, TensorType) and module.sizes.is_late(size_of_type(kind))


def only_cell(f: Function, place: Size, size: int = 0) -> Ptr:
    """A stack of zeros with one other element below `place` zeros; where that lies is not set."""
    cell = new_cell(f, ONLY, "null", "null", size)
    _second(cell).of("i64").store(place)
    return cell


def set_only(cell: Ptr, element: Ptr) -> None:
    """Say where the one element among zeros lies."""
    _first(cell).store(element)


def _first(cell: Ptr) -> Ptr:
    return cell.bytes(8).of("ptr")


def _second(cell: Ptr) -> Ptr:
    return cell.bytes(16).of("ptr")


def push(f: Function, below: str, element: Ptr, size: int) -> Ptr:
    """A stack with a copy of an element on top of another stack."""
    cell = new_cell(f, ELEMENT, below, "null", size)
    copy(f, cell.bytes(PAYLOAD), element, size)
    return cell


def copy(f: Function, to: Ptr, source: Ptr, size: int) -> None:
    if f.module.team is not None:
        f.module.team.copy(f, to, source, size)
        return
    name = f.module.declare("void", "llvm.memcpy.p0.p0.i64", "ptr, ptr, i64, i1")
    f.do(f"call void @{name}(ptr {to}, ptr {source}, i64 {f.size(size)}, i1 false)")


def pop(module: Module, element: TensorType | StackType) -> str:
    """`i32 @pop(ptr run, ptr stack, ptr below, ptr top)` writes the stack below, and the top."""
    name = f"pop.{element}".replace("[", ".").replace("]", "").replace(",", "x")
    name = name.replace("<", ".").replace(">", "").replace("@", ".")
    if isinstance(element, StackType):
        if has_dims(element.innermost.shape):
            name = "pop.stack"  # an address, whatever lies there
    elif is_boxed(module, element):
        name = "pop.box"
    elif isinstance(element.nbytes, Dim):  # all depends on the dtype and the size
        name = f"pop.{element.dtype.short}.size{module.sizes.slot(element.nbytes)}"
    return module.once(name, lambda m: _pop(m, name, element))


def _pop(module: Module, name: str, element: TensorType | StackType) -> None:
    """A sum pops its summands one after the other, from the left. There may be thousands, so
    pending ones are kept in a list of cells rather than by recursion."""
    one = _pop_one(module, name, element)
    f = module.function(name, "i32", _POP, "nounwind noinline")
    size = element_bytes(module, element)
    waiting, part, below, rest = (
        f.var("ptr", start) for start in ("null", "%stack", "null", "null")
    )
    is_first = f.var("i1", "true")
    with f.when(f("icmp eq ptr %stack, null")):
        f.do(f"ret i32 {Status.FAILED}")
        f.block(f.fresh("never"))
    with f.when(f(f"icmp ne i64 {f.ptr('%stack', 'i64').load()}, {SUM}")):
        f.do(f"ret i32 {f(f'call i32 @{one}(ptr %run, ptr %stack, ptr %below, ptr %top)')}")
        f.block(f.fresh("never"))
    if is_boxed(module, element):
        f.do(f"ret i32 {Status.SIZES}")
        return
    other = f.ptr(f(f"call ptr @{heap(module)}(ptr %run, i64 {f.size(size)})"))
    with f.when(f(f"icmp eq ptr {other}, null")):
        f.do(f"ret i32 {Status.OUT_OF_MEMORY}")
        f.block(f.fresh("never"))
    look, down, leaf, following, end = (
        f.fresh(word) for word in ("look", "down", "leaf", "following", "end")
    )
    f.jump(look)
    f.block(look)
    now = part.load_ptr("ptr")
    with f.when(f(f"icmp eq ptr {now}, null")):
        f.do(f"ret i32 {Status.FAILED}")
        f.block(f.fresh("never"))
    f.branch(f(f"icmp eq i64 {now.of('i64').load()}, {SUM}"), down, leaf)
    f.block(down)
    left, right = _first(now).load(), _second(now).load()
    waiting.store(new_cell(f, SUM, right, waiting.load()))
    part.store(left)
    f.jump(look)

    f.block(leaf)
    first = is_first.load()
    to = f(f"select i1 {first}, ptr %top, ptr {other}")
    status = f(f"call i32 @{one}(ptr %run, ptr {now}, ptr {rest}, ptr {to})")
    with f.when(f(f"icmp ne i32 {status}, 0")):
        f.do(f"ret i32 {status}")
        f.block(f.fresh("never"))
    with f.when(first):
        below.store(rest.load())
        is_first.store("false")
        f.jump(following)
        f.block(f.fresh("never"))
    below.store(new_cell(f, SUM, below.load(), rest.load()))
    _add_to_top(f, element, other)
    f.jump(following)
    f.block(following)
    after = waiting.load_ptr("ptr")
    with f.when(f(f"icmp eq ptr {after}, null")):
        f.jump(end)
        f.block(f.fresh("never"))
    part.store(_first(after).load())
    waiting.store(_second(after).load())
    f.jump(look)
    f.block(end)
    f.ptr("%below", "ptr").store(below.load())
    f.do("ret i32 0")


def _pop_one(module: Module, name: str, element: TensorType | StackType) -> str:
    """The same for a stack that is not a sum."""
    size = element_bytes(module, element)
    f = module.function(f"{name}.one", "i32", _POP, "nounwind noinline")
    stack, below, top = f.ptr("%stack", "ptr"), f.ptr("%below", "ptr"), f.ptr("%top")
    kind, a = stack.of("i64").load(), _first(stack).load_ptr()
    with _case(f, kind, ELEMENT):
        below.store(a)
        copy(f, top, stack.bytes(PAYLOAD), size)
        _done(f)
    if is_boxed(module, element):  # zeros of an unknown size
        f.do(f"ret i32 {Status.SIZES}")
        return f.name
    with _case(f, kind, ZEROS):
        below.store(stack)
        _zero(f, element, size)
        _done(f)
    # One element among zeros.
    place = _second(stack).of("i64").load_index()
    with f.when(f(f"icmp eq i64 {place}, 0")):
        below.store(zeros_cell(module))
        copy(f, top, a, size)
        _done(f)
    less = only_cell(f, place - 1)
    set_only(less, a)
    below.store(less)
    _zero(f, element, size)
    f.do("ret i32 0")
    return f.name


def _add_to_top(f: Function, element: Type, other: Ptr) -> None:
    top = f.ptr("%top")
    if isinstance(element, StackType):
        top = top.of("ptr")
        top.store(new_cell(f, SUM, top.load(), other.of("ptr").load()))
        return
    assert isinstance(element, TensorType)
    if not has_emitter("add", [element.dtype] * 2, element.dtype):
        f.do(f"ret i32 {Status.FAILED}")  # never needed: such elements have no gradients
        f.block(f.fresh("never"))
        return
    dtype, kind, team = element.dtype, memory_type(element.dtype), f.module.team
    with f.loop(0, element.size) if team is None else team.each(f, element.size) as i:
        to, more = top.of(kind) + i, other.of(kind) + i
        given = [(dtype, load(f, dtype, to, 1)), (dtype, load(f, dtype, more, 1))]
        made = emit(f, "add", given, dtype, 1, {})
        assert made is not None
        store(f, dtype, to, made, 1)
    if team is not None:
        team.wait(f)


def _zero(f: Function, element: Type, size: int) -> None:
    if isinstance(element, StackType):
        f.ptr("%top", "ptr").store(zeros_cell(f.module))
        return
    if f.module.team is not None:
        f.module.team.clear(f, f.ptr("%top"), size)
        return
    name = f.module.declare("void", "llvm.memset.p0.i64", "ptr, i8, i64, i1")
    f.do(f"call void @{name}(ptr %top, i8 0, i64 {f.size(size)}, i1 false)")


def _case(f: Function, kind: str, number: int):  # type: ignore[no-untyped-def]
    return f.when(f(f"icmp eq i64 {kind}, {number}"))


def _done(f: Function) -> None:
    f.do("ret i32 0")
    f.block(f.fresh("never"))
