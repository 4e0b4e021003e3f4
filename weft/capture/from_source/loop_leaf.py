"""One value that a recorded loop carries, or not: its type is found by recording the body."""

from __future__ import annotations

from typing import Any

from weft.base.device import as_device
from weft.base.errors import CaptureError
from weft.base.promotion import promote_weak
from weft.capture.control.nested import NestedRecorder
from weft.capture.from_source.merge import kind_of_tensor, same_python
from weft.capture.watch.origin import MISSING
from weft.core.number import HELD_AS, joint_kind, kind_of, may_count, number
from weft.core.tensor import Tensor
from weft.ir.types import TensorType, Type


class Leaf:
    """One leaf of a place. `kind` is None while it is not carried: then it stays `fixed`."""

    __slots__ = ("border", "entered", "fixed", "historic", "initial", "is_number", "kind", "out")

    def __init__(self, initial: Any) -> None:
        self.initial = initial
        self.fixed = initial
        self.entered: Any = None
        self.border: Any = None  # the history that it has when the body begins
        self.kind: Type | None = None
        self.is_number = False
        self.out: Any = initial
        self.historic = isinstance(initial, Tensor) and initial._node is not None

    def enter(self, nested: NestedRecorder) -> Any:
        """What it is inside of the body."""
        if self.kind is None:
            return self.fixed
        made = nested.carried(self.kind, self.historic)
        self.border = made._node
        self.entered = made
        if self.is_number:
            counts = kind_of(self.initial) in ("bool", "int") and may_count(self.initial)
            self.entered = number(made, counts=counts)
        return self.entered

    def result(self, tensor: Tensor) -> Any:
        return number(tensor) if self.is_number else tensor


def settle(leaf: Leaf, out: Any, error: CaptureError) -> bool:
    """Find the type of a leaf after the body gave `out`; whether it was that before."""
    before = (leaf.kind, leaf.is_number)
    kind, weak = leaf.kind, kind_of(out)
    first = kind_of(leaf.initial)
    if kind is None:
        if leaf.fixed is out or (leaf.fixed is not MISSING and same_python(leaf.fixed, out)):
            return True
        if leaf.fixed is MISSING and weak is None and not isinstance(out, Tensor):
            leaf.fixed = out  # a Python value that the first iteration gives
            return False
    if weak is not None and (first is not None or leaf.initial is MISSING):
        together = weak if first is None else joint_kind(first, weak)
        if kind is not None and leaf.is_number:
            assert isinstance(kind, TensorType)
            together = joint_kind(together, kind.dtype.kind)
        if kind is None or leaf.is_number:
            leaf.kind = TensorType(HELD_AS[together], (), as_device(None))
            leaf.is_number = True
            return before == (leaf.kind, True)
    if isinstance(out, Tensor) and weak is None:
        made = kind_of_tensor(out)
        if first is not None and (kind is None or leaf.is_number or kind == made):
            fits = isinstance(made, TensorType) and not made.shape
            if not fits or promote_weak(made.dtype, first) is not made.dtype:  # type: ignore[union-attr]
                raise error
            leaf.kind, leaf.is_number = made, False
            return before == (made, False)
        if leaf.initial is MISSING and (kind is None or leaf.is_number):
            leaf.kind, leaf.is_number = made, False
            return False
        start = kind if kind is not None else _kind(leaf.initial)
        if start != made:
            raise error
        leaf.kind = made
        return before[0] is not None
    start = kind if kind is not None else _kind(leaf.initial)
    fits = isinstance(start, TensorType) and not start.shape and weak is not None
    if not fits or promote_weak(start.dtype, weak) is not start.dtype:  # type: ignore[union-attr, arg-type]
        raise error
    leaf.kind = start
    return before[0] is not None


def _kind(value: Any) -> Type | None:
    return kind_of_tensor(value) if isinstance(value, Tensor) else None
