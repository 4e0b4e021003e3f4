"""Loads object files (ELF, x86-64) without LLVM, which takes 30 ms to load.

It supports what LLVM emits for a JIT: code with absolute addresses.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from weft.codegen.linalg import lapack

__all__ = ["Image", "NotExecutable", "NotLoaded"]

_PROGBITS, _SYMTAB, _RELA, _NOBITS = 1, 2, 4, 8  # kinds of sections
_WRITE, _ALLOC = 1, 2  # flags of sections
_UNDEFINED, _ABSOLUTE, _COMMON = 0, 0xFFF1, 0xFFF2  # section indices of symbols without a section
_LOCAL = 0  # symbol binding
_ADDRESS, _DISTANCE = 1, 24  # relocations: R_X86_64_64, R_X86_64_PC64


class NotLoaded(Exception):
    """An object file of an unsupported kind."""


class NotExecutable(Exception):
    """The system provides no executable memory."""


@dataclass(slots=True)
class _Section:
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    place: int = -1  # in the image


@dataclass(frozen=True, slots=True)
class _Symbol:
    name: str
    binding: int
    section: int
    value: int


class _Object:
    """A parsed object file."""

    def __init__(self, data: bytes) -> None:
        if data[:7] != b"\x7fELF\x02\x01\x01" or data[16:20] != b"\x01\x00\x3e\x00":
            raise NotLoaded("no object file for x86-64")
        self.data = data
        (table,) = struct.unpack_from("<Q", data, 40)
        size, count = struct.unpack_from("<HH", data, 58)
        self.sections = []
        for at in range(table, table + size * count, size):
            _, kind, flags, _, offset, length, link, info, align, _ = struct.unpack_from(
                "<IIQQQQIIQQ", data, at
            )
            self.sections.append(_Section(kind, flags, offset, length, link, info, max(align, 1)))
        self.symbols = self._symbols()

    def _symbols(self) -> list[_Symbol]:
        for section in self.sections:
            if section.kind == _SYMTAB:
                names = self.sections[section.link].offset
                return [
                    _Symbol(self._name(names + name), info >> 4, where, value)
                    for name, info, _, where, value, _ in struct.iter_unpack(
                        "<IBBHQQ", self.data[section.offset : section.offset + section.size]
                    )
                ]
        return []

    def _name(self, at: int) -> str:
        return self.data[at : self.data.index(b"\0", at)].decode()


class Image:
    """Object files in memory, as one library; `close` unmaps them."""

    def __init__(self, objects: Sequence[bytes], exports: Sequence[str]) -> None:
        self._objects = [_Object(data) for data in objects]
        self._globals: dict[str, int] = {}
        page = mmap.PAGESIZE
        # Read-only and executable sections come first, then writable ones on pages of their own.
        fixed = -(-_laid_out(self._objects, 0, writable=False) // page) * page
        size = max(_laid_out(self._objects, fixed, writable=True), 1)
        self._size = -(-size // page) * page
        self._fill(fixed)
        missing = [name for name in exports if name not in self._globals]
        if missing:
            self.close()
            raise NotLoaded(f"no symbol {missing[0]}")
        self.addresses = {name: self._globals[name] for name in exports}

    def _fill(self, fixed: int) -> None:
        self._base = _map(self._size)
        try:
            for found in self._objects:
                for section in found.sections:
                    if section.place >= 0 and section.kind != _NOBITS and section.size:
                        data = found.data[section.offset : section.offset + section.size]
                        ctypes.memmove(self._base + section.place, data, section.size)
            for found in self._objects:
                for symbol in found.symbols:
                    if symbol.binding != _LOCAL and symbol.section != _UNDEFINED:
                        self._globals[symbol.name] = self._address(found, symbol)
            for found in self._objects:
                for section in found.sections:
                    if section.kind == _RELA and found.sections[section.info].place >= 0:
                        self._relocate(found, section)
            _protect(self._base, fixed)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._base:
            _unmap(self._base, self._size)
            self._base = 0

    def _address(self, found: _Object, symbol: _Symbol) -> int:
        if symbol.section == _UNDEFINED:
            here = self._globals.get(symbol.name)
            return _outside(symbol.name) if here is None else here
        if symbol.section == _ABSOLUTE:
            return symbol.value
        if symbol.section == _COMMON or found.sections[symbol.section].place < 0:
            raise NotLoaded(f"where symbol {symbol.name} lies")
        return self._base + found.sections[symbol.section].place + symbol.value

    def _relocate(self, found: _Object, section: _Section) -> None:
        """Apply relocations: write absolute or relative addresses."""
        target = self._base + found.sections[section.info].place
        known: dict[int, int] = {}
        entries = found.data[section.offset : section.offset + section.size]
        for offset, info, addend in struct.iter_unpack("<QQq", entries):
            number, kind = info >> 32, info & 0xFFFFFFFF
            if number not in known:
                known[number] = self._address(found, found.symbols[number])
            value, at = known[number] + addend, target + offset
            if kind not in (_ADDRESS, _DISTANCE):
                raise NotLoaded(f"relocation {kind}")
            if kind == _DISTANCE:
                value -= at
            ctypes.c_uint64.from_address(at).value = value


def _laid_out(objects: Sequence[_Object], start: int, *, writable: bool) -> int:
    """Assign an address to each loaded section; returns the end."""
    for found in objects:
        for section in found.sections:
            if section.flags & _ALLOC and bool(section.flags & _WRITE) == writable:
                if section.kind not in (_PROGBITS, _NOBITS):
                    continue  # unwind tables: no function here throws
                section.place = -(-start // section.align) * section.align
                start = section.place + section.size
    return start


# --- the process ---------------------------------------------------------------------------------


@functools.cache
def _process() -> ctypes.CDLL:
    process = ctypes.CDLL(None, use_errno=True)
    size, address = ctypes.c_size_t, ctypes.c_void_p
    process.mmap.restype = address
    process.mmap.argtypes = [address, size, *[ctypes.c_int] * 3, ctypes.c_long]
    process.munmap.argtypes = [address, size]
    process.mprotect.argtypes = [address, size, ctypes.c_int]
    return process


@functools.cache
def _outside(name: str) -> int:
    """The address of a function of the process, or of NumPy's LAPACK."""
    if name.startswith(lapack.PREFIX) and lapack.address(name):
        return lapack.address(name)
    try:
        found = getattr(_process(), name)
    except AttributeError:
        raise NotLoaded(f"no symbol {name}") from None
    return ctypes.cast(found, ctypes.c_void_p).value or 0


def _map(size: int) -> int:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    found = _process().mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if found is None or found == ctypes.c_void_p(-1).value:
        raise NotExecutable(os.strerror(ctypes.get_errno()))
    return int(found)


def _unmap(base: int, size: int) -> None:
    _process().munmap(base, size)


def _protect(base: int, size: int) -> None:
    if size and _process().mprotect(base, size, mmap.PROT_READ | mmap.PROT_EXEC):
        raise NotExecutable(os.strerror(ctypes.get_errno()))
