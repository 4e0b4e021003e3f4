"""The records of a zip file by their places, for files that are not compressed.

Nothing is unpacked. Records that are named twice, overlap or lie beyond the end of the file are
refused.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from weft.interop.files import Source

__all__ = ["Record", "read_records"]

_LOCAL, _CENTRAL, _END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
_END_64, _LOCATOR_64 = b"PK\x06\x06", b"PK\x06\x07"
_LONGEST_COMMENT = 0xFFFF
_ENCRYPTED, _IS_64 = 1, 1


#: What the list of records says of one: its offset, its size in the file, its CRC-32, `is_packed`.
_Place = tuple[int, int, int, bool]


class Record(NamedTuple):
    """Where the bytes of a record begin and end, and their CRC-32; 0: it was not computed."""

    start: int
    end: int
    checksum: int
    is_packed: bool  # compressed or encrypted: this module cannot read it


def read_records(source: Source) -> dict[str, Record]:
    """The records of a file by name, in their order."""
    count, at, stop = _directory(source)
    table = source.part(at, stop)
    places: dict[str, _Place] = {}
    here = 0
    for _ in range(count):
        if table[here : here + 4] != _CENTRAL or here + 46 > len(table):
            raise source.error("its list of records is damaged")
        fields = struct.unpack("<4s6H3L5H2L", table[here : here + 46])
        flags, method, crc, packed, size, *lengths = *fields[3:5], *fields[7:13]
        offset = fields[16]
        name_end = here + 46 + lengths[0]
        extra_end = name_end + lengths[1]
        name = table[here + 46 : name_end].decode("utf-8", "replace")
        extra = table[name_end:extra_end]
        here = extra_end + lengths[2]
        if here > len(table):
            raise source.error("its list of records is damaged")
        size, packed, offset = _wide(source, extra, size, packed, offset)
        if name in places:
            raise source.error(f"it has two records {name!r:.80}")
        is_packed = bool(flags & _ENCRYPTED or method or packed != size)
        places[name] = offset, packed, crc, is_packed
    if here != len(table):
        raise source.error("its list of records is damaged")
    return _checked(source, places, at)


def _checked(source: Source, places: dict[str, _Place], end: int) -> dict[str, Record]:
    """Records whose headers are where the list says, one after the other."""
    records: dict[str, Record] = {}
    free = 0
    for name, (offset, size, crc, is_packed) in sorted(places.items(), key=lambda item: item[1]):
        head = source.part(offset, offset + 30) if offset + 30 <= end else b""
        if head[:4] != _LOCAL or offset < free:
            raise source.error(f"the record {name!r:.80} is not where it should be")
        name_length, extra_length = struct.unpack("<2H", head[26:30])
        start = offset + 30 + name_length + extra_length
        own = source.part(offset + 30, min(offset + 30 + name_length, end))
        if own.decode("utf-8", "replace") != name:
            raise source.error(f"the record {name!r:.80} has two names")
        if start + size > end:
            raise source.error(f"the record {name!r:.80} lies beyond the end")
        free = start + size
        records[name] = Record(start, free, crc, is_packed)
    return records


def _directory(source: Source) -> tuple[int, int, int]:
    """The number of records, and where their list begins and ends."""
    first = max(0, source.size - 22 - _LONGEST_COMMENT)
    tail = source.part(first, source.size)
    at = tail.rfind(_END)
    if at < 0 or len(tail) - at < 22:
        raise source.error("it is a zip file that is cut off")
    disk, start_disk, here, count, size, offset, comment = struct.unpack(
        "<4x4H2LH", tail[at : at + 22]
    )
    end = first + at
    if at + 22 + comment != len(tail) or disk or start_disk or here != count:
        raise source.error("the end of the zip file is damaged")
    if end >= 20 and source.part(end - 20, end - 16) == _LOCATOR_64:  # also if the file is small
        count, size, offset, end = _directory_64(source, end)
    if offset + size != end:
        raise source.error("its list of records is not where it should be")
    return count, offset, end


def _directory_64(source: Source, end: int) -> tuple[int, int, int, int]:
    """The same of a large file: number, size, place, and where the list must end."""
    (at,) = struct.unpack("<Q", source.part(end - 12, end - 4))
    head = source.part(at, at + 56) if at + 56 <= end else b""
    if head[:4] != _END_64:
        raise source.error("the end of the zip file is damaged")
    count, size, offset = struct.unpack("<3Q", head[32:56])
    return count, size, offset, at


def _wide(source: Source, extra: bytes, *numbers: int) -> tuple[int, ...]:
    """Numbers of which those that did not fit stand in an extra field."""
    if 0xFFFFFFFF not in numbers:
        return numbers
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack("<2H", extra[at : at + 4])
        if kind == _IS_64 and length % 8 == 0 and at + 4 + length <= len(extra):
            wide = iter(struct.unpack(f"<{length // 8}Q", extra[at + 4 : at + 4 + length]))
            return tuple(next(wide, n) if n == 0xFFFFFFFF else n for n in numbers)
        at += 4 + length
    raise source.error("its list of records is damaged")
