"""The words of a graph's text, one after the other, and where each stands."""

from __future__ import annotations

import re
from typing import Any, NoReturn

from weft.base.errors import GraphError

QUOTED = r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\""""

#: What can come next. The order matters: a string before a word (b'…'), a float before an int.
TOKEN = re.compile(
    rf"""
    (?P<string>b?(?:{QUOTED}))
  | (?P<value>%(?:[\w.]+|{QUOTED}))
  | (?P<at>@(?:[\w.]+|{QUOTED}))
  | (?P<float>-?nan\(0x[0-9a-f]+\)|-?(?:nan|inf)\b|-?\d+\.\d*(?:e[+-]?\d+)?|-?\d+e[+-]?\d+)
  | (?P<int>-?\d+)
  | (?P<word>[^\W\d]\w*(?:\.\w+)*)
  | (?P<sign>\.\.\.|<=|>=|[()\[\]{{}}:,=])
  | (?P<end>(?:\#[^\n]*)?(?:\n|\Z))
    """,
    re.VERBOSE,
)
_SHOWN = 100  # characters of a line that an error shows


class Scanner:
    """Goes through a text token by token: `kind` and `text` are those of the token it stands at."""

    __slots__ = ("kind", "position", "source", "stop", "text")

    def __init__(self, source: str) -> None:
        self.source = source
        self.stop = 0
        self.advance()

    def advance(self) -> None:
        """Go to the next token."""
        source = self.source
        position = self.stop
        while position < len(source) and source[position] in " \t\r":
            position += 1
        match = TOKEN.match(source, position)
        self.position = position
        if match is None:
            self.stop = position
            self.kind = self.text = "?"
        else:
            self.stop = match.end()
            self.kind = str(match.lastgroup)
            self.text = match.group()

    def jump(self, position: int) -> None:
        """Go to a place further on."""
        self.stop = position
        self.advance()

    def accept(self, sign: str) -> bool:
        """Go on if this sign or word stands here."""
        if self.text == sign and self.kind != "string":
            self.advance()
            return True
        return False

    def expect(self, sign: str) -> None:
        """Go on over this sign or word; anything else is an error."""
        if not self.accept(sign):
            self.fail(f"expected {sign!r}")

    def take(self, kind: str, wanted: str) -> str:
        """The text of the token, which must be of this kind; and go on."""
        if self.kind != kind:
            self.fail(f"expected {wanted}")
        text = self.text
        self.advance()
        return text

    def match(self, pattern: re.Pattern[str], wanted: str) -> re.Match[str]:
        """What a pattern matches here; and go on after it."""
        found = pattern.match(self.source, self.position)
        if found is None:
            self.fail(f"expected {wanted}")
        self.jump(found.end())
        return found

    def fail(self, message: str, position: int | None = None, **details: Any) -> NoReturn:
        """The error at this place: line, column, the line itself and what was wanted."""
        place = self.position if position is None else position
        start = self.source.rfind("\n", 0, place) + 1
        end = self.source.find("\n", place)
        line = self.source[start : end if end >= 0 else None]
        column = place - start
        cut = max(0, column - _SHOWN // 2)
        shown = line[cut : cut + _SHOWN]
        number = self.source.count("\n", 0, place) + 1
        raise GraphError(
            f"line {number}, column {column + 1}: {message}\n  {shown}\n  {' ' * (column - cut)}^",
            **details,
        )
