"""A module that puts a guard before every load and store of its kernels.

Emitters do not know about it: the instructions are changed as the text is written. A function that
belongs to a kernel takes one more parameter, the table of what it may access (see `frames`), and
passes it to the functions it calls. Before each access it calls the guard, which returns the
pointer to use. Variables that are only loaded and stored directly are left alone, so that LLVM
keeps them in registers.

Functions of the program itself, which build tables and run control flow, are not changed. They are
recognised by their first parameter: the table of a graph, or the run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weft.base.source import SourceLocation
from weft.codegen.checks.frames import OWN, Entry, frame_words, write_frame
from weft.codegen.checks.guard import add_guard
from weft.codegen.checks.instructions import (
    LOAD,
    STORE,
    Call,
    alignment,
    called,
    lanes_of,
    size_of,
    type_of,
)
from weft.codegen.index import STEP
from weft.codegen.text import Function, Module, Variable

__all__ = ["CheckedModule", "Place"]

_NAME = re.compile(r"[%@][\w.]+")
_GLOBAL = re.compile(r"(?:constant|global) ([\[<].*?[\]>]|\w+)")
#: Attributes that a function loses when it gets guards.
_PROMISES = re.compile(r" ?\b(readnone|readonly|willreturn|speculatable|memory\([^)]*\))")
#: First parameters of functions that belong to the program and not to a kernel.
_PROGRAM = ("%table", "%run", "%last", "%inputs", "%arrays")
#: Prefix of functions that pass tables to kernels.
THUNK = "checked."


@dataclass(frozen=True, slots=True)
class Place:
    """An instruction that accesses memory.

    location   the user's line that it belongs to, if the emitter says it
    entry      the number of the buffer that its pointer was derived from, see `frames`; 0: unknown
    """

    function: str
    instruction: str
    location: SourceLocation | None
    entry: int


class CheckedFunction(Function):
    """A function that records which of its lines belong to which line of the user's code."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.marks: list[tuple[int, SourceLocation | None]] = []

    def here(self, location: SourceLocation | None) -> None:
        self.marks.append((len(self._lines), location))


class CheckedModule(Module):
    """A module in check mode; `kernels` are the functions that a program calls with buffers."""

    shares = False  # each step has lines of its own

    def __init__(self, machine: Any = None) -> None:
        super().__init__(machine)
        self.kernels: set[str] = set()
        #: The accesses of the last text that was written.
        self.places: list[Place] = []
        add_guard(self)

    def function(
        self,
        name: str,
        result: str,
        params: Sequence[tuple[str, str]],
        attrs: str = "nounwind",
        *,
        linkage: str = "internal",
    ) -> Function:
        super().function(name, result, params, attrs, linkage=linkage)
        made = CheckedFunction(self, name, f"{linkage} {result}".strip(), params, attrs)
        self._functions[name] = made
        return made

    def text(self) -> str:
        self.places = []
        guarded, inner = self._guarded()
        sizes = {name: _size_of_global(line) for name, line in self._globals.items()}
        bodies = []
        for name, function in self._functions.items():
            if name in guarded:
                is_outer = name in self.kernels and name not in inner
                bodies.append(_Guarding(self, function, guarded, sizes, is_outer).text())
            elif name.startswith((THUNK, "check.")):
                bodies.append(function.text())
            else:
                bodies.append(_calling(function.text(), guarded))
        return "\n".join([*self._globals.values(), *self._declared.values(), "", *bodies])

    def _guarded(self) -> tuple[set[str], set[str]]:
        """The functions that belong to kernels, and those of them that are called by others."""
        found: set[str] = set()
        inner: set[str] = set()
        todo = [name for name in self.kernels if name in self._functions]
        while todo:
            name = todo.pop()
            function = self._functions[name]
            if name in found or name.startswith("check.") or _of_program(function):
                continue
            found.add(name)
            for line in function._lines:
                call = called(line) if "call " in line else None
                if call is not None and call.name in self._functions:
                    todo.append(call.name)
                    inner.add(call.name)
        return found, inner


def _of_program(function: Function) -> bool:
    return function._head.removeprefix("ptr ").startswith(_PROGRAM)


def _size_of_global(line: str) -> int:
    found = _GLOBAL.search(line)
    if found is None:
        raise ValueError(f"not a variable: {line}")
    start = found.start(1)
    return size_of(type_of(line[start:]))


