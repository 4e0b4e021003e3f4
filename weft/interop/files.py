"""Files: read without trust in what they say, and written whole or not at all.

A reader asks a `Source` for parts of a file. A mapped file is not read before its elements are
used; its arrays are read-only, so a tensor that is written to gets an array of its own.
"""

from __future__ import annotations

import contextlib
import json
import math
import mmap
import os
import secrets
import stat
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from weft.base.errors import FileError

__all__ = ["MOST_DEPTH", "Source", "check_amount", "opened", "parsed", "replacing"]

Array = np.ndarray[Any, Any]

#: How deep lists, tuples and dicts may lie in each other.
MOST_DEPTH = 100
#: Lists and dicts that a file may hold, however small it is, and bytes of the file for one more.
#: They take far more memory than their text: without a limit, small files could fill the memory.
_FREE_CONTAINERS, _BYTES_PER_CONTAINER = 100_000, 16
UNFINISHED = ".part"
_LARGE = 1 << 20


class Source:
    """A file, or bytes, as readers see them."""

    def __init__(self, name: str, size: int, mapped: bool) -> None:
        self.name = name
        self.size = size
        #: Whether arrays are read only when their elements are used.
        self.mapped = mapped

    def error(self, message: str, hint: str = "") -> FileError:
        return FileError(f"{self.name}: {message}", op="load", hint=hint)

    def part(self, start: int, stop: int) -> bytes:
        """A small part, as bytes."""
        if not 0 <= start <= stop <= self.size:
            raise self.error("it is cut off, or damaged: a part of it lies beyond its end")
        return self._part(start, stop)

    def array(self, dtype: np.dtype[Any], shape: tuple[int, ...], start: int) -> Array:
        """The elements that begin at a byte."""
        count = math.prod(shape)
        if not 0 <= start <= start + count * dtype.itemsize <= self.size:
            raise self.error("it is cut off, or damaged: data of a tensor lies beyond its end")
        try:
            array = self._array(dtype, shape, start) if count else np.empty(shape, dtype)
        except (ValueError, OverflowError):  # more axes, or longer ones, than NumPy has
            raise self.error(f"a tensor has the shape {shape}"[:200]) from None
        if dtype == np.bool and count and array.view(np.uint8).max() > 1:
            raise self.error("a tensor of bools has elements that are neither 0 nor 1")
        return array if array.flags.aligned else array.copy()

    def checksum(self, start: int, stop: int, value: int = 0) -> int:
        """The CRC-32 of a part; `value` is that of what comes before."""
        for at in range(start, stop, 1 << 20):
            value = zlib.crc32(self.part(at, min(at + (1 << 20), stop)), value)
        return value

    def _part(self, start: int, stop: int) -> bytes:
        raise NotImplementedError

    def _array(self, dtype: np.dtype[Any], shape: tuple[int, ...], start: int) -> Array:
        raise NotImplementedError


class _Memory(Source):
    """A mapped file, or bytes: arrays share its memory."""

    def __init__(self, name: str, buffer: Any, mapped: bool) -> None:
        self._buffer = memoryview(buffer).toreadonly()
        super().__init__(name, len(self._buffer), mapped)

    def _part(self, start: int, stop: int) -> bytes:
        return bytes(self._buffer[start:stop])

    def _array(self, dtype: np.dtype[Any], shape: tuple[int, ...], start: int) -> Array:
        return np.frombuffer(self._buffer, dtype, math.prod(shape), start).reshape(shape)


class _File(Source):
    """An open file: each array is read into memory of its own."""

    def __init__(self, name: str, file: BinaryIO, size: int) -> None:
        super().__init__(name, size, False)
        self._file = file

    def _part(self, start: int, stop: int) -> bytes:
        self._file.seek(start)
        data = self._file.read(stop - start)
        if len(data) != stop - start:
            raise self.error("it became shorter while it was read")
        return data

    def _array(self, dtype: np.dtype[Any], shape: tuple[int, ...], start: int) -> Array:
        array = _new_array(dtype, shape)
        rest = array.reshape(-1).view(np.uint8).data
        self._file.seek(start)
        while rest:
            count = self._file.readinto(rest)  # type: ignore[attr-defined]  # a raw file has it
            if not count:
                raise self.error("it became shorter while it was read")
            rest = rest[count:]
        return array


def _new_array(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """An array to read into. NumPy asks for huge pages for large ones; where memory is in pieces,
    the system takes several times longer to find these than to read the file."""
    size = math.prod(shape) * dtype.itemsize
    if size < _LARGE or not hasattr(mmap, "MAP_ANONYMOUS"):
        return np.empty(shape, dtype)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(memory, dtype).reshape(shape)


@contextlib.contextmanager
def opened(f: Any, *, mapped: bool = True) -> Iterator[Source]:
    """The content of a path, or of an open file from its position on."""
    if hasattr(f, "read"):
        yield _Memory(str(getattr(f, "name", "the file")), f.read(), False)
        return
    path = os.fspath(f)
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    # O_NONBLOCK: opening a pipe must not wait for a writer.
    with open(os.open(path, flags | getattr(os, "O_NONBLOCK", 0)), "rb", 0) as file:
        found = os.fstat(file.fileno())
        name = os.path.basename(os.fsdecode(path))
        if not stat.S_ISREG(found.st_mode):
            raise FileError(f"{name} is not a regular file", op="load")
        buffer = _mapped(file.fileno()) if mapped and found.st_size else None
        if buffer is None:
            yield _File(name, file, found.st_size)
        else:
            yield _Memory(name, buffer, True)


def _mapped(descriptor: int) -> mmap.mmap | None:
    """A read-only map of a file; None on a file system that has none."""
    try:
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    except OSError:
        return None


# --- JSON ----------------------------------------------------------------------------------------


def check_amount(containers: int, size: int, name: str) -> None:
    """Refuse more lists and dicts than a file of `size` bytes should hold."""
    if containers > _FREE_CONTAINERS + size // _BYTES_PER_CONTAINER:
        raise FileError(f"{name} holds {containers} lists, which is too many", op="load")


def parsed(text: bytes | str, size: int, name: str) -> Any:
    """JSON of a file of `size` bytes."""
    try:
        decoded = text if isinstance(text, str) else text.decode()
        check_amount(decoded.count("[") + decoded.count("{"), size, name)
        return json.loads(decoded, object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        raise FileError(f"{name} is nested too deeply", op="load") from None
    except ValueError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{name} is not valid JSON", op="load") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name stands twice in a table")
    return table


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


# --- writing -------------------------------------------------------------------------------------


@contextlib.contextmanager
def replacing(path: Any) -> Iterator[BinaryIO]:
    """A new file that takes the place of another when all is written and on the disk.

    Whatever happens before that, the old file stays as it is.
    """
    folder, name = os.path.split(os.path.realpath(os.fspath(path)))
    beside = os.path.join(folder, f".{name[:100]}.{secrets.token_hex(6)}{UNFINISHED}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    flags |= getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(beside, flags, 0o666), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, os.path.join(folder, name))
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    _sync_folder(folder)


def _sync_folder(folder: str) -> None:
    """Have the names in a folder on the disk, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
