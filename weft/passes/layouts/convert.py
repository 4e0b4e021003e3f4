"""From one layout of a value to another: the collectives that do it, in their order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from weft.base.shapes import Shape
from weft.base.world import Axes, group_size
from weft.ir.cuts import Interleaved, divides
from weft.ir.op import Op
from weft.ir.ways import SUM
from weft.ops.cards import CONCAT, GETITEM, RESHAPE
from weft.ops.collective import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    FIRST_ONLY,
    OWN_PART,
    REDUCE_SCATTER,
)
from weft.passes.layouts.states import States

__all__ = ["Step", "steps"]


@dataclass(frozen=True, slots=True)
class Step:
    """One collective. With `sections`, it is called on a value of which one axis stands as two: its
    sections, and what is in each."""

    op: Op
    attrs: dict[str, Any]
    axis: int = 0
    sections: int = 1

    def run(
        self, call: Callable[..., Any], x: Any, shape: Shape, whole: Shape
    ) -> tuple[Any, Shape]:
        """The value after this step, and its shape; `call(op, x, **attrs)`. `whole`: the shape of
        the whole value, of which the last parts may be filled up."""
        if self.sections == 1:
            made = call(self.op, self._filled(call, x, shape), **self.attrs)
            made = self._cut_off(call, made, whole)
            return made, made.type.shape
        at, count = self.axis, self.sections
        opened = (*shape[:at], count, shape[at] // count, *shape[at + 1 :])
        made = call(self.op, call(RESHAPE, x, shape=opened), **self.attrs, axis=at + 1)
        found = made.type.shape
        closed = (*found[:at], found[at] * found[at + 1], *found[at + 2 :])
        return call(RESHAPE, made, shape=closed), closed

    def _filled(self, call: Callable[..., Any], x: Any, shape: Shape) -> Any:
        """With copies of the last element, where the ranks do not divide what this step cuts."""
        name = _CUTS.get(self.op)
        if name is None:
            return x
        axis, n = self.attrs[name], group_size(self.attrs["mesh"], self.attrs["over"])
        size = shape[axis]
        if size.__class__ is not int or divides(n, size):
            return x
        last = call(GETITEM, x, index=((slice(None),) * axis + (slice(size - 1, size),)))
        return call(CONCAT, x, *[last] * (-size % n), axis=axis)

    def _cut_off(self, call: Callable[..., Any], x: Any, whole: Shape) -> Any:
        name = _JOINS.get(self.op)
        if name is None:
            return x
        axis = self.attrs[name]
        size, real = x.type.shape[axis], whole[axis]
        if size.__class__ is not int or real.__class__ is not int or size <= real:
            return x
        return call(GETITEM, x, index=((slice(None),) * axis + (slice(0, real),)))


#: The attributes of the axes that collectives cut, and put together.
_CUTS = {OWN_PART: "axis", REDUCE_SCATTER: "axis", ALL_TO_ALL: "split_axis"}
_JOINS = {ALL_GATHER: "axis", ALL_TO_ALL: "concat_axis"}


def steps(before: States, after: States, ndim: int, mesh: Axes) -> Iterator[Step]:
    """Collectives that turn a value of one layout into another.

    Of several mesh axes that cut one axis of a value, the last one cuts finest. So parts can be put
    together, and cut further, only along the last one.
    """
    names = [name for name, _ in mesh]
    cut: list[list[int]] = [[] for _ in range(ndim)]  # mesh axes that cut each axis, by number
    want: list[list[int]] = [[] for _ in range(ndim)]
    for k, (one, two) in enumerate(zip(before, after, strict=True)):
        if isinstance(one, int) and not isinstance(one, Interleaved):
            cut[one].append(k)
        if isinstance(two, int) and not isinstance(two, Interleaved):
            want[two].append(k)

    def call(op: Op, over: list[int], **attrs: Any) -> Step:
        return Step(op, {"mesh": mesh, "over": tuple(names[k] for k in sorted(over)), **attrs})

    def apart(op: Op, k: int, state: Interleaved, others: list[int]) -> Step:
        """A step on interleaved parts of what other mesh axes cut the same axis into."""
        sections = state.sections // math.prod(mesh[other][1] for other in others)
        if sections == 1:
            return call(op, [k], axis=int(state))
        return Step(op, {"mesh": mesh, "over": (names[k],)}, int(state), sections)

    for k, (one, two) in enumerate(zip(before, after, strict=True)):
        if isinstance(one, Interleaved) and one != two:
            yield apart(ALL_GATHER, k, one, cut[one])

    # Terms are added up: by each rank its own part, where this is the next part to be cut.
    left = [k for k, (a, b) in enumerate(zip(before, after, strict=True)) if a == SUM and b != SUM]
    scattered: list[int] = []
    for k in list(left):
        axis = after[k]
        if isinstance(axis, Interleaved):
            if cut[axis] == want[axis]:
                yield apart(REDUCE_SCATTER, k, axis, cut[axis])
                left.remove(k)
                scattered.append(k)
        elif isinstance(axis, int) and [*cut[axis], k] == want[axis][: len(cut[axis]) + 1]:
            yield call(REDUCE_SCATTER, [k], axis=axis)
            cut[axis].append(k)
            left.remove(k)
    if left:
        yield call(ALL_REDUCE, left)
    # Parts go together, back to those that both layouts have.
    for axis in range(ndim):
        same = _common(cut[axis], want[axis])
        gone = cut[axis][same:]
        other = after[gone[0]] if len(gone) == 1 else None
        if isinstance(other, int) and not isinstance(other, Interleaved):
            (k,) = gone
            if other != axis and [*cut[other], k] == want[other][: len(cut[other]) + 1]:
                yield call(ALL_TO_ALL, [k], split_axis=other, concat_axis=axis)
                cut[other].append(k)
                cut[axis] = cut[axis][:same]
                continue
        if gone:
            yield call(ALL_GATHER, gone, axis=axis)
            cut[axis] = cut[axis][:same]
    # Whole values are cut, which needs no message.
    for axis in range(ndim):
        new = want[axis][len(cut[axis]) :]
        if new:
            yield call(OWN_PART, new, axis=axis)
    for k, (one, two) in enumerate(zip(before, after, strict=True)):
        if isinstance(two, Interleaved) and one != two and k not in scattered:
            yield apart(OWN_PART, k, two, want[two])
    terms = [k for k, (a, b) in enumerate(zip(before, after, strict=True)) if b == SUM and a != SUM]
    if terms:
        yield call(FIRST_ONLY, terms)


def _common(one: list[int], two: list[int]) -> int:
    """How many elements two lists begin with that are the same."""
    count = 0
    for a, b in zip(one, two, strict=False):
        if a != b:
            break
        count += 1
    return count
