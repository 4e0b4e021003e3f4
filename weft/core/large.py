"""Calls on large arrays: what computes them instead of the cards' kernels.

`bind` asks this slot if a NumPy array has at least `start` elements. `weft.wiring` fills it with
what `weft.runtime.eager` offers; without that, nothing is large.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from weft.ir.dispatch import Kernel
from weft.ir.op import Op

__all__ = ["large"]


class Large:
    """
    start      the number of elements from which an array is large
    kernel     (op, kernel) -> the kernel to run instead
    tape       as `bind.tape`: notes calls whose gradients are computed by `gradients`
    gradients  (plan, attrs, shapes of inputs, g, kept, wanted) -> one gradient per input, or None
               if the derivative rules are to run on the arrays
    update     (op, operands, attrs) -> whether the first operands were given their new values
    add        (a, b) -> the sum of two gradients
    composite  (function, args, kwargs) -> its result, or None if it is to be called
    """

    __slots__ = ("add", "composite", "gradients", "kernel", "start", "tape", "update")

    start: int
    kernel: Callable[[Op, Kernel], Kernel]
    tape: Callable[[Op, tuple[Any, ...], dict[str, Any], Any], Any]
    gradients: Callable[..., list[Any] | None]
    update: Callable[[Op, Sequence[Any], dict[str, Any]], bool]
    add: Callable[[Any, Any], Any]
    composite: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]

    def __init__(self) -> None:
        self.start = sys.maxsize


large = Large()
