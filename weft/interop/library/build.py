"""Builds a library from a program: object files, a linker's work, headers and loaders."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.base.errors import GraphError, RangeError
from weft.capture.trace.captured import Captured
from weft.codegen.contract import NotNative
from weft.codegen.jit import library_object
from weft.codegen.program import CpuEmitter
from weft.core.autocast import as_recorded
from weft.interop.library.files import Built, write_files
from weft.interop.library.functions import Library, add_functions, escaped
from weft.interop.library.layout import Layout, layout_of, state_data
from weft.interop.library.module import LibraryModule, room_of
from weft.interop.library.no_libm import add_fma, add_math
from weft.interop.library.program import LibraryProgram, c_name, program_of
from weft.interop.library.run_size import rows_of
from weft.interop.library.state import add_state
from weft.interop.library.system import add_processor, add_system
from weft.interop.library.targets import LibraryTarget, Variant, library_target
from weft.interop.programs.program import Program
from weft.ir.graph import Graph
from weft.ir.types import StackType, TensorType
from weft.runtime.lazy_imports import generators
from weft.schedule.plan import ProgramPlan

__all__ = ["Built", "build_library"]

#: Names that a program's function cannot have, as the library has functions of these names.
_OWN = frozenset(
    re.findall(
        r"\w+",
        "create create_from destroy init code error_text state_name state_bytes get_state "
        "set_state write_state read_state save load status getState setState",
    )
)


def build_library(
    function: Captured[..., Any] | Program,
    path: str | os.PathLike[str],
    *,
    target: str | None = None,
    name: str | None = None,
    sizes: Mapping[str, int] | None = None,
    max_sizes: Mapping[str, int] | None = None,
    weights: str = "inside",
    stack_bytes: int = 0,
    linker: str | None = None,
) -> Built:
    """A program, or a compiled function that was called, as a library without Python.

    path         of the library: `libNAME.so`; `NAME.a` and `NAME.o` need no linker. The headers
                 `NAME.h` and `NAME.hpp`, and a loader `NAME.py`, are written beside it
    target       "x86_64-linux", "native", …: `weft.interop.library.targets`; by default this
                 system's
    name         what the names of its functions begin with; by default the name of the file
    sizes        numbers for the named sizes of the graph
    max_sizes    the largest number of one named size, such as {"B": 64}: each call chooses it
    weights      "inside": in the library; "file": in `NAME.safetensors` beside it, which is mapped
    stack_bytes  memory for what loops of unknown length keep for their backward
    linker       "cc" or "zig"; by default the first that there is
    """
    place = Path(path)
    if weights not in ("inside", "file"):
        raise RangeError(f'weights is {weights!r}, not "inside" or "file"', op="build_library")
    chosen, prefix = library_target(target, place.suffix), _prefix(name, place)
    if max_sizes and chosen.name == "wasm32":
        raise RangeError(
            "sizes that calls choose are for libraries in C", op="build_library", hint="sizes={…}"
        )
    with as_recorded():
        program = program_of(function, sizes, max_sizes)
        made = _Build(program, chosen, prefix, weights == "inside", stack_bytes)
        objects = made.objects()
    return write_files(made.library, objects, made.symbols, place, linker)


def _prefix(name: str | None, place: Path) -> str:
    if name is not None and c_name(name) != name:
        raise RangeError(f"{name!r} is no name in C", op="build_library", hint=c_name(name))
    return name or c_name(place.stem.removeprefix("lib"))


def _word(program: LibraryProgram) -> str:
    """The name of the function that runs the program."""
    word = c_name(program.name)
    if program.name == "lambda" or not word[0].islower():
        return "train_step" if program.trains else "infer"
    return f"{word}_" if word in _OWN else word


class _Build:
    """The modules of a library: one for each version of the code; the first has its functions."""

    def __init__(
        self,
        program: LibraryProgram,
        target: LibraryTarget,
        prefix: str,
        inside: bool,
        stack_bytes: int,
    ) -> None:
        self.program = program
        self.target = target
        self.stack_bytes = stack_bytes
        self.made = [self._generated(variant, prefix) for variant in target.variants]
        first = self.made[0]
        direct = _direct(program, [plan.root.in_place for _, _, plan in self.made])
        recipes = [generators().recipe_of(emitter, plan) for _, emitter, plan in self.made]
        rows = rows_of(program, recipes) if program.run_size else None
        arenas = [rows.arena] if rows else [int(plan.root.arena) for _, _, plan in self.made]
        self.layout: Layout = layout_of(
            program,
            [i for i, place in enumerate(direct) if place is None],
            max(arenas),
            max(room_of(module) for module, _, _ in self.made),
            stack_bytes,
            files=target.files,
        )
        slots = (*program.arguments, *program.results)
        total = self.layout.total + sum(program.largest(slot.type.nbytes) for slot in slots)
        if total >> target.bits:
            raise RangeError(
                f"an instance, its arguments and its results take {total} bytes: more than "
                f"{target.name} can address",
                op="build_library",
                hint="build it for smaller sizes",
            )
        self.library = Library(
            prefix,
            f"{prefix}_{_word(program)}"[len(prefix) + 1 :],
            program,
            target,
            target.variants,
            self.layout,
            direct,
            any(emitter.constants for _, emitter, _ in self.made),
            inside,
            _failure(first[2]),
            rows,
        )
        self._add_data(inside)
        functions = add_functions(self.library, first[0])
        add_state(functions)
        if target.files:
            add_system(functions)
        if len(target.variants) > 1:
            add_processor(functions)
        if target.bits == 32:
            add_fma(first[0])
        if target.name == "cortex-m4":
            add_math(first[0])

    def objects(self) -> list[bytes]:
        modules = [module for module, _, _ in self.made]
        for module in modules:
            module.finish()
        self.symbols = [module.defined() for module in modules]
        return [
            library_object(module.text(), variant.machine)
            for module, variant in zip(modules, self.target.variants, strict=True)
        ]

    def _generated(
        self, variant: Variant, prefix: str
    ) -> tuple[LibraryModule, CpuEmitter, ProgramPlan]:
        owns = variant is self.target.variants[0]
        module = LibraryModule(variant.machine, prefix, owns=owns, threads=self.target.threads)
        try:
            emitter, plan = generators().generated(self.program.graph, False, None, module)
        except NotNative as reason:
            raise GraphError(
                f"{self.program.name} cannot be a library: {reason}", op="build_library"
            ) from None
        _check(self.program.graph, plan, module, self.stack_bytes)
        for name in ("run", "give_back"):  # nothing of them is used
            module.internal(name)
        module.hide("graph", f"{prefix}.graph.{variant.name}")
        return module, emitter, plan

    def _add_data(self, inside: bool) -> None:
        """The data of a library, in the first module: constants, state, the head of its file."""
        prefix, first = self.library.prefix, self.made[0][0]
        written: set[str] = set()
        for (module, emitter, _), variant in zip(self.made, self.target.variants, strict=True):
            names = []
            for literal in emitter.constants:
                name = f"{prefix}.constant.{literal.digest}"
                names.append(f"ptr @{name}")
                if name not in written:
                    written.add(name)
                    _data(first, name, literal.array.tobytes())
            if not self.library.constants:
                continue
            for name in names if module is not first else ():
                kind = "external hidden constant [0 x i8]"
                module._globals[name[4:]] = f"{name[4:]} = {kind}"
            table = f"[{max(1, len(names))} x ptr] [{', '.join(names) or 'ptr null'}]"
            at = f"@{self.library.table(variant)}"
            module._globals[at] = f"{at} = hidden constant {table}, align 8"
        if self.library.rows is not None:
            for variant, data in zip(self.target.variants, self.library.rows.tables, strict=True):
                _data(first, self.library.sizes(variant), data)
        for _, variant in zip(self.made[1:], self.target.variants[1:], strict=True):
            params = "ptr, ptr, ptr"
            first.declare("hidden i32", self.library.graph(variant), params)
            if self.library.constants:
                at = f"@{self.library.table(variant)}"
                first._globals[at] = f"{at} = external hidden constant [0 x ptr]"
        _data(first, f"{prefix}.header", self.layout.header)
        if inside and self.layout.state_bytes:
            _data(first, f"{prefix}.state", state_data(self.program, self.layout))


def _data(module: LibraryModule, name: str, data: bytes) -> None:
    text = f'[{len(data)} x i8] c"{escaped(data)}"'
    module._globals[f"@{name}"] = f"@{name} = hidden constant {text}, align 64"


def _direct(
    program: LibraryProgram, in_place: Sequence[Sequence[tuple[int, int]]]
) -> list[tuple[str, int] | None]:
    """Where each output of the graph is computed: in the place of an input, if all versions of the
    code allow that; in a result; or in memory of its own."""
    pairs = set(in_place[0]).intersection(*in_place[1:])
    found: list[tuple[str, int] | None] = []
    for number, goes in enumerate(program.gives):
        inputs = {program.reads[i] for output, i in pairs if output == number}
        shared = [place for place in goes if place in inputs]
        results = [place for place in goes if place[0] == "result"]
        found.append(next(iter(shared or results), None))
    return found


def _check(graph: Graph, plan: ProgramPlan, module: LibraryModule, stack_bytes: int) -> None:
    """Refuse what needs Python, or memory that nobody can tell."""
    if plan.calls:
        node = plan.calls[0]
        values = [value.type for value in (*node.inputs, *node.outputs)]
        if any(isinstance(kind, TensorType) and kind.size == 0 for kind in values):
            why, hint = "works on an empty tensor", "build it for sizes of at least 1"
        else:
            why = "calls Python, which a library has not"
            hint = "compute it outside of the function, and hand over the result"
        error = GraphError(f"{node.op.name} {why}", op="build_library", hint=hint)
        error.location = node.location
        raise error
    if module.has("heap") and not stack_bytes:
        error = GraphError(
            "a loop whose length is not known keeps values for its backward: how much memory they "
            "take depends on the run",
            op="build_library",
            hint="stack_bytes=1 << 20 gives them a megabyte; runs that need more fail",
        )
        loops = [
            node
            for part in graph.walk()
            for node in part.nodes
            if node.op.loop and any(isinstance(v.type, StackType) for v in node.outputs)
        ]
        error.location = loops[0].location if loops else error.location
        raise error


def _failure(plan: ProgramPlan) -> str:
    """What may fail in a program, with the lines."""
    found: dict[str, None] = {}
    for _, graph in plan.root.walk():
        for step in graph.steps:
            for node in step.nodes:
                if node.op.may_fail and step.kind == "kernel":
                    where = node.location
                    line = f" at {Path(where.file).name}:{where.line}" if where else ""
                    found[f"{node.op.name}{line}"] = None
    names = [*found]
    more = f" or {len(names) - 4} others" if len(names) > 4 else ""
    return f"an index or a label is out of range in {', '.join(names[:4])}{more}" if names else ""
