"""What each mesh axis does to a value, as a tuple: (0, None, "+") for f32[8{data},4]{+model}."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.base.world import Axes
from weft.ir.cuts import Cuts, cuts_from
from weft.ir.types import TensorType, Type
from weft.ir.ways import SUM, Interleaved, State, Way

if TYPE_CHECKING:
    from weft.passes.layouts.propagate import Propagation

__all__ = ["Choice", "States", "cut_as", "moved", "of_cuts", "states_of", "whole"]

States = tuple[State, ...]


class Choice:
    """How one call is divided.

    ways     along each mesh axis one of its ways, or None: whole
    inputs   the layouts in which it takes its operands
    outputs  those of its results
    """

    __slots__ = ("inner", "inputs", "outputs", "ways")

    def __init__(
        self,
        ways: Sequence[Way | None],
        inputs: Sequence[States],
        outputs: Sequence[States],
        inner: Sequence[Propagation] = (),
    ) -> None:
        self.ways = tuple(ways)
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.inner = tuple(inner)


def whole(mesh: Axes) -> States:
    return (None,) * len(mesh)


def moved(state: State, by: int) -> State:
    """The state of a value whose axes have other numbers."""
    if isinstance(state, Interleaved):
        return Interleaved(int(state) + by, state.sections)
    return state + by if isinstance(state, int) else state


def states_of(axes: Any, terms: tuple[str, ...], mesh: Axes) -> States:
    found: list[State] = []
    for name, ranks in mesh:
        if ranks == 1:  # its only rank has all
            found.append(None)
            continue
        state: State = SUM if name in terms else None
        for axis, names in enumerate(axes):
            for each in names:
                base, _, sections = each.partition(":")
                if base == name:
                    state = Interleaved(axis, int(sections)) if sections else axis
        found.append(state)
    return tuple(found)


def of_cuts(cuts: Cuts | None, mesh: Axes) -> States:
    return whole(mesh) if cuts is None else states_of(cuts.axes, cuts.terms, mesh)


def cut_as(kind: Type, states: States, mesh: Axes) -> Any:
    """The type in this layout; tokens and stacks are whole."""
    if not isinstance(kind, TensorType):
        return kind
    return kind.cut(cuts_from(states, mesh, kind.ndim))
