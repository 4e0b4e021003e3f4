"""LLVM IR, written as text: faster than building objects, and readable.

    module = Module()
    f = module.function("twice", "void", [("ptr", "x"), ("i64", "n")])
    with f.loop(0, f.index("%n")) as i:
        p = f.ptr("%x", "float") + i
        v = p.load()
        p.store(f(f"fadd float {v}, {v}"))
    f.do("ret void")
    module.text()

Values are LLVM's names for them (`%12`, `3.0`); the code that writes an instruction knows the
types. Indices and pointers know theirs, see `weft.codegen.index`. Loop-carried values are variables
(`var`), which LLVM keeps in registers.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from weft.base.dim_algebra import Dim
from weft.base.errors import InternalError, UnknownSizeError
from weft.codegen.checks.instructions import size_of
from weft.codegen.contract import SIZES, Status
from weft.codegen.index import Index, Ptr, Size, step
from weft.codegen.sizes import RunSizes

__all__ = ["Function", "Module", "Variable"]

#: Variables of a function that take more than this together, in bytes, are on the heap: threads may
#: have stacks of 64 KiB. Those below `SMALL` mostly become registers.
STACK, SMALL = 4096, 256
_LINE = 64
_MENTIONED = re.compile(r"@([\w.$-]+)")
#: First parameters of functions that find the sizes of the run: kernels, graphs, pops of stacks.
#: That of functions that run graphs: some sizes are told while they run.
_TELL_SIZES = "ptr %table,"
_KNOW_SIZES = ("ptr %args,", "ptr %table, ptr %arena, ptr %run", "ptr %run, ptr %stack,")


@dataclass(frozen=True, slots=True)
class Variable:
    """Local memory of a function: for `count` values of a type."""

    name: str
    kind: str
    count: int = 1
    align: int = 0

    @property
    def bytes(self) -> int:
        return size_of(self.kind) * self.count


def _lines_of(var: Variable) -> int:
    """The bytes of a variable, in whole cache lines."""
    return -(-var.bytes // _LINE) * _LINE


def _on_stack(var: Variable) -> str:
    size = f", i64 {var.count}" if var.count != 1 else ""
    place = f", align {var.align}" if var.align else ""
    return f"  {var.name} = alloca {var.kind}{size}{place}"


class Function:
    """A function being written, block by block."""

    def __init__(
        self, module: Module, name: str, result: str, params: Sequence[tuple[str, str]], attrs: str
    ) -> None:
        self.module = module
        self.name = name
        self.result = result
        self._head = ", ".join(f"{kind} %{param}" for kind, param in params)
        self._attrs = attrs
        self.variables: list[Variable] = []
        self._lines: list[str] = []
        self._count = 0
        self.at = "entry"  # the label of the current block
        self._sizes: dict[int, None] = {}  # the places of the sizes that it reads
        self._hands_on = False  # whether it uses the address of their table

    def number(self) -> int:
        """A number that makes names unique in the function: `word.number`."""
        self._count += 1
        return self._count

    def fresh(self, word: str = "") -> str:
        """A name that is unique in the function, without its `%`."""
        self._count += 1
        return f"{word or 'v'}.{self._count}"

    def __call__(self, instruction: str) -> str:
        """Add an instruction with a result; returns its name."""
        self._count += 1
        name = f"%v.{self._count}"
        self._lines.append(f"  {name} = {instruction}")
        return name

    def do(self, instruction: str) -> None:
        """Add an instruction without a result."""
        self._lines.append(f"  {instruction}")

    def note(self, attribute: str) -> None:
        """Give the function one more attribute."""
        self._attrs = f"{self._attrs} {attribute}"

    def here(self, location: Any) -> None:
        """What follows belongs to this line of the user's code: see `weft.codegen.debug`."""

    # --- sizes of the run ---------------------------------------------------------------------

    def size(self, size: Size) -> Size:
        """A size that code can use: the same, but a Dim is loaded, once in each function.

        Only kernels, and functions that get the run, know the sizes; others take them as
        parameters.
        """
        if size.__class__ is not Dim:
            return size
        if not self._finds_sizes():
            raise UnknownSizeError(
                f"the code of {self.name} needs the size {size}, and does not get it"
            )
        place = self.module.sizes.slot(size)
        if self._head.startswith(_TELL_SIZES) and self.module.sizes.is_late(size):
            self._hands_on = True  # it changes while the graph runs
            return Index(self, self(f"load i64, ptr {self(step('i64', '%sizes', place))}"))
        self._sizes[place] = None
        return Index(self, f"%size.{place}")

    def size_table(self) -> str:
        """The address of the table of sizes, to be handed on."""
        self._hands_on = True
        return "%sizes"

    def _finds_sizes(self) -> bool:
        return self._head.startswith(_KNOW_SIZES)

    def _loaded_sizes(self) -> list[str]:
        """The lines that load them: they precede `%args` of a kernel, and follow the run."""
        if not (self._sizes or self._hands_on):
            return []
        base, word = ("%args", -1) if self._head.startswith("ptr %args,") else ("%run", SIZES)
        lines = [
            f"  %sizes.at = {step('ptr', base, word)}",
            "  %sizes = load ptr, ptr %sizes.at",
        ]
        for place in self._sizes:
            lines.append(f"  %size.at.{place} = {step('i64', '%sizes', place)}")
            lines.append(f"  %size.{place} = load i64, ptr %size.at.{place}")
        return lines

    # --- variables ----------------------------------------------------------------------------

    def index(self, name: str) -> Index:
        """The i64 of a name, as an index."""
        return Index(self, name)

    def ptr(self, name: str, kind: str = "i8") -> Ptr:
        """The pointer of a name, to elements of a type."""
        return Ptr(self, name, kind)

    def var(self, kind: str, start: object = None, *, count: int = 1, align: int = 0) -> Ptr:
        """Local memory for a variable, or for `count` of them: on the stack, or on the heap if it
        is large."""
        made = Ptr(self, f"%{self.fresh('var')}", kind)
        self.variables.append(Variable(made.name, kind, count, align))
        if start is not None:
            made.store(start)
        return made

    # --- blocks -------------------------------------------------------------------------------

    def block(self, label: str) -> None:
        """Begin a block; the previous one must have ended with a jump."""
        self._lines.append(f"{label}:")
        self.at = label

    def jump(self, label: str) -> None:
        self.do(f"br label %{label}")

    def branch(self, condition: str, yes: str, no: str, hint: str = "") -> None:
        self.do(f"br i1 {condition}, label %{yes}, label %{no}{hint}")

    def loop(self, start: Size, stop: Size, step: Size = 1) -> AbstractContextManager[Index]:
        """`for i in range(start, stop, step)` over i64, with a positive step; gives `i`."""
        return _Loop(self, self.size(start), self.size(stop), self.size(step))

    def when(self, condition: str, hint: str = "") -> AbstractContextManager[None]:
        """What is written inside runs only if an i1 holds."""
        return _When(self, condition, hint)

    def text(self) -> str:
        head = f"define {self.result} @{self.name}({self._head}) {self._attrs}".rstrip()
        return self.assembled(head, self.variables, self._lines)

    def assembled(self, head: str, variables: Sequence[Variable], body: Sequence[str]) -> str:
        """The text of a function with these variables and instructions. Large variables are
        allocated at its start, and freed wherever it returns."""
        body = [*self._loaded_sizes(), *body]
        large = self._large(variables)
        # LLVM promotes only variables of the first block to registers.
        stack = [_on_stack(var) for var in variables if var not in large]
        if not large:
            return "\n".join([f"{head} {{", "entry:", *stack, *body, "}", ""])
        lines = [f"{head} {{", "room.begin:", *stack, *self._take(large), "entry:"]
        for line in body:
            if line.startswith("  ret "):
                lines.append(f"  call void @{self.module.deallocate}(ptr %room)")
            lines.append(line)
        return "\n".join([*lines, "room.none:", f"  ret i32 {Status.NO_ROOM}", "}", ""])

    def _large(self, variables: Sequence[Variable]) -> list[Variable]:
        """Those that are allocated: all that are large, if they are too much for the stack."""
        large = [var for var in variables if var.bytes >= SMALL]
        return large if sum(var.bytes for var in large) > self.module.stack else []

    def room(self) -> int:
        """How many bytes it allocates for its variables while it runs."""
        large = self._large(self.variables)
        return sum(_lines_of(var) for var in large) + (_LINE if large else 0)

    def callees(self) -> set[str]:
        """The names of all functions and variables of the module that it mentions."""
        return {name for line in self._lines for name in _MENTIONED.findall(line)}

    def _take(self, large: Sequence[Variable]) -> list[str]:
        """Allocate memory for variables; a kernel fails if there is none."""
        if not self.result.endswith("i32"):
            raise InternalError(f"{self.name} has {sum(v.bytes for v in large)} bytes of variables")
        self.module.declare("noalias ptr", self.module.allocate, "i64")
        self.module.declare("void", self.module.deallocate, "ptr")
        places, size = [], _LINE  # aligned to cache lines, which may cost one line before them
        for var in large:
            places.append(f"  {var.name} = {step('i8', '%room.line', size - _LINE)}")
            size += _lines_of(var)
        return [
            f"  %room = call ptr @{self.module.allocate}(i64 {size})",
            "  %room.failed = icmp eq ptr %room, null",
            "  br i1 %room.failed, label %room.none, label %room.taken",
            "room.taken:",
            "  %room.at = ptrtoint ptr %room to i64",
            f"  %room.over = and i64 %room.at, {_LINE - 1}",
            f"  %room.skip = sub i64 {_LINE}, %room.over",
            f"  %room.line = {step('i8', '%room', '%room.skip')}",
            *places,
            "  br label %entry",
        ]