def _calling(text: str, guarded: set[str]) -> str:
    """A function of the program: it passes no table to functions that it shares with kernels."""
    if not any(f"@{name}(" in text for name in guarded):
        return text
    return "\n".join(_passing(line, guarded, "null") for line in text.split("\n"))


def _passing(line: str, guarded: set[str], table: str) -> str:
    call = called(line) if "call " in line else None
    if call is None or call.name not in guarded:
        return line
    return Call(call.head, call.name, [*call.arguments, f"ptr {table}"], call.tail).text()


class _Guarding:
    """One function of a kernel, with guards."""

    def __init__(
        self,
        module: CheckedModule,
        function: Function,
        guarded: set[str],
        sizes: dict[str, int],
        is_outer: bool,
    ) -> None:
        """`is_outer`: whether its `%args` are those of the kernel's call."""
        self.module = module
        self.function = function
        self.guarded = guarded
        self.allocated = {var.name: var.bytes for var in function.variables}
        self.shared: set[str] = set()  # local arrays and constants that need an entry
        self.globals = {name: size for name, size in sizes.items() if name != "@check.sink"}
        #: The entry that each pointer was derived from, see `frames`.
        self.origins: dict[str, int] = {}
        self.slots: dict[str, int] = {"%args": 1} if is_outer else {}  # of `%args`
        self.lines: list[str] = []
        self.count = 0
        self.location: SourceLocation | None = None

    def text(self) -> str:
        function = self.function
        for line in function._lines:
            self._find_shared(line)
        table = self._table()
        marks = dict(getattr(function, "marks", ()))
        for number, line in enumerate(function._lines):
            self.location = marks.get(number, self.location)
            self._line(line, table)
        attrs = _PROMISES.sub("", function._attrs)
        params = ", ".join(part for part in (function._head, "ptr %check") if part)
        head = f"define {function.result} @{function.name}({params}) {attrs}".rstrip()
        return function.assembled(head, self.variables, self.lines)

    def _find_shared(self, line: str) -> None:
        plain = self._plain(line)
        for name in _NAME.findall(line):
            if name != plain and (name in self.allocated or name in self.globals):
                self.shared.add(name)
        if plain is not None and line.count(plain) > 1:
            self.shared.add(plain)

    def _plain(self, line: str) -> str | None:
        """The variable that a line loads or stores directly."""
        if found := LOAD.match(line):
            name, kind = found[3], found[2]
        elif found := STORE.match(line):
            name, kind = found[2], type_of(found[1])
        else:
            return None
        return name if size_of(kind) <= self.allocated.get(name, -1) else None

    def _table(self) -> str:
        """The table of what the function may access: its own arrays, then the caller's table."""
        self.variables = list(self.function.variables)
        if not self.shared:
            return "%check"
        entries: list[Entry] = [
            (name, self.allocated[name], True)
            if name in self.allocated
            else (name, self.globals[name], False)
            for name in sorted(self.shared)
        ]
        self.origins |= {name: OWN + i for i, (name, _, _) in enumerate(entries)}
        words = frame_words(len(entries))
        self.variables.append(Variable("%check.frame", f"[{words} x i64]", align=16))
        scratch = Function(self.module, "", "", [], "")
        write_frame(scratch, "%check.frame", "%check", False, entries)
        self.lines += [line.replace("%v.", "%check.v.") for line in scratch._lines]
        return "%check.frame"

    def _line(self, line: str, table: str) -> None:
        plain = self._plain(line)
        self._find_origin(line)
        if plain is not None and plain not in self.shared:
            self.lines.append(line)
        elif found := LOAD.match(line):
            _, kind, pointer, rest = found.groups()
            to = self._access(pointer, kind, rest, False, line, table)
            self.lines.append(line.replace(f", ptr {pointer}{rest}", f", ptr {to}{rest}"))
        elif found := STORE.match(line):
            value, pointer, rest = found.groups()
            to = self._access(pointer, type_of(value), rest, True, line, table)
            at = len(line) - len(f", ptr {pointer}{rest}")
            self.lines.append(f"{line[:at]}, ptr {to}{rest}")
        elif (call := called(line) if "call " in line else None) is not None:
            self.lines.append(self._call(call, line, table))
        else:
            if "atomicrmw" in line or "cmpxchg" in line:
                raise ValueError(f"check mode knows no such access: {line}")
            self.lines.append(line)

    def _find_origin(self, line: str) -> None:
        if found := STEP.match(line):
            name, kind, base, index = found.groups()
            if base in self.slots:
                if kind == "ptr" and index.isdigit():
                    self.slots[name] = self.slots[base] + int(index)
            elif base in self.origins:
                self.origins[name] = self.origins[base]
        elif (found := LOAD.match(line)) and found[2] == "ptr" and found[3] in self.slots:
            self.origins[found[1]] = self.slots[found[3]]

    def _emit(self, instruction: str) -> str:
        self.count += 1
        name = f"%check.{self.count}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def _looked_up(self, pointer: str, align: int, writes: bool, line: str, table: str) -> str:
        """The last arguments of every guard."""
        place = len(self.module.places)
        entry = self.origins.get(pointer, 0)
        self.module.places.append(Place(self.function.name, line.strip(), self.location, entry))
        how = (entry << 32) + 2 * align + writes
        return f"i64 {how}, i64 {place}, ptr {table}"

    def _access(
        self, pointer: str, kind: str, rest: str, writes: bool, line: str, table: str
    ) -> str:
        more = self._looked_up(pointer, alignment(rest, kind), writes, line, table)
        return self._emit(f"call ptr @check.access(ptr {pointer}, i64 {size_of(kind)}, {more})")

    def _call(self, call: Call, line: str, table: str) -> str:
        if call.name in self.guarded:
            return _passing(line, self.guarded, table)
        word = call.name.removeprefix("llvm.").removeprefix("masked.").partition(".")[0]
        if not call.name.startswith("llvm.") or word not in _INTRINSICS:
            return line
        _INTRINSICS[word](self, call, line, table)
        return call.text()

    # --- intrinsics ---------------------------------------------------------------------------

    def _span(self, call: Call, line: str, table: str) -> None:
        """memcpy, memmove and memset: nothing is done if any of the bytes may not be accessed."""
        bytes_ = call.arguments[2].split()[1]
        todo = [(call.arguments[0], True)]
        if not call.name.startswith("llvm.memset"):
            todo.append((call.arguments[1], False))
        for pointer, writes in todo:
            more = self._looked_up(pointer.split()[-1], 1, writes, line, table)
            bytes_ = self._emit(
                f"call i64 @check.span(ptr {pointer.split()[-1]}, i64 {bytes_}, {more})"
            )
        call.arguments[2] = f"i64 {bytes_}"

    def _masked(self, call: Call, line: str, table: str) -> None:
        writes = "masked.store" in call.name
        at = 1 if writes else 0
        lanes, element = lanes_of(type_of(call.arguments[0] if writes else call.arguments[2]))
        *said, pointer = call.arguments[at].split()
        mask = call.arguments[at + 1]
        bits = self._emit(f"bitcast {mask} to i{lanes}")
        if lanes < 64:
            bits = self._emit(f"zext i{lanes} {bits} to i64")
        align = alignment(" ".join(said), element)
        more = self._looked_up(pointer, align, writes, line, table)
        size = size_of(element)
        to = self._emit(f"call ptr @check.masked(ptr {pointer}, i64 {size}, i64 {bits}, {more})")
        call.arguments[at] = " ".join([*said, to])

    def _lanes(self, call: Call, line: str, table: str) -> None:
        writes = "scatter" in call.name
        at = 1 if writes else 0
        lanes, element = lanes_of(type_of(call.arguments[0] if writes else call.arguments[2]))
        kind = type_of(call.arguments[at])
        *said, pointers = call.arguments[at][len(kind) :].split()
        mask = call.arguments[at + 1]
        align = alignment(" ".join(said), element)
        pointers_of = pointers
        for lane in range(lanes):
            more = self._looked_up(pointers_of, align, writes, line, table)
            pointer = self._emit(f"extractelement {kind} {pointers}, i64 {lane}")
            on = self._emit(f"extractelement {mask}, i64 {lane}")
            given = f"ptr {pointer}, i1 {on}, i64 {size_of(element)}, {more}"
            to = self._emit(f"call ptr @check.lane({given})")
            pointers = self._emit(f"insertelement {kind} {pointers}, ptr {to}, i64 {lane}")
        call.arguments[at] = " ".join([kind, *said, pointers])


_INTRINSICS = {
    "memcpy": _Guarding._span,
    "memmove": _Guarding._span,
    "memset": _Guarding._span,
    "load": _Guarding._masked,
    "store": _Guarding._masked,
    "gather": _Guarding._lanes,
    "scatter": _Guarding._lanes,
}
