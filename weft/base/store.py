"""What is worth keeping between processes: small files in one folder, by name.

An entry is one file: a checksum, its own name, something that JSON can say, and blocks of bytes. It
is written beside its place and then renamed, so any number of processes can write and read; an
entry that is cut short, damaged or under another's name counts as none. Where nothing can be
written, nothing is kept, and nobody is bothered.

Entries are code, and are run. So the folder is used only where nobody else can write to it (see
`weft.base.private_files`); where others can, a warning says so, and nothing is kept.

Machine code is kept so (`weft.codegen.cache`) and the rewritten code of functions
(`weft.capture.convert.kept`). Their names are digests of all that they depend on: nothing is ever
looked up that could be out of date.

WEFT_CACHE_DIR   the folder (default: see `weft.base.config.cache_dir`)
WEFT_CACHE_SIZE  how much to keep, such as "500 MB" (default 1 GiB): what was not used longest goes
WEFT_CACHE=0     nothing is kept
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.base.config import cache_dir
from weft.base.errors import RangeError
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
#: What a process may write before it looks how much there is: this part of what may be kept.
SMALL_PART = 64
#: How old a file must be that some process began to write before it counts as left behind.
ABANDONED_S = 3600.0


class CacheWarning(UserWarning):
    """What is kept on disk cannot be used."""


def folder() -> Path | None:
    """Where entries are; None where nothing is kept."""
    said = tuple(map(os.environ.get, _VARIABLES))
    if said not in _folders:
        _folders[said] = _folder(said[0] or "")
    place = _folders[said]
    return place if place in _trusted or place is None else _if_trusted(place)


#: What decides about the folder.
_VARIABLES = (
    *("WEFT_CACHE", "WEFT_CACHE_DIR", "XDG_CACHE_HOME", "HOME"),
    *("LOCALAPPDATA", "USERPROFILE"),
)
_folders: dict[tuple[str | None, ...], Path | None] = {}
#: Folders that others cannot write to, and those that they can.
_trusted: set[Path] = set()
_refused: set[Path] = set()


def _if_trusted(place: Path) -> Path | None:
    """A folder, if it can be trusted; one that is not there yet is looked at again."""
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
    except RuntimeError:  # nobody's home
        return None


def name_of(*parts: bytes) -> str:
    """The name of an entry that depends on all of these."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return str(digest.hexdigest())


def files(place: Path | str, suffix: str) -> Iterator[tuple[str, os.stat_result]]:
    """The files below a folder whose names end so, with what the system knows of them."""
    try:
        with os.scandir(place) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from files(entry.path, suffix)
                elif entry.name.endswith(suffix):
                    try:
                        yield entry.path, entry.stat(follow_symlinks=False)
                    except OSError:  # gone meanwhile: others clean up too
                        continue
    except OSError:
        return


_LOADED = time.time()


@functools.cache
def sources(*folders: str) -> bytes:
    """Which Weft this is: size and time of each file in folders of the package, or of the zip file
    that the package is in.

    What depends on them is named by it, so nobody who changes them has to remember to change a
    number.
    """
    lines: list[str] = []
    newest = 0
    waiting = [os.path.join(PACKAGE, name) for name in folders]
    while waiting:  # hundreds of files, before the first result: as little as can be for each
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
        lines.append(os.urandom(16).hex())  # not the files that this process runs: shared with none
    return name_of("\n".join(sorted(lines)).encode()).encode()


# --- entries -------------------------------------------------------------------------------------


def has(name: str) -> bool:
    """Whether there is an entry, good or not."""
    place = folder()
    return place is not None and os.path.exists(f"{place}{os.sep}{name}{SUFFIX}")


#: What an entry says, and its blocks.
Entry = tuple[Any, list[bytes]]


class _Use(threading.local):
    """Which entries a thread uses, while somebody wants to know: see `weft.base.bundle`."""

    ahead: Mapping[str, Entry] = {}  # some that were read before they are asked for
    used: dict[str, Entry] | None = None


use = _Use()


def read(name: str) -> Entry | None:
    """What an entry says, and its blocks; None where there is no good one."""
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
        return None  # the one who makes it anew writes over it
    at = 8 + int.from_bytes(body[:8], "little")
    own, said, sizes = json.loads(str(body[8:at], "utf-8"))
    if own != name:
        return None  # it was put in the place of another
    with contextlib.suppress(OSError):
        os.utime(path)  # used now: the last to go
    ends = list(itertools.accumulate(sizes, initial=at))
    return said, [bytes(body[start:end]) for start, end in itertools.pairwise(ends)]


def _checksum(body: bytes | memoryview) -> bytes:
    return bytes(hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest())


_numbers = itertools.count()


def write(name: str, said: Any, blocks: Sequence[bytes] = ()) -> None:
    """Keep an entry, if that is possible."""
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
    """How much may be written until it is time to look at all the files.

    That takes as long as there are many: a process that writes a little looks when it ends.
    """

    left: dict[Path, int] = field(default_factory=dict)
    due: dict[Path, int] = field(default_factory=dict)  # where it has not looked yet

    def spend(self, place: Path, size: int, most: int) -> None:
        if place not in self.left:
            self.left[place], self.due[place] = most // SMALL_PART, most
        self.left[place] -= size
        if self.left[place] < 0:
            self.look(place, most)

    def look(self, place: Path, most: int) -> None:
        self.due.pop(place, None)
        # Others write too, each up to half of what was free when they looked.
        self.left[place] = (most - _trim(place, most)) // 2

    def look_at_rest(self) -> None:
        for place, most in list(self.due.items()):
            self.look(place, most)


_room = _Room()
atexit.register(_room.look_at_rest)


def _trim(place: Path, most: int) -> int:
    """Remove what was not used longest until `most` bytes are kept; how many are left."""
    now = time.time()
    for path, found in files(place, UNFINISHED):
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
    return files(place, SUFFIX)


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
            op="the cache on disk",
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
    for path, _ in files(place, UNFINISHED):
        _remove(path)
    _room.left.clear()
    return sum(_remove(path) for path, _ in list(_entries(place)))
