"""The interface of prologues: they compute an operand's elements while it is packed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

__all__ = ["Source"]


class Source(Protocol):
    """Writes panels of a right operand, transposed or not, and lines of a left operand's tiles: see
    `weft.codegen.prologue`."""

    @property
    def panel(self) -> Callable[..., None]: ...

    @property
    def transposed_panel(self) -> Callable[..., None]: ...

    @property
    def lines(self) -> Callable[..., None]: ...
