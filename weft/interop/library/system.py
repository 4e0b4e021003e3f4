"""Functions of a library that need its system: memory, files, what the processor can do."""

from __future__ import annotations

import re

from weft.codegen.text import Function
from weft.interop.library import layout as at
from weft.interop.library.functions import Functions, copy, fails
from weft.interop.library.status import LibraryStatus

__all__ = ["LIBC", "LIBM", "add_processor", "add_system"]

#: What libc gives, by name: results and parameters. All are functions of POSIX.
_LIBC = {
    "aligned_alloc": ("ptr", "i64, i64"),
    "free": ("void", "ptr"),
    "creat": ("i32", "ptr, i32"),
    "open": ("i32", "ptr, i32, ..."),
    "read": ("i64", "i32, ptr, i64"),
    "write": ("i64", "i32, ptr, i64"),
    "fsync": ("i32", "i32"),
    "close": ("i32", "i32"),
    "lseek": ("i64", "i32, i64, i32"),
    "rename": ("i32", "ptr, ptr"),
    "unlink": ("i32", "ptr"),
    "mmap": ("ptr", "ptr, i64, i32, i32, i32, i64"),
    "munmap": ("i32", "ptr, i64"),
}
LIBC = {*_LIBC, "memcpy", "memset", "memmove"}
#: What code may call of libm.
LIBM = frozenset(
    re.findall(
        r"\w+",
        "fma fmaf trunc truncf floor floorf ceil ceilf rint rintf nearbyint nearbyintf roundeven "
        "roundevenf round roundf sin cos tan sinf cosf tanf exp expf log logf pow powf fmod fmodf "
        "sqrt sqrtf ldexp ldexpf fmin fmax fminf fmaxf",
    )
)
_CHUNK = 1 << 30  # bytes that one read or write moves at most
_READ_WRITE, _PRIVATE = 3, 2  # of mmap
_SUFFIX = ".tmp"


