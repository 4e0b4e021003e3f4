"""What a kernel may touch: tables on the stack, linked from the inside out.

A table of i64 words:

    0  parent    the table of the caller; 0 where there is none
    1  count     how many entries there are
    2  kernel    1 in the table of a kernel's call, the last of a list; else 0
    3  fault     of a kernel's: 0, or what went wrong first (see FAULTS)
    4  address   of it: where
    5  bytes     how many
    6  place     which instruction: an index into `CheckedModule.places`
    7  entries   three words each: the first byte, the byte behind the last, whether it is writable

The table of a kernel's call has the buffers of the call. A function that a kernel consists of adds
one with its own arrays on the stack and the constants of the module that it reads.

Where the code says which buffer a pointer was made of, only that one counts. Its number then is
1 + i for entry i of the kernel's table, and OWN + i for entry i of the function's own.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.codegen.index import Size
from weft.codegen.text import Function

__all__ = ["BEYOND", "ENTRIES", "FAULTS", "MISALIGNED", "NOTED", "OWN", "READ_ONLY"]
__all__ += ["UNWRITTEN", "Entry", "frame_words", "write_frame"]

PARENT, COUNT, KERNEL, FAULT, ADDRESS, BYTES, PLACE, ENTRIES = range(8)
BEYOND, MISALIGNED, READ_ONLY, UNWRITTEN = range(1, 5)
FAULTS = {
    BEYOND: "outside of the buffer or array",
    MISALIGNED: "at an address that is not aligned as its code says",
    READ_ONLY: "to a buffer that it may only read",
    UNWRITTEN: "not written",
}

OWN = 1 << 24
#: Words of `@check_fault`: the number of a call, and as much of its table as fits.
NOTED = 1 + ENTRIES + 3 * 256

#: The address (an SSA value), the bytes, and whether they may be written.
Entry = tuple[str, Size, bool]


def frame_words(entries: int) -> int:
    return ENTRIES + 3 * entries


def write_frame(
    f: Function, table: str, parent: str, kernel: bool, entries: Sequence[Entry]
) -> None:
    """Fill a table; an entry with a null address covers nothing."""

    def put(word: int, value: str) -> None:
        f.do(f"store {value}, ptr {f.ptr(table, 'i64') + word}")

    put(PARENT, f"ptr {parent}")
    put(COUNT, f"i64 {len(entries)}")
    put(KERNEL, f"i64 {int(kernel)}")
    if kernel:
        put(FAULT, "i64 0")
    for number, (address, size, writable) in enumerate(entries):
        at = ENTRIES + 3 * number
        put(at, f"ptr {address}")
        there = f(f"icmp ne ptr {address}, null")
        beyond = f.ptr(address).bytes(f.index(f(f"select i1 {there}, i64 {size}, i64 0")))
        put(at + 1, f"ptr {beyond}")
        put(at + 2, f"i64 {int(writable)}")
