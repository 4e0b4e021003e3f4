"""The tokens of a graph's text, and their positions."""

from __future__ import annotations

import re
from typing import Any, NoReturn

from weft.base.errors import GraphError

QUOTED = r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\""""

#: The kinds of tokens. The order matters: a string before a word (b'…'), a float before an int.
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
    """Goes through a text token by token: `kind` and `text` are those of the current token."""

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
        """Skip to a later position."""
        self.stop = position
        self.advance()

    def accept(self, sign: str) -> bool:
        """Whether this sign or word is the current token; if so, skip it."""
        if self.text == sign and self.kind != "string":
            self.advance()
            return True
        return False

    def expect(self, sign: str) -> None:
        """Skip this sign or word; anything else is an error."""
        if not self.accept(sign):
            self.fail(f"expected {sign!r}")

    def take(self, kind: str, wanted: str) -> str:
        """The text of the current token, which must be of this kind; skips it."""
        if self.kind != kind:
            self.fail(f"expected {wanted}")
        text = self.text
        self.advance()
        return text

    def match(self, pattern: re.Pattern[str], wanted: str) -> re.Match[str]:
        """The text that a pattern matches here; skips it."""
        found = pattern.match(self.source, self.position)
        if found is None:
            self.fail(f"expected {wanted}")
        self.jump(found.end())
        return found

    def fail(self, message: str, position: int | None = None, **details: Any) -> NoReturn:
        """An error at this position: line, column, the line itself and what was expected."""
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
