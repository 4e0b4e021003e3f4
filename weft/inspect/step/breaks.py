"""Breakpoints: by line, by op, in an iteration, on a value."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.base.errors import RangeError
from weft.core.tensor import Tensor
from weft.inspect.frames import Frame, line_of
from weft.inspect.watch.nonfinite import worst
from weft.ir.graph import Node

__all__ = ["Break", "Condition", "parse_place", "value_condition"]

#: (value, node) -> whether to stop.
Condition = Callable[[Any, Node], bool]


@dataclass(eq=False)
class Break:
    """A breakpoint; all given conditions must hold.

    file, line  the user's line; `file` may be the end of its path
    op          the name of the op, with wildcards * and ?
    iteration   the iteration of the innermost loop, from 0
    backward    False: forward steps only; True: backward steps only; None: both
    condition   tested on each result there; the run stops right after the op
    do          called with the stepper instead of stopping
    """

    file: str = ""
    line: int = 0
    op: str = ""
    iteration: int | None = None
    backward: bool | None = None
    condition: Condition | None = None
    do: Callable[[Any], Any] | None = None
    text: str = ""
    hits: int = 0
    passed: bool = False  # whether the run reached its line

    def is_here(self, node: Node, frame: Frame, arrives: bool) -> bool:
        """Whether it is at this node. `arrives`: the node before belonged to another line."""
        where = node.location
        if self.line:
            about = line_of(where)
            if about is None or about.line != self.line or not _same_file(about.file, self.file):
                return False
            self.passed = True
            if not arrives and not self.op and self.condition is None:
                return False
        if self.op and not fnmatch.fnmatchcase(node.op.name, self.op):
            return False
        if self.iteration is not None and frame.iteration != self.iteration:
            return False
        role = where is not None and where.role == "backward"
        return self.backward is None or self.backward == role

    def finds(self, node: Node, outputs: Sequence[Any]) -> bool:
        """Whether the condition holds for a result of the node."""
        assert self.condition is not None
        return any(isinstance(v, Tensor) and self.condition(v, node) for v in outputs)

    def __str__(self) -> str:
        return self.text


def _same_file(path: str, wanted: str) -> bool:
    return path == wanted or path.endswith(os.sep + wanted.replace("/", os.sep))


def parse_place(place: str | int, default: Callable[[], str]) -> tuple[str, int]:
    """The file and line of "model.py:12", or of 12 in the file of the function."""
    if isinstance(place, int) or place.isdigit():
        return default(), int(place)
    file, colon, line = place.rpartition(":")
    if not colon or not line.isdigit() or not file:
        raise RangeError(f"{place!r} is not a place", op="break_at", hint='"model.py:12", or 12')
    return file, int(line)


def value_condition(
    nan: bool,
    inf: bool,
    norm_above: float | None,
    shape: tuple[int, ...] | None,
    when: Condition | None,
) -> tuple[Condition, str]:
    """A condition that holds if any of the given ones does."""
    tests: list[Condition] = []
    words: list[str] = []
    if nan:
        tests.append(lambda value, _: worst([value]) == "NaN")
        words.append("a NaN")
    if inf:
        tests.append(lambda value, _: worst([value]) != "")
        words.append("an inf or NaN")
    if norm_above is not None:
        limit = norm_above
        tests.append(lambda value, _: norm(value) > limit)
        words.append(f"a norm above {norm_above:g}")
    if shape is not None:
        wanted = tuple(shape)
        tests.append(lambda value, _: tuple(value.shape) == wanted)
        words.append(f"shape {wanted}")
    if when is not None:
        tests.append(when)
        words.append(getattr(when, "__name__", "a condition"))
    if not tests:
        raise RangeError(
            "there is no condition to stop on",
            op="break_when",
            hint="nan=True, inf=True, norm_above=..., shape=..., or a function of value and node",
        )
    return lambda value, node: any(test(value, node) for test in tests), " or ".join(words)


def norm(value: Tensor) -> float:
    """The Euclidean norm; 0 for values that are not numeric."""
    if value.dtype.kind not in ("float", "int", "uint", "complex"):
        return 0.0
    array = value.numpy()
    wide = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    return float(np.linalg.norm(wide.reshape(-1)))
