"""Where things lie: in the memory of an instance, and in a file of its state.

A file of state is a safetensors file whose header is known when the library is built. Its data is
the state as it lies in memory: a saved file can be mapped, and an instance works on the mapping.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from weft.base.errors import DTypeError
from weft.interop.library.program import LibraryProgram, Slot

__all__ = ["PATH", "Layout", "layout_of"]

ALIGN = 64
#: Bytes of the longest path of a file, with what is appended while it is written.
PATH = 4096

#: Offsets of the fields of an instance.
MAGIC, BUSY, GRAPH, STATE, MAPPED, LENGTH, OWNED, VARIANT, ROWS = 0, 4, 8, 16, 24, 32, 40, 44, 48
RUN = 56
_FIELDS = 192
NUMBER = 0x57454654  # in an instance that was made
_SHORT = {"bool": "BOOL", "c64": "C64", "c128": "C128"}
_PLAIN = ("f", "i", "u", "b", "c")


@dataclass(frozen=True, slots=True)
class Layout:
    """Offsets in bytes from the start of an instance.

    tables     the addresses of inputs and outputs of the graph
    extra      for outputs of the graph that have no other place: where they are computed
    path       room for the name of a file
    room, stacks, arena   memory of a run: variables of kernels, what loops keep, values
    state      the state: in `offsets`, counted from its start
    """

    tables: int
    extra: dict[int, int]
    path: int
    room: int
    stacks: int
    stack_bytes: int
    arena: int
    state: int
    total: int
    offsets: tuple[int, ...]
    state_bytes: int
    header: bytes
    arena_bytes: int
    sizes: tuple[int, ...] = field(default=())

    @property
    def file_bytes(self) -> int:
        return len(self.header) + self.state_bytes


def _up(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


def layout_of(
    program: LibraryProgram,
    extra: Sequence[int],
    arena: int,
    room: int,
    stack_bytes: int,
    *,
    files: bool,
) -> Layout:
    """`extra`: the outputs of the graph that need memory of their own."""
    at = _FIELDS
    tables, at = at, _up(at + 8 * (len(program.reads) + len(program.gives)))
    places = {}
    for output in extra:
        places[output] = at
        nbytes = program.largest(program.graph.outputs[output].tensor_type.nbytes)
        at = _up(at + max(1, nbytes))
    path, at = at, _up(at + (PATH if files else 0))
    at_room, at = at, _up(at + room)
    at_stacks, at = at, _up(at + stack_bytes)
    at_arena, at = at, _up(at + arena)
    offsets, size = _state_offsets(program.state)
    return Layout(
        tables,
        places,
        path,
        at_room,
        at_stacks,
        _up(stack_bytes),
        at_arena,
        at,
        at + _up(size),
        offsets,
        size,
        _header(program, offsets),
        arena,
        tuple(slot.type.nbytes for slot in program.state),
    )


def _state_offsets(state: Sequence[Slot]) -> tuple[tuple[int, ...], int]:
    """Without gaps, as safetensors wants it, and each aligned to its elements: whole cache lines
    first, then by the size of elements."""

    def rank(number: int) -> tuple[bool, int, int]:
        kind = state[number].type
        return kind.nbytes % ALIGN != 0, -kind.dtype.itemsize, number

    found = [0] * len(state)
    at = 0
    for number in sorted(range(len(state)), key=rank):
        found[number] = at
        at += state[number].type.nbytes
    return tuple(found), at


def _header(program: LibraryProgram, offsets: Sequence[int]) -> bytes:
    order = sorted(range(len(offsets)), key=lambda i: (offsets[i], program.state[i].type.nbytes))
    entries: dict[str, object] = {"__metadata__": {"weft.program": program.name}}
    for number in order:
        slot, start = program.state[number], offsets[number]
        entries[slot.name] = {
            "dtype": _file_dtype(slot),
            "shape": list(slot.type.shape),
            "data_offsets": [start, start + slot.type.nbytes],
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGN)
    return len(text).to_bytes(8, "little") + text


def _file_dtype(slot: Slot) -> str:
    short = slot.type.dtype.short
    if short in _SHORT:
        return _SHORT[short]
    if short[0] in _PLAIN and short.lstrip("abcdefghijklmnopqrstuvwxyz").isdigit():
        return short.upper()
    raise DTypeError(f"{slot.name} is of dtype {slot.type.dtype.name}", op="build_library")


def state_data(program: LibraryProgram, layout: Layout) -> bytes:
    """The bytes of the state that an instance begins with."""
    made = np.zeros(layout.state_bytes, np.uint8)
    for slot, start in zip(program.state, layout.offsets, strict=True):
        assert slot.value is not None
        made[start : start + slot.type.nbytes] = np.frombuffer(slot.value.tobytes(), np.uint8)
    return made.tobytes()


def places(layout: Layout, program: LibraryProgram) -> Iterator[tuple[Slot, int]]:
    """The state with its offsets."""
    return zip(program.state, layout.offsets, strict=True)
