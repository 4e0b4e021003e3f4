"""One value of a place that a loop of captured code carries; recordings find its type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base.device import as_device
from weft.base.errors import CaptureError
from weft.base.promotion import promote_weak
from weft.capture.from_source.merge import kind_of_tensor, same_python, typed_as
from weft.capture.watch.origin import MISSING
from weft.core.number import HELD_AS, joint_kind, kind_of, may_count, number
from weft.core.tensor import Tensor
from weft.ir.types import TensorType, Type
from weft.record.control.loop_leaf import CarriedLeaf
from weft.record.control.nested import NestedRecorder


class PlaceLeaf(CarriedLeaf):
    """One leaf of a place. While it is not carried, its value is `fixed`; a Python number stays
    one."""

    __slots__ = ("fixed", "is_number")

    def __init__(self, title: str, initial: Any) -> None:
        super().__init__(title, initial)
        self.fixed = initial
        self.is_number = False

    def enter(self, nested: NestedRecorder) -> Any:
        if self.kind is None:
            return self.fixed
        made = super().enter(nested)
        if self.is_number:
            counts = kind_of(self.initial) in ("bool", "int") and may_count(self.initial)
            self.entered = number(made, counts=counts)
        return self.entered

    def start(self) -> Tensor:
        assert self.kind is not None
        return typed_as(self.initial, self.kind)

    def end(self) -> Tensor:
        assert self.kind is not None
        return typed_as(self.out, self.kind)

    def result(self) -> Any:
        if self.kind is None:
            return self.fixed
        return number(self.after) if self.is_number else self.after

    def leave(self, out: Any, error: Callable[[], CaptureError]) -> bool:
        """Note the value after the body; whether type and history are as assumed."""
        self.out = out
        before = self.kind, self.is_number, self.fixed
        if not self._fits(out):
            raise error()
        same = (self.kind, self.is_number) == before[:2] and self.fixed is before[2]
        return not self.gains() and same

    def _fits(self, out: Any) -> bool:
        """Update the type for the value after the body; whether there is one for both."""
        kind, weak, first = self.kind, kind_of(out), kind_of(self.initial)
        if kind is None:
            if self.fixed is out or (self.fixed is not MISSING and same_python(self.fixed, out)):
                return True
            if self.fixed is MISSING and weak is None and not isinstance(out, Tensor):
                self.fixed = out  # a Python value that the first iteration assigns
                return True
        begins = first is not None or self.initial is MISSING
        unsettled = kind is None or self.is_number
        if weak is not None and begins and unsettled:
            together = weak if first is None else joint_kind(first, weak)
            if isinstance(kind, TensorType):
                together = joint_kind(together, kind.dtype.kind)
            self.kind, self.is_number = TensorType(HELD_AS[together], (), as_device(None)), True
            return True
        start = kind if kind is not None else _kind(self.initial)
        if weak is not None or not isinstance(out, Tensor):
            self.kind = start
            return weak is not None and _takes(start, weak)
        made = kind_of_tensor(out)
        if first is not None and (unsettled or kind == made):
            self.kind, self.is_number = made, False
            return _takes(made, first)
        if self.initial is MISSING and unsettled:
            self.kind, self.is_number = made, False
            return True
        self.kind = made
        return start == made


def _kind(value: Any) -> Type | None:
    return kind_of_tensor(value) if isinstance(value, Tensor) else None


def _takes(kind: Type | None, weak: Any) -> bool:
    """Whether a Python number of this kind can become a tensor of this type."""
    scalar = isinstance(kind, TensorType) and not kind.shape
    return scalar and promote_weak(kind.dtype, weak) is kind.dtype  # type: ignore[union-attr]
