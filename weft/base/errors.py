"""The errors that Weft raises. Each names the op, the operands, the user's line and a fix.

>>> import weft
>>> weft.ones((2, 3)) @ weft.ones((2, 3))       # doctest: +SKIP
weft.errors.ShapeError: matmul: the inner sizes differ: 3 and 2
  operands: f32[2,3], f32[2,3]
  at script.py:2 in <module>: weft.ones((2, 3)) @ weft.ones((2, 3))
  to fix: the last axis of x1 must be as long as the second-to-last of x2
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from weft.base.source import SourceLocation, user_location

__all__ = [
    "AxisError",
    "CaptureError",
    "DTypeError",
    "DeviceError",
    "DistributedError",
    "FileError",
    "GradientError",
    "GraphError",
    "IndexError",
    "InternalError",
    "LinAlgError",
    "LostWriteWarning",
    "MemoryError",
    "NonFiniteError",
    "OverflowError",
    "RangeError",
    "ShapeError",
    "SkippedWarning",
    "UnknownSizeError",
    "WeftError",
]


class WeftError(Exception):
    """The base class of Weft's errors. `hint` says how to fix the problem."""

    def __init__(self, message: str, *, op: str = "", hint: str = "", operands: Sequence[Any] = ()):
        super().__init__(message)
        self.message = message
        self.op = op
        self.hint = hint
        self.operands = tuple(str(operand) for operand in operands)
        self.location: SourceLocation | None = user_location()

    def __str__(self) -> str:
        lines = [f"{self.op}: {self.message}" if self.op else self.message]
        if self.operands:
            lines.append(f"  operands: {', '.join(self.operands)}")
        if self.location is not None:
            lines += _where(self.location)
        if self.hint:
            lines.append(f"  to fix: {self.hint}")
        return "\n".join(lines)

    def about(self, op: str, operands: Sequence[Any]) -> WeftError:
        """Fill in the op and the operands, unless they are known already."""
        self.op = self.op or op
        self.operands = self.operands or tuple(str(operand) for operand in operands)
        return self


def _where(location: SourceLocation) -> list[str]:
    """The user's line, the lines that called it, and the forward line of a backward step."""
    lines = [f"  at {location}"]
    caller = location.caller
    while caller is not None:
        lines.append(f"  called at {caller}")
        caller = caller.caller
    if location.forward is not None:
        of = f" of {location.of}" if location.of else ""
        lines.append(f"  in the backward{of} at {location.forward}")
    return lines


class ShapeError(WeftError, ValueError):
    """Shapes, axes or sizes that do not fit."""


class UnknownSizeError(ShapeError):
    """What depends on a size was asked before that size is known."""


class AxisError(ShapeError, builtins.IndexError):
    """An axis that the tensor does not have."""


class DTypeError(WeftError, TypeError):
    """A dtype or kind of argument that the op does not take."""


class DeviceError(WeftError, RuntimeError):
    """A device that does not exist, or operands on different devices."""


class RangeError(WeftError, ValueError):
    """An argument outside of its valid range."""


class GradientError(WeftError, RuntimeError):
    """A gradient that does not exist."""


class IndexError(WeftError, builtins.IndexError):
    """An index outside of the axis it indexes."""


class LinAlgError(WeftError, ValueError):
    """A matrix that does not have the requested factorization."""


class MemoryError(WeftError, builtins.MemoryError):
    """A tensor that does not fit into memory."""


class OverflowError(WeftError, builtins.OverflowError):
    """An integer that does not fit into its dtype."""


class DistributedError(WeftError, RuntimeError):
    """Ranks that do not fit together: another mesh, another program, or one that ended."""


class NonFiniteError(WeftError, FloatingPointError):
    """A NaN or infinity that `weft.detect_nan()` found where it first appeared."""


class GraphError(WeftError, ValueError):
    """An invalid graph, or text that does not parse as a graph."""


class CaptureError(WeftError, RuntimeError):
    """Python code that cannot be captured in a graph."""


class CaptureShapeError(ShapeError, CaptureError):
    """Shapes that plain Python can go on with, and a graph cannot."""


class CaptureDTypeError(DTypeError, CaptureError):
    """Values of different kinds that plain Python can go on with, and a graph cannot."""


class CaptureGradientError(GradientError, CaptureError):
    """A gradient that plain Python can compute, and a graph cannot."""


class FileError(WeftError, ValueError):
    """A file that is damaged, or of another kind than it should be."""


class SkippedWarning(UserWarning):
    """What `weft.load` passed over in a file."""


class InternalError(WeftError, RuntimeError):
    """A bug in Weft, not in your program: please report it."""


class LostWriteWarning(UserWarning):
    """A write to a temporary tensor: `x[0][1] = 5` changes a copy of a part of x, and x stays."""


for _name in __all__:
    globals()[_name].__module__ = "weft.errors"  # where users find it
