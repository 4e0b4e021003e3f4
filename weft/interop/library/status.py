"""The codes that functions of a library return, and their texts."""

from __future__ import annotations

import enum

__all__ = ["TEXTS", "LibraryStatus"]


@enum.unique
class LibraryStatus(enum.IntEnum):
    OK = 0
    FAILED = 1
    NULL = 2
    SIZE = 3
    BUSY = 4
    NAME = 5
    FILE = 6
    FORMAT = 7
    MEMORY = 8
    STACK = 9
    ALIGNMENT = 10
    INSTANCE = 11


#: What they mean; `FAILED` is completed for each program.
TEXTS = {
    LibraryStatus.OK: "no error",
    LibraryStatus.FAILED: "the program failed; the state is as it was before the call",
    LibraryStatus.NULL: "a pointer is NULL",
    LibraryStatus.SIZE: "a size is not the one in the header",
    LibraryStatus.BUSY: "another thread is using the instance",
    LibraryStatus.NAME: "there is no state of this name",
    LibraryStatus.FILE: "the file cannot be opened, read or written",
    LibraryStatus.FORMAT: "the file does not hold the state of this program, or is cut off",
    LibraryStatus.MEMORY: "there is not enough memory",
    LibraryStatus.STACK: "loops keep more values than stack_bytes of the build can hold",
    LibraryStatus.ALIGNMENT: "a pointer is not aligned to its elements, or memory not to 64 bytes",
    LibraryStatus.INSTANCE: "the instance was not made by create or init, or is destroyed",
}
