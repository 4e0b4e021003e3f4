"""Numbers of bytes as users write them: "500 MB"."""

from __future__ import annotations

import re

from weft.base.errors import RangeError

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}


def byte_count(given: int | str, what: str, op: str) -> int:
    """Bytes as a number, from a number or from text with a unit.

    >>> from weft.base.byte_count import byte_count
    >>> [byte_count(text, "max_shard_size", "save") for text in ("1.5 GB", "2 KiB")]
    [1500000000, 2048]
    """
    if isinstance(given, int):
        return given
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(|k|m|g|ki|mi|gi)b?", given.strip().lower())
    if found is None:
        raise RangeError(
            f"{what} is {given!r}", op=op, hint='a number of bytes, or such as "500 MB" or "2 GiB"'
        )
    return int(float(found[1]) * _UNITS[found[2]])
