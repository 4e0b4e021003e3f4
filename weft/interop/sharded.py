"""Checkpoints of several ranks: each writes a part of the arrays; an index that is written last
says what is where.

    checkpoint-00000010-1f3a-part-0000-of-0002.safetensors
    checkpoint-00000010-1f3a-part-0001-of-0002.safetensors
    checkpoint-00000010.safetensors                          the index: without it, there is none

A part holds the tree of its rank (`weft.interop.tree`) and the arrays that this rank writes: of
arrays that several ranks have alike, one of them writes each. The name of an array and its shape as
a whole do not depend on the number of ranks: any number of them can read it. Arrays that are no
parts of a whole and differ between ranks are kept for each of them; these go back to the same
number of ranks only.
"""

from __future__ import annotations

import json
import math
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weft.base.errors import FileError
from weft.base.world import Array, World
from weft.core.parts import Parts
from weft.core.tensor import Tensor, wrap
from weft.interop.files import replacing
from weft.interop.tree import Packed, unpacked
from weft.interop.weights import read_arrays, read_structure, write
from weft.ir.cuts import Cuts

__all__ = ["ShardedPart", "agreed", "read_sharded"]

VERSION = 2
#: Seconds that the rank that writes the index waits for the parts of the others.
PATIENCE = 600.0
#: State that each rank draws from on its own: where there are other ranks now, they get that of the
#: first one.
_OWN = "random."

Slices = tuple[tuple[int, int], ...]  # begin and end along each axis


def _everybodys(world: World, text: str) -> list[str]:
    """A text of each rank, on all of them."""
    group = world.group((("ranks", world.size),), ("ranks",))
    mine = np.frombuffer(text.encode(), np.uint8)
    sizes = group.all_gather(np.array([mine.size]))[:, 0]
    room = np.zeros(int(sizes.max()), np.uint8)
    room[: mine.size] = mine
    rows = group.all_gather(room)
    return [row[:size].tobytes().decode() for row, size in zip(rows, sizes, strict=True)]


def agreed(world: World, text: str) -> str:
    """What the first rank says."""
    return text if world.size == 1 else _everybodys(world, text)[0]


def _mesh(parts: Mapping[str, Parts]) -> list[list[Any]]:
    """The mesh that tensors lie over."""
    return next(([list(axis) for axis in part.mesh] for part in parts.values()), [])


# --- writing --------------------------------------------------------------------------------------


class ShardedPart:
    """What one rank writes of a checkpoint. Making it is a call of all ranks together."""

    def __init__(self, world: World, folder: Path, step: int, token: str, packed: Packed) -> None:
        self.is_first = world.rank == 0
        self.packed = packed
        mine = {
            name: [_digest(array), str(array.dtype), *_place(array, packed.parts.get(name), world)]
            for name, array in packed.arrays.items()
        }
        tables = [json.loads(text) for text in _everybodys(world, json.dumps(mine))]
        self._names, owners = _owners(tables)
        stem = f"checkpoint-{step:08}-{token}-part"
        self.files = [
            folder / f"{stem}-{rank:04}-of-{world.size:04}.safetensors"
            for rank in range(world.size)
        ]
        self.file = self.files[world.rank]
        kept = {name for name, ranks in owners.items() if world.rank in ranks}
        packed.arrays = {name: x for name, x in packed.arrays.items() if name in kept}
        self._step = step

    def write(self, index: Path) -> None:
        """Write this rank's part, and on the first rank, when all parts are there, the index."""
        with replacing(self.file) as file:
            write(self.packed, file, {}, checksum=True)
        if not self.is_first:
            return
        until = time.monotonic() + PATIENCE
        for path in self.files:
            while not path.exists():
                if time.monotonic() > until:
                    raise FileError(f"{path.name} was not written by its rank", op="Checkpoint")
                time.sleep(0.01)
        about = {
            "version": VERSION,
            "step": self._step,
            "parts": [path.name for path in self.files],
            "names": self._names,
            "mesh": _mesh(self.packed.parts),
        }
        with replacing(index) as file:
            write(Packed(about), file, {}, checksum=True)


def _digest(array: Array) -> int:
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _place(array: Array, part: Parts | None, world: World) -> list[Any]:
    """The shape of the whole of an array, and which of its elements the array has."""
    if part is None:
        return [list(array.shape), [[0, size] for size in array.shape]]
    return [list(part.shape), [list(pair) for pair in part.slices(world.rank)]]


