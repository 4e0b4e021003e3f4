"""Machine code cached on disk by what it depends on, so that the second process starts warm.

    loaded = cached(key, lambda: Code(text, ["run"], meta={"arena": 4096}))
    loaded.library.address("run"), loaded.meta

`weft/base/store.py` says where files are and how many are kept.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from weft.base import store
from weft.base.errors import InternalError
from weft.codegen import llvm
from weft.codegen.jit import Library, link, object_codes
from weft.codegen.machine import Machine, host

__all__ = ["Code", "Loaded", "Request", "cached", "prepare"]

#: Version of an entry's layout, and of the passes that made the code.
VERSION = 1
#: Folders whose source decides what code a graph becomes. Composite cards are decomposed by
#: recording their rules, which involves autodiff and record.
SOURCES = (
    *("base", "ir", "core", "ops", "optim", "autodiff", "record", "capture", "passes"),
    *("schedule", "codegen", "runtime"),
)


@dataclass(frozen=True, slots=True)
class Code:
    """What to build: the module's text, its exported functions, and metadata for the caller.

    brief   whether to compile quickly rather than for fast code: for code without loops
    """

    text: str
    exports: Sequence[str]
    meta: Any = None
    brief: bool = False


@dataclass(frozen=True, slots=True)
class Loaded:
    """Loaded code, and the caller's `meta` as read back from JSON.

    seconds   how long LLVM took to compile (missing for a cache hit), and how long loading took
    """

    library: Library
    meta: Any
    seconds: dict[str, float] = field(default_factory=dict)


Request = tuple[bytes, Callable[[], Code]]
#: Prepared code that has not been used yet.
_waiting: dict[str, Loaded] = {}


def cached(
    key: bytes | None,
    make: Callable[[], Code],
    target: Machine | None = None,
) -> Loaded:
    """The code that `make` describes, compiled once for each `key`.

    `key` must cover everything the code depends on, except the machine, the versions and the source
    of Weft, which are added. If it is None, the text itself is the key.
    """
    target = target or host()
    code = make() if key is None else None
    name = _name(key, code, target)
    waiting = _waiting.pop(name, None)
    if waiting is not None:
        return waiting
    found = _from_disk(name, target)
    if found is not None:
        return found
    if code is None:
        code = make()
    times = [time.perf_counter()]
    (parts,) = _compiled([code], target)
    times.append(time.perf_counter())
    loaded = _kept(name, code, parts, target)
    times.append(time.perf_counter())
    seconds = {"llvm": times[1] - times[0], "load": times[2] - times[1]}
    return replace(loaded, seconds=seconds)


def _from_disk(name: str, target: Machine) -> Loaded | None:
    start = time.perf_counter()
    found = store.read(name)
    if found is None:
        return None
    about, parts = found
    try:
        library = link(parts, about["exports"], target)
    except InternalError:  # unusable in this process, for whatever reason
        return None
    return Loaded(library, about["meta"], {"load": time.perf_counter() - start})


def prepare(requests: Sequence[Request]) -> None:
    """Load the code of several requests, or compile all that is missing at once, before it is
    needed."""
    if not requests:
        return
    target = host()
    todo: dict[str, Code] = {}
    for key, make in requests:
        at = _name(key, None, target)
        found = _waiting.get(at) or _from_disk(at, target)
        if found is None:
            todo[at] = make()
        else:
            _waiting[at] = found
    if todo:
        for (at, code), parts in zip(
            todo.items(), _compiled([*todo.values()], target), strict=True
        ):
            _waiting[at] = _kept(at, code, parts, target)


def _compiled(codes: Sequence[Code], target: Machine) -> list[list[bytes]]:
    return object_codes([code.text for code in codes], target, [code.brief for code in codes])


def _kept(name: str, code: Code, parts: list[bytes], target: Machine) -> Loaded:
    """Compile, load, and write code to disk."""
    about = json.loads(json.dumps({"exports": list(code.exports), "meta": code.meta}))
    library = link(parts, code.exports, target)
    store.write(name, about, parts)
    return Loaded(library, about["meta"])


def _name(key: bytes | None, code: Code | None, target: Machine) -> str:
    if code is None:
        return store.name_of(_build_key(target), b"key", store.sources(*SOURCES), key or b"")
    meta = json.dumps(code.meta, sort_keys=True)
    said = [*code.exports, meta, code.text]
    return store.name_of(_build_key(target), b"text", *[part.encode() for part in said])


@functools.cache
def _build_key(target: Machine) -> bytes:
    """What object code depends on besides the text."""
    return repr((VERSION, llvm.version(), np.__version__, target)).encode()  # NumPy has LAPACK
