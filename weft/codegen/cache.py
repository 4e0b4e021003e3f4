"""Machine code by what it depends on, kept on disk, so that the second process starts warm.

    loaded = cached(key, lambda: Code(text, ["run"], meta={"arena": 4096}))
    loaded.library.address("run"), loaded.meta

What is kept where, and how much, is in `store.py`.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.base.errors import InternalError
from weft.codegen import llvm, store
from weft.codegen.jit import Library, link, object_code
from weft.codegen.target import Target, host

__all__ = ["Code", "Loaded", "cached"]

#: A number for the layout of an entry and for the passes that made the code.
VERSION = 1
#: Folders of the package whose source decides which code a graph becomes.
SOURCES = ("base", "ir", "ops", "passes", "schedule", "codegen", "runtime")


@dataclass(frozen=True, slots=True)
class Code:
    """What to build: the module's text, what can be called in it, and what the caller must know."""

    text: str
    exports: Sequence[str]
    meta: Any = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was built or found: code in memory, and the caller's `meta` as JSON gives it back."""

    library: Library
    meta: Any


def cached(key: bytes | None, make: Callable[[], Code], target: Target | None = None) -> Loaded:
    """The code that `make` describes; what `key` has brought once is not made again.

    `key` must say all that the code depends on but for the machine, the versions and the source of
    Weft, which are added. Where it is None, the text itself is the key.
    """
    target = target or host()
    code = make() if key is None else None
    name = _name(key, code, target)
    found = store.read(name)
    if found is not None:
        about, parts = found
        try:
            return Loaded(link(parts, about["exports"], target), about["meta"])
        except InternalError:  # not for this process, for whatever reason
            pass
    if code is None:
        llvm.preload()
        code = make()
    about = json.loads(json.dumps({"exports": list(code.exports), "meta": code.meta}))
    parts = object_code(code.text, target)
    loaded = Loaded(link(parts, code.exports, target), about["meta"])
    store.write(name, about, parts)
    return loaded


def _name(key: bytes | None, code: Code | None, target: Target) -> str:
    if code is None:
        return store.name_of(_build_key(target), b"key", _source_key(), key or b"")
    meta = json.dumps(code.meta, sort_keys=True)
    said = [*code.exports, meta, code.text]
    return store.name_of(_build_key(target), b"text", *[part.encode() for part in said])


@functools.cache
def _build_key(target: Target) -> bytes:
    """What the object code depends on beside the text."""
    return repr((VERSION, llvm.version(), target)).encode()


_LOADED = time.time()


@functools.cache
def _source_key() -> bytes:
    """Which Weft this is: size and time of each file that has a say in the code.

    So nobody who changes an emitter has to remember to change a number.
    """
    root = Path(__file__).resolve().parents[1]
    found = [entry for name in SOURCES for entry in store.files(root / name, ".py")]
    lines = [f"{path} {stat.st_size} {stat.st_mtime_ns}" for path, stat in sorted(found)]
    if any(stat.st_mtime > _LOADED for _, stat in found):
        lines.append(os.urandom(16).hex())  # not the files that this process runs: shared with none
    return store.name_of("\n".join(lines).encode()).encode()