class _Loop:
    """The lines around the body of a loop. (A class: generators take three times as long.)"""

    __slots__ = ("f", "number", "start", "step", "stop")

    def __init__(self, f: Function, start: Size, stop: Size, step: Size) -> None:
        self.f = f
        self.start = start
        self.stop = stop
        self.step = step

    def __enter__(self) -> Index:
        f, before = self.f, self.f.at
        n = self.number = f.number()
        f.do(f"br label %head.{n}")
        f.block(f"head.{n}")
        f.do(f"%i.{n} = phi i64 [ {self.start}, %{before} ], [ %next.{n}, %back.{n} ]")
        more = f(f"icmp slt i64 %i.{n}, {self.stop}")
        f.do(f"br i1 {more}, label %body.{n}, label %end.{n}")
        f.block(f"body.{n}")
        return Index(f, f"%i.{n}")

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is None:
            f, n = self.f, self.number
            f.do(f"br label %back.{n}")
            f.block(f"back.{n}")
            f.do(f"%next.{n} = add nuw nsw i64 %i.{n}, {self.step}")
            f.do(f"br label %head.{n}")
            f.block(f"end.{n}")


class _When:
    """The lines around a conditional body."""

    __slots__ = ("condition", "f", "hint", "number")

    def __init__(self, f: Function, condition: str, hint: str) -> None:
        self.f = f
        self.condition = condition
        self.hint = hint

    def __enter__(self) -> None:
        f = self.f
        n = self.number = f.number()
        f.do(f"br i1 {self.condition}, label %then.{n}, label %end.{n}{self.hint}")
        f.block(f"then.{n}")

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is None:
            f, n = self.f, self.number
            f.do(f"br label %end.{n}")
            f.block(f"end.{n}")


