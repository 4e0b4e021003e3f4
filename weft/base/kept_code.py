"""Compiled Python code on disk, by the name of all that it depends on."""

from __future__ import annotations

import marshal
import sys
from collections.abc import Callable
from types import CodeType

from weft.base import store

__all__ = ["PYTHON", "kept_code"]

#: Which Python compiles: code of one is nothing to another.
PYTHON = f"{sys.version} {sys.flags.optimize}".encode()


def kept_code(name: str, said: str, make: Callable[[], CodeType]) -> CodeType:
    """The code that `make` compiles: from disk, where it is there already."""
    found = store.read(name)
    code = None if found is None else _loaded(found[1])
    if code is not None:
        return code
    made = make()
    try:
        block = marshal.dumps(made)
    except ValueError:  # constants that only this process has
        return made
    store.write(name, said, [block])
    return made


def _loaded(blocks: list[bytes]) -> CodeType | None:
    """The code of an entry, whose checksum is right: this Python wrote it, or one just like it."""
    try:
        code = marshal.loads(blocks[0])
    except (IndexError, ValueError, TypeError, EOFError):
        return None
    return code if isinstance(code, CodeType) else None
