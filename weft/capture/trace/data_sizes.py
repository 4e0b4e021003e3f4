"""Sizes that depend on data, in a recording: `x[mask]` has as many rows as the mask says.

They are names that the run itself tells, and no guard depends on them. Where Python decides by one
(`if len(x[mask]) > 4`), the answer is a question of the recording, as `if y.sum() > 4` is: each
answer has its own path. Where Python needs the number itself, the function is recorded again, and
asks for the shape: each number has its own path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from weft.base.asked_sizes import AskedSizes
from weft.base.dim_algebra import Dim
from weft.base.errors import WeftError
from weft.core.tensor import Tensor
from weft.core.unrecorded import unrecorded
from weft.ir.graph import Node, Value

if TYPE_CHECKING:
    from weft.capture.trace.recorder import TraceRecorder
    from weft.capture.trace.segments import Ending

__all__ = ["COMPARISONS", "RecordedDataSizes", "Run", "with_asked_sizes"]

#: The cards that compare.
COMPARISONS = {
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
    "!=": "not_equal",
}


#: Among the fixed calls: all are fixed.
ALL = "all"


class RecordedDataSizes:
    """
    compute  gives the numbers of a value in this call
    ask      asks the run how a size compares to 0; None where it cannot
    asked    what answers questions about sizes, where none of the inputs is symbolic
    infers   whether a type rule is asked now
    fixed    the calls, by where they are, whose size is asked for as a number
    """

    def __init__(
        self, compute: Callable[[Value], Tensor], ask: Callable[[Dim, str], bool | None]
    ) -> None:
        self.fixed: set[str] = set()
        self.infers = False
        self.asked = AskedSizes({}, data=self)
        self._compute = compute
        self._ask = ask
        self._told: dict[str, tuple[Value, int]] = {}  # of each name: a value, and its axis
        self._answers: dict[tuple[Dim, str], bool] = {}

    def fixes(self, node: Node) -> bool:
        return ALL in self.fixed or str(node.location) in self.fixed

    @property
    def told(self) -> bool:
        """Whether the recording has such sizes."""
        return bool(self._told)

    def add(self, node: Node) -> None:
        """A node tells the sizes of its results."""
        for value in node.outputs:
            for axis, size in enumerate(value.tensor_type.shape):
                if isinstance(size, Dim):
                    self._told.setdefault(str(size), (value, axis))

    def tells(self, name: str) -> bool:
        return name in self._told

    def number(self, name: str) -> int | None:
        found = self._told.get(name)
        if found is None:
            return None
        value, axis = found
        with unrecorded():
            return int(self._compute(value).shape[axis])

    def holds(self, gap: Dim, sign: str) -> bool | None:
        known = self._answers.get((gap, sign))
        if known is None:
            found = self._ask(gap, sign)
            if found is None:
                return None
            known = self._answers[gap, sign] = found
        return known

    def places(self, names: set[str]) -> set[str]:
        """Where the calls are that tell these sizes."""
        nodes = [self._told[name][0].node for name in names]
        return {str(node.location) for node in nodes if node is not None}


#: One recorded run: how it ended, and what is wrong with it.
Run: TypeAlias = "tuple[TraceRecorder, Ending | None, list[str]]"


def with_asked_sizes(
    fixed: set[str], make: Callable[[], TraceRecorder], run: Callable[[TraceRecorder], Run]
) -> Run:
    """A recorded run. `fixed` are the calls whose size is a question to the run: a call joins them
    if its size was asked for as a number; all do if the code fails without a number."""
    while True:
        recorded = make()
        recorded.data_sizes.fixed = fixed
        try:
            found = run(recorded)
        except WeftError:
            if ALL in fixed or not recorded.data_sizes.told:
                raise
            fixed.add(ALL)
            continue
        places = recorded.data_sizes.places(recorded.asked.asked_data)
        if places <= fixed:
            return found
        fixed |= places
