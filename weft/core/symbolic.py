"""Tensors without numbers: what a function is recorded with.

A symbolic tensor is an ordinary `Tensor` whose array is a `SymbolicArray`: a type, and the value
of a graph it stands for. Ops on it reach the recorder, which adds a node; the tape notes them as it
notes all ops, so `backward` on symbolic tensors leaves its own ops in the graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import CaptureError
from weft.base.shapes import Shape, size_of
from weft.core.tensor import Tensor, wrap
from weft.ir.dispatch import Family, register_stand_in
from weft.ir.graph import Value
from weft.ir.types import DENSE, StackType, TensorType, TokenType

#: What a token looks like on the tape.
NOTHING = TensorType(dtypes.bool, (0,))


class SymbolicArray:
    """Stands where an array would: shape and dtype are known, the numbers are not."""

    __slots__ = ("dtype", "recorder", "shape", "type", "value")

    def __init__(self, value: Value, recorder: Any) -> None:
        self.value = value
        self.recorder = recorder  # whose graph the value is in
        kind = value.type
        #: A stack stands on the tape as its elements do: theirs are the shape and the dtype.
        self.type: TensorType = (
            kind.innermost
            if isinstance(kind, StackType)
            else NOTHING
            if isinstance(kind, TokenType)
            else kind
        )
        self.shape: Shape = self.type.shape
        self.dtype: np.dtype[Any] = self.type.dtype.numpy

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return size_of(self.shape)

    def __repr__(self) -> str:
        return f"<symbolic {self.type}>"


def symbolic(value: Value, recorder: Any) -> Tensor:
    return wrap(SymbolicArray(value, recorder))


def _numbers(array: SymbolicArray) -> Any:
    raise CaptureError(
        f"this tensor ({array.type}) stands for a value of a graph and has no numbers",
        hint="use it where it was recorded; a recorded function returns what it is to give out",
    )


def _no_symbolic(_array: Any, _device: Any) -> Any:
    raise CaptureError("a symbolic tensor is made by recording, not from numbers")


register_stand_in(
    Family(
        "symbolic",
        DENSE,
        SymbolicArray,
        None,
        _no_symbolic,
        _numbers,
        lambda array: array.type.device,
        refusal="a symbolic tensor is used where nobody records: outside of the recorded function, "
        "or outside of `with graph:`",
    )
)
