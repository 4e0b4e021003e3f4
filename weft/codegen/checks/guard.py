"""The functions of check mode that stand in the module itself.

    i64 @check.fault(ptr p, i64 bytes, i64 how, i64 place, ptr frame)     0, or what is wrong
    ptr @check.access(the same)           p, or room that nobody uses where p is wrong
    ptr @check.masked(ptr p, i64 size, i64 lanes, i64 how, i64 place, ptr frame)   of a lane's size
    ptr @check.lane(ptr p, i1 on, …)      of one lane of a gather or scatter
    i64 @check.span(ptr p, i64 bytes, …)  the bytes, or 0 where they are wrong
    void @check.fill(ptr p, i64 bytes, i64 word, i64 step)    poison
    i64 @check.scan.N(ptr p, i64 count, i64 word, i64 step)   the first element with poison, or -1

`how` is 1 for writes, plus twice the alignment, plus 2**32 times the entry of the buffer that the
pointer was made of (see `frames`): only that one counts then, and 0 is any. A wrong access is noted
in the table of the kernel's call and goes to `@check.sink`: nothing is damaged, and the kernel ends
as it would.
"""

from __future__ import annotations

from weft.codegen.checks.frames import (
    ADDRESS,
    BEYOND,
    BYTES,
    COUNT,
    ENTRIES,
    FAULT,
    KERNEL,
    MISALIGNED,
    OWN,
    PARENT,
    PLACE,
    READ_ONLY,
)
from weft.codegen.index import Ptr, Size
from weft.codegen.text import Function, Module

__all__ = ["SINK", "add_guard", "fill", "scan"]

#: Size of the buffer that wrong accesses are redirected to; no single access is larger.
SINK = 8192
_ATTRS = "nounwind noinline"
_LOOKED_UP = [("i64", "how"), ("i64", "place"), ("ptr", "frame")]
_PASSED_ON = "i64 %how, i64 %place, ptr %frame"


def add_guard(module: Module) -> None:
    module.variable("check.sink", f"[{SINK} x i8]", "zeroinitializer, align 64")
    _fault(module)
    f = module.function(
        "check.access", "ptr", [("ptr", "p"), ("i64", "bytes"), *_LOOKED_UP], _ATTRS
    )
    _or_sink(f, f.ptr("%p"), f.index("%bytes"))
    f = module.function(
        "check.lane", "ptr", [("ptr", "p"), ("i1", "on"), ("i64", "bytes"), *_LOOKED_UP], _ATTRS
    )
    _return_where(f, f("xor i1 %on, true"), "ptr %p")
    _or_sink(f, f.ptr("%p"), f.index("%bytes"))
    _masked(module)
    f = module.function("check.span", "i64", [("ptr", "p"), ("i64", "bytes"), *_LOOKED_UP], _ATTRS)
    _return_where(f, f("icmp eq i64 %bytes, 0"), "i64 0")
    fault = f(f"call i64 @check.fault(ptr %p, i64 %bytes, {_PASSED_ON})")
    right = f(f"icmp eq i64 {fault}, 0")
    f.do(f"ret i64 {f(f'select i1 {right}, i64 %bytes, i64 0')}")
    _fill(module)


def scan(module: Module, size: int) -> str:
    """The function that looks for elements of `size` bytes that are still poison."""
    return module.once(f"check.scan.{size}", lambda found: _scan(found, size))


def fill(f: Function, address: Ptr, size: Size, word: int, step: int) -> None:
    """Poison bytes; does nothing if the address is null."""
    f.do(f"call void @check.fill(ptr {address}, i64 {size}, i64 {word}, i64 {step})")


def _return_where(f: Function, condition: str, value: str) -> None:
    with f.when(condition):
        f.do(f"ret {value}")
        f.block(f.fresh("never"))


def _or_sink(f: Function, pointer: Ptr, size: Size) -> None:
    fault = f(f"call i64 @check.fault(ptr {pointer}, i64 {size}, {_PASSED_ON})")
    right = f(f"icmp eq i64 {fault}, 0")
    f.do(f"ret ptr {f(f'select i1 {right}, ptr %p, ptr @check.sink')}")