class Module:
    """Functions, declarations and constants: the text of one LLVM module."""

    #: Bytes of variables that a function may have on the stack.
    stack = STACK
    #: The functions that allocate and free memory: for large variables, and aligned, for stacks.
    allocate, deallocate, allocate_aligned = "malloc", "free", "aligned_alloc"
    #: Whether code may call functions of the C library, such as `sin`.
    has_c_library = True
    #: Whether code may call NumPy's LAPACK.
    has_lapack = True
    #: Whether equal steps of a program may call one kernel.
    shares = True
    #: Where several threads run the code of a graph together: how they copy memory and wait.
    team: Any = None

    def __init__(self, machine: Any = None) -> None:
        self.machine = machine
        self._functions: dict[str, Function] = {}
        self._once: dict[str, None] = {}
        self._globals: dict[str, str] = {}
        self._declared: dict[str, str] = {}
        self._constants: dict[str, str] = {}
        self.sizes = RunSizes()
        #: Whether some of the sizes of the program are those of a run.
        self.varies = False

    def function(
        self,
        name: str,
        result: str,
        params: Sequence[tuple[str, str]],
        attrs: str = "nounwind",
        *,
        linkage: str = "internal",
    ) -> Function:
        """A new function with these parameters, each a type and a name."""
        if name in self._functions:
            raise ValueError(f"the module has a function {name!r} already")
        made = Function(self, name, f"{linkage} {result}".strip(), params, attrs)
        self._functions[name] = made
        return made

    def at(self, location: Any) -> None:
        """Functions begun from now on belong to this line: see `weft.codegen.debug`."""

    def once(self, name: str, make: Callable[[Module], None]) -> str:
        """The name of a function (or a family of names) that `make` adds on first use."""
        if name not in self._once:
            self._once[name] = None
            make(self)
        return name

    def has(self, name: str) -> bool:
        return name in self._functions

    def expose(self, name: str) -> None:
        """Make a function visible outside of the module."""
        function = self._functions[name]
        function.result = function.result.removeprefix("internal ")

    def declare(self, result: str, name: str, params: str, attrs: str = "") -> str:
        """Declare an intrinsic or an external function; returns its name, called as `@name`."""
        self._declared[name] = f"declare {result} @{name}({params}) {attrs}".rstrip()
        return name

    def constant(self, kind: str, text: str, align: int = 64) -> str:
        """The address (`@name`) of a read-only constant, shared by equal ones."""
        key = f"{kind} {text}"
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = f"@constant.{len(self._constants)}"
            self._globals[found] = (
                f"{found} = private unnamed_addr constant {kind} {text}, align {align}"
            )
        return found

    def variable(self, name: str, kind: str, start: str, linkage: str = "internal") -> str:
        """The address of a variable of the module."""
        self._globals[f"@{name}"] = f"@{name} = {linkage} global {kind} {start}"
        return f"@{name}"

    def state(self) -> tuple[int, int]:
        """What `as_it_was` needs to know: how much has been written."""
        return len(self._functions), len(self._once)

    @contextmanager
    def as_it_was(self, state: tuple[int, int]) -> Iterator[dict[str, str]]:
        """What is written inside is written to the module as it was in that state, and taken out
        again; yields the texts of its functions by name."""
        functions, once = self._functions, self._once
        self._functions = dict(itertools.islice(functions.items(), state[0]))
        self._once = dict.fromkeys(itertools.islice(once, state[1]))
        written: dict[str, str] = {}
        yield written
        for name in [*self._functions][state[0] :]:
            written[name] = self._functions[name].text()
        self._functions, self._once = functions, once

    def text_of(self, name: str) -> str:
        """The text of one function; "" if there is none of this name."""
        return self._functions[name].text() if name in self._functions else ""

    def text(self) -> str:
        return self._joined([function.text() for function in self._functions.values()])

    def compact(self) -> str:
        """The text without functions that equal another one: that one is called in their place."""
        first: dict[str, str] = {}
        same: dict[str, str] = {}  # the name of a function that is left out -> the one that stays
        texts = []
        for name, function in self._functions.items():
            text = function.text()
            if function.result.startswith("internal "):
                like = first.setdefault(text.replace(f"@{name}(", "@(", 1), name)
                if like != name:
                    same[name] = like
                    continue
            texts.append(text)
        if same:
            for at, text in enumerate(texts):
                if any(f"@{name}" in text for name in same):
                    texts[at] = _MENTIONED.sub(lambda n: f"@{same.get(n[1], n[1])}", text)
        return self._joined(texts)

    def _joined(self, functions: Sequence[str]) -> str:
        return "\n".join([*self._globals.values(), *self._declared.values(), "", *functions])
