"""The text of code that is in no file: typed at Python's prompt, or given to `python -c`.

From 3.13 on, Python keeps such text. Before, it is searched in the history of the prompt and in the
arguments of the process. The caller compares the candidates with the code that runs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

__all__ = ["texts"]

#: Maximum lines of the history that are read, the newest first.
MOST_LINES = 2000
#: Beginnings of lines that continue a statement although they are not indented.
_GOES_ON = (" ", "\t", ")", "]", "}", "else", "elif", "except", "finally")


def texts(file: str) -> Iterator[str]:
    """Texts that code of this file name may come from, the most likely first."""
    if file == "<string>":
        yield from _argument()
    elif file == "<stdin>":
        yield from _statements(_history())


def _argument() -> Iterator[str]:
    """The argument of `python -c`; options before it take no separate value."""
    for option, text in zip(sys.orig_argv[1:], sys.orig_argv[2:], strict=False):
        if option.startswith("-") and not option.startswith("--") and option.endswith("c"):
            yield text
            return


def _history() -> list[str]:
    """Lines typed at the prompt, the oldest first."""
    readline = sys.modules.get("readline")
    if readline is None:
        return []
    last = readline.get_current_history_length()
    first = max(1, last - MOST_LINES)
    return [readline.get_history_item(i) or "" for i in range(first, last + 1)]


def _statements(lines: list[str]) -> Iterator[str]:
    """Each statement with its block, the last first."""
    end = len(lines)
    for start in range(len(lines) - 1, -1, -1):
        if lines[start].startswith(_GOES_ON):
            continue
        decorated = start > 0 and lines[start - 1].startswith("@")
        if not decorated:
            yield "\n".join([*lines[start:end], ""])
            end = start
