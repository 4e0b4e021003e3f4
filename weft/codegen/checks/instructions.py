"""Parse the instructions that access memory, as `weft.codegen.text` writes them."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["LOAD", "STORE", "Call", "alignment", "called", "lanes_of", "size_of", "type_of"]

#: 1: the value's name, 2: the type, 3: the pointer, 4: the rest.
LOAD = re.compile(r"^  (%[\w.]+) = load (?:atomic )?(.+?), ptr ([%@][\w.]+)((?:[, ].*)?)$")
#: 1: type and value, 2: the pointer, 3: the rest.
STORE = re.compile(r"^  store (?:atomic )?(.+), ptr ([%@][\w.]+)((?:[, ].*)?)$")
_CALL = re.compile(r"^  (?:(%[\w.]+) = )?call ([^@]*)@([\w.$-]+)\(")
_ALIGN = re.compile(r"\balign (\d+)")
_SCALARS = {"float": 4, "double": 8, "half": 2, "ptr": 8}


@dataclass(frozen=True, slots=True)
class Call:
    """`head` name `(` arguments `)` tail: an instruction that calls a function by its name."""

    head: str
    name: str
    arguments: list[str]
    tail: str

    def text(self) -> str:
        return f"{self.head}{', '.join(self.arguments)}{self.tail}"


def called(line: str) -> Call | None:
    """The call in a line, if there is one."""
    found = _CALL.match(line)
    if found is None:
        return None
    arguments: list[str] = []
    depth, start = 0, found.end()
    for at in range(found.end(), len(line)):
        sign = line[at]
        if sign in "(<[{":
            depth += 1
        elif sign == ")" and not depth:
            last = line[start:at].strip()
            return Call(
                line[: found.end()], found[3], [*arguments, *([last] if last else [])], line[at:]
            )
        elif sign in ")>]}":
            depth -= 1
        elif sign == "," and not depth:
            arguments.append(line[start:at].strip())
            start = at + 1
    raise ValueError(f"not a whole call: {line}")


def type_of(text: str) -> str:
    """The type that a typed value begins with."""
    if text[0] not in "<[{":
        return text.partition(" ")[0]
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign in "<[{") - (sign in ">]}")
        if not depth:
            return text[: at + 1]
    raise ValueError(f"not a type: {text}")


def lanes_of(kind: str) -> tuple[int, str]:
    """The number of lanes and the element type of a vector; a scalar has one lane."""
    if not kind.startswith("<"):
        return 1, kind
    count, _, element = kind[1:-1].partition(" x ")
    return int(count), element


def size_of(kind: str) -> int:
    """Bytes of a value of a type."""
    if kind.startswith("["):
        count, _, element = kind[1:-1].partition(" x ")
        return int(count) * size_of(element)
    lanes, element = lanes_of(kind)
    if element.startswith("i"):
        return -(-lanes * int(element[1:]) // 8)
    return lanes * _SCALARS[element]


def alignment(rest: str, kind: str) -> int:
    """The alignment that an access declares."""
    said = _ALIGN.search(rest)
    if said is not None:
        return int(said[1])
    while kind.startswith("["):
        kind = kind[1:-1].partition(" x ")[2]
    return 1 << (size_of(kind) - 1).bit_length()
