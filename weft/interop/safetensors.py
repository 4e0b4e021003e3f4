"""The safetensors format: a header in JSON that names tensors and their bytes, then the bytes.

What is written is byte for byte what the `safetensors` package writes; what that refuses is
refused here: tensors that overlap, or leave gaps, or lie beyond the end.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO, NamedTuple

import ml_dtypes
import numpy as np

from weft.base.dtypes import DTYPES, DType, dtype_of_numpy, register_dtype
from weft.base.errors import DTypeError
from weft.interop.files import Source, parsed

__all__ = ["CHECKSUM", "Header", "file_order", "is_native", "read_header", "write"]

Array = np.ndarray[Any, Any]

#: The format's names of dtypes, in the order in which tensors come: the last ones first.
_NAMES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8",
    "F8_E5M2": "float8_e5m2", "F8_E4M3": "float8_e4m3fn", "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "I16": "int16", "U16": "uint16", "F16": "float16", "BF16": "bfloat16",
    "I32": "int32", "U32": "uint32", "F32": "float32", "C64": "complex64",
    "F64": "float64", "I64": "int64", "U64": "uint64",
}  # fmt: skip
_RANKS = {name: rank for rank, name in enumerate(_NAMES)}
#: 8-bit floats, which are registered when a file has them, and their names in printed graphs.
_FLOAT8 = {
    "float8_e5m2": "f8e5m2",
    "float8_e4m3fn": "f8e4m3",
    "float8_e8m0fnu": "f8e8m0",
    "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e5m2fnuz": "f8e5m2fnuz",
}
_LONGEST_HEADER = 100_000_000
_MOST_AXES = 64  # as many as NumPy has
METADATA = "__metadata__"
#: In the metadata, the CRC-32 of the file in which these eight digits are zeros.
CHECKSUM = "weft.crc32"
_NO_CHECKSUM = "0" * 8


class Entry(NamedTuple):
    """A tensor of a file: where its bytes begin and end."""

    dtype: DType
    shape: tuple[int, ...]
    start: int
    end: int


class Header(NamedTuple):
    """What the header of a file says: its tensors in the order of their bytes, and texts."""

    tensors: dict[str, Entry]
    metadata: dict[str, str]


def file_order(arrays: Mapping[str, Array]) -> list[str]:
    """Names in the order in which a file has them: wide dtypes first, then by name."""
    return sorted(arrays, key=lambda name: (-_RANKS[_short(arrays[name].dtype)], name))


def is_native(dtype: np.dtype[Any]) -> bool:
    """Whether the format has a name for a dtype."""
    return dtype in _SHORT


def _short(dtype: np.dtype[Any]) -> str:
    return _SHORT[dtype]


def _numpy_dtype(name: str) -> np.dtype[Any]:
    return DTYPES[name].numpy if name in DTYPES else np.dtype(getattr(ml_dtypes, name))


_SHORT = {_numpy_dtype(name): short for short, name in _NAMES.items()}


def dtype_named(name: str) -> DType:
    """A dtype by its name; 8-bit floats are registered if they were not yet."""
    if name in DTYPES:
        return DTYPES[name]
    if name not in _FLOAT8:
        raise DTypeError(f"{name} is no dtype here", hint="see weft.register_dtype")
    found = _numpy_dtype(name)
    try:
        return dtype_of_numpy(found)  # under a name of the user's
    except DTypeError:
        return register_dtype(name, found, "float", _FLOAT8[name])


# --- writing -------------------------------------------------------------------------------------


def write(
    file: BinaryIO, arrays: Mapping[str, Array], metadata: Mapping[str, str], checksum: bool = False
) -> None:
    """Write arrays and texts by name; with `checksum`, the texts have one of the whole file."""
    order = file_order(arrays)
    if checksum:
        metadata = {**metadata, CHECKSUM: _NO_CHECKSUM}
    head = _header(arrays, order, metadata)
    if checksum:
        value = zlib.crc32(head)
        for name in order:
            value = zlib.crc32(_bytes_of(arrays[name]), value)
        head = _with_checksum(head, f"{value:08x}")
    file.write(head)
    for name in order:
        file.write(_bytes_of(arrays[name]))


def _header(arrays: Mapping[str, Array], order: list[str], metadata: Mapping[str, str]) -> bytes:
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    at = 0
    for name in order:
        array = arrays[name]
        end = at + array.nbytes
        header[name] = {
            "dtype": _short(array.dtype),
            "shape": list(array.shape),
            "data_offsets": [at, end],
        }
        at = end
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _bytes_of(array: Array) -> Any:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _with_checksum(head: bytes, digits: str) -> bytes:
    """A header whose checksum, which follows its name, is another."""
    at = head.find(f'"{CHECKSUM}":"'.encode()) + len(CHECKSUM) + 4
    return head[:at] + digits.encode() + head[at + len(digits) :]


# --- reading -------------------------------------------------------------------------------------


def read_header(source: Source) -> Header:
    """The header of a file, checked. Offsets count from the beginning of the file."""
    length = struct.unpack("<Q", source.part(0, 8))[0] if source.size >= 8 else -1
    if not 2 <= length <= source.size - 8:
        raise source.error("this is not a file of tensors, or it is cut off")
    if length > _LONGEST_HEADER:
        raise source.error(f"its header has {length} bytes, which is too many")
    head = source.part(8, 8 + length)
    table = parsed(head, source.size, f"{source.name}: the header")
    if not isinstance(table, dict):
        raise source.error("the header of the file is not a table")
    metadata = table.pop(METADATA, None)
    metadata = {} if metadata is None else metadata
    if not isinstance(metadata, dict) or not all(isinstance(x, str) for x in metadata.values()):
        raise source.error("the metadata are not texts by name")
    body = 8 + length
    entries = {name: _entry(source, name, entry, body) for name, entry in table.items()}
    ordered = dict(sorted(entries.items(), key=lambda item: item[1][2:]))
    at = body
    for name, entry in ordered.items():
        if entry.start != at:
            what = "overlaps another one" if entry.start < at else "does not follow the one before"
            raise source.error(f"the data of {name!r:.80} {what}")
        at = entry.end
    if at != source.size:
        more = "more" if at < source.size else "less"
        raise source.error(f"it has {more} data than its header says: is it cut off?")
    if CHECKSUM in metadata and not source.mapped:
        _check(source, head, metadata[CHECKSUM], body)
    return Header(ordered, metadata)


def _check(source: Source, head: bytes, digits: str, body: int) -> None:
    whole = _with_checksum(struct.pack("<Q", len(head)) + head, _NO_CHECKSUM)
    if f"{source.checksum(body, source.size, zlib.crc32(whole)):08x}" != digits:
        raise source.error("it is damaged: its checksum is another than when it was written")


def _entry(source: Source, name: str, entry: Any, body: int) -> Entry:
    try:
        short, shape, (start, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (KeyError, TypeError, ValueError):
        raise source.error(f"the entry of {name!r:.80} cannot be read") from None
    if not isinstance(short, str) or short not in _NAMES:
        raise source.error(
            f"{name!r:.80} is of dtype {short!r:.40}, which cannot be read",
            "read are " + ", ".join(_NAMES),
        )
    is_shape = isinstance(shape, list) and len(shape) <= _MOST_AXES
    if not is_shape or not all(map(_is_size, (*shape, start, end))):
        raise source.error(f"the entry of {name!r:.80} has sizes that are none")
    dtype = dtype_named(_NAMES[short])
    if end - start != math.prod(shape) * dtype.itemsize:
        raise source.error(f"the data of {name!r:.80} have another size than its shape says")
    return Entry(dtype, tuple(shape), body + start, body + end)


def _is_size(number: Any) -> bool:
    return type(number) is int and 0 <= number < 1 << 63
