"""A cache of rewritten code on disk: an unchanged function is not parsed and rewritten again.

What rewriting makes of a function depends on its code (the names, lines and columns in it too), on
the text it is read from, and on which Python and which Weft do it: all of that
is the name of its entry. So an entry that is found is what rewriting would give, and one that is
damaged is made anew (see `weft/base/store.py`).
"""

from __future__ import annotations

import linecache
import marshal
import os
import time
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from weft.base import store
from weft.base.code_cache import PYTHON, cached_code
from weft.base.source import PACKAGE

#: Folders of the package that have a say in what a function is rewritten to.
SOURCES = ("convert",)
#: A form of `marshal` that writes equal code the same way, whoever else holds its parts.
REPEATABLE = 2

MOST_FILES = 256

_LOADED = time.time()


def is_untouched(file: str) -> bool:
    """Whether a file of Weft itself has not been written since this process loaded it."""
    return bool(_own_file(file))


def is_kept(function: FunctionType) -> bool:
    """Whether some process has rewritten the function as it is now."""
    name = name_of(function)
    return name is not None and store.has(name)


def name_of(function: FunctionType) -> str | None:
    """What the entry of a function is called; None where it has none."""
    return _name(function) if store.folder() is not None else None


def kept(function: FunctionType, make: Callable[[], CodeType]) -> CodeType:
    """The code that `make` rewrites a function to: from disk, where it is there already."""
    name = name_of(function)
    if name is None:
        return make()
    return cached_code(name, function.__qualname__, make)


def _name(function: FunctionType) -> str | None:
    """What an entry is called; None where a function has nothing that tells it from others."""
    code = function.__code__
    text = _own_file(code.co_filename) or _text(code.co_filename, function.__globals__)
    if not text:
        return None
    try:
        exact = marshal.dumps(code, REPEATABLE)
    except ValueError:
        return None
    return store.name_of(b"converted 2", PYTHON, store.sources(*SOURCES), text, exact)


def _own_file(file: str) -> bytes:
    """Which text a file of Weft's own has, without reading it: nothing, where it is not sure."""
    if not file.startswith(PACKAGE):
        return b""
    try:
        found = os.stat(file)
    except OSError:
        return b""
    if found.st_mtime >= _LOADED - 60:
        return b""
    return f"{found.st_size} {found.st_mtime_ns}".encode()


_texts: dict[str, tuple[list[str], bytes]] = {}


def _text(file: str, module: dict[str, Any]) -> bytes:
    """The text of a user's file, in short; nothing, where what is typed or generated is in none."""
    lines = linecache.getlines(file, module)
    known = _texts.get(file)
    if known is None or known[0] is not lines:
        text = "".join(lines).encode("utf-8", "surrogatepass") if os.path.isfile(file) else b""
        if len(_texts) >= MOST_FILES:
            _texts.clear()
        known = _texts[file] = lines, store.name_of(text).encode() if text else b""
    return known[1]
