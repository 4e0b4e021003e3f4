"""Boxes: values in memory whose sizes the run itself tells (`weft.schedule.late`).

A box is the address of the value, then the sizes of its axes, as i64.
"""

from __future__ import annotations

from weft.codegen.contract import NotNative
from weft.codegen.index import Ptr
from weft.codegen.text import Function
from weft.ir.types import TensorType
from weft.schedule.late import BOX

__all__ = ["write_box"]


def write_box(f: Function, box: Ptr, address: Ptr, kind: object) -> None:
    assert isinstance(kind, TensorType)
    if 8 * (1 + kind.ndim) > BOX:
        raise NotNative(f"{kind} has too many axes for a size that depends on data")
    box.of("ptr").store(address)
    for axis, size in enumerate(kind.shape):
        (box.of("i64") + (1 + axis)).store(f.size(size))
