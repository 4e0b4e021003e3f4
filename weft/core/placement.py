"""Single numbers on the CPU that meet tensors on another device: they are brought there.

As in PyTorch, a 0-d tensor on the CPU counts as a number in elementwise ops. All other operands on
different devices are an error: a hidden transfer can cost more than the op.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.base.device import CPU, Device
from weft.ir.op import Op
from weft.ir.types import DENSE, TensorType

__all__ = ["common_place"]


def common_place(op: Op, types: Sequence[TensorType]) -> Device | None:
    """The device to which 0-d operands on the CPU must be moved, or None.

    At least one operand is on it.
    """
    if not op.elementwise or any(kind.layout != DENSE for kind in types):
        return None
    others = {kind.device for kind in types if kind.device != CPU}
    if len(others) != 1 or any(kind.device == CPU and kind.shape for kind in types):
        return None
    return others.pop()
