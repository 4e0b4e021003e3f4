"""A cache of compiled Python code on disk. Names are digests of everything the code depends on."""

from __future__ import annotations

import marshal
import sys
from collections.abc import Callable
from types import CodeType

from weft.base import store

__all__ = ["PYTHON", "cached_code"]

#: The version of Python that compiles: other versions cannot load its code.
PYTHON = f"{sys.version} {sys.flags.optimize}".encode()


def cached_code(name: str, said: str, make: Callable[[], CodeType]) -> CodeType:
    """The code that `make` compiles, or the same code from the cache."""
    found = store.read(name)
    code = None if found is None else _loaded(found[1])
    if code is not None:
        return code
    made = make()
    try:
        block = marshal.dumps(made)
    except ValueError:  # it has constants that exist only in this process
        return made
    store.write(name, said, [block])
    return made


def _loaded(blocks: list[bytes]) -> CodeType | None:
    """The code of an entry with a valid checksum: the same version of Python wrote it."""
    try:
        code = marshal.loads(blocks[0])
    except (IndexError, ValueError, TypeError, EOFError):
        return None
    return code if isinstance(code, CodeType) else None
