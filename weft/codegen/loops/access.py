"""Operands and results of a group as strides along the axes of its loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft.base.dims import is_zero
from weft.base.dtypes import DType
from weft.codegen.index import Ptr
from weft.codegen.kernel import argument
from weft.codegen.scalar.forms import memory_type
from weft.codegen.text import Function
from weft.ir.graph import Value
from weft.ir.types import TensorType
from weft.schedule.axes import Map
from weft.schedule.groups import Group, Leaf
from weft.schedule.views import View, dense

__all__ = ["Access", "Loop", "access_of", "coalesced", "dtype_of", "operand", "result_access"]


@dataclass(frozen=True, slots=True)
class Access:
    """An element of a buffer for each point of the loops: `offset + sum(index * steps)`."""

    root: Value
    dtype: DType
    offset: int
    steps: tuple[tuple[int, int], ...]  # axis, step; axes with step 0 are left out

    def step(self, axis: int) -> int:
        for found, step in self.steps:
            if found == axis:
                return step
        return 0


@dataclass(frozen=True, slots=True)
class Loop:
    """Axes merged into one loop: `axis` is the innermost, and all steps follow it."""

    axis: int
    size: int


def dtype_of(value: Value) -> DType:
    kind = value.type
    assert isinstance(kind, TensorType)
    return kind.dtype


def operand(f: Function, places: Mapping[Value, int], root: Value) -> Ptr:
    """The pointer to a buffer's elements; `places` are positions in `%args`."""
    return argument(f, places[root], memory_type(dtype_of(root)))


def _steps(view: View, place: Map, sizes: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    steps: dict[int, int] = {}
    for back in range(1, len(view.shape) + 1):
        size, step = view.shape[-back], view.strides[-back]
        if size == 1 or step == 0:
            continue
        for axis in reversed(place[-back]):
            steps[axis] = steps.get(axis, 0) + step
            step *= sizes[axis]
    return tuple(sorted((axis, step) for axis, step in steps.items() if not is_zero(step)))


def access_of(group: Group, leaf: Leaf, place: Map) -> Access:
    """How a node at `place` reads an operand."""
    steps = _steps(leaf.view, place, group.space.sizes)
    return Access(leaf.root, dtype_of(leaf.root), leaf.view.offset, steps)


def result_access(group: Group, value: Value) -> Access:
    """Where a result is written."""
    kind = value.type
    assert isinstance(kind, TensorType)
    steps = _steps(dense(kind.shape), group.maps[value], group.space.sizes)
    return Access(value, kind.dtype, 0, steps)


def coalesced(
    axes: Sequence[int], sizes: Mapping[int, int], accesses: Sequence[Access]
) -> list[Loop]:
    """Merge neighbouring axes where all accesses are contiguous across them."""
    loops: list[Loop] = []
    for axis in axes:
        size = sizes[axis]
        if loops:
            before = loops[-1]
            if all(a.step(before.axis) == a.step(axis) * size for a in accesses):
                loops[-1] = Loop(axis, before.size * size)
                continue
        loops.append(Loop(axis, size))
    return loops