def _owners(tables: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, set[int]]]:
    """What the index says of each array, and which ranks write it."""
    names: dict[str, Any] = {}
    owners: dict[str, set[int]] = {}
    turn = [0] * len(tables)  # bytes that each rank writes
    for name in sorted({name for table in tables for name in table}):
        has = {rank: table[name] for rank, table in enumerate(tables) if name in table}
        by_slices: dict[Any, dict[int, list[int]]] = {}
        for rank, (digest, _, _, slices) in has.items():
            by_slices.setdefault(json.dumps(slices), {}).setdefault(digest, []).append(rank)
        _, dtype, shape, _ = next(iter(has.values()))
        one_kind = all(said[1:3] == [dtype, shape] for said in has.values())
        alike = one_kind and all(len(ranks) == 1 for ranks in by_slices.values())
        pieces = []
        if alike:
            for text, digests in by_slices.items():
                (ranks,) = digests.values()
                rank = min(ranks, key=lambda r: turn[r])
                slices = json.loads(text)
                turn[rank] += math.prod(stop - start for start, stop in slices)
                pieces.append([rank, slices])
        else:
            pieces = [[rank, said[3]] for rank, said in has.items()]
        names[name] = {"shape": shape, "alike": alike, "pieces": pieces}
        owners[name] = {rank for rank, _ in pieces}
    return names, owners


# --- reading --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Arrays(Mapping[str, Array]):
    """The arrays of a checkpoint as wholes, put together when they are asked for."""

    folder: Path
    about: dict[str, Any]
    rank: int
    same: bool  # whether there are as many ranks now
    read: dict[int, dict[str, Array]]

    def __getitem__(self, name: str) -> Array:
        said = self.about["names"][name]
        if not said["alike"]:
            if not self.same and not name.startswith(_OWN):
                raise FileError(
                    f"{name} was another one on each of {len(self.about['parts'])} ranks, and "
                    "there are others now",
                    op="Checkpoint.restore",
                    hint="go on with as many ranks; what is one tensor for all of them, in parts, "
                    "is saved as one",
                )
            has = [rank for rank, _ in said["pieces"]]
            return self._part(self.rank if self.same and self.rank in has else has[0])[name]
        pieces = said["pieces"]
        if len(pieces) == 1:
            return self._part(pieces[0][0])[name]
        whole = None
        for rank, slices in pieces:
            piece = self._part(rank)[name]
            if whole is None:  # arrays of dtypes without a name have one more axis
                whole = np.zeros((*said["shape"], *piece.shape[len(slices) :]), piece.dtype)
            whole[tuple(slice(*pair) for pair in slices)] = piece
        assert whole is not None
        return whole

    def piece(self, name: str, wanted: Sequence[tuple[int, int]]) -> Array:
        """Some elements of an array; nothing else is read where one rank wrote just these."""
        for rank, slices in self.about["names"][name]["pieces"]:
            if [tuple(pair) for pair in slices] == list(wanted):
                return self._part(rank)[name]
        found: Array = self[name][tuple(slice(*pair) for pair in wanted)]
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.about["names"])

    def __len__(self) -> int:
        return len(self.about["names"])

    def _part(self, rank: int) -> dict[str, Array]:
        if rank not in self.read:
            self.read[rank] = read_arrays(self.folder / self.about["parts"][rank])
        return self.read[rank]


def read_sharded(
    folder: Path, about: dict[str, Any], world: World, now: Mapping[str, Parts]
) -> Any:
    """The content of a checkpoint of several ranks, for this one. `now`: the tensors of which this
    rank has parts now; others come as wholes, but for those that had parts and have no place yet,
    such as moments of parameters, where the mesh is the same.
    """
    parts = about["parts"]
    same = len(parts) == world.size
    if same:
        tree = read_structure(folder / parts[world.rank])
    else:
        tree = read_structure(folder / parts[0])
        for name in parts[1:]:
            tree = _merged(tree, read_structure(folder / name))
    arrays = _Arrays(folder, about, world.rank, same, {})
    mesh = _mesh(now)

    def part_of(name: str, axes: list[list[str]], typed: Callable[[Array], Array]) -> Tensor | None:
        known = now.get(name)
        if known is None and mesh != about["mesh"]:
            return None
        cuts = Cuts(tuple(map(tuple, axes))) if known is None else known.cuts
        over = tuple((n, size) for n, size in mesh) if known is None else known.mesh
        shape = tuple(about["names"][name]["shape"])
        cuts.check(shape, over)  # a size that ranks do not divide is an error here
        slices = Parts(np.empty(0), shape, cuts, over).slices(world.rank)
        local = np.ascontiguousarray(typed(arrays.piece(name, slices)))
        made = wrap(local)
        made._data = Parts(local, shape, cuts, over)
        return made

    return unpacked(tree, arrays, wrap, part_of)[0]


def _merged(one: Any, other: Any) -> Any:
    """Two trees as one: what only the other one has is added to dicts."""
    if not (
        isinstance(one, dict) and isinstance(other, dict) and "dict" in one and "dict" in other
    ):
        return one
    found = {json.dumps(key): (key, value) for key, value in one["dict"]}
    for key, value in other["dict"]:
        name = json.dumps(key)
        found[name] = (key, _merged(found[name][1], value) if name in found else value)
    return {"dict": [[key, value] for key, value in found.values()]}
