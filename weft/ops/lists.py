"""Lists of tensors in a graph, as stacks: single elements, and all of them as one tensor.

A list that a recorded loop appends to is a stack, with its last element on top. Each op here is
linear, and its derivative is another of these ops.
"""

from __future__ import annotations

from typing import Any

from weft.base.dims import dim, substitute
from weft.base.errors import CaptureError, DTypeError, IndexError
from weft.core.bind import bind
from weft.ir.op import OPS, Op, Trait
from weft.ir.types import StackType, TensorType
from weft.ops.batching import Attrs, Inputs, Mapped, moved
from weft.ops.control import stacked
from weft.ops.index_cards import GETITEM
from weft.ops.stacks import STACK_POP

__all__: list[str] = []


class Only:
    """A stack of zeros, except for one element at a position counted from the top."""

    __slots__ = ("place", "value", "zeros")

    def __init__(self, value: Any, place: int, zeros: Any) -> None:
        self.value = value
        self.place = place
        self.zeros = zeros

    def popped(self, run: Any) -> tuple[Any, Any]:
        if self.place == 0:
            return self.zeros, self.value
        return Only(self.value, self.place - 1, self.zeros), self.zeros.top(run)


def _pop(run: Any, stack: Any) -> tuple[Any, Any]:
    evaluate: Any = STACK_POP.eval
    return evaluate(run, stack)  # type: ignore[no-any-return]


# --- type rules ----------------------------------------------------------------------------------


def _element(stack: Any) -> TensorType:
    if not isinstance(stack, StackType) or not isinstance(stack.element, TensorType):
        raise DTypeError(f"a stack of tensors is needed, not {stack}")
    return stack.element


def _item_type(stack: StackType, place: TensorType) -> TensorType:
    return _element(stack)


def _only_type(x: TensorType, place: TensorType) -> StackType:
    return StackType(x)


def _rows_type(stack: StackType, *, size: Any) -> TensorType:
    element = _element(stack)
    return element.like(shape=(size, *element.shape))


def _all_type(stack: StackType, count: TensorType) -> TensorType:
    element = _element(stack)
    return element.like(shape=(dim("_n"), *element.shape))


def _stack_of_type(x: TensorType) -> StackType:
    return StackType(x.like(shape=x.shape[1:]))


# --- evaluation ----------------------------------------------------------------------------------


def _item(run: Any, stack: Any, place: Any) -> tuple[Any, ...]:
    steps = int(place)
    if steps < 0:
        raise IndexError("list index out of range", op="list_item")
    for _ in range(steps):
        stack, _top = _pop(run, stack)
        if stack == ():
            raise IndexError("list index out of range", op="list_item")
    return (_pop(run, stack)[1],)


def _only(run: Any, x: Any, place: Any) -> tuple[Any, ...]:
    zeros = OPS["stack_zeros"].eval
    assert callable(zeros)
    (empty,) = zeros(run, shape=tuple(x.shape), dtype=x.dtype, device=x.device, depth=1)
    return (Only(x, int(place), empty),)


def _rows(run: Any, stack: Any, *, size: Any) -> tuple[Any, ...]:
    return _together(run, stack, int(substitute(size, run.sizes)))


def _all(run: Any, stack: Any, count: Any) -> tuple[Any, ...]:
    return _together(run, stack, int(count))


def _together(run: Any, stack: Any, size: int) -> tuple[Any, ...]:
    rows: list[Any] = []
    for _ in range(size):
        stack, top = _pop(run, stack)
        rows.append(top)
    if not rows:
        raise IndexError("need at least one tensor to stack: the list is empty", op="stack")
    rows.reverse()
    return (stacked(run, rows),)


def _stack_of(run: Any, x: Any) -> tuple[Any, ...]:
    stack: Any = ()
    for i in range(x.shape[0]):
        stack = (stack, run.call(GETITEM, x, index=i))
    return (stack,)


# --- batching rules ------------------------------------------------------------------------------


def _at(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Any:
    """The batching rule for a position that is the same for all elements."""
    if mapped[1]:
        raise CaptureError("elements index a list by different numbers", op="vmap")
    return bind(op, *inputs, **attrs)


def _as_rows(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Any:
    """The batching rule for rows, which each element has its own of."""
    if mapped[-1] and len(mapped) > 1:
        raise CaptureError("elements have lists of different lengths", op="vmap")
    return moved(bind(op, *inputs, **attrs), 1, 0)


def _of_rows(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Any:
    return bind(op, moved(inputs[0], 0, 1))


# --- cards ---------------------------------------------------------------------------------------

_TRAITS = Trait.STACK | Trait.LINEAR

LIST_ITEM: Op = Op(
    "list_item",
    _item_type,
    _item,
    vjp=(lambda _xp, g, _out, _stack, place: bind(LIST_ONLY, g, place), None),
    batch=_at,
    traits=_TRAITS,
)
LIST_ONLY: Op = Op(
    "list_only",
    _only_type,
    _only,
    vjp=(lambda _xp, g, _out, _x, place: bind(LIST_ITEM, g, place), None),
    batch=_at,
    traits=_TRAITS,
)
LIST_ROWS: Op = Op(
    "list_rows",
    _rows_type,
    _rows,
    vjp=(lambda _xp, g, _out, _stack, *, size: bind(LIST_OF, g),),
    batch=_as_rows,
    traits=_TRAITS,
)
LIST_ALL: Op = Op(
    "list_all",
    _all_type,
    _all,
    vjp=(lambda _xp, g, _out, _stack, _count: bind(LIST_OF, g), None),
    batch=_as_rows,
    traits=_TRAITS | Trait.DATA_SHAPE,
)
LIST_OF: Op = Op(
    "list_of",
    _stack_of_type,
    _stack_of,
    vjp=(lambda _xp, g, _out, x_type: bind(LIST_ROWS, g, size=x_type.shape[0]),),
    batch=_of_rows,
    traits=_TRAITS,
)
