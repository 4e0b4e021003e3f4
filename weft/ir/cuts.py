"""Layouts of values over a mesh: which mesh axes cut which axes of a value.

`f32[8{data},4]` is a value of 8×4 elements of which each rank along the mesh axis `data` has a part
of the first axis; `f32[8{data,model},4]` cuts it over both, `data` first. `f32[8,4]{+model}`: each
rank along `model` has a term, and the value is the sum of these. `f32[40{data:5},4]`: each rank has
a part of each of 5 equal sections of the axis. Shapes are those of the whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.errors import ShapeError
from weft.base.pytree import value_class
from weft.base.shapes import Shape
from weft.base.world import Axes

__all__ = ["Cuts", "Interleaved", "divides"]

_TERMS = re.compile(r"\{\+([^{}]*)\}")


class Interleaved(int):
    """A part of each of `sections` sections of an axis; the axis as an int."""

    sections: int

    def __new__(cls, axis: int, sections: int) -> Interleaved:
        made = super().__new__(cls, axis)
        made.sections = sections
        return made

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Interleaved)
            and int(self) == int(other)
            and self.sections == other.sections
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((int(self), self.sections))

    def __repr__(self) -> str:
        return f"{int(self)}:{self.sections}"

    __str__ = __repr__


def divides(parts: int, size: Any) -> bool:
    """Whether a size, which may be symbolic, is known to have so many equal parts."""
    rest = size % parts
    return rest.__class__ is int and rest == 0


@value_class
@dataclass(frozen=True, slots=True)
class Cuts:
    """
    axes   for each axis of the value the mesh axes that cut it, in the order of the mesh
    terms  the mesh axes along which each rank has a term of a sum
    """

    axes: tuple[tuple[str, ...], ...]
    terms: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.terms) or any(self.axes)

    def local(self, shape: Shape, mesh: Axes) -> Shape:
        """The shape of a part. Where ranks do not divide a size, the last parts are filled up with
        copies of the last element."""
        self._check(shape, mesh, may_pad=True)
        sizes = dict(mesh)
        found = []
        for size, names in zip(shape, self.axes, strict=True):
            for name in names:
                n = sizes[name.partition(":")[0]]
                size = size // n if divides(n, size) else -(-size // n)
            found.append(size)
        return tuple(found)

    def check(self, shape: Shape, mesh: Axes) -> None:
        """Raise an error where the ranks do not divide a size."""
        self._check(shape, mesh, may_pad=False)

    def padded(self, shape: Shape, mesh: Axes) -> tuple[int, ...]:
        """The axes whose last parts are filled up."""
        sizes = dict(mesh)
        return tuple(
            axis
            for axis, (size, names) in enumerate(zip(shape, self.axes, strict=True))
            if len(names) == 1 and ":" not in names[0] and not divides(sizes[names[0]], size)
        )

    def _check(self, shape: Shape, mesh: Axes, *, may_pad: bool) -> None:
        sizes = dict(mesh)
        for axis, (size, names) in enumerate(zip(shape, self.axes, strict=True)):
            parts, plain, sections = 1, 1, 1
            for name in names:
                base, _, apart = name.partition(":")
                parts *= sizes[base] * int(apart or 1)
                plain *= 1 if apart else sizes[base]
                sections *= int(apart or 1)
            if sections > 1 and sections % plain == 0:
                parts //= plain  # these have some of the sections each
            pads = may_pad and size.__class__ is int and len(names) == 1 and parts == plain
            if parts > 1 and not divides(parts, size) and not pads:
                hint = "choose another axis or mesh"
                if not may_pad and len(names) == 1 and parts == plain:
                    hint += ', or let the last parts be filled up: split(..., uneven="pad")'
                raise ShapeError(
                    f"axis {axis} of {self.shape_text(shape)} has size {size}, "
                    f"which {parts} ranks do not divide",
                    hint=hint,
                )

    def whole(self, shape: Shape, mesh: Axes) -> Shape:
        """The shape of the whole, of which a part has this shape."""
        sizes = dict(mesh)
        found = list(shape)
        for axis, names in enumerate(self.axes):
            for name in names:
                found[axis] *= sizes[name.partition(":")[0]]
        return tuple(found)

    def shape_text(self, shape: Shape) -> str:
        """[8{data},4]{+model}"""
        sizes = [
            f"{size}{{{','.join(names)}}}" if names else str(size)
            for size, names in zip(shape, self.axes, strict=True)
        ]
        terms = f"{{+{','.join(self.terms)}}}" if self.terms else ""
        return f"[{','.join(sizes)}]{terms}"


def cuts_from(states: Sequence[int | str | None], mesh: Axes, ndim: int) -> Cuts | None:
    """Cuts from what each mesh axis does; None where nothing is cut."""
    axes: list[tuple[str, ...]] = [()] * ndim
    terms: tuple[str, ...] = ()
    for (name, _), state in zip(mesh, states, strict=True):
        if isinstance(state, Interleaved):
            axes[state] = (*axes[state], f"{name}:{state.sections}")
        elif isinstance(state, int):
            axes[state] = (*axes[state], name)
        elif state is not None:
            terms = (*terms, name)
    return Cuts(tuple(axes), terms) or None


def split_shape_text(text: str, terms: str) -> tuple[str, Cuts | None]:
    """The inside of a shape's brackets without its cuts, and these: 8{data},4 -> 8,4."""
    sizes: list[str] = []
    axes: list[tuple[str, ...]] = []
    for size, names in re.findall(r"((?:[^,{(]|\([^)]*\))+)(?:\{([^}]*)\})?(?:,|$)", text):
        sizes.append(size)
        axes.append(tuple(name.strip() for name in names.split(",") if name.strip()))
    match = _TERMS.fullmatch(terms) if terms else None
    found = tuple(name.strip() for name in match[1].split(",")) if match else ()
    return ",".join(sizes), Cuts(tuple(axes), found) or None
