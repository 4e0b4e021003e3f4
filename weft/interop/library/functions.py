"""The functions of a library, as LLVM IR: what the header declares.

An instance is one block of memory (`weft.interop.library.layout`). Each function that works on one
takes it for itself by an atomic word, so that a second thread gets an error and not wrong numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.codegen.contract import RUN, SIZES, Status
from weft.codegen.index import Index, Ptr, Size
from weft.codegen.text import Function
from weft.interop.library import layout as at
from weft.interop.library.layout import Layout
from weft.interop.library.module import LibraryModule
from weft.interop.library.program import ARGUMENT, STATE, LibraryProgram
from weft.interop.library.run_size import Rows
from weft.interop.library.status import TEXTS, LibraryStatus
from weft.interop.library.targets import LibraryTarget, Variant

__all__ = ["Library", "add_functions", "copy", "fails", "string"]


@dataclass(frozen=True, slots=True)
class Library:
    """All that the functions of a library are made from.

    prefix     of all names
    word       the name of the function that runs the program
    direct     for each output of the graph, where it is computed: one of the places where it goes,
               or None if it needs memory of its own
    constants  whether the code has a table of constants
    inside     whether the state that an instance begins with is in the library
    failure    what is said where the program fails
    rows       what depends on the size that calls choose, if there is one
    """

    prefix: str
    word: str
    program: LibraryProgram
    target: LibraryTarget
    variants: Sequence[Variant]
    layout: Layout
    direct: Sequence[tuple[str, int] | None]
    constants: bool
    inside: bool
    failure: str = ""
    rows: Rows | None = None

    def name(self, word: str) -> str:
        return f"{self.prefix}_{word}"

    def graph(self, variant: Variant) -> str:
        return f"{self.prefix}.graph.{variant.name}"

    @property
    def texts(self) -> dict[LibraryStatus, str]:
        """What its statuses mean."""
        failed = f"{TEXTS[LibraryStatus.FAILED]}{self.failure and ': '}{self.failure}"
        return {**TEXTS, LibraryStatus.FAILED: failed}

    def table(self, variant: Variant) -> str:
        """The name of the table of constants of a variant."""
        return f"{self.prefix}.constants.{variant.name}"

    def sizes(self, variant: Variant) -> str:
        """The name of the rows of a variant."""
        return f"{self.prefix}.sizes.{variant.name}"


def string(module: LibraryModule, text: str) -> str:
    """The address of a text that ends with a zero."""
    data = text.encode() + b"\0"
    return module.constant(f"[{len(data)} x i8]", f'c"{escaped(data)}"', 1)


def escaped(data: bytes) -> str:
    return "\\" + data.hex("\\") if data else ""


def fails(f: Function, condition: str, status: int) -> None:
    """Return a status if an i1 holds."""
    with f.when(condition):
        f.do(f"ret i32 {int(status)}")
        f.block(f.fresh("never"))


def copy(f: Function, to: Ptr | str, source: Ptr | str, size: Size) -> None:
    name = f.module.declare("void", "llvm.memcpy.p0.p0.i64", "ptr, ptr, i64, i1 immarg")
    f.do(f"call void @{name}(ptr {to}, ptr {source}, i64 {size}, i1 false)")


class Functions:
    """Writes functions to the first module of a library."""

    def __init__(self, library: Library, module: LibraryModule) -> None:
        self.library = library
        self.module = module
        self.layout = library.layout
        self.size_type = f"i{library.target.bits}"

    def function(
        self, word: str, params: Sequence[tuple[str, str]], result: str = "i32"
    ) -> Function:
        """A function that users call."""
        return self.module.function(self.library.name(word), result, params, linkage="")

    def own(self, name: str) -> str:
        """The name of a function that only the library calls."""
        return f"{self.library.prefix}.{name}"

    def wide(self, f: Function, name: str) -> Index:
        """A size_t as an index."""
        return f.index(name if self.library.target.bits == 64 else f(f"zext i32 {name} to i64"))

    def narrow(self, f: Function, size: str) -> str:
        return size if self.library.target.bits == 64 else f(f"trunc i64 {size} to i32")

    def null(self, f: Function, pointer: str | Ptr) -> str:
        return f(f"icmp eq ptr {pointer}, null")

    def checked(self, f: Function, pointer: str) -> None:
        fails(f, self.null(f, pointer), LibraryStatus.NULL)

    def aligned(self, f: Function, pointer: str, align: int) -> None:
        if align > 1:
            size = self.size_type
            low = f(f"and {size} {f(f'ptrtoint ptr {pointer} to {size}')}, {align - 1}")
            fails(f, f(f"icmp ne {size} {low}, 0"), LibraryStatus.ALIGNMENT)

    def instance(self, f: Function) -> None:
        """Check `%self`."""
        self.checked(f, "%self")
        made = f.ptr("%self", "i32").load()
        fails(f, f(f"icmp ne i32 {made}, {at.NUMBER}"), LibraryStatus.INSTANCE)

    def take(self, f: Function) -> None:
        """Check `%self`, and take it for this thread."""
        self.instance(f)
        busy = f.ptr("%self").bytes(at.BUSY)
        pair = f(f"cmpxchg ptr {busy}, i32 0, i32 1 acquire monotonic")
        free = f(f"extractvalue {{ i32, i1 }} {pair}, 1")
        fails(f, f(f"xor i1 {free}, true"), LibraryStatus.BUSY)

    def give(self, f: Function) -> None:
        busy = f.ptr("%self").bytes(at.BUSY)
        f.do(f"store atomic i32 0, ptr {busy} release, align 4")

    def state(self, f: Function, offset: Size = 0) -> Ptr:
        return f.ptr("%self", "ptr").bytes(at.STATE).load_ptr().bytes(offset)

    def done(self, f: Function, status: int | str = 0) -> None:
        """Give the instance back, and return."""
        self.give(f)
        f.do(f"ret i32 {status}")

    def gives_up(self, f: Function, condition: str, status: int) -> None:
        with f.when(condition):
            self.done(f, int(status))
            f.block(f.fresh("never"))

    # --- what only the library calls --------------------------------------------------------------

    def helpers(self) -> None:
        f = self.module.function(self.own("idle"), "i32", [("ptr", "pool")])
        f.do("ret i32 0")
        params = [("ptr", "pool"), ("ptr", "kernel"), ("ptr", "args")]
        params += [("i64", "items"), ("i64", "grain"), ("ptr", "stop")]
        f = self.module.function(self.own("alone"), "i32", params)
        f.do(f"ret i32 {f('call i32 %kernel(ptr %args, i64 0, i64 %items)')}")
        self._same()
        self._prepare()

    def _same(self) -> None:
        """`i1 same(ptr a, ptr b, i64 size)`: whether bytes are equal."""
        params = [("ptr", "a"), ("ptr", "b"), ("i64", "size")]
        f = self.module.function(self.own("same"), "i1", params, "nounwind noinline")
        with f.loop(0, f.index("%size")) as i:
            a, b = (f.ptr(name) + i for name in ("%a", "%b"))
            with f.when(f(f"icmp ne i8 {a.load()}, {b.load()}")):
                f.do("ret i1 false")
                f.block(f.fresh("never"))
        f.do("ret i1 true")

    def _prepare(self) -> None:
        """`void prepare(ptr self, ptr state)`: fill the fields of an instance."""
        library = self.library
        params = [("ptr", "self"), ("ptr", "state")]
        f = self.module.function(self.own("prepare"), "void", params, "nounwind noinline")
        this = f.ptr("%self")
        for place in range(0, at.RUN + 8 * (SIZES + 1), 8):
            this.bytes(place).of("i64").store(0)
        this.bytes(at.STATE).of("ptr").store("%state")
        run = this.bytes(at.RUN).of("ptr")
        (run + RUN.index("parallel")).store(f"@{self.own('alone')}")
        (run + RUN.index("poll")).store(f"@{self.own('idle')}")
        for variant in library.variants:
            word = f.fresh("next")
            if variant is not library.variants[0]:
                ok = f(f"call i1 @{self.own('has')}(i32 {variant.level})")
                chosen = f.fresh("chosen")
                f.branch(ok, chosen, word)
                f.block(chosen)
            this.bytes(at.GRAPH).of("ptr").store(f"@{library.graph(variant)}")
            this.bytes(at.VARIANT).of("i32").store(library.variants.index(variant))
            if library.constants:
                (run + RUN.index("constants")).store(f"@{library.table(variant)}")
            if library.rows is not None:
                this.bytes(at.ROWS).of("ptr").store(f"@{library.sizes(variant)}")
            f.jump(word)
            f.block(word)
        this.of("i32").store(at.NUMBER)
        f.do("ret void")

    # --- instances --------------------------------------------------------------------------------

    def init(self) -> None:
        """`init(memory, bytes, made)`: an instance in memory of the caller."""
        params = [("ptr", "memory"), (self.size_type, "bytes"), ("ptr", "made")]
        f = self.function("init", params)
        self.checked(f, "%made")
        f.ptr("%made", "ptr").store("null")
        self.checked(f, "%memory")
        self.aligned(f, "%memory", at.ALIGN)
        size = self.wide(f, "%bytes")
        fails(f, f(f"icmp ult i64 {size}, {self.layout.total}"), LibraryStatus.SIZE)
        state = f.ptr("%memory").bytes(self.layout.state)
        if self.layout.state_bytes:
            copy(f, state, f"@{self.own('state')}", self.layout.state_bytes)
        f.do(f"call void @{self.own('prepare')}(ptr %memory, ptr {state})")
        f.ptr("%made", "ptr").store("%memory")
        f.do("ret i32 0")

    def code(self) -> None:
        """`code(self)`: which version of the code an instance runs."""
        names = [string(self.module, variant.name) for variant in self.library.variants]
        table = self.pointers(names)
        f = self.function("code", [("ptr", "self")], "ptr")
        empty = string(self.module, "")
        for bad in (self.null(f, "%self"),):
            with f.when(bad):
                f.do(f"ret ptr {empty}")
                f.block(f.fresh("never"))
        number = f(f"load i32, ptr {f.ptr('%self').bytes(at.VARIANT)}")
        index = f.index(f(f"zext i32 {number} to i64"))
        with f.when(f(f"icmp uge i64 {index}, {len(names)}")):
            f.do(f"ret ptr {empty}")
            f.block(f.fresh("never"))
        f.do(f"ret ptr {(f.ptr(table, 'ptr') + index).load()}")

    def pointers(self, names: Sequence[str]) -> str:
        return self.module.constant(
            f"[{max(1, len(names))} x ptr]",
            f"[{', '.join(f'ptr {name}' for name in names) or 'ptr null'}]",
        )

    def numbers(self, values: Sequence[int]) -> str:
        return self.module.constant(
            f"[{max(1, len(values))} x i64]",
            f"[{', '.join(f'i64 {value}' for value in values) or 'i64 0'}]",
        )

    def error_text(self) -> None:
        texts = self.library.texts
        table = self.pointers([string(self.module, texts[code]) for code in LibraryStatus])
        f = self.function("error_text", [("i32", "status")], "ptr")
        with f.when(f(f"icmp uge i32 %status, {len(texts)}")):
            f.do(f"ret ptr {string(self.module, 'an unknown status')}")
            f.block(f.fresh("never"))
        index = f.index(f("zext i32 %status to i64"))
        f.do(f"ret ptr {(f.ptr(table, 'ptr') + index).load()}")

    # --- the program ------------------------------------------------------------------------------

    def call(self) -> None:
        """The function that runs the program."""
        program, layout = self.library.program, self.layout
        slots = [*program.arguments, *program.results]
        rows = self.library.rows
        params = [("ptr", "self")]
        if rows is not None:
            params.append((self.size_type, "size"))
        for number in range(len(slots)):
            params += [("ptr", f"data.{number}"), (self.size_type, f"count.{number}")]
        f = self.function(self.library.word, params)
        self.instance(f)
        row = None if rows is None else self._row(f, rows)
        for number, slot in enumerate(slots):
            size = slot.type.size if row is None else (row + number).load_index()
            if size != 0:
                self.checked(f, f"%data.{number}")
                self.aligned(f, f"%data.{number}", slot.type.dtype.itemsize)
            given = self.wide(f, f"%count.{number}")
            fails(f, f(f"icmp ne i64 {given}, {size}"), LibraryStatus.SIZE)
        self.take(f)
        this = f.ptr("%self")
        table = this.bytes(layout.tables).of("ptr")

        def place(kind: str, number: int) -> Ptr:
            if kind == STATE:
                return self.state(f, layout.offsets[number])
            first = 0 if kind == ARGUMENT else len(program.arguments)
            return f.ptr(f"%data.{first + number}")

        for number, (kind, which) in enumerate(program.reads):
            (table + number).store(place(kind, which))
        computed = []
        for number, direct in enumerate(self.library.direct):
            at_place = this.bytes(layout.extra[number]) if direct is None else place(*direct)
            computed.append(at_place)
            (table + len(program.reads) + number).store(at_place)
        run = this.bytes(at.RUN).of("ptr")
        (run + RUN.index("free")).store(this.bytes(layout.stacks))
        (run + RUN.index("end")).store(this.bytes(layout.stacks + layout.stack_bytes))
        (run + RUN.index("chunk")).store("null")
        (run + RUN.index("stop")).store("null")
        if rows is not None and row is not None:
            (run + SIZES).store(row + rows.first)
        f.do(f"store ptr {this.bytes(layout.room)}, ptr {self.module.room}")
        graph = this.bytes(at.GRAPH).of("ptr").load()
        arena = this.bytes(layout.arena)
        status = f(f"call i32 {graph}(ptr {table}, ptr {arena}, ptr {run})")
        full = f(f"icmp eq i32 {status}, {int(Status.OUT_OF_MEMORY)}")
        self.gives_up(f, full, LibraryStatus.STACK)
        self.gives_up(f, f(f"icmp ne i32 {status}, 0"), LibraryStatus.FAILED)
        for number, goes in enumerate(program.gives):
            size = program.graph.outputs[number].tensor_type.nbytes
            for to in goes:
                if to != self.library.direct[number] and size != 0:
                    if row is not None:
                        size = (row + len(slots) + number).load_index()
                    copy(f, place(*to), computed[number], size)
        self.done(f)

    def _row(self, f: Function, rows: Rows) -> Ptr:
        """The row of `%size`, which is checked."""
        size, run_size = self.wide(f, "%size"), self.library.program.run_size
        assert run_size is not None
        number = size - run_size.least
        count = run_size.most - run_size.least + 1
        fails(f, f(f"icmp uge i64 {number}, {count}"), LibraryStatus.SIZE)
        table = f.ptr("%self", "ptr").bytes(at.ROWS).of("ptr").load_ptr()
        return table.of("i64") + number * rows.stride


def add_functions(library: Library, module: LibraryModule) -> Functions:
    """All functions that need no system."""
    made = Functions(library, module)
    made.helpers()
    if library.inside:
        made.init()
    made.code()
    made.error_text()
    made.call()
    return made