def _fault(module: Module) -> None:
    f = module.function("check.fault", "i64", [("ptr", "p"), ("i64", "bytes"), *_LOOKED_UP], _ATTRS)
    start = f("ptrtoint ptr %p to i64")
    end = f(f"add i64 {start}, %bytes")
    writes = f("trunc i64 %how to i1")
    align = f(f"lshr i64 {f('and i64 %how, 4294967295')}, 1")
    entry = f("lshr i64 %how, 32")
    is_any = f(f"icmp eq i64 {entry}, 0")
    is_own = f(f"icmp uge i64 {entry}, {OWN}")
    base = f(f"select i1 {is_own}, i64 {OWN}, i64 1")
    number = f.index(f(f"select i1 {is_any}, i64 0, i64 {f(f'sub i64 {entry}, {base}')}"))
    table, kind = f.var("ptr", "%frame"), f.var("i64", BEYOND)
    head, known, noted = (f.fresh(word) for word in ("head", "known", "noted"))
    f.jump(head)
    f.block(head)
    now = table.load_ptr("i64")
    _return_where(f, f(f"icmp eq ptr {now}, null"), "i64 0")  # outside of kernels
    kernel = f(f"icmp ne i64 {(now + KERNEL).load()}, 0")
    here = f(f"select i1 {is_own}, i1 {f(f'icmp eq ptr {now}, %frame')}, i1 {kernel}")
    one = f(f"select i1 {here}, i64 {number + 1}, i64 0")
    count = (now + COUNT).load()
    with f.loop(number, f.index(f(f"select i1 {is_any}, i64 {count}, i64 {one}"))) as i:
        row = now + (i * 3 + ENTRIES)
        first, beyond, writable = ((row + word).load() for word in range(3))
        inside = f(
            f"and i1 {f(f'icmp uge i64 {start}, {first}')}, {f(f'icmp ule i64 {end}, {beyond}')}"
        )
        with f.when(inside):
            allowed = f(f"or i1 {f(f'xor i1 {writes}, true')}, {f(f'icmp ne i64 {writable}, 0')}")
            with f.when(allowed):
                low = f(f"sub i64 {align}, 1")
                off = f(f"icmp ne i64 {f(f'and i64 {start}, {low}')}, 0")
                _return_where(f, f(f"xor i1 {off}, true"), "i64 0")
                kind.store(MISALIGNED)
                f.jump(known)
                f.block(f.fresh("never"))
            kind.store(READ_ONLY)
    f.jump(known)
    # The fault is recorded in the table of the kernel, the last of the list.
    f.block(known)
    last = table.load_ptr("i64")
    is_kernel = f(f"icmp ne i64 {(last + KERNEL).load()}, 0")
    further = f.fresh("further")
    f.branch(is_kernel, noted, further)
    f.block(further)
    table.store((last + PARENT).of("ptr").load())
    f.jump(head)
    f.block(noted)
    what = kind.load()
    pair = f(f"cmpxchg ptr {last + FAULT}, i64 0, i64 {what} monotonic monotonic")
    with f.when(f(f"extractvalue {{ i64, i1 }} {pair}, 1")):
        for word, value in ((ADDRESS, start), (BYTES, "%bytes"), (PLACE, "%place")):
            (last + word).store(value)
    f.do(f"ret i64 {what}")


def _masked(module: Module) -> None:
    """Check from the first active lane to the last."""
    params = [("ptr", "p"), ("i64", "size"), ("i64", "lanes"), *_LOOKED_UP]
    f = module.function("check.masked", "ptr", params, _ATTRS)
    _return_where(f, f("icmp eq i64 %lanes, 0"), "ptr %p")
    low = f.module.declare("i64", "llvm.cttz.i64", "i64, i1 immarg")
    high = f.module.declare("i64", "llvm.ctlz.i64", "i64, i1 immarg")
    first = f.index(f(f"call i64 @{low}(i64 %lanes, i1 true)"))
    after = 64 - f.index(f(f"call i64 @{high}(i64 %lanes, i1 true)"))
    size = f.index("%size")
    _or_sink(f, f.ptr("%p").bytes(first * size), (after - first) * size)


# --- poison --------------------------------------------------------------------------------------


def _poison(f: Function, at: Size) -> str:
    """The word at a position: the same everywhere, or, with a step, different at each."""
    return f(f"xor i64 %word, {f(f'mul i64 {at}, %step')}")


def _fill(module: Module) -> None:
    params = [("ptr", "p"), ("i64", "bytes"), ("i64", "word"), ("i64", "step")]
    f = module.function("check.fill", "void", params, _ATTRS)
    _return_where(f, f("icmp eq ptr %p, null"), "void")
    bytes_, p = f.index("%bytes"), f.ptr("%p", "i64")
    words = bytes_ // 8
    with f.loop(0, words) as i:
        (p + i).store(_poison(f, i), 1)
    last = _poison(f, words)
    done = words * 8
    with f.loop(done, bytes_) as i:
        byte = f(f"trunc i64 {f(f'lshr i64 {last}, {(i - done) * 8}')} to i8")
        (p.of("i8") + i).store(byte)
    f.do("ret void")


def _scan(module: Module, size: int) -> None:
    bits, kind = 8 * size, f"i{8 * size}"
    params = [("ptr", "p"), ("i64", "count"), ("i64", "word"), ("i64", "step"), ("i64", "loose")]
    f = module.function(f"check.scan.{size}", "i64", params, _ATTRS)
    _return_where(f, f("icmp eq ptr %p, null"), "i64 -1")
    with f.loop(0, f.index("%count")) as i:
        poison, loose = (
            word if bits == 64 else f(f"trunc i64 {word} to {kind}")
            for word in (_poison(f, i), "%loose")
        )
        found = (f.ptr("%p", kind) + i).load(1)
        differs = f(f"xor {kind} {found}, {poison}")
        others = f(f"and {kind} {differs}, {f(f'xor {kind} {loose}, -1')}")
        _return_where(f, f(f"icmp eq {kind} {others}, 0"), f"i64 {i}")
    f.do("ret i64 -1")
