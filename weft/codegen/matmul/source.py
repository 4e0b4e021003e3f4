"""What computes the elements of an operand where they are copied, in place of a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

__all__ = ["Source"]


class Source(Protocol):
    """Of a right operand panels, as it lies or turned; of a left one the lines of a tile: see
    `weft.codegen.prologue`."""

    @property
    def panel(self) -> Callable[..., None]: ...

    @property
    def turned(self) -> Callable[..., None]: ...

    @property
    def lines(self) -> Callable[..., None]: ...
