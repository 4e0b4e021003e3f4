"""The cache on disk: entries that processes share, as small files in one folder.

An entry is one file: a checksum, its own name, a value that JSON can hold, and blocks of bytes. It
is written to a temporary file and then renamed, so any number of processes can read and write. A
truncated, damaged or misplaced entry counts as missing. If the folder cannot be written, nothing is
kept, without a warning.

Entries are code that Weft runs. So the folder is used only if nobody else can write to it (see
`weft.base.private_files`); otherwise nothing is kept, with a warning.

Entries are machine code (`weft.codegen.cache`) and the converted code of functions
(`weft.convert.kept`). Their names are digests of everything they depend on, so an outdated
entry is never found.

WEFT_CACHE_DIR   the folder (default: see `weft.base.config.cache_dir`)
WEFT_CACHE_SIZE  the size limit, such as "500 MB" (default 1 GiB); least recently used entries go
WEFT_CACHE=0     nothing is kept
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from weft.base.byte_count import byte_count
from weft.base.config import cache_dir
from weft.base.dataclass import dataclass
from weft.base.lazy import Lazy
from weft.base.private_files import make_folder, read_file, refusal, write_file
from weft.base.source import PACKAGE, warn_user

__all__ = [
    "CacheWarning",
    "Entry",
    "clear",
    "files",
    "folder",
    "has",
    "info",
    "name_of",
    "read",
    "sources",
    "write",
]

hashlib, json = Lazy("hashlib"), Lazy("json")
DEFAULT_SIZE = 1 << 30
MAGIC = b"weft entry 2\n"
DIGEST_BYTES = 20
SUFFIX, UNFINISHED = ".weft", ".part"
#: A process checks the size of the folder after writing 1/64 of the limit.
SMALL_PART = 64
#: A temporary file that is older was left behind by a process that died.
ABANDONED_S = 3600.0


class CacheWarning(UserWarning):
    """The cache on disk cannot be used."""


def folder() -> Path | None:
    """The folder of the entries; None if nothing is kept."""
    said = tuple(map(os.environ.get, _VARIABLES))
    if said not in _folders:
        _folders[said] = _folder(said[0] or "")
    place = _folders[said]
    return place if place in _trusted or place is None else _if_trusted(place)


#: The variables that determine the folder.
_VARIABLES = (
    *("WEFT_CACHE", "WEFT_CACHE_DIR", "XDG_CACHE_HOME", "HOME"),
    *("LOCALAPPDATA", "USERPROFILE"),
)
_folders: dict[tuple[str | None, ...], Path | None] = {}
#: Folders that nobody else can write to, and folders that others can write to.
_trusted: set[Path] = set()
_refused: set[Path] = set()


def _if_trusted(place: Path) -> Path | None:
    """A folder, if it can be trusted. One that does not exist yet is checked again later."""
    if place in _refused:
        return None
    try:
        why = refusal(place)
    except OSError:
        return place
    if why is None:
        _trusted.add(place)
        return place
    _refused.add(place)
    warn_user(
        f"Weft keeps no code on disk: {why}. Code that is kept is run, so nobody else may be able "
        "to write there. Or set WEFT_CACHE_DIR to a folder of your own; WEFT_CACHE=0 keeps nothing "
        "and says nothing",
        CacheWarning,
    )
    return None


def _folder(switch: str) -> Path | None:
    if switch.strip().lower() in ("0", "off", "no", "false"):
        return None
    try:
        return Path(os.path.realpath(cache_dir() / "entries"))
    except RuntimeError:  # there is no home folder
        return None


def name_of(*parts: bytes) -> str:
    """The name of an entry that depends on these parts: their digest."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return str(digest.hexdigest())


def files(place: Path | str, suffix: str) -> Iterator[tuple[str, os.stat_result]]:
    """The files below a folder with this suffix, and their stat results."""
    try:
        with os.scandir(place) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from files(entry.path, suffix)
                elif entry.name.endswith(suffix):
                    try:
                        yield entry.path, entry.stat(follow_symlinks=False)
                    except OSError:  # another process has removed it
                        continue
    except OSError:
        return


_LOADED = time.time()


@functools.cache
def sources(*folders: str) -> bytes:
    """A digest of Weft's own source: size and time of each file in these folders of the package, or
    of the zip file that contains the package.

    It is part of the names of entries, so that nobody has to increase a version number.
    """
    lines: list[str] = []
    newest = 0
    waiting = [os.path.join(PACKAGE, name) for name in folders]
    while waiting:  # the first call waits for hundreds of files: do little for each
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                name = entry.name
                if name.endswith(".py"):
                    found = entry.stat()
                    lines.append(f"{entry.path} {found.st_size} {found.st_mtime_ns}")
                    newest = max(newest, found.st_mtime_ns)
                elif "." not in name and name != "__pycache__" and entry.is_dir():
                    waiting.append(entry.path)
    archive = None if lines else next((p for p in Path(PACKAGE).parents if p.is_file()), None)
    if archive is not None:
        found = archive.stat()
        lines.append(f"{archive} {found.st_size} {found.st_mtime_ns}")
        newest = found.st_mtime_ns
    if newest > _LOADED * 1e9 or not lines:
        lines.append(os.urandom(16).hex())  # edited since they were loaded: share nothing
    return name_of("\n".join(sorted(lines)).encode()).encode()


