"""Weights in several files, with an index in JSON that says where each tensor is.

The names are those of Hugging Face's libraries: model-00001-of-00002.safetensors and
model.safetensors.index.json. The index is written last: until then a reader finds the old weights.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.base.errors import FileError
from weft.interop.files import opened, parsed, replacing
from weft.interop.safetensors import write as write_file

__all__ = ["Index", "file_in", "find", "read_index", "remove", "split", "write"]

Array = np.ndarray[Any, Any]

SUFFIX, INDEX = ".safetensors", ".index.json"
_USUAL = "model" + SUFFIX
#: Names of single files and indices in a folder, the ones that are preferred first.
_PREFERRED = (_USUAL, _USUAL + INDEX, "pytorch_model.bin", "pytorch_model.bin" + INDEX)
_WEIGHTS = (SUFFIX, SUFFIX + INDEX, ".bin", ".bin" + INDEX, ".pt", ".pth")
_LONGEST_INDEX = 100_000_000


@dataclass(frozen=True)
class Index:
    """What an index says: the file of each tensor, and texts."""

    name: str
    size: int
    names: dict[str, str]
    metadata: dict[str, Any]

    @property
    def files(self) -> dict[str, list[str]]:
        """The names of the tensors of each file."""
        found: dict[str, list[str]] = {}
        for name, file in self.names.items():
            found.setdefault(file, []).append(name)
        return found


# --- which file ----------------------------------------------------------------------------------


def file_in(f: Any) -> str:
    """The path of a file that is written: in a folder it has the usual name."""
    path = os.fspath(f)
    return os.path.join(path, _USUAL) if os.path.isdir(path) else path


def find(f: Any) -> tuple[str, list[str]]:
    """The file, or the index, that a path means, and what else of a folder holds weights."""
    path = os.fspath(f)
    if not os.path.isdir(path):
        whole = not os.path.exists(path) and os.path.exists(path + INDEX)
        return (path + INDEX if whole else path), []
    names = sorted(name for name in os.listdir(path) if name.endswith(_WEIGHTS))
    indices = [name for name in names if name.endswith(INDEX)]
    found = next((name for name in _PREFERRED if name in names), None)
    if found is None:
        candidates = indices or names
        if len(candidates) != 1:
            listed = ", ".join(candidates[:10]) or "no file of weights"
            raise FileError(
                f"the folder {os.path.basename(path)} has {listed}",
                op="load",
                hint="say the path of one file",
            )
        found = candidates[0]
    mine = set(read_index(os.path.join(path, found)).files) if found.endswith(INDEX) else set()
    return os.path.join(path, found), [name for name in names if name not in {found, *mine}]


def is_index(path: Any) -> bool:
    return str(path).endswith(INDEX)


def read_index(path: str) -> Index:
    """An index, checked: its files lie beside it."""
    with opened(path, mapped=False) as source:
        if source.size > _LONGEST_INDEX:
            raise source.error(f"it has {source.size} bytes, which is too many for an index")
        table = parsed(source.part(0, source.size), source.size, source.name)
        files = table.get("weight_map") if isinstance(table, dict) else None
        if not isinstance(files, dict) or not files:
            raise source.error("it is no index: it has no weight_map")
        for name, file in files.items():
            if not isinstance(file, str) or not _is_beside(file):
                raise source.error(f"the file {file!r:.80} of {name!r:.80} does not lie beside it")
        metadata = table.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        return Index(source.name, source.size, files, metadata)


def _is_beside(file: str) -> bool:
    """Whether a name is that of a file in the same folder, on every system."""
    return bool(file.strip(" .")) and not re.search(r'[/\\:*?"<>|\x00-\x1f]', file)


# --- writing -------------------------------------------------------------------------------------


def split(arrays: Mapping[str, Array], limit: int) -> list[list[str]]:
    """The names of each file, so that none is larger than the limit unless one tensor is."""
    parts: list[list[str]] = [[]]
    size = 0
    for name, array in arrays.items():
        if parts[-1] and size + array.nbytes > limit:
            parts.append([])
            size = 0
        parts[-1].append(name)
        size += array.nbytes
    return parts


def write(
    path: str,
    arrays: Mapping[str, Array],
    parts: list[list[str]],
    texts: Mapping[str, str],
    own: Mapping[str, str],
) -> None:
    """Write files and their index; then take away what was there before under this name.

    `texts` are the metadata of each file, `own` those of the index.
    """
    folder, name = os.path.split(os.path.realpath(path))
    old = _files_of(path)
    files = _new_names(folder, name.removesuffix(SUFFIX), len(parts))
    try:
        for file, part in zip(files, parts, strict=True):
            with replacing(os.path.join(folder, file)) as opened_file:
                write_file(opened_file, {name: arrays[name] for name in part}, texts)
        index = {
            "metadata": {"total_size": sum(array.nbytes for array in arrays.values()), **own},
            "weight_map": {
                name: file for file, part in zip(files, parts, strict=True) for name in part
            },
        }
        with replacing(path + INDEX) as opened_file:
            opened_file.write(json.dumps(index, indent=2, ensure_ascii=False).encode() + b"\n")
    except BaseException:
        _unlink(folder, files)
        raise
    _unlink(folder, [file for file in (*old, name) if file not in files])


def _new_names(folder: str, stem: str, count: int) -> list[str]:
    """Names of files that are not there yet: what an old index names must stay until it goes."""
    tag = ""
    while True:
        names = [f"{stem}{tag}-{i:05}-of-{count:05}{SUFFIX}" for i in range(1, count + 1)]
        if not any(os.path.lexists(os.path.join(folder, name)) for name in names):
            return names
        tag = f"-{secrets.token_hex(4)}"


def remove(path: str) -> None:
    """Take away an index and its files, in whose place there is a single file now."""
    files = _files_of(path)
    folder, name = os.path.split(os.path.realpath(path))
    if os.path.lexists(path + INDEX):
        _unlink(folder, [name + INDEX, *files])


def _files_of(path: str) -> list[str]:
    """The files that the index of a path names, as far as they bear its name."""
    stem = os.path.basename(os.path.realpath(path)).removesuffix(SUFFIX)
    ours = re.compile(re.escape(stem) + r"(-[0-9a-f]{8})?-\d{5}-of-\d{5}\.safetensors")
    try:
        return [file for file in read_index(path + INDEX).files if ours.fullmatch(file)]
    except (OSError, FileError):
        return []


def _unlink(folder: str, names: list[str]) -> None:
    for name in names:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, name))