class System:
    """Writes the functions for a target with files."""

    def __init__(self, functions: Functions) -> None:
        self.functions = functions
        self.module = functions.module
        self.library = functions.library
        self.layout = functions.layout
        self.header = f"@{functions.own('header')}"

    def call(self, f: Function, name: str, given: str) -> str:
        """Call a function of libc."""
        result, params = _LIBC[name]
        self.module.declare(result, name, params)
        kind = f"{result} ({params})" if params.endswith("...") else result
        if result == "void":
            f.do(f"call void @{name}({given})")
            return ""
        return f(f"call {kind} @{name}({given})")

    def is_failure(self, f: Function, number: str) -> str:
        return f(f"icmp slt i32 {number}, 0")

    # --- instances --------------------------------------------------------------------------------

    def create(self) -> None:
        """`create(made)`: an instance in memory of its own."""
        functions, layout = self.functions, self.layout
        f = functions.function("create", [("ptr", "made")])
        functions.checked(f, "%made")
        f.ptr("%made", "ptr").store("null")
        memory = self.call(f, "aligned_alloc", f"i64 {at.ALIGN}, i64 {layout.total}")
        fails(f, functions.null(f, memory), LibraryStatus.MEMORY)
        size = functions.size_type
        given = f"ptr {memory}, {size} {layout.total}, ptr %made"
        f.do(f"call i32 @{self.library.name('init')}({given})")
        f.ptr(memory).bytes(at.OWNED).of("i32").store(1)
        f.do("ret i32 0")

    def create_from(self) -> None:
        """`create_from(file, made)`: an instance that works on a mapped file of state."""
        functions, layout = self.functions, self.layout
        f = functions.function("create_from", [("ptr", "file"), ("ptr", "made")])
        functions.checked(f, "%made")
        f.ptr("%made", "ptr").store("null")
        functions.checked(f, "%file")
        number = self.call(f, "open", "ptr %file, i32 0")
        fails(f, self.is_failure(f, number), LibraryStatus.FILE)
        size = layout.file_bytes
        length = self.call(f, "lseek", f"i32 {number}, i64 0, i32 2")
        with f.when(f(f"icmp ne i64 {length}, {size}")):
            self.call(f, "close", f"i32 {number}")
            f.do(f"ret i32 {int(LibraryStatus.FORMAT)}")
            f.block(f.fresh("never"))
        given = f"ptr null, i64 {size}, i32 {_READ_WRITE}, i32 {_PRIVATE}, i32 {number}, i64 0"
        mapped = self.call(f, "mmap", given)
        self.call(f, "close", f"i32 {number}")
        as_number = f(f"ptrtoint ptr {mapped} to i64")
        fails(f, f(f"icmp eq i64 {as_number}, -1"), LibraryStatus.MEMORY)
        known = len(layout.header)
        same = f(f"call i1 @{functions.own('same')}(ptr {mapped}, ptr {self.header}, i64 {known})")
        with f.when(f(f"xor i1 {same}, true")):
            self.call(f, "munmap", f"ptr {mapped}, i64 {size}")
            f.do(f"ret i32 {int(LibraryStatus.FORMAT)}")
            f.block(f.fresh("never"))
        memory = self.call(f, "aligned_alloc", f"i64 {at.ALIGN}, i64 {layout.state}")
        with f.when(functions.null(f, memory)):
            self.call(f, "munmap", f"ptr {mapped}, i64 {size}")
            f.do(f"ret i32 {int(LibraryStatus.MEMORY)}")
            f.block(f.fresh("never"))
        state = f.ptr(mapped).bytes(known)
        f.do(f"call void @{functions.own('prepare')}(ptr {memory}, ptr {state})")
        this = f.ptr(memory)
        this.bytes(at.MAPPED).of("ptr").store(mapped)
        this.bytes(at.LENGTH).of("i64").store(size)
        this.bytes(at.OWNED).of("i32").store(1)
        f.ptr("%made", "ptr").store(memory)
        f.do("ret i32 0")

    def destroy(self) -> None:
        """`destroy(self)`: nothing for NULL; an instance that is in use stays."""
        functions = self.functions
        f = functions.function("destroy", [("ptr", "self")])
        fails(f, functions.null(f, "%self"), LibraryStatus.OK)
        functions.take(f)
        this = f.ptr("%self")
        this.of("i32").store(0)
        functions.give(f)
        mapped = this.bytes(at.MAPPED).of("ptr").load()
        with f.when(f(f"icmp ne ptr {mapped}, null")):
            length = this.bytes(at.LENGTH).of("i64").load()
            self.call(f, "munmap", f"ptr {mapped}, i64 {length}")
        owned = this.bytes(at.OWNED).of("i32").load()
        with f.when(f(f"icmp ne i32 {owned}, 0")):
            self.call(f, "free", "ptr %self")
        f.do("ret i32 0")

    # --- files ------------------------------------------------------------------------------------

    def _moves(self, word: str) -> None:
        """`i1 read_all(i32 file, ptr data, i64 size)`, or `write_all`: whether all was moved."""
        params = [("i32", "file"), ("ptr", "data"), ("i64", "size")]
        f = self.module.function(
            self.functions.own(f"{word}_all"), "i1", params, "nounwind noinline"
        )
        left, where = f.var("i64", "%size"), f.var("ptr", "%data")
        head, work, bad, good, more = (f.fresh(w) for w in ("head", "work", "bad", "good", "more"))
        f.jump(head)
        f.block(head)
        rest = left.load_index()
        f.branch(f(f"icmp eq i64 {rest}, 0"), good, work)
        f.block(work)
        small = f(f"icmp slt i64 {rest}, {_CHUNK}")
        part = f(f"select i1 {small}, i64 {rest}, i64 {_CHUNK}")
        here = where.load_ptr()
        moved = f.index(self.call(f, word, f"i32 %file, ptr {here}, i64 {part}"))
        f.branch(f(f"icmp sle i64 {moved}, 0"), bad, more)
        f.block(more)
        left.store(rest - moved)
        where.store(here.bytes(moved))
        f.jump(head)
        f.block(bad)
        f.do("ret i1 false")
        f.block(good)
        f.do("ret i1 true")

    def save(self) -> None:
        """`save(self, file)`: written beside, flushed, renamed."""
        functions, layout = self.functions, self.layout
        self._moves("write")
        f = functions.function("save", [("ptr", "self"), ("ptr", "file")])
        functions.instance(f)
        functions.checked(f, "%file")
        functions.take(f)
        beside = f.ptr("%self").bytes(layout.path)
        length = self._length(f)
        functions.gives_up(f, f(f"icmp eq i64 {length}, -1"), LibraryStatus.FILE)
        copy(f, beside, "%file", f.index(length))
        end = f"[{len(_SUFFIX) + 1} x i8]", f'c"{_SUFFIX}\\00"'
        copy(f, beside.bytes(f.index(length)), self.module.constant(*end, 1), len(_SUFFIX) + 1)
        number = self.call(f, "creat", f"ptr {beside}, i32 438")  # rw-rw-rw-, less the umask
        functions.gives_up(f, self.is_failure(f, number), LibraryStatus.FILE)
        write = functions.own("write_all")
        given = f"i32 {number}, ptr {self.header}, i64 {len(layout.header)}"
        head = f(f"call i1 @{write}({given})")
        given = f"i32 {number}, ptr {functions.state(f)}, i64 {layout.state_bytes}"
        body = f(f"call i1 @{write}({given})")
        flushed = self.call(f, "fsync", f"i32 {number}")
        closed = self.call(f, "close", f"i32 {number}")
        ends = f(f"icmp eq i32 {f(f'or i32 {flushed}, {closed}')}, 0")
        good = f(f"and i1 {f(f'and i1 {head}, {body}')}, {ends}")
        with f.when(f(f"xor i1 {good}, true")):
            self.call(f, "unlink", f"ptr {beside}")
            functions.done(f, int(LibraryStatus.FILE))
            f.block(f.fresh("never"))
        renamed = self.call(f, "rename", f"ptr {beside}, ptr %file")
        with f.when(f(f"icmp ne i32 {renamed}, 0")):
            self.call(f, "unlink", f"ptr {beside}")
            functions.done(f, int(LibraryStatus.FILE))
            f.block(f.fresh("never"))
        functions.done(f)

    def _length(self, f: Function) -> str:
        """The length of `%file`; -1 if it is too long."""
        name = self.functions.own("length")
        g = self.module.function(name, "i64", [("ptr", "text")], "nounwind noinline")
        at_end = at.PATH - len(_SUFFIX) - 1
        with g.loop(0, at_end) as i, g.when(g(f"icmp eq i8 {(g.ptr('%text') + i).load()}, 0")):
            g.do(f"ret i64 {i}")
            g.block(g.fresh("never"))
        g.do("ret i64 -1")
        return f(f"call i64 @{name}(ptr %file)")

    def load(self) -> None:
        """`load(self, file)`: the size and the header are checked before the state changes."""
        functions, layout = self.functions, self.layout
        self._moves("read")
        f = functions.function("load", [("ptr", "self"), ("ptr", "file")])
        functions.instance(f)
        functions.checked(f, "%file")
        functions.take(f)
        number = self.call(f, "open", "ptr %file, i32 0")
        functions.gives_up(f, self.is_failure(f, number), LibraryStatus.FILE)
        length = self.call(f, "lseek", f"i32 {number}, i64 0, i32 2")
        self._closes(
            f, number, f(f"icmp ne i64 {length}, {layout.file_bytes}"), LibraryStatus.FORMAT
        )
        start = self.call(f, "lseek", f"i32 {number}, i64 0, i32 0")
        self._closes(f, number, f(f"icmp ne i64 {start}, 0"), LibraryStatus.FILE)
        buffer = f.ptr("%self").bytes(layout.path)
        read, same = functions.own("read_all"), functions.own("same")
        for begin in range(0, len(layout.header), at.PATH):
            size = min(at.PATH, len(layout.header) - begin)
            good = f(f"call i1 @{read}(i32 {number}, ptr {buffer}, i64 {size})")
            self._closes(f, number, f(f"xor i1 {good}, true"), LibraryStatus.FILE)
            known = f.ptr(self.header).bytes(begin)
            good = f(f"call i1 @{same}(ptr {buffer}, ptr {known}, i64 {size})")
            self._closes(f, number, f(f"xor i1 {good}, true"), LibraryStatus.FORMAT)
        given = f"i32 {number}, ptr {functions.state(f)}, i64 {layout.state_bytes}"
        good = f(f"call i1 @{read}({given})")
        self._closes(f, number, f(f"xor i1 {good}, true"), LibraryStatus.FILE)
        self.call(f, "close", f"i32 {number}")
        functions.done(f)

    def _closes(self, f: Function, number: str, condition: str, status: int) -> None:
        """Close the file and return, if a condition holds."""
        with f.when(condition):
            self.call(f, "close", f"i32 {number}")
            self.functions.done(f, int(status))
            f.block(f.fresh("never"))


