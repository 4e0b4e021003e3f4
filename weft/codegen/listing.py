"""The code of one kernel for people: LLVM IR and assembly, with the user's lines."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from weft.base.source import SourceLocation
from weft.codegen.jit import assembly, optimized
from weft.codegen.machine import Machine
from weft.codegen.split import alone

__all__ = ["assembly_of", "llvm_of", "source_lines"]

_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")
_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?')
#: Directives for debuggers and linkers.
_DIRECTIVE = re.compile(r"\s*\.(?!LBB|LCPI|byte|long|quad|short|zero|ascii|octa)|\s*(#.*)?$")
_TEMPORARY = re.compile(r"\s*\.L(tmp|func|debug|line_table|info|section)\w*:")
_DEBUG = re.compile(r", !dbg !(\d+)")


def source_lines(locations: Iterable[SourceLocation | None]) -> list[str]:
    """The source lines of some locations, each once: model.py:12  y = x @ w"""
    found: dict[str, None] = {}
    for location in locations:
        if location is not None:
            found[_line(location.file, location.line)] = None
    return list(found)


def _line(file: str, line: int) -> str:
    place = SourceLocation(file, line, "")
    return f"{place.short}  {place.text}".rstrip()


def llvm_of(text: str, name: str, target: Machine, *, after_passes: bool = False) -> str:
    """The IR of one function of a module, with the user's lines before its instructions."""
    found = optimized(alone(text, name), target) if after_passes else text
    table = dict(re.findall(r"^!(\d+) = (.*)$", found, re.MULTILINE))
    body = _function(found.splitlines(), f"@{name}(")
    return "\n".join(_with_lines(body, table))


def _function(lines: Sequence[str], name: str) -> list[str]:
    first = next(i for i, line in enumerate(lines) if line.startswith("define ") and name in line)
    last = next(i for i in range(first, len(lines)) if lines[i] == "}")
    return list(lines[first : last + 1])


def _with_lines(body: Sequence[str], table: dict[str, str]) -> list[str]:
    places = {number: _place(number, table) for number in table}
    out: list[str] = []
    before = ""
    for line in body:
        found = _DEBUG.search(line)
        here = places.get(found[1], "") if found else ""
        if here and here != before:
            out.append(f"  ; {here}")
            before = here
        out.append(re.sub(r",? !dbg !\d+", "", line))
    return out


def _place(number: str, table: dict[str, str]) -> str:
    """The location in an instruction's metadata: model.py:12  y = x @ w"""
    entry = table[number]
    found = re.search(r"DILocation\(line: (\d+).*?scope: !(\d+)", entry)
    if found is None or found[1] == "0":
        return ""
    scope = re.search(r"file: !(\d+)", table.get(found[2], ""))
    file = table.get(scope[1], "") if scope else ""
    parts = re.search(r'filename: "([^"]*)", directory: "([^"]*)"', file)
    return (
        ""
        if parts is None
        else _line(os.path.join(_plain(parts[2]), _plain(parts[1])), int(found[1]))
    )


def _plain(text: str) -> str:
    """Decode LLVM's escapes, such as "\\5F"."""
    said = re.sub(r"\\([0-9A-Fa-f]{2})", lambda m: chr(int(m[1], 16)), text)
    return said.encode("latin-1", "replace").decode("utf-8", "replace")


def assembly_of(text: str, name: str, target: Machine) -> str:
    """The assembly of one function of a module, with the user's lines."""
    files: dict[str, str] = {}
    out: list[str] = []
    constants: list[str] = []  # they come first, and are parsed last
    before = ""
    inside = False
    for line in assembly(alone(text, name), target).splitlines():
        if file := _FILE.match(line):
            files[file[1]] = os.path.join(*(_octal(part) for part in file.groups()[1:] if part))
        elif place := _LOC.match(line):
            known = files.get(place[1], "")
            here = _line(known, int(place[2])) if known and place[2] != "0" else ""
            if inside and here and here != before:
                out.append(f"\t# {here}")
                before = here
        elif ".section" in line and "debug" in line:
            break
        elif line.strip().strip('"').startswith((f"{name}:", f'{name}":')):
            inside = True
            out.append(f"{name}:")
        elif not _TEMPORARY.match(line) and not _DIRECTIVE.match(line):
            (out if inside else constants).append(line.split("#")[0].rstrip())
    return "\n".join(line for line in (*out, *constants) if line)


def _octal(text: str) -> str:
    """Decode an assembler's octal escapes, such as "\\303\\244"."""
    said = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), text)
    return said.encode("latin-1", "replace").decode("utf-8", "replace")
