"""The interface between the schedule and the machine that a program is made for.

A `Target` holds facts that are the same for all programs: which nodes share generated loops, which
have kernels of their own, how these read their operands, how much fits into one kernel. An
`Emitter` makes the code of one program: while the plan is made, the kernels of each step (the plan
sees each as a `Kernel`), and at the end the program.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Set
from dataclasses import dataclass
from typing import Any, NoReturn

from weft.ir.graph import Node
from weft.schedule.groups import Group
from weft.schedule.layouts import Layout
from weft.schedule.plan import Kernel, ProgramPlan, Step
from weft.schedule.scan_rows import RowScan
from weft.schedule.views import View

__all__ = ["Costs", "Emitter", "Limits", "Target"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one kernel of generated loops.

    nodes     ops
    buffers   buffers that it reads
    total     elements that one work item sums, so that the same kernel may use the total
    """

    nodes: int = 160
    buffers: int = 40
    total: int = 1 << 14


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of threads, in ns.

    share   minimum time of a kernel on one thread to share it among threads
    piece   minimum time of the work that a thread takes at once
    """

    share: float = 12_000.0
    piece: float = 4_000.0


class Target(ABC):
    """Facts about a kind of machine."""

    limits = Limits()
    costs = Costs()
    #: Places in the arena are multiples of this many bytes.
    alignment = 64
    #: Bytes left free behind each value in the arena.
    padding = 0
    #: Whether loops compute values of other loops again, where that moves fewer bytes.
    recomputes = False
    #: Whether steps that have nothing to do with one another run at the same time.
    abreast = False
    #: Whether large updates leave the epilogues of products where they are then done in place.
    separates = False
    #: Names of sizes that depend on data: the run itself tells them (`weft.schedule.late`).
    late: Set[str] = frozenset()

    @abstractmethod
    def emits(self, node: Node) -> bool:
        """Whether an elementwise node or a reduction can be computed in generated loops."""

    @abstractmethod
    def kind(self, node: Node) -> str:
        """The kind of group of a node that has kernels of its own (see `weft.schedule.groups`);
        "" if it has none, so that its card is called in Python."""

    @abstractmethod
    def layout(self, node: Node, place: int) -> Layout:
        """How the kernels of a node read one of its operands."""

    @abstractmethod
    def may_fail(self, group: Group) -> bool:
        """Whether the code of a group may end the run with an error."""

    def packs(self, _node: Node, _side: int, _left: View, _right: View) -> bool:
        """Whether a product packs an operand (0 or 1) only once, given both layouts: then its
        elements may be computed while they are packed."""
        return False

    def pools(self, _product: Node, _node: Node) -> bool:
        """Whether a pooling may follow a convolution image by image, in the same kernel."""
        return False

    def rows(self, _node: Node) -> RowScan | None:
        """How a scan is split into parts of its rows for threads; None if that does not pay."""
        return None

    def lingers(self, _size: int) -> int:
        """For how many steps the memory of a buffer is not used again once it is dead: where steps
        may run at the same time, the one that uses it would have to wait."""
        return 0

    def late_in(self, _size: int) -> Set[str]:
        """The late names that a size depends on."""
        return frozenset()

    def let(self, text: str, low: int = 1, high: int | None = None) -> int:
        """A name for the value of an expression over sizes of the run."""
        raise NotImplementedError

    def tells(self, _node: Node) -> bool:
        """Whether the code of a node tells the late sizes of its results."""
        return False

    def refuse(self, reason: str) -> NoReturn:
        """Give up: there will be no program for this graph."""
        raise NotImplementedError(reason)


class Emitter(ABC):
    """Makes the code of one program for a target.

    inside   the nodes of control flow that the steps at hand are nested in, the innermost last
    """

    target: Target
    inside: list[Node]

    @abstractmethod
    def kernels(self, step: Step, name: str) -> list[Kernel] | None:
        """Make the kernels of a step, with names that begin with `name`. None if it has none: its
        node is then called in Python. A step of control flow has the plans of its nested graphs;
        the scratch memory of its kernel must have room for them."""

    @abstractmethod
    def emit(self, plan: ProgramPlan) -> Any:
        """The program of a plan, from the kernels that were made for it."""
