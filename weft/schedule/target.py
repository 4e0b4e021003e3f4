"""What the schedule asks about the machine that a program is made for.

A `Target` holds facts: which nodes share generated loops, which have kernels of their own, how
these read their operands, how much fits into one kernel. It is the same for all programs. An
`Emitter` makes the code of one program: the kernels of each step while the plan is made, of which
the plan sees a `Kernel`, and the program once the plan is complete.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from weft.ir.graph import Node
from weft.schedule.groups import Group
from weft.schedule.layouts import Layout
from weft.schedule.plan import Kernel, ProgramPlan, Step
from weft.schedule.scan_rows import RowScan
from weft.schedule.views import View

__all__ = ["Costs", "Emitter", "Limits", "Target"]


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one kernel of generated loops may hold.

    nodes     ops
    buffers   buffers that it reads
    total     elements whose total is computed by one item of work, so that the same kernel may
              use it
    """

    nodes: int = 160
    buffers: int = 40
    total: int = 1 << 14


@dataclass(frozen=True, slots=True)
class Costs:
    """What it takes to launch kernels, in ns.

    share   a kernel that takes one thread longer than this is worth sharing among threads
    piece   what a thread takes at a time is at least this long
    """

    share: float = 12_000.0
    piece: float = 4_000.0


class Target(ABC):
    """Facts about what code is made for."""

    limits = Limits()
    costs = Costs()
    #: Places in the arena are multiples of this many bytes.
    alignment = 64
    #: Bytes left free behind each value in the arena.
    padding = 0

    @abstractmethod
    def emits(self, node: Node) -> bool:
        """Whether an elementwise node or a reduction can be computed in generated loops."""

    @abstractmethod
    def kind(self, node: Node) -> str:
        """The kind of group of a node that has kernels of its own: see `weft.schedule.groups`; ""
        where it has none, and its card is called in Python."""

    @abstractmethod
    def layout(self, node: Node, place: int) -> Layout:
        """How the kernels of a node read one of its operands."""

    @abstractmethod
    def may_fail(self, group: Group) -> bool:
        """Whether the code of a group may end the run with an error."""

    def packs(self, _node: Node, _side: int, _left: View, _right: View) -> bool:
        """Whether a product packs an operand (0 or 1) just once, given how both lie: what computes
        its elements may then run there."""
        return False

    def pools(self, _product: Node, _node: Node) -> bool:
        """Whether a pooling may follow a convolution image by image, in the same kernel."""
        return False

    def rows(self, _node: Node) -> RowScan | None:
        """How a scan is cut into parts of its rows for threads, where that pays."""
        return None


class Emitter(ABC):
    """Makes the code of one program for a target."""

    target: Target

    @abstractmethod
    def kernels(self, step: Step, name: str) -> list[Kernel] | None:
        """Make the kernels of a step, with names that begin with `name`. None if there are none for
        it: its node is then called in Python. A step of control flow has the plans of its nested
        graphs; the scratch memory of its kernel must have room for them."""

    @abstractmethod
    def emit(self, plan: ProgramPlan) -> Any:
        """The program of a plan, from the kernels that were made for it."""