# --- entries -------------------------------------------------------------------------------------


def has(name: str) -> bool:
    """Whether an entry exists; it may be damaged."""
    place = folder()
    return place is not None and os.path.exists(f"{place}{os.sep}{name}{SUFFIX}")


#: The JSON value of an entry, and its blocks.
Entry = tuple[Any, list[bytes]]


class _Use(threading.local):
    """The entries that a thread uses, noted for `weft.base.bundle`."""

    ahead: Mapping[str, Entry] = {}  # read in advance
    used: dict[str, Entry] | None = None


use = _Use()


def read(name: str) -> Entry | None:
    """The JSON value of an entry, and its blocks; None if there is no valid entry."""
    found = use.ahead.get(name) or _read(name)
    if found is not None and use.used is not None:
        use.used[name] = found
    return found


def _read(name: str) -> Entry | None:
    place = folder()
    if place is None:
        return None
    path = f"{place}{os.sep}{name}{SUFFIX}"
    data = read_file(path)
    if data is None or place not in _trusted:
        return None
    head = len(MAGIC) + DIGEST_BYTES
    body = memoryview(data)[head:]
    if data[: len(MAGIC)] != MAGIC or data[len(MAGIC) : head] != _checksum(body):
        return None  # whoever creates it again will overwrite it
    at = 8 + int.from_bytes(body[:8], "little")
    own, said, sizes = json.loads(str(body[8:at], "utf-8"))
    if own != name:
        return None  # a misplaced file
    with contextlib.suppress(OSError):
        os.utime(path)  # now the most recently used
    ends = list(itertools.accumulate(sizes, initial=at))
    return said, [bytes(body[start:end]) for start, end in itertools.pairwise(ends)]


def _checksum(body: bytes | memoryview) -> bytes:
    return bytes(hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest())


_numbers = itertools.count()


def write(name: str, said: Any, blocks: Sequence[bytes] = ()) -> None:
    """Write an entry, if possible."""
    place = folder()
    if place is None:
        return
    if use.used is not None:
        use.used[name] = (said, list(blocks))
    path = place / f"{name}{SUFFIX}"
    head = json.dumps([name, said, [len(block) for block in blocks]]).encode()
    body = b"".join([len(head).to_bytes(8, "little"), head, *blocks])
    data = b"".join([MAGIC, _checksum(body), body])
    most = _most()
    if len(data) > most:
        return
    beside = path.with_name(f"{path.stem}.{os.getpid()}.{next(_numbers)}{UNFINISHED}")
    try:
        make_folder(place)
        if place not in _trusted and _if_trusted(place) is None:
            return
        try:
            write_file(beside, data)
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
    """How much may be written before the size of the folder is checked again.

    A check reads all file sizes, so a process that writes little does it only at its end.
    """

    left: dict[Path, int] = field(default_factory=dict)
    due: dict[Path, int] = field(default_factory=dict)  # for folders that were not checked yet

    def spend(self, place: Path, size: int, most: int) -> None:
        if place not in self.left:
            self.left[place], self.due[place] = most // SMALL_PART, most
        self.left[place] -= size
        if self.left[place] < 0:
            self.look(place, most)

    def look(self, place: Path, most: int) -> None:
        self.due.pop(place, None)
        # Other processes write too, each up to half of what was free when they checked.
        self.left[place] = (most - _trim(place, most)) // 2

    def look_at_rest(self) -> None:
        for place, most in list(self.due.items()):
            self.look(place, most)


_room = _Room()
atexit.register(_room.look_at_rest)


def _trim(place: Path, most: int) -> int:
    """Remove least recently used entries until `most` bytes are left; returns the bytes left."""
    now = time.time()
    for path, found in files(place, UNFINISHED):
        if now - found.st_mtime > ABANDONED_S:
            _remove(path)
    entries = sorted((found.st_mtime_ns, found.st_size, path) for path, found in _entries(place))
    total = sum(size for _, size, _ in entries)
    if total > most:
        for _, size, path in entries:
            if total <= most * 4 // 5:  # more than necessary, so that the next time is not soon
                break
            _remove(path)
            total -= size
    return total


def _entries(place: Path) -> Iterator[tuple[str, os.stat_result]]:
    return files(place, SUFFIX)


def _remove(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True


def _most() -> int:
    """WEFT_CACHE_SIZE in bytes."""
    text = os.environ.get("WEFT_CACHE_SIZE", "").strip()
    return byte_count(text, "WEFT_CACHE_SIZE", "the cache on disk") if text else DEFAULT_SIZE


def info() -> dict[str, Any]:
    """The folder, the number of entries, their bytes and the limit, to be shown to users."""
    place = folder()
    sizes = [found.st_size for _, found in _entries(place)] if place else []
    return {
        "folder": str(place) if place else None,
        "entries": len(sizes),
        "bytes": sum(sizes),
        "most bytes": _most(),
    }


def clear() -> int:
    """Remove all entries and return their number. Running processes keep what they have loaded."""
    place = folder()
    if place is None:
        return 0
    for path, _ in files(place, UNFINISHED):
        _remove(path)
    _room.left.clear()
    return sum(_remove(path) for path, _ in list(_entries(place)))
