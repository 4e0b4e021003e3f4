"""How a call may be divided over ranks: the ways of its card.

A mesh axis divides each call in one way, independently of other mesh axes. A `Way` says for each
operand and each result what the ranks along that mesh axis have of it:

    2      equal parts, in the order of the ranks, of axis 2
    2:5    the same of each of 5 equal sections of axis 2 (`Interleaved`): what parts of an axis
           become that is merged behind one of size 5
    "+"    terms, of which the sum is the value
    None   all of it, the same on each rank

Every rank then runs the same card on what it has. Matrix products have three ways:

    (0, None) -> 0      rows of the first operand
    (None, 1) -> 1      columns of the second
    (1, 0) -> "+"       the axis that is summed over

and, as they are linear, two more: ("+", None) -> "+" and (None, "+") -> "+". Any call may also run
whole, on all of its operands. `ways_of` has the ways of a call: those that the card states
(`Op.ways`), or those that follow from its traits. Propagation chooses among them
(`weft/passes/layouts`), planners may as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.base.dataclass import dataclass
from weft.base.world import Axes
from weft.ir.cuts import Interleaved
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType, Type

if TYPE_CHECKING:
    from weft.ir.graph import Node

__all__ = ["SUM", "Interleaved", "Span", "State", "Way", "by_letters", "local_attrs", "ways_of"]


#: What a rank has of a value: see above.
State = int | str | None
#: Each rank has a term of a sum.
SUM = "+"


@dataclass(frozen=True, slots=True)
class Span:
    """The part of a rank of a range of numbers, such as rows of a table or classes.

    first  the first number of the part, a 0-d integer tensor
    size   how many numbers the part has
    whole  how many there are together
    mesh   with `over`, the ranks that have the other parts: for rules that send
    """

    first: Any
    size: int
    whole: int
    mesh: Axes = ()
    over: tuple[str, ...] = ()

    def place(self, xp: Any, numbers: Any) -> tuple[Any, Any]:
        """Which numbers lie in the part; and their places in it, which are 0 for others. Of numbers
        out of the whole range they are out of the part, so that what reads there fails."""
        place = numbers - xp.astype(self.first, numbers.dtype)
        here = (place >= 0) & (place < self.size)
        wrong = (numbers < 0) | (numbers >= self.whole)
        return here, xp.where(here, place, xp.where(wrong, self.size, 0))


@dataclass(frozen=True, slots=True)
class Way:
    """One way to divide a call.

    inputs   what ranks have of each operand
    outputs  what they get of each result
    parts    how many parts there may be: their number divides this
    combine  "max", "min" or "prod": the results are whole once they are combined so over the ranks
    even     whether any elements of the axis may be a part: the call treats all alike
    rule     what ranks run, where that is not the card itself: (xp, span, *operands, **attrs), in
             the namespace `xp`, as evaluation rules are written
    """

    inputs: tuple[State, ...]
    outputs: tuple[State, ...]
    parts: int = 0
    combine: str = ""
    even: bool = True
    rule: Callable[..., Any] | None = None

    def interleaved(self, sections: int) -> Way | None:
        """The same way, with parts of each of so many sections; None if there is none."""
        if not self.even or self.parts.__class__ is not int or not self.parts:
            return None
        if self.parts % sections:
            return None
        return Way(
            tuple(Interleaved(s, sections) if isinstance(s, int) else s for s in self.inputs),
            tuple(Interleaved(s, sections) if isinstance(s, int) else s for s in self.outputs),
            self.parts // sections,
            self.combine,
            even=False,
        )

    def __str__(self) -> str:
        def shown(states: tuple[State, ...]) -> str:
            return ", ".join("·" if state is None else str(state) for state in states)

        combined = f" {self.combine}" if self.combine else ""
        return f"{shown(self.inputs)} -> {shown(self.outputs)}{combined}"


def ways_of(node: Node) -> tuple[Way, ...]:
    """The ways to divide a call, except for running it whole."""
    types = [value.type for value in node.inputs]
    outputs = [value.type for value in node.outputs]
    if not all(isinstance(kind, TensorType) for kind in (*types, *outputs)):
        return ()
    return ways_of_call(node.op, types, outputs, node.attrs)  # type: ignore[arg-type]


def ways_of_call(
    op: Op,
    inputs: Sequence[TensorType],
    outputs: Sequence[TensorType],
    attrs: Mapping[str, Any],
) -> tuple[Way, ...]:
    if op.nested or op.effect or op.collective or op.data_shape:
        return ()
    found: list[Way] = []
    if op.ways is not None:
        found += op.ways(tuple(inputs), tuple(outputs), **attrs)
    elif op.elementwise:
        found += _elementwise(inputs, outputs)
    found += _linear(op, inputs, outputs)
    many = [way for way in found if way.parts.__class__ is not int or way.parts != 1]
    return tuple(dict.fromkeys(many))


def _elementwise(inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Iterator[Way]:
    """All axes: operands are whole along axes in which they are broadcast."""
    shape = outputs[0].shape
    for axis, size in enumerate(shape):
        if size.__class__ is not int or size != 1:
            states: list[State] = []
            for kind in inputs:
                mine = axis - (len(shape) - kind.ndim)
                states.append(mine if mine >= 0 and kind.shape[mine] == size else None)
            yield Way(tuple(states), (axis,) * len(outputs), size)


_SUMMED = ("float", "complex")


def _linear(op: Op, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Iterator[Way]:
    """Of what is linear in an operand: terms of it give terms of the result."""
    floating = [i for i, kind in enumerate(inputs) if kind.dtype.kind in _SUMMED]
    if not all(kind.dtype.kind in _SUMMED for kind in outputs):
        return
    sets: Iterable[tuple[int, ...]] = ()
    if op.terms is not None:
        sets = op.terms
    elif Trait.JOINT in op.traits:
        sets = (tuple(floating),)
    elif Trait.LINEAR in op.traits:
        sets = tuple((i,) for i in floating)
    for chosen in sets:
        if chosen and set(chosen) <= set(floating):
            states = tuple([SUM if i in chosen else None for i in range(len(inputs))])
            yield Way(states, (SUM,) * len(outputs))


def by_letters(
    inputs: Sequence[tuple[TensorType, str]],
    outputs: Sequence[tuple[TensorType, str]],
    terms: Sequence[int] = (),
) -> Iterator[Way]:
    """Ways from letters for axes, as in einsum: axes with one letter are cut together.

    A letter that results lack is summed over; "." is an axis that stays whole, and so does one
    that is broadcast. `terms`: operands that are added, and so must be terms where the rest is
    summed over.
    """
    sizes: dict[str, Any] = {}
    for kind, letters in (*inputs, *outputs):
        for letter, size in zip(letters, kind.shape, strict=True):
            if letter != "." and sizes.get(letter, 1) == 1:
                sizes[letter] = size

    def state(kind: TensorType, letters: str, letter: str) -> State:
        axis = letters.find(letter)
        return axis if axis >= 0 and kind.shape[axis] == sizes[letter] else None

    for letter, size in sizes.items():
        kept = any(letter in letters for _, letters in outputs)
        yield Way(
            tuple(
                SUM if not kept and i in terms else state(kind, letters, letter)
                for i, (kind, letters) in enumerate(inputs)
            ),
            tuple(state(*out, letter) if kept else SUM for out in outputs),
            size,
        )


def local_attrs(
    op: Op,
    attrs: Mapping[str, Any],
    whole: Sequence[Type],
    inputs: Sequence[Type],
    outputs: Sequence[Type],
) -> Mapping[str, Any]:
    """The attributes of a call on parts: `inputs` and `outputs` are the types of the parts, `whole`
    those of the whole operands and results."""
    if op.local_attrs is not None:
        return {**attrs, **op.local_attrs(attrs, tuple(whole), (*inputs, *outputs))}
    if "shape" in attrs and len(outputs) == 1 and isinstance(outputs[0], TensorType):
        return {**attrs, "shape": outputs[0].shape}
    return attrs
