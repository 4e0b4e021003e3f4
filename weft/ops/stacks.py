"""Stacks: what loops of unknown length save for their backward.

A stack is an immutable value: a push returns a new stack, and the old one does not change. In the
interpreter it is a linked list, so push and pop are O(1) and copy nothing. Each is the derivative
of the other, so gradients of any order pass through them.
"""

from __future__ import annotations

from typing import Any

from weft.base.device import Device
from weft.base.dims import substitute
from weft.base.dtypes import DType
from weft.base.errors import CaptureError, DTypeError, IndexError
from weft.base.shapes import Shape
from weft.core.bind import bind
from weft.core.tensor import Tensor
from weft.ir.op import OPS, Op, Trait
from weft.ir.types import StackType, TensorType, fits
from weft.ops.batching import Attrs, Inputs, Mapped, everywhere
from weft.ops.creation import zeros_like

__all__: list[str] = []


# --- values of the interpreter -----------------------------------------------------------------
#
# The empty stack is (), and others are (the stack below, the top): Python frees long chains of
# tuples without recursion.


class Zeros:
    """A stack that pops zeros forever."""

    __slots__ = ("depth", "device", "dtype", "shape", "sizes")

    def __init__(
        self, shape: Shape, dtype: DType, device: Device, depth: int, sizes: dict[str, int]
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.depth = depth
        self.sizes = sizes  # the symbolic sizes, needed only when a zero is made

    def top(self, run: Any) -> Any:
        if self.depth > 1:
            return Zeros(self.shape, self.dtype, self.device, self.depth - 1, self.sizes)
        shape = substitute(self.shape, self.sizes)
        return run.call(OPS["full"], shape=shape, value=0, dtype=self.dtype, device=self.device)


class Sum:
    """The sum of two stacks, element by element, computed when they are popped: from the left, as
    machine code does. Sums may be nested thousands deep."""

    __slots__ = ("x", "y")

    def __init__(self, x: Any, y: Any) -> None:
        self.x = x
        self.y = y

    def popped(self, run: Any) -> tuple[Any, Any]:
        below = top = None
        waiting: list[Any] = [self]
        while waiting:
            stack = waiting.pop()
            both = stack if stack.__class__ is Sum else getattr(stack, "summands", None)
            if both is not None:
                waiting += (both.y, both.x)
                continue
            rest, one = _popped(run, stack)
            if top is None:
                below, top = rest, one
            else:
                below = Sum(below, rest)
                top = Sum(top, one) if is_stack(one) else run.call(OPS["add"], top, one)
        return below, top


def is_stack(value: Any) -> bool:
    return value.__class__ in (tuple, Zeros) or hasattr(value, "popped")


def _popped(run: Any, stack: Any) -> tuple[Any, Any]:
    """The stack below the top, and the top."""
    if stack.__class__ is tuple:
        if not stack:
            raise IndexError("the stack is empty", op="stack_pop")
        return stack
    if stack.__class__ is Zeros:
        return stack, stack.top(run)
    return stack.popped(run)  # type: ignore[no-any-return]


# --- type rules --------------------------------------------------------------------------------


def _new_type(*, shape: Shape, dtype: DType, device: Device, depth: int) -> StackType:
    made: Any = TensorType(dtype, shape, device)
    for _ in range(depth):
        made = StackType(made)
    return made  # type: ignore[no-any-return]


def _check_stack(stack: Any) -> None:
    if not isinstance(stack, StackType):
        raise DTypeError(f"a stack is needed, not {stack}")


def _push_type(stack: StackType, x: Any) -> StackType:
    _check_stack(stack)
    if not fits(StackType(x), stack):
        raise DTypeError(f"{x} does not fit onto {stack}")
    return stack


def _pop_type(stack: StackType) -> tuple[StackType, Any]:
    _check_stack(stack)
    return stack, stack.element


def _add_type(x1: StackType, x2: StackType) -> StackType:
    _check_stack(x1)
    if not fits(x1, x2):
        raise DTypeError(f"stacks of different types: {x1} and {x2}")
    return x1


# --- cards -------------------------------------------------------------------------------------


def _zeros(run: Any, *, shape: Shape, dtype: DType, device: Device, depth: int) -> tuple[Any, ...]:
    return (Zeros(shape, dtype, device, depth, run.sizes),)


def _unpushed(number: int) -> Any:
    def rule(_xp: Any, g: Any, _out: Any, _stack: Any, _x: Any) -> Any:
        return bind(STACK_POP, g)[number]

    return rule


def _type_of_stack(data: Any) -> StackType:
    """The type of a stack; of one inside of a `vmap`, that for one element."""
    if hasattr(data, "value"):
        found: StackType = data.value.type
        return found
    kind = _type_of_stack(data.tensor._data)
    return _without_axis(kind) if getattr(data, "mapped", False) else kind


def _without_axis(kind: StackType) -> StackType:
    element = kind.element
    if isinstance(element, StackType):
        return StackType(_without_axis(element))
    return StackType(element.like(shape=element.shape[1:]))


def _unpopped(_xp: Any, g: Any, _out: Any, stack: Any) -> Any:
    """The gradient of a pop: its element is pushed on the gradient of the rest."""
    below, top = g
    if below is None:
        below = zero_stack(_type_of_stack(stack._data))
    if top is None:
        top = zero_of(_type_of_stack(below._data).element)
    return bind(STACK_PUSH, below, top)


def _together(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Any:
    """The batching rule: all elements push and pop at once, on one stack."""
    given = [widened(x, m, size) for x, m in zip(inputs, mapped, strict=True)]
    return bind(op, *given, **attrs)


class SharedStack(CaptureError):
    """A stack that is the same for all elements of a `vmap` would have to become different."""

    def __init__(self, value: Any) -> None:
        super().__init__("elements push different values on a stack that they share", op="vmap")
        self.value = value


def widened(x: Tensor, is_mapped: bool, size: int) -> Tensor:
    """A tensor or stack with a mapped axis, which is added if it is missing.

    To a stack it can be added only while that is empty, or a stack of zeros.
    """
    if is_mapped:
        return x
    data = x._data
    while not hasattr(data, "value") and hasattr(data, "tensor"):
        data = data.tensor._data
    kind = getattr(getattr(data, "value", None), "type", None)
    if not isinstance(kind, StackType):
        return everywhere(x, False, size)
    made = data.value.node
    if made is None or made.op not in (STACK_NEW, STACK_ZEROS):
        raise SharedStack(data.value)
    attrs = stack_attrs(kind)
    out: Tensor = bind(made.op, **{**attrs, "shape": (size, *attrs["shape"])})
    return out


_MADE = Trait.CREATION | Trait.STACK

STACK_NEW = Op("stack_new", _new_type, lambda run, **_attrs: ((),), traits=_MADE)
STACK_ZEROS = Op("stack_zeros", _new_type, _zeros, traits=_MADE)
STACK_PUSH: Op = Op(
    "stack_push",
    _push_type,
    lambda run, stack, x: ((stack, x),),
    vjp=(_unpushed(0), _unpushed(1)),
    batch=_together,
    traits=Trait.STACK | Trait.LINEAR | Trait.JOINT,
)
STACK_POP: Op = Op(
    "stack_pop",
    _pop_type,
    _popped,
    outputs=2,
    vjp=(_unpopped,),
    batch=_together,
    traits=Trait.STACK | Trait.LINEAR | Trait.JOINT,
)
STACK_ADD = Op(
    "stack_add",
    _add_type,
    lambda run, x1, x2: (Sum(x1, x2),),
    vjp=(lambda _xp, g, _out, _x1, _x2: g, lambda _xp, g, _out, _x1, _x2: g),
    batch=_together,
    traits=Trait.STACK | Trait.LINEAR | Trait.JOINT | Trait.COMMUTATIVE,
)


def stack_attrs(kind: StackType) -> dict[str, Any]:
    """The attributes of `stack_new` and `stack_zeros` for a type."""
    inner = kind.innermost
    return {
        "shape": inner.shape,
        "dtype": inner.dtype,
        "device": inner.device,
        "depth": kind.depth,
    }


def zero_stack(kind: StackType) -> Tensor:
    """A symbolic stack of zeros."""
    out: Tensor = bind(STACK_ZEROS, **stack_attrs(kind))
    return out


def zero_like(x: Tensor) -> Tensor:
    """A zero for a tensor or a symbolic stack."""
    kind = getattr(getattr(x._data, "value", None), "type", None)
    return zero_stack(kind) if isinstance(kind, StackType) else zeros_like(x)


def zero_of(kind: TensorType | StackType) -> Tensor:
    """A zero of a type; for a stack type, a stack that pops zeros forever."""
    if isinstance(kind, StackType):
        return zero_stack(kind)
    attrs = {"shape": kind.shape, "value": 0, "dtype": kind.dtype, "device": kind.device}
    made: Tensor = bind(OPS["full"], **attrs)
    return made


def stack_form(op: Op) -> Op:
    """The form of an op for stacks: `add` becomes `stack_add`."""
    return STACK_ADD if op.name == "add" else op
