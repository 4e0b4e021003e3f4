"""A module whose instructions carry the line of the user's code that they belong to, for people.

It is generated when the code of a kernel is inspected; what runs carries none of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from weft.base.source import SourceLocation
from weft.codegen.text import Function, Module

__all__ = ["DebugModule"]

_SCOPE, _LINE = "!DISubprogram", "!DILocation"


class DebugFunction(Function):
    """A function that records the line of each instruction."""

    module: DebugModule

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._scope = self.module.scope(self.name)
        self._suffix = f", !dbg {self.module.nowhere(self._scope)}"
        self.here(self.module.location)

    def here(self, location: SourceLocation | None) -> None:
        if location is not None:
            self._suffix = f", !dbg {self.module.line(self._scope, location)}"

    def __call__(self, instruction: str) -> str:
        return super().__call__(instruction + self._suffix)

    def do(self, instruction: str) -> None:
        super().do(instruction + self._suffix)

    def text(self) -> str:
        head, _, rest = super().text().partition("\n")
        return f"{head[:-1]}!dbg {self._scope} {{\n{rest}"


class DebugModule(Module):
    """A module that records the source lines of what is written to it."""

    shares = False  # each step has lines of its own

    def __init__(self, machine: Any = None) -> None:
        super().__init__(machine)
        self.location: SourceLocation | None = None  # location of functions begun from now on
        self._shared = 0  # depth of shared functions that are being written
        self._entries: list[str] = []
        self._numbers: dict[str, str] = {}
        file = self._file("generated")
        kinds = self._add("!{}")
        self._type = self._add(f"!DISubroutineType(types: {kinds})")
        self._unit = self._add(
            f"distinct !DICompileUnit(language: DW_LANG_Python, file: {file}, "
            'producer: "weft", isOptimized: true, runtimeVersion: 0, emissionKind: LineTablesOnly)'
        )

    def function(
        self,
        name: str,
        result: str,
        params: Sequence[tuple[str, str]],
        attrs: str = "nounwind",
        *,
        linkage: str = "internal",
    ) -> Function:
        plain = super().function(name, result, params, attrs, linkage=linkage)
        if self.location is None or self._shared:
            return plain  # when inlined, it gets the line of the call
        made = DebugFunction(self, name, f"{linkage} {result}".strip(), params, attrs)
        self._functions[name] = made
        return made

    def at(self, location: SourceLocation | None) -> None:
        self.location = location

    def once(self, name: str, make: Callable[[Module], None]) -> str:
        self._shared += 1
        try:
            return super().once(name, make)
        finally:
            self._shared -= 1

    # --- metadata -----------------------------------------------------------------------------

    def _add(self, text: str) -> str:
        found = self._numbers.get(text)
        if found is None:
            found = f"!{len(self._entries)}"
            self._entries.append(text)
            if not text.startswith("distinct"):
                self._numbers[text] = found
        return found

    def _file(self, path: str) -> str:
        folder, name = os.path.split(path)
        return self._add(f"!DIFile(filename: {_quoted(name)}, directory: {_quoted(folder)})")

    def scope(self, name: str) -> str:
        """The debug scope of a function."""
        location = self.location
        file = self._file("generated" if location is None else location.file)
        line = 0 if location is None else location.line
        return self._add(
            f"distinct {_SCOPE}(name: {_quoted(name)}, scope: {file}, file: {file}, line: {line}, "
            f"type: {self._type}, unit: {self._unit}, spFlags: DISPFlagDefinition)"
        )

    def line(self, scope: str, location: SourceLocation) -> str:
        file = self._file(location.file)
        block = self._add(f"!DILexicalBlockFile(scope: {scope}, file: {file}, discriminator: 0)")
        return self._add(f"{_LINE}(line: {location.line}, column: 0, scope: {block})")

    def nowhere(self, scope: str) -> str:
        return self._add(f"{_LINE}(line: 0, column: 0, scope: {scope})")

    def text(self) -> str:
        flags = [
            self._add('!{i32 2, !"Debug Info Version", i32 3}'),
            self._add('!{i32 7, !"Dwarf Version", i32 4}'),
        ]
        entries = [f"!{number} = {text}" for number, text in enumerate(self._entries)]
        names = [
            f"!llvm.dbg.cu = !{{{self._unit}}}",
            f"!llvm.module.flags = !{{{', '.join(flags)}}}",
        ]
        return "\n".join([super().text(), *names, *entries, ""])


def _quoted(text: str) -> str:
    """A string in LLVM's syntax, with special characters escaped."""
    said = re.sub(
        rb"[^\w./ -]", lambda found: b"\\%02X" % found[0][0], text.encode("utf-8", "replace")
    )
    return f'"{said.decode("ascii")}"'
