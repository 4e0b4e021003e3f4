"""Static libraries: object files in an archive, as `ar` writes it."""

from __future__ import annotations

import struct
from collections.abc import Sequence

__all__ = ["archive"]

_MAGIC = b"!<arch>\n"
_HEAD = 60


def archive(members: Sequence[tuple[str, bytes, Sequence[str]]]) -> bytes:
    """An archive of object files, each with its name and the symbols that it defines."""
    names = b"".join(f"{name}/\n".encode() for name, _, _ in members)
    symbols = [symbol for _, _, defined in members for symbol in defined]
    text = b"".join(symbol.encode() + b"\0" for symbol in symbols)
    index = 4 + 4 * len(symbols) + len(text)
    at = len(_MAGIC) + _taken(index) + _taken(len(names))
    places: list[int] = []
    for _, data, defined in members:
        places += [at] * len(defined)
        at += _taken(len(data))
    found = [_MAGIC, _member("/", struct.pack(f">{1 + len(places)}I", len(places), *places) + text)]
    found.append(_member("//", names))
    start = 0
    for name, data, _ in members:
        found.append(_member(f"/{start}", data))
        start += len(name) + 2
    return b"".join(found)


def _taken(size: int) -> int:
    """Bytes of a member with its head."""
    return _HEAD + size + size % 2


def _member(name: str, data: bytes) -> bytes:
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(data):<10}`\n".encode()
    return head + data + b"\n" * (len(data) % 2)
