"""Machine code on disk, by content, so that the second process starts warm.

    loaded = cached(key, lambda: Code(text, ["run"], meta={"arena": 4096}))
    loaded.library.address("run"), loaded.meta

An entry is one file: a checksum, then the object code and the caller's `meta` (anything JSON can
say). It is written beside its place and then renamed, so any number of processes can write and
read; an entry that is cut short or damaged is made anew. Where nothing can be written, nothing is
kept, and nobody is bothered.

WEFT_CACHE_DIR   the folder (default: `weft` in the user's cache folder)
WEFT_CACHE_SIZE  how much to keep, such as "500 MB" (default 1 GiB): what was not used longest goes
WEFT_CACHE=0     no cache on disk
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.base.config import cache_dir
from weft.base.errors import InternalError, RangeError
from weft.codegen import llvm
from weft.codegen.jit import Library, link, object_code
from weft.codegen.target import Target, host

__all__ = ["Code", "Loaded", "cached", "clear", "folder", "info"]

#: What is in the files: a number for the layout of an entry and for the passes that made the code.
VERSION = 1
DEFAULT_SIZE = 1 << 30
MAGIC = b"weft object\n"
DIGEST_BYTES = 20
SUFFIX, UNFINISHED = ".o", ".part"
#: How old a file must be that some process began to write before it counts as left behind.
ABANDONED_S = 3600.0
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
    place = folder()
    code = make() if key is None else None
    path = place / (_name(key, code, target) + SUFFIX) if place else None
    found = _read(path) if path else None
    if found is not None:
        about = json.loads(found[0])
        try:
            return Loaded(link(found[1], about["exports"], target), about["meta"])
        except InternalError:  # not for this process, for whatever reason
            pass
    code = code or make()
    said = json.dumps({"exports": list(code.exports), "meta": code.meta})
    image = object_code(code.text, target)
    loaded = Loaded(link(image, code.exports, target), json.loads(said)["meta"])
    if path is not None:
        _write(path, said, image)
    return loaded


def folder() -> Path | None:
    """Where entries are; None where nothing is kept."""
    if os.environ.get("WEFT_CACHE", "").strip().lower() in ("0", "off", "no", "false"):
        return None
    try:
        return cache_dir() / "native"
    except RuntimeError:  # nobody's home
        return None


# --- names ---------------------------------------------------------------------------------------


def _name(key: bytes | None, code: Code | None, target: Target) -> str:
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    parts = [_build_key(target)]
    if key is not None:
        parts += [b"key", _source_key(), key]
    elif code is not None:
        exports, meta = "\n".join(code.exports), json.dumps(code.meta, sort_keys=True)
        parts += [b"text", exports.encode(), meta.encode(), code.text.encode()]
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


@functools.cache
def _build_key(target: Target) -> bytes:
    """What the object code depends on beside the text."""
    return repr((VERSION, llvm.version(), target)).encode()


@functools.cache
def _source_key() -> bytes:
    """Which Weft this is: size and time of each file that has a say in the code.

    So nobody who changes an emitter has to remember to change a number.
    """
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for name in SOURCES:
        for path, found in sorted(_files(root / name, ".py")):
            digest.update(f"{path} {found.st_size} {found.st_mtime_ns}\n".encode())
    return digest.digest()


def _files(place: Path | str, suffix: str) -> Iterator[tuple[str, os.stat_result]]:
    """The files below a folder whose names end so, with what the system knows of them."""
    try:
        with os.scandir(place) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from _files(entry.path, suffix)
                elif entry.name.endswith(suffix):
                    try:
                        yield entry.path, entry.stat()
                    except OSError:  # gone meanwhile: others clean up too
                        continue
    except OSError:
        return


# --- entries -------------------------------------------------------------------------------------


def _read(path: Path) -> tuple[str, bytes] | None:
    """What is said about an entry, and its object code; None where there is no good one."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    head = len(MAGIC) + DIGEST_BYTES
    body = memoryview(data)[head:]
    if data[: len(MAGIC)] != MAGIC or data[len(MAGIC) : head] != _checksum(body):
        return None  # the one who makes it anew writes over it
    size = int.from_bytes(body[:8], "little")
    with contextlib.suppress(OSError):
        os.utime(path)  # used now: the last to go
    return str(body[8 : 8 + size], "utf-8"), bytes(body[8 + size :])


def _checksum(body: bytes | memoryview) -> bytes:
    return hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest()


_numbers = itertools.count()


def _write(path: Path, said: str, image: bytes) -> None:
    """Keep an entry, if that is possible."""
    about = said.encode()
    body = b"".join([len(about).to_bytes(8, "little"), about, image])
    data = b"".join([MAGIC, _checksum(body), body])
    most = _most()
    if len(data) > most:
        return
    beside = path.with_name(f"{path.stem}.{os.getpid()}.{next(_numbers)}{UNFINISHED}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            beside.write_bytes(data)
            os.replace(beside, path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except OSError:
        return
    _room.spend(path.parent, len(data), most)


# --- how much there is ---------------------------------------------------------------------------


@dataclass(slots=True)
class _Room:
    """How much may be written until it is time to look at all the files again."""

    left: dict[Path, int] = field(default_factory=dict)

    def spend(self, place: Path, size: int, most: int) -> None:
        left = self.left.get(place, -1) - size
        if left < 0:
            # Others write too, each up to half of what was free when they looked.
            left = (most - _trim(place, most)) // 2
        self.left[place] = left


_room = _Room()


def _trim(place: Path, most: int) -> int:
    """Remove what was not used longest until `most` bytes are kept; how many are left."""
    now = time.time()
    for path, found in _files(place, UNFINISHED):
        if now - found.st_mtime > ABANDONED_S:
            _remove(path)
    entries = sorted((found.st_mtime_ns, found.st_size, path) for path, found in _entries(place))
    total = sum(size for _, size, _ in entries)
    if total > most:
        for _, size, path in entries:
            if total <= most * 4 // 5:  # some more than must be, so as not to come back at once
                break
            _remove(path)
            total -= size
    return total


def _entries(place: Path) -> Iterator[tuple[str, os.stat_result]]:
    return _files(place, SUFFIX)


def _remove(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}


def _most() -> int:
    """WEFT_CACHE_SIZE in bytes."""
    text = os.environ.get("WEFT_CACHE_SIZE", "").strip()
    if not text:
        return DEFAULT_SIZE
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(|k|m|g|ki|mi|gi)b?", text.lower())
    if found is None:
        raise RangeError(
            f"WEFT_CACHE_SIZE is {text!r}",
            op="the cache of native code",
            hint='a number of bytes, or such as "500 MB" or "2 GiB"',
        )
    return int(float(found[1]) * _UNITS[found[2]])


def info() -> dict[str, Any]:
    """What is kept, for people: folder, entries, bytes, and the most bytes to keep."""
    place = folder()
    sizes = [found.st_size for _, found in _entries(place)] if place else []
    return {
        "folder": str(place) if place else None,
        "entries": len(sizes),
        "bytes": sum(sizes),
        "most bytes": _most(),
    }


def clear() -> int:
    """Remove all entries; how many there were. Processes that run keep what they have loaded."""
    place = folder()
    if place is None:
        return 0
    for path, _ in _files(place, UNFINISHED):
        _remove(path)
    _room.left.clear()
    return sum(_remove(path) for path, _ in list(_entries(place)))
