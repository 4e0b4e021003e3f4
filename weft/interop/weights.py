"""`weft.save` and `weft.load`: tensors and plain values as safetensors files, without pickle.

Loading never runs code. A file holds tensors and plain values (numbers, text, None) in dicts, lists
and tuples: state dicts, checkpoints. Other readers of safetensors find the tensors in it, too. What
the format does not say, such as how dicts lie in each other, stands in the metadata as JSON
(`weft.interop.tree`). A dict of tensors by name, in the order of the file, needs none of that: its
file is an ordinary one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from weft.base.byte_count import byte_count
from weft.base.device import as_device
from weft.base.errors import DistributedError, DTypeError, FileError, RangeError, SkippedWarning
from weft.base.source import warn_user
from weft.core.tensor import Tensor, wrap
from weft.interop import safetensors, shards, torch_file
from weft.interop.files import Source, opened, parsed, replacing
from weft.interop.tree import Packed, unpacked

__all__ = ["load", "save"]

Array = np.ndarray[Any, Any]
Make = Callable[[Array], Tensor]

#: Of the structure in the metadata, and the version of what stands there.
_KEY, _VERSION = "weft", 1


def save(
    obj: Any,
    f: Any,
    *,
    max_shard_size: int | str | None = None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write tensors and plain values, in dicts, lists and tuples, to a path or an open file.

    max_shard_size   bytes, or such as "5GB": more is written as several files and an index, under
                     the names that Hugging Face's libraries give them
    metadata         texts by name that other readers want: {"format": "pt"}

    A path is replaced at once, when all is on the disk. In a folder, the file is model.safetensors.

    >>> import io
    >>> model, file = weft.nn.Linear(2, 1), io.BytesIO()
    >>> weft.save({"epoch": 3, "model": model.state_dict()}, file)
    >>> position = file.seek(0)
    >>> checkpoint = weft.load(file)
    >>> checkpoint["epoch"], model.load_state_dict(checkpoint["model"])
    (3, <All keys matched successfully>)
    """
    texts = _checked(metadata or {})
    limit = None
    if max_shard_size is not None:
        limit = byte_count(max_shard_size, "max_shard_size", "save")
    if limit is not None and (limit < 1 or hasattr(f, "write")):
        raise RangeError("max_shard_size needs a path, and at least one byte", op="save")
    packed = Packed(obj)
    for name, part in packed.parts.items():
        if part.local.shape != part.shape:
            raise DistributedError(
                f"this rank has only a part of {name}",
                op="save",
                hint="weft.Checkpoint saves the parts of all ranks; distributed.full(x) brings a "
                "tensor together",
            )
    if hasattr(f, "write"):
        write(packed, f, texts)
        return
    path = shards.file_in(f)
    parts = shards.split(packed.arrays, limit) if limit is not None else []
    if len(parts) > 1:
        is_flat = packed.flat_names() is not None
        own = {} if is_flat else _structure(tree=packed.tree)
        shards.write(path, packed.arrays, parts, texts, own)
        return
    with replacing(path) as file:
        write(packed, file, texts)
    shards.remove(path)


def _checked(metadata: Mapping[str, str]) -> dict[str, str]:
    texts = dict(metadata)
    if not all(isinstance(text, str) for pair in texts.items() for text in pair):
        raise DTypeError("metadata are texts by name", op="save")
    if {_KEY, safetensors.CHECKSUM} & set(texts):
        raise RangeError(f"the name {_KEY!r} in the metadata is Weft's own", op="save")
    return texts


def write(packed: Packed, file: Any, texts: dict[str, str], checksum: bool = False) -> None:
    """Write a tree to an open file."""
    names = packed.flat_names()
    order = safetensors.file_order(packed.arrays)
    if names is None:
        texts = texts | _structure(tree=packed.tree)
    elif names != order:
        places = {name: place for place, name in enumerate(order)}
        texts = texts | _structure(order=[places[name] for name in names])
    safetensors.write(file, packed.arrays, texts, checksum)


def _structure(**said: Any) -> dict[str, str]:
    text = json.dumps({"version": _VERSION, **said}, separators=(",", ":"), allow_nan=False)
    return {_KEY: text}


def load(f: Any, device: Any = None, *, mmap: bool = True, strict: bool = True) -> Any:
    """What `save` wrote, the tensors of any safetensors file as a dict, or what PyTorch saved.

    f        a path or an open file; also a folder with weights, or an index of several files
    device   where the tensors go
    mmap     read elements from the file when they are used; False: read and check all of it now
    strict   refuse a file of PyTorch that has more than tensors and plain values; False: replace
             such objects by their names, with a warning

    Nothing in a file is run. What is passed over is said in a warning.

    >>> import io
    >>> file = io.BytesIO()
    >>> weft.save([weft.ones(2), "text"], file)
    >>> position = file.seek(0)
    >>> weft.load(file)
    [tensor([1., 1.]), 'text']
    """
    place = as_device(device)
    return read(f, lambda array: wrap(array).to_device(place), mmap=mmap, strict=strict)


