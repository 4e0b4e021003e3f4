"""`weft.save` and `weft.load`: a safetensors file, its structure in the metadata, without pickle.

Loading never runs code. A file holds tensors and plain values (numbers, text, None) in dicts, lists
and tuples: state dicts, checkpoints. Other readers of safetensors find the tensors in it, too.
"""

from __future__ import annotations

import json
import math
import os
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from weft.base.device import as_device
from weft.base.dtypes import DTYPES
from weft.base.errors import DTypeError, WeftError
from weft.core.tensor import Tensor, wrap

__all__ = ["load", "save"]

_NAMES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "bool": "BOOL",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "complex64": "C64",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "complex128": "C128",
}  # fmt: skip
_DTYPES = {short: DTYPES[name] for name, short in _NAMES.items()}
#: Of the structure in the metadata. Files of either name are read.
_KEY, _KEYS = "weft", ("weft", "weft.torch")
_LONGEST_HEADER = 100_000_000


class FileError(WeftError, ValueError):
    """A file that is not what `save` writes."""


def save(obj: Any, f: Any) -> None:
    """Write tensors and plain values, in dicts, lists and tuples, to a path or an open file.

    A path is replaced at once, when all is written.

    >>> import io
    >>> model, file = weft.nn.Linear(2, 1), io.BytesIO()
    >>> weft.save({"epoch": 3, "model": model.state_dict()}, file)
    >>> position = file.seek(0)
    >>> checkpoint = weft.load(file)
    >>> checkpoint["epoch"], model.load_state_dict(checkpoint["model"])
    (3, <All keys matched successfully>)
    """
    tensors: dict[str, Tensor] = {}
    tree = _packed(obj, "", tensors, {})
    data = _encoded(tree, tensors)
    if hasattr(f, "write"):
        f.write(data)
        return
    path = Path(f)
    handle, name = tempfile.mkstemp(dir=path.parent or ".", prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _packed(obj: Any, name: str, tensors: dict[str, Any], known: dict[int, str]) -> Any:
    """A value as JSON, with tensors put aside under their names."""
    if isinstance(obj, Tensor):
        if id(obj) not in known:
            free = name or "tensor"
            while free in tensors or free == "__metadata__":
                free += "_"
            tensors[free], known[id(obj)] = obj, free
        return {"tensor": known[id(obj)], "learns": obj.requires_grad and obj.is_leaf}
    if obj is None or isinstance(obj, (bool, int, float, str)):
        return obj.item() if isinstance(obj, np.generic) else obj
    if isinstance(obj, np.generic) and isinstance(obj.item(), (bool, int, float)):
        return obj.item()
    if isinstance(obj, dict):
        pairs = [
            [_packed(k, name, tensors, known), _packed(v, _joined(name, k), tensors, known)]
            for k, v in obj.items()
        ]
        return {"dict": pairs}
    if isinstance(obj, (list, tuple)):
        kind = "list" if isinstance(obj, list) else "tuple"
        return {kind: [_packed(v, _joined(name, i), tensors, known) for i, v in enumerate(obj)]}
    raise DTypeError(
        f"{name or 'the object'} is a {type(obj).__name__}: only tensors, numbers and text in "
        "dicts, lists and tuples are saved",
        op="save",
        hint="save model.state_dict(), optimizer.state_dict() and your numbers",
    )


def _joined(name: str, key: Any) -> str:
    return f"{name}.{key}" if name else str(key)


def _encoded(tree: Any, tensors: dict[str, Tensor]) -> bytes:
    header: dict[str, Any] = {"__metadata__": {_KEY: json.dumps(tree)}}
    parts, at = [], 0
    for name, x in tensors.items():
        if x.dtype.name not in _NAMES:
            raise DTypeError(f"{name} is of dtype {x.dtype.name}", op="save")
        data = np.ascontiguousarray(Tensor.numpy(x.detach())).tobytes()
        header[name] = {
            "dtype": _NAMES[x.dtype.name],
            "shape": list(x.shape),
            "data_offsets": [at, at + len(data)],
        }
        parts.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(parts)


def load(f: Any, device: Any = None) -> Any:
    """What `save` wrote, or the tensors of any safetensors file as a dict.

    Nothing in a file is run. `device` is where the tensors go.
    """
    place = as_device(device)
    return read(f, lambda array: wrap(array).to_device(place))


def read(f: Any, make: Callable[[Any], Any]) -> Any:
    """The content of a file, with tensors that `make` makes of arrays."""
    data = f.read() if hasattr(f, "read") else Path(f).read_bytes()
    header, body = _header(data)
    metadata = header.pop("__metadata__", {})
    tree = next((metadata[key] for key in _KEYS if key in metadata), None)
    tensors = {name: make(_array(name, entry, body)) for name, entry in header.items()}
    return tensors if tree is None else _unpacked(json.loads(tree), tensors)


def _header(data: bytes) -> tuple[dict[str, Any], memoryview]:
    if data[:2] in (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04"):
        raise FileError(
            "this file was written with pickle, which runs code when it is opened",
            op="load",
            hint="in PyTorch, write it with safetensors.torch.save_file(state_dict, path)",
        )
    length = struct.unpack("<Q", data[:8])[0] if len(data) >= 8 else -1
    if not 0 < length <= min(len(data) - 8, _LONGEST_HEADER):
        raise FileError("this is not a file of tensors, or it is cut off", op="load")
    try:
        header = json.loads(data[8 : 8 + length])
    except ValueError:
        raise FileError("the header of the file cannot be read", op="load") from None
    if not isinstance(header, dict):
        raise FileError("the header of the file is not a table", op="load")
    return header, memoryview(data)[8 + length :]


def _array(name: str, entry: Any, body: memoryview) -> Any:
    try:
        dtype, shape = _DTYPES[entry["dtype"]], tuple(map(int, entry["shape"]))
        start, end = map(int, entry["data_offsets"])
    except (KeyError, TypeError, ValueError):
        raise FileError(f"the entry of {name} cannot be read", op="load") from None
    size = math.prod(shape) * dtype.itemsize
    if min((0, *shape)) < 0 or not 0 <= start <= end <= len(body) or end - start != size:
        raise FileError(f"the data of {name} is not in the file", op="load")
    return np.frombuffer(body[start:end], dtype.numpy).reshape(shape).copy()


def _unpacked(tree: Any, tensors: dict[str, Any]) -> Any:
    if not isinstance(tree, dict):
        return tree
    if "tensor" in tree:
        found = tensors[tree["tensor"]]
        if tree["learns"]:
            found.requires_grad = True
        return found
    if "dict" in tree:
        return {_unpacked(k, tensors): _unpacked(v, tensors) for k, v in tree["dict"]}
    kind = "list" if "list" in tree else "tuple"
    parts = [_unpacked(part, tensors) for part in tree[kind]]
    return parts if kind == "list" else tuple(parts)
