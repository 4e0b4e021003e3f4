"""Functions of a library for its state: one tensor by its name, or all of it in memory."""

from __future__ import annotations

from weft.interop.library.functions import Functions, copy, fails, string
from weft.interop.library.status import LibraryStatus

__all__ = ["add_state"]


class StateFunctions:
    """Writes them to the first module of a library."""

    def __init__(self, functions: Functions) -> None:
        self.functions = functions
        self.module = functions.module
        self.library = functions.library
        self.layout = functions.layout

    def state_by_name(self) -> None:
        slots, layout = self.library.program.state, self.layout
        names = [string(self.module, slot.name) for slot in slots]
        lengths = [len(slot.name.encode()) + 1 for slot in slots]
        tables = self.functions.pointers(names), self.functions.numbers(lengths)
        self._find(*tables, len(slots))
        f = self.functions.function("state_name", [(self.functions.size_type, "number")], "ptr")
        number = self.functions.wide(f, "%number")
        with f.when(f(f"icmp uge i64 {number}, {len(slots)}")):
            f.do("ret ptr null")
            f.block(f.fresh("never"))
        f.do(f"ret ptr {(f.ptr(tables[0], 'ptr') + number).load()}")
        sizes, starts = self.functions.numbers(layout.sizes), self.functions.numbers(layout.offsets)
        f = self.functions.function("state_bytes", [("ptr", "name")], self.functions.size_type)
        number = f.index(f(f"call i64 @{self.functions.own('find')}(ptr %name)"))
        with f.when(f(f"icmp slt i64 {number}, 0")):
            f.do(f"ret {self.functions.size_type} 0")
            f.block(f.fresh("never"))
        size = (f.ptr(sizes, "i64") + number).load()
        f.do(f"ret {self.functions.size_type} {self.functions.narrow(f, size)}")
        for word, writes in (("get_state", False), ("set_state", True)):
            params = [
                ("ptr", "self"),
                ("ptr", "name"),
                ("ptr", "data"),
                (self.functions.size_type, "bytes"),
            ]
            f = self.functions.function(word, params)
            self.functions.instance(f)
            self.functions.checked(f, "%name")
            self.functions.checked(f, "%data")
            number = f.index(f(f"call i64 @{self.functions.own('find')}(ptr %name)"))
            fails(f, f(f"icmp slt i64 {number}, 0"), LibraryStatus.NAME)
            known = (f.ptr(sizes, "i64") + number).load_index()
            given = self.functions.wide(f, "%bytes")
            fails(f, f(f"icmp ne i64 {known}, {given}"), LibraryStatus.SIZE)
            self.functions.take(f)
            place = self.functions.state(f, (f.ptr(starts, "i64") + number).load_index())
            to, source = (place, f.ptr("%data")) if writes else (f.ptr("%data"), place)
            copy(f, to, source, known)
            self.functions.done(f)

    def _find(self, names: str, lengths: str, count: int) -> None:
        """`i64 find(ptr name)`: the number of a state, -1 if there is none."""
        f = self.module.function(
            self.functions.own("find"), "i64", [("ptr", "name")], "nounwind noinline"
        )
        with f.when(self.functions.null(f, "%name")):
            f.do("ret i64 -1")
            f.block(f.fresh("never"))
        with f.loop(0, count) as i:
            name = (f.ptr(names, "ptr") + i).load()
            length = (f.ptr(lengths, "i64") + i).load()
            # A shorter name differs before it ends, so that nothing behind it is read.
            same = f(f"call i1 @{self.functions.own('same')}(ptr %name, ptr {name}, i64 {length})")
            with f.when(same):
                f.do(f"ret i64 {i}")
                f.block(f.fresh("never"))
        f.do("ret i64 -1")

    def state_in_memory(self) -> None:
        """`write_state` and `read_state`: what a file of state holds, in memory of the caller."""
        header, size = f"@{self.functions.own('header')}", len(self.layout.header)
        for word, reads in (("write_state", False), ("read_state", True)):
            params = [("ptr", "self"), ("ptr", "data"), (self.functions.size_type, "bytes")]
            f = self.functions.function(word, params)
            self.functions.instance(f)
            self.functions.checked(f, "%data")
            given = self.functions.wide(f, "%bytes")
            wrong = LibraryStatus.FORMAT if reads else LibraryStatus.SIZE
            fails(f, f(f"icmp ne i64 {given}, {self.layout.file_bytes}"), wrong)
            if reads:
                same = f(
                    f"call i1 @{self.functions.own('same')}(ptr %data, ptr {header}, i64 {size})"
                )
                fails(f, f(f"xor i1 {same}, true"), LibraryStatus.FORMAT)
            self.functions.take(f)
            data = f.ptr("%data").bytes(size)
            if not reads:
                copy(f, "%data", header, size)
            copy(
                f,
                *((self.functions.state(f), data) if reads else (data, self.functions.state(f))),
                self.layout.state_bytes,
            )
            self.functions.done(f)


def add_state(functions: Functions) -> None:
    made = StateFunctions(functions)
    made.state_by_name()
    made.state_in_memory()
