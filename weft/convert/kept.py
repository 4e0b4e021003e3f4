"""A cache of rewritten code on disk: an unchanged function is not parsed and rewritten again.

The result of rewriting depends on the function's code (with its names, lines and columns), on its
source text, and on the versions of Python and Weft. A hash of all of these is the name of the
entry, so an entry that is found is right. A damaged one is written again (`weft/base/store.py`).
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

#: Folders of the package that determine how a function is rewritten.
SOURCES = ("convert",)
#: A version of `marshal` whose output does not depend on reference counts.
REPEATABLE = 2

MOST_FILES = 256

_LOADED = time.time()


def is_untouched(file: str) -> bool:
    """Whether this is a file of Weft that has not changed since this process loaded it."""
    return bool(_own_file(file))


def is_kept(function: FunctionType) -> bool:
    """Whether the function, as it is now, is in the cache."""
    name = name_of(function)
    return name is not None and store.has(name)


def name_of(function: FunctionType) -> str | None:
    """The name of a function's cache entry; None if it cannot have one."""
    return _name(function) if store.folder() is not None else None


def kept(function: FunctionType, make: Callable[[], CodeType]) -> CodeType:
    """The rewritten code of a function: from disk if it is there, else from `make`."""
    name = name_of(function)
    if name is None:
        return make()
    return cached_code(name, function.__qualname__, make)


def _name(function: FunctionType) -> str | None:
    """As `name_of`, computed. None if nothing identifies the source of the function."""
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
    """Identifies the text of a file of Weft without reading it; empty if that is not certain."""
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
    """A hash of the text of a user's file; empty for code that was typed or generated."""
    lines = linecache.getlines(file, module)
    known = _texts.get(file)
    if known is None or known[0] is not lines:
        text = "".join(lines).encode("utf-8", "surrogatepass") if os.path.isfile(file) else b""
        if len(_texts) >= MOST_FILES:
            _texts.clear()
        known = _texts[file] = lines, store.name_of(text).encode() if text else b""
    return known[1]