def add_system(functions: Functions) -> None:
    made = System(functions)
    if functions.library.inside:
        made.create()
    made.create_from()
    made.destroy()
    made.save()
    made.load()


# --- what the processor can do --------------------------------------------------------------------

#: (leaf, register, bits) of cpuid that a level needs, and the bits of xcr0.
_NEEDS: dict[int, tuple[list[tuple[int, str, tuple[int, ...]]], int]] = {
    3: ([(1, "c", (12, 22, 27, 28, 29)), (7, "b", (3, 5, 8)), (0x80000001, "c", (5,))], 0x06),
    4: ([(7, "b", (16, 17, 28, 30, 31))], 0xE6),
}


def add_processor(functions: Functions) -> None:
    """`i1 has(i32 level)`: whether this processor has all of a level of x86-64."""
    f = functions.module.function(
        functions.own("has"), "i1", [("i32", "level")], "nounwind noinline"
    )
    highest = {base: _cpuid(f, base)["a"] for base in (0, 0x80000000)}
    levels = {leaf for needs, _ in _NEEDS.values() for leaf, *_ in needs}
    for leaf in sorted(levels):
        last = highest[leaf & 0x80000000]
        with f.when(f(f"icmp ult i32 {last}, {leaf}")):
            f.do("ret i1 false")
            f.block(f.fresh("never"))
    for level, (needs, system) in _NEEDS.items():
        with f.when(f(f"icmp sge i32 %level, {level}")):
            for leaf, register, bits in needs:
                _all_of(f, _cpuid(f, leaf)[register], sum(1 << bit for bit in bits))
            # Only now: without OSXSAVE, which level 3 asks for, xgetbv is no instruction.
            kind = "{ i32, i32 }"
            pair = f(f'call {kind} asm sideeffect "xgetbv", "={{ax}},={{dx}},{{cx}}"(i32 0)')
            _all_of(f, f(f"extractvalue {kind} {pair}, 0"), system)
    f.do("ret i1 true")


def _all_of(f: Function, found: str, bits: int) -> None:
    with f.when(f(f"icmp ne i32 {f(f'and i32 {found}, {bits}')}, {bits}")):
        f.do("ret i1 false")
        f.block(f.fresh("never"))


def _cpuid(f: Function, leaf: int) -> dict[str, str]:
    kind = "{ i32, i32, i32, i32 }"
    names = "={ax},={bx},={cx},={dx},{ax},{cx}"
    made = f(f'call {kind} asm sideeffect "cpuid", "{names}"(i32 {leaf}, i32 0)')
    return {name: f(f"extractvalue {kind} {made}, {i}") for i, name in enumerate("abcd")}