def read(f: Any, make: Make, *, mmap: bool = True, strict: bool = True) -> Any:
    """The content of a file, with tensors that `make` makes of arrays."""
    if not hasattr(f, "read"):
        f, others = shards.find(f)
        skipped(os.path.basename(os.path.dirname(f)), others)
        if shards.is_index(f):
            return _read_shards(f, make, mmap, strict)
    with opened(f, mapped=mmap) as source:
        return _read_file(source, make, strict)


def _read_file(source: Source, make: Make, strict: bool) -> Any:
    if torch_file.is_one(source):
        return torch_file.read(source, make, strict)
    arrays, metadata = _arrays(source)
    return _with_structure(metadata.get(_KEY), arrays, make, source.size, source.name)


def read_checked(path: Any, make: Make) -> Any:
    """The content of a file that has a checksum, which is compared."""
    with opened(path, mapped=False) as source:
        arrays, metadata = _arrays(source)
        if safetensors.CHECKSUM not in metadata:
            raise source.error("it has no checksum: it is damaged, or no checkpoint")
        return _with_structure(metadata.get(_KEY), arrays, make, source.size, source.name)


def read_structure(path: Any) -> Any:
    """The structure of a file that `write` wrote of a tree, as JSON; no tensor is read."""
    with opened(path) as source:
        text = safetensors.read_header(source).metadata.get(_KEY)
        said = parsed(str(text), source.size, f"{source.name}: the structure in the metadata")
        if not isinstance(said, dict) or said.get("version") != _VERSION or "tree" not in said:
            raise source.error("it is no part of a checkpoint")
        return said["tree"]


def read_arrays(path: Any) -> dict[str, Array]:
    """The arrays of a file that has a checksum, which is compared."""
    with opened(path, mapped=False) as source:
        arrays, metadata = _arrays(source)
        if safetensors.CHECKSUM not in metadata:
            raise source.error("it has no checksum: it is damaged, or no checkpoint")
        return arrays


def _arrays(source: Source) -> tuple[dict[str, Array], dict[str, str]]:
    header = safetensors.read_header(source)
    arrays = {
        name: source.array(entry.dtype.numpy, entry.shape, entry.start)
        for name, entry in header.tensors.items()
    }
    return arrays, header.metadata


def _with_structure(text: Any, arrays: dict[str, Array], make: Make, size: int, name: str) -> Any:
    """The value of a file of these arrays, whose metadata say this about its structure."""
    if text is None:
        return {name: make(array) for name, array in arrays.items()}
    said = parsed(str(text), size, f"{name}: the structure in the metadata")
    version = said.get("version") if isinstance(said, dict) else None
    if version != _VERSION:
        raise FileError(
            f"{name} has a structure of version {version!r:.20}, and this is Weft for "
            f"version {_VERSION}",
            op="load",
            hint="load it with the version of Weft that wrote it, or a newer one",
        )
    if "order" in said:
        return {name: make(arrays[name]) for name in _ordered(said["order"], list(arrays), name)}
    value, unused = unpacked(said.get("tree"), arrays, make)
    skipped(name, [f"the tensor {other}" for other in unused])
    return value


def _ordered(order: Any, names: list[str], file: str) -> list[str]:
    places = sorted(place for place in order if type(place) is int) if type(order) is list else None
    if places != list(range(len(names))) or len(order) != len(names):
        raise FileError(f"{file}: the order of its tensors is none", op="load")
    return [names[place] for place in order]


def _read_shards(path: str, make: Make, mmap: bool, strict: bool) -> Any:
    index = shards.read_index(path)
    structure = index.metadata.get(_KEY)
    found: dict[str, Any] = {}
    for file, names in index.files.items():
        with opened(os.path.join(os.path.dirname(path), file), mapped=mmap) as source:
            part = _read_file(source, make, strict) if structure is None else _arrays(source)[0]
        missing = [name for name in names if not isinstance(part, dict) or name not in part]
        if missing:
            raise FileError(f"{file} has no tensor {missing[0]!r:.80}", op="load")
        found |= {name: part[name] for name in names}
        skipped(file, [f"the tensor {name}" for name in part if name not in index.names])
    ordered = {name: found[name] for name in index.names}
    if structure is None:
        return ordered
    return _with_structure(structure, ordered, make, index.size, index.name)


def skipped(file: str, what: list[str]) -> None:
    """Say what of a file is not in what is loaded."""
    if what:
        more = f" and {len(what) - 10} more" if len(what) > 10 else ""
        warn_user(f"{file}: skipped {', '.join(what[:10])}{more}", SkippedWarning)
