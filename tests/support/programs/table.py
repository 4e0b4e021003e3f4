"""What a row of the program suite is: a function in plain Python, and calls that take all paths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import weft

TRACE, SOURCE = "trace", "source"
BOTH = frozenset({TRACE, SOURCE})


def f64(values: Any) -> weft.Tensor:
    return weft.asarray(values, dtype=weft.float64)


def f32(values: Any) -> weft.Tensor:
    return weft.asarray(values, dtype=weft.float32)


def i64(values: Any) -> weft.Tensor:
    return weft.asarray(values, dtype=weft.int64)


def wild(*shape: int, seed: float = 0.0, low: float = -1.0, high: float = 1.0) -> weft.Tensor:
    """Numbers that look random, the same with every version of NumPy."""
    count = np.arange(int(np.prod(shape)), dtype=np.float64)
    numbers = np.sin(count * 12.9898 + seed * 78.233 + 1) * 43758.5453
    return f64(((numbers - np.floor(numbers)) * (high - low) + low).reshape(shape))


class Call:
    """Arguments by position and by name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args = args
        self.kwargs = kwargs


@dataclass(frozen=True)
class Program:
    """One program: it gives the same answer in every mode.

    function      what is run; None where `build` makes it
    inputs        the calls, which together take every path: tuples of arguments, or `Call`s
    gradients     compare the gradients of all floating tensors among the arguments, and of the
                  parameters of a module; a tuple of numbers: of these arguments only
    smooth        finite differences tell the gradient, too; not at the calls named in `kinks`
    second_order  and those of the gradients
    random        it draws random numbers: the seed is set before each call
    supports      the modes it is meant for, and `why` not for the others
    reference     the same in NumPy or plain Python, for arrays and numbers as arguments
    build         makes the function, for programs that have a state of their own
    rtol          how near the reference and the finite differences have to be
    near          how near the modes have to be to eager: 0 is bit for bit; then `why` says why not
    raises        the errors that calls of it raise, by the number of the call
    """

    name: str
    function: Callable[..., Any] | None
    inputs: Sequence[Any]
    gradients: bool | tuple[int, ...] = True
    smooth: bool = True
    kinks: tuple[int, ...] = ()
    second_order: bool = False
    random: bool = False
    supports: frozenset[str] = BOTH
    why: str = ""
    reference: Callable[..., Any] | None = None
    build: Callable[[], Callable[..., Any]] | None = None
    rtol: float = 1e-6
    near: float = 0.0
    raises: dict[int, type[Exception]] | None = None

    def make(self) -> Callable[..., Any]:
        if self.build is not None:
            return self.build()
        assert self.function is not None
        return self.function

    def calls(self) -> list[Call]:
        return [given if isinstance(given, Call) else Call(*given) for given in self.inputs]
