"""Damaged files: bytes that are changed at random, with seeds, and watched readers of them."""

from __future__ import annotations

import contextlib
import os
import random
import re
import resource
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

#: Numbers at which readers go wrong.
_EDGES = [0, 1, 2, 7, 0x7F, 0xFF, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 62, (1 << 64) - 1]
_TEXTS = [b"0", b"-1", b"1e9", b"99999999999", b"9" * 40, b"null", b"[]", b"{}", b'"x"', b"1.5"]


def mutated(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """Data with one to three changes."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        data = chance.choice(_CHANGES)(data, others, chance)
    return data


def _place(data: bytes, chance: random.Random) -> int:
    return chance.randrange(len(data) + 1)


def _cut(data: bytes, _others: Any, chance: random.Random) -> bytes:
    return data[: _place(data, chance)]


def _grow(data: bytes, _others: Any, chance: random.Random) -> bytes:
    at = _place(data, chance)
    return data[:at] + chance.randbytes(chance.choice((1, 4, 8, 50))) + data[at:]


def _flip(data: bytes, _others: Any, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8)) if data else 0):
        changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _number(data: bytes, _others: Any, chance: random.Random) -> bytes:
    """A number of the machine in place of some bytes."""
    code, size = chance.choice((("<Q", 8), ("<I", 4), ("<H", 2), ("<B", 1)))
    number = struct.pack(code, chance.choice(_EDGES) % (1 << 8 * size))
    at = chance.randrange(max(1, len(data) - size))
    return data[:at] + number + data[at + size :]


def _text(data: bytes, _others: Any, chance: random.Random) -> bytes:
    """Another number, or another value, in place of a number in text."""
    found = list(re.finditer(rb"-?\d+", data))
    if not found:
        return data
    match = chance.choice(found)
    text = chance.choice((*_TEXTS, *(other[0] for other in found[:30])))
    return data[: match.start()] + text + data[match.end() :]


def _shift(data: bytes, _others: Any, chance: random.Random) -> bytes:
    """Two numbers in text that are moved together: the two ends of something."""
    found = list(re.finditer(rb"(\d+),(\d+)", data))
    if not found:
        return data
    match, by = chance.choice(found), chance.choice((-24, -8, -4, -1, 1, 4, 8, 24))
    pair = b",".join(b"%d" % max(0, int(number[:18]) + by) for number in match.groups())
    return data[: match.start()] + pair + data[match.end() :]


def _small(data: bytes, _others: Any, chance: random.Random) -> bytes:
    """Another small number after a letter: of a pickle, say."""
    places = [at for at, byte in enumerate(data[:-1]) if byte == ord("K")]
    if not places:
        return _flip(data, _others, chance)
    at = chance.choice(places) + 1
    return data[:at] + bytes([chance.randrange(40)]) + data[at + 1 :]


def _word(data: bytes, _others: Any, chance: random.Random) -> bytes:
    """One word in place of another."""
    found = list(re.finditer(rb'"[^"]{0,30}"|\w{2,}', data))
    if not found:
        return data
    match, other = chance.choice(found), chance.choice(found)
    return data[: match.start()] + other[0] + data[match.end() :]


def _remove(data: bytes, _others: Any, chance: random.Random) -> bytes:
    at = _place(data, chance)
    return data[:at] + data[at + chance.choice((1, 2, 8, 60)) :]


def _repeat(data: bytes, _others: Any, chance: random.Random) -> bytes:
    at, size = _place(data, chance), chance.choice((1, 4, 30, 200))
    return data[:at] + data[at : at + size] * chance.choice((2, 3, 20)) + data[at + size :]


def _splice(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    other = chance.choice(others)
    return data[: _place(data, chance)] + other[_place(other, chance) :]


_CHANGES: list[Callable[[bytes, Sequence[bytes], random.Random], bytes]] = [
    *(_cut, _grow, _flip, _flip, _number, _number, _text, _text, _text, _shift, _word, _remove),
    *(_repeat, _splice, _small, _small),
]


# --- what a reader does --------------------------------------------------------------------------

#: Events of the interpreter that a reader of data has no reason for.
_FORBIDDEN = re.compile(
    r"exec|compile|pickle\.|marshal\.|subprocess\.|os\.(system|exec|posix_spawn|fork)"
    r"|os\.(remove|rename|mkdir|rmdir|chmod|link|symlink)|socket\.|shutil\.|ctypes\.dl"
)


class _Watch:
    """What happened while it was on."""

    def __init__(self) -> None:
        self.is_on = False
        self.folder = ""
        self.seen: list[str] = []

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.is_on:
            return
        if event == "open" and isinstance(arguments[0], (str, bytes)):
            path = os.fsdecode(arguments[0])
            inside = os.path.realpath(path).startswith(self.folder + os.sep)
            if not inside and not path.endswith(".py"):  # lines of code, for messages
                self.seen.append(f"open {path}")
        elif event == "compile" and arguments[1] == "<unknown>":
            pass  # `ast.parse` only parses: sizes in graphs are expressions of Python
        elif _FORBIDDEN.match(event):
            self.seen.append(f"{event} {arguments!r:.80}")


_watch = _Watch()


@contextlib.contextmanager
def watched(folder: str) -> Iterator[None]:
    """Fails if the block opens files outside of a folder, runs something, or takes much memory."""
    if not _watch.folder:
        sys.addaudithook(_watch.hook)  # for the rest of the process
    _watch.folder, _watch.seen = os.path.realpath(folder), []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _watch.is_on = True
    try:
        yield
    finally:
        _watch.is_on = False
    assert not _watch.seen, _watch.seen
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 100_000, f"{grown} kB of memory for small files"


@contextlib.contextmanager
def not_endless(seconds: float = 20.0) -> Iterator[None]:
    """Fails if the block takes very long."""
    begun = time.process_time()
    yield
    assert time.process_time() - begun < seconds
