"""Slices of slices: x[2:][::-1] becomes one slice of x.

A static index is normalized to one part per axis of x: an int, or the range that a slice selects. A
range of a range is a range. Along an axis of symbolic size a slice is kept as it is written, and
combines only with slices that select everything.
"""

from __future__ import annotations

from typing import Any

from weft.base.errors import WeftError
from weft.base.shapes import Shape
from weft.ir.attributes import attrs_key
from weft.ir.graph import Graph, Node, Value
from weft.ops.cards import FULL, GETITEM, SETITEM
from weft.passes.contract import Notes, Pass
from weft.passes.facts import dense, made_by
from weft.passes.sweep import Sweep

WHOLE = slice(None)
NEW = None  # an axis of size 1 that x does not have

#: The part for one axis of x: an int, a range, or a slice as it was written.
Part = int | range | slice


class Slices(Pass):
    """Merges slices of slices, and drops those that select everything."""

    name = "slices"

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        def rule(node: Node, sweep: Sweep) -> Value | None:
            if node.op is not GETITEM or dense(node) is None:
                return None
            try:
                found = _shorter(node, sweep)
            except WeftError:  # symbolic sizes that cannot be shown to fit
                return None
            if found is not None:
                notes.add("slices left out")
            return found

        return Sweep(graph).run(rule)


def _shorter(node: Node, sweep: Sweep) -> Value | None:
    (value,) = node.inputs
    out = node.outputs[0].tensor_type
    written = made_by(value, SETITEM)
    if written is not None and _reads_back(node, written):
        return sweep.fitted(written.inputs[1], out)
    uniform = made_by(value, FULL)
    if uniform is not None:
        return sweep.add(FULL, **{**uniform.attrs, "shape": out.shape})
    parts = parsed(node)
    if parts is None:
        return None
    if all(isinstance(part, slice) and part == WHOLE for part in parts):
        return value
    inner = made_by(value, GETITEM)
    first = None if inner is None else parsed(inner)
    if inner is None or first is None:
        return None
    together = composed(first, parts)
    if together is None:
        return None
    x = inner.inputs[0]
    if all(isinstance(part, slice) and part == WHOLE for part in together):
        return x if x.type == out else None
    new = sweep.add(GETITEM, x, index=tuple(map(_written, together)))
    return new if new.type == out else None


def _reads_back(node: Node, written: Node) -> bool:
    """Whether a getitem reads exactly what a setitem wrote."""
    if len(written.inputs) != 2:
        return False
    return attrs_key({"": node.attrs["index"]}) == attrs_key({"": written.attrs["index"]})


def parsed(node: Node) -> list[Part | None] | None:
    """The normalized index of a getitem; see `index_parts`."""
    return index_parts(node.inputs[0].tensor_type.shape, node.attrs["index"])


def index_parts(shape: Shape, index: Any) -> list[Part | None] | None:
    """Normalize an index for a shape: one part per axis of x, and None for each new axis."""
    given: list[Any] = list(index) if isinstance(index, tuple) else [index]
    used = sum(part is not NEW and part is not ... for part in given)
    at = next((i for i, part in enumerate(given) if part is ...), len(given))
    given[at : at + 1] = [WHOLE] * (len(shape) - used)
    sizes = iter(shape)
    parts: list[Part | None] = []
    for part in given:
        if part is NEW:
            parts.append(NEW)
            continue
        size = next(sizes, None)
        if size is None:
            return None
        if isinstance(part, slice):
            parts.append(_range(part, size))
        elif part.__class__ is int and size.__class__ is int:
            parts.append(part + size if part < 0 else part)
        else:
            return None
    return parts


def _range(part: slice, size: int) -> Part:
    """The range that a slice selects; WHOLE if that is the whole axis in order."""
    if part.stop is None and part.start in (None, 0) and part.step in (None, 1):
        return WHOLE
    ends = (size, part.start, part.stop, part.step)
    if any(end is not None and end.__class__ is not int for end in ends):
        return part
    taken = range(size)[part]
    return WHOLE if taken == range(size) else taken


def composed(first: list[Part | None], second: list[Part | None]) -> list[Part | None] | None:
    """The one index that equals two in sequence; None if there is none."""
    out: list[Part | None] = []
    later = iter(second)

    def news() -> Any:
        """The next part of the second index that is not a new axis; new axes go to the result."""
        for part in later:
            if part is not NEW:
                return part
            out.append(NEW)
        return WHOLE

    for part in first:
        if isinstance(part, int):  # this axis is gone: the second index does not cover it
            out.append(part)
            continue
        then = news()
        if part is NEW:
            if not _is_all_of_one(then):
                return None
            if isinstance(then, int):
                continue  # a new axis, and then its only element
            out.append(NEW)
        elif isinstance(then, slice) and then == WHOLE:
            out.append(part)
        elif isinstance(part, slice):
            if part != WHOLE:
                return None
            out.append(then)
        elif isinstance(then, slice):
            return None
        else:
            out.append(part[then] if isinstance(then, int) else _of_range(part, then))
    out.extend(part for part in later if part is NEW)
    return out


def _is_all_of_one(part: Part) -> bool:
    return part == 0 if isinstance(part, int) else isinstance(part, slice) and part == WHOLE


def _of_range(part: range, then: range) -> range:
    """The part that selects `then` from `part`."""
    taken: range = part[_written(then)]
    return taken


def _written(part: Part | None) -> Any:
    """A part, written as an index."""
    if not isinstance(part, range):
        return part
    if not part:
        return slice(0, 0)
    stop = part[-1] + (1 if part.step > 0 else -1)
    step = None if part.step == 1 or len(part) == 1 else part.step
    if len(part) == 1:
        return slice(part[0], part[0] + 1)
    return slice(part[0], stop if stop >= 0 else None, step)
