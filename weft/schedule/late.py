"""Sizes that depend on data: which steps of a plan tell them, and the memory of what has them.

The name of such a size is *late*: a step computes its number during the run (`x[mask]` counts the
mask first). What has a late size can only be placed once its names are told. So these buffers lie
in chunks of their own, one for each step that tells sizes, allocated right after it. A graph may
also begin with a chunk: for sizes that were told before it runs, by the graph around it.

In a chunk, buffers that are not alive at the same time share a slot, which is as large as the
largest of them. Offsets are expressions of sizes, as strides are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from weft.base.dim_algebra import Dim, replaced
from weft.base.dims import dim, dims_in
from weft.ir.graph import Node, Value
from weft.ir.types import StackType, TensorType
from weft.ops.cards import STACK_NEW, STACK_ZEROS

__all__ = ["BOX", "TELLING", "LateChunk", "LateMemory", "late_names_of", "mentions", "placed"]
__all__ += ["Solved", "pops_boxes", "solved"]

#: Bytes of a box: the address of a value whose size the run tells, and the sizes of its axes.
BOX = 64
#: Kinds of groups whose node may tell sizes.
TELLING = ("kernel", "call", "stack", "control")
#: Gives the value of a Python expression over sizes a name: `RunSizes.let`.
Let = Callable[..., int]


@dataclass(frozen=True, slots=True)
class LateChunk:
    """Memory that is allocated after a step, or before the first one (-1).

    size     its bytes
    offsets  of the buffers in it, in bytes
    """

    step: int
    size: int
    offsets: Mapping[Any, int]


@dataclass
class LateMemory:
    """
    told     of each name that the graph tells: the step that does; -1 if it is known before
    chunks   the memory of what has late sizes
    results  values that are results and lie in memory of their own, as nobody knows their size
             before: the result is a box. With the step after which each is allocated
    popped   values that are popped off stacks of boxes
    axes     the late sizes of their axes
    solved   the names that these tell, by step
    """

    told: dict[str, int] = field(default_factory=dict)
    chunks: list[LateChunk] = field(default_factory=list)
    results: dict[Value, int] = field(default_factory=dict)
    popped: list[Value] = field(default_factory=list)
    axes: list[tuple[Value, int, Dim]] = field(default_factory=list)
    solved: dict[int, list[Solved]] = field(default_factory=dict)

    @property
    def pointers(self) -> int:
        """How many addresses a run of the graph keeps: of chunks, results, popped values."""
        return len(self.chunks) + len(self.results) + len(self.popped)

    def pointer(self, value: Value) -> int | None:
        """Which of them is that of a value in memory of its own."""
        if not self.results and not self.popped:
            return None
        own = [*self.results, *self.popped]
        return len(self.chunks) + own.index(value) if value in own else None

    def place(self, key: Any) -> tuple[int, int] | None:
        """The chunk of a buffer, and its offset."""
        for number, chunk in enumerate(self.chunks):
            if key in chunk.offsets:
                return number, chunk.offsets[key]
        return None

    def after(self, size: Set[str]) -> int:
        """The step after which these names are all told."""
        return max((self.told[name] for name in size), default=-1)


def late_names_of(kind: Any, late: Set[str]) -> set[str]:
    """The late names in a type."""
    kind = kind.innermost if isinstance(kind, StackType) else kind
    if not late or not isinstance(kind, TensorType):
        return set()
    return {name for size in dims_in(kind.shape) for name in size.names} & late


def mentions(node: Node, late: Set[str]) -> set[str]:
    """The late names that the code of a node needs: in its attributes and the types of tensors.

    What lies on a stack needs none, and nested graphs tell their own.
    """
    if not late:
        return set()
    found = {name for size in dims_in(node.attrs) for name in size.names} & late
    if node.op in _MADE_EMPTY:
        return set()
    for value in (*node.inputs, *node.outputs):
        if isinstance(value.type, TensorType):
            found |= late_names_of(value.type, late)
    return found


def pops_boxes(node: Node, late: Set[str]) -> bool:
    """Whether a node on stacks takes values off them whose sizes the run tells: these are boxes,
    which tell their sizes. A result with such a size that is put together of other elements needs
    it before."""
    if node.op.data_shape:
        return False
    kinds = [value.type for value in node.inputs]
    return any(isinstance(kind, StackType) and late_names_of(kind, late) for kind in kinds)


#: Stacks are made before anybody knows the sizes of what will lie on them.
_MADE_EMPTY = frozenset((STACK_NEW, STACK_ZEROS))


def placed(
    step: int,
    sizes: Mapping[Any, int],
    born: Mapping[Any, int],
    dies: Mapping[Any, int],
    alignment: int,
    let: Let,
) -> LateChunk:
    """The chunk of these buffers."""
    slots: list[tuple[list[str], list[Any]]] = []
    free_from: list[int] = []
    for key in sorted(sizes, key=lambda key: born[key]):
        text = str(sizes[key])
        found = _free(slots, free_from, born[key], text)
        if found is None:
            found = len(slots)
            slots.append(([], []))
            free_from.append(0)
        texts, keys = slots[found]
        if text not in texts:
            texts.append(text)
        keys.append(key)
        free_from[found] = dies[key] + 1
    offsets: dict[Any, int] = {}
    at: int = 0
    for texts, keys in slots:
        offsets.update(dict.fromkeys(keys, at))
        lines = ", ".join(f"-(-({text}) // {alignment})" for text in texts)
        at = let(f"{at} + {alignment} * max(1, {lines})", low=alignment)
    return LateChunk(step, at, offsets)


def _free(
    slots: list[tuple[list[str], list[Any]]], free_from: list[int], born: int, text: str
) -> int | None:
    """A slot that nobody uses any more: one of this size if there is one."""
    free = [i for i, first in enumerate(free_from) if first <= born]
    alike = [i for i in free if text in slots[i][0]]
    return next(iter([*alike, *free]), None)


@dataclass(frozen=True, slots=True)
class Solved:
    """A name that follows from the size of an axis: size = factor * name + rest."""

    name: str
    value: Value
    axis: int
    factor: int
    rest: int


def solved(late: LateMemory, names: Set[str]) -> list[Solved]:
    """The names that the sizes of popped values tell, one after the other."""
    found: list[Solved] = []
    told = set(late.told)
    while True:
        now = next(filter(None, (_of_axis(*axis, names, told) for axis in late.axes)), None)
        if now is None:
            return found
        found.append(now)
        told.add(now.name)


def _of_axis(value: Value, axis: int, size: Dim, names: Set[str], told: Set[str]) -> Solved | None:
    open_names = set(size.names) & names - told
    if len(open_names) != 1:
        return None
    (name,) = open_names
    rest = replaced(size, {name: 0})
    factor = replaced(size, {name: 1}) - rest
    linear = isinstance(factor, int) and not isinstance(factor, Dim) and factor > 0
    if not linear or str(size) != str(factor * dim(name) + rest):
        return None
    return Solved(name, value, axis, factor, rest)
