"""Splits one module's text into several, to compile in parallel and link together.

Functions are assigned, longest first, to the smallest part; other parts that call them declare
them. Functions to inline, and constants, are copied to every part that uses them. All users of a
variable of the module stay together with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

__all__ = ["alone", "apart", "split"]

_NAME = re.compile(r"@([\w.$-]+)")
#: A call that is to be replaced by the function's body.
_INLINED_CALL = re.compile(r" call [^@\n]*@([\w.$-]+)\([^\n]*\) alwaysinline\b")
_HEAD = re.compile(r"define ((?:internal |private )?)(.*?)@([\w.$-]+)\((.*)\)([^(]*)\{$")


@dataclass(frozen=True, slots=True)
class _Piece:
    """A function, or a line that defines or declares one name.

    text     in its part; functions are no longer internal there
    declare  its declaration, for parts that only use it
    names    what it uses
    copied   whether it is copied to every part that uses it
    root     whether it must exist even if nothing in the module uses it
    """

    name: str
    text: str
    declare: str
    names: frozenset[str]
    copied: bool
    root: bool

    @property
    def is_function(self) -> bool:
        return self.text.startswith("define ")


def split(text: str, parts: int) -> list[str]:
    """The texts of at most `parts` modules that together are the module of a text.

    It parses what `Module.text` writes: functions begin with a line "define …" and end with a line
    "}"; everything else is single lines. Internal names become visible to other parts.
    """
    if parts < 2:
        return [text]
    whole, loose = _read(text)
    live = _reached([p for p in whole.values() if p.root], whole, whole.keys())
    copied = {name for name, piece in whole.items() if piece.copied}
    variables = [p for p in whole.values() if not p.is_function and not p.copied]
    pinned = {piece.name for piece in variables}

    bins = [list(variables), *[[] for _ in range(parts - 1)]]
    sizes = [0] * parts
    functions = [
        (piece, _reached([piece], whole, copied))
        for piece in (whole[name] for name in live)
        if piece.is_function and not piece.copied
    ]
    # First those that cannot be moved, then the longest.
    functions.sort(key=lambda f: (not f[1] & pinned, -len(f[0].text), f[0].name))
    for piece, used in functions:
        place = 0 if used & pinned else sizes.index(min(sizes))
        bins[place].append(piece)
        sizes[place] += sum(len(whole[name].text) for name in used if name in copied)
        sizes[place] += len(piece.text)
    return [_part(found, whole, copied, loose) for found in bins if found]


def apart(text: str, name: str, least: int) -> tuple[str, str] | None:
    """The module of a text without one function, and the module of that function; None if it has
    no such function of at least `least` characters, or if variables tie them together."""
    if len(text) < least or f"@{name}(" not in text:
        return None
    whole, loose = _read(text)
    own = whole.get(name)
    tied = any(not piece.is_function and not piece.copied for piece in whole.values())
    if own is None or own.copied or tied or len(own.text) < least:
        return None
    live = _reached([piece for piece in whole.values() if piece.root], whole, whole.keys())
    copied = {other for other, piece in whole.items() if piece.copied}
    rest = [p for n, p in whole.items() if n in live - copied - {name} and p.is_function]
    return _part(rest, whole, copied, loose), _part([own], whole, copied, loose)


def alone(text: str, name: str) -> str:
    """The module of a text with one exported function, and what it uses."""
    whole, loose = _read(text)
    copied = {other for other, piece in whole.items() if piece.copied and other != name}
    piece = whole[name]
    shown = replace(piece, text=re.sub("^define (internal |private )", "define ", piece.text))
    return _part([shown], whole, copied, loose)


def _part(
    pieces: list[_Piece], whole: dict[str, _Piece], copied: set[str], loose: list[str]
) -> str:
    here = {piece.name for piece in pieces}
    used = sorted(_reached(pieces, whole, copied) - here)
    taken = [whole[name].text if name in copied else whole[name].declare for name in used]
    bodies = [piece.text for piece in pieces]
    # Lines before functions, for readers; LLVM accepts any order.
    return "\n".join(
        sorted([*taken, *bodies], key=lambda t: t.startswith("define ")) + loose + [""]
    )


def _reached(start: Iterable[_Piece], whole: dict[str, _Piece], through: Iterable[str]) -> set[str]:
    """Some pieces and what they use, transitively through those of `through`."""
    through = set(through)
    todo = list(start)
    found = {piece.name for piece in todo}
    while todo:
        for name in todo.pop().names - found:
            if name in whole:
                found.add(name)
                if name in through:
                    todo.append(whole[name])
    return found


def _read(text: str) -> tuple[dict[str, _Piece], list[str]]:
    """The pieces of a text by name, and its lines that define no name (metadata)."""
    inlined = set(_INLINED_CALL.findall(text))
    whole: dict[str, _Piece] = {}
    loose: list[str] = []
    lines: list[str] = []
    for line in text.splitlines():
        if lines or line.startswith("define "):
            lines.append(line)
            if line == "}":
                piece = _function(lines, inlined)
                whole[piece.name] = piece
                lines = []
        elif found := _NAME.search(line):
            whole[found[1]] = _line(found[1], line)
        elif line:
            loose.append(line)
    return whole, loose


def _function(lines: list[str], inlined: set[str]) -> _Piece:
    found = _HEAD.match(lines[0])
    if found is None:
        raise ValueError(f"not the beginning of a function: {lines[0]}")
    linkage, result, name, params, attributes = found.groups()
    copied = bool(linkage) and ("alwaysinline" in attributes or name in inlined)
    if not copied:
        lines = [lines[0].replace(f"define {linkage}", "define ", 1), *lines[1:]]
    text = "\n".join(lines)
    attributes = attributes.partition("!dbg")[0]
    declare = f"declare {result}@{name}({params}){attributes}".rstrip()
    names = frozenset(_NAME.findall(text)) - {name}
    return _Piece(name, text, declare, names, copied, root=not linkage)


def _line(name: str, line: str) -> _Piece:
    """A variable, which exists once; a constant or a declaration, which may be copied."""
    names = frozenset(_NAME.findall(line)) - {name}
    # Memory that a block of a GPU shares is nobody's between kernels.
    shared = "addrspace(3)" in line
    variable = f"@{name} =" in line and " constant " not in line and not shared
    return _Piece(name, line, "", names, copied=not variable, root=variable)
