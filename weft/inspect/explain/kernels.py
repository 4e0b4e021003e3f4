"""The kernels of a program: their ops, the reasons for them, and their code."""

from __future__ import annotations

from collections.abc import Callable, Set
from functools import cached_property

from weft.base.source import SourceLocation
from weft.ir.graph import Node, Value
from weft.ir.types import TensorType
from weft.runtime.machine_code import MachineCode
from weft.schedule.plan import Step, Work

__all__ = ["KernelView", "kernels_of"]


class KernelView:
    """One step of a native program, from `compiled.kernels()`.

    number   "3"; in control flow, "3.1.0" is step 0 of graph 1 of step 3
    name     the name of its function; if it has several, of the first
    kind     loop, product, attention, kernel, control, call: see docs/native.md
    """

    def __init__(self, number: str, step: Step, code: MachineCode, before: Set[Node]) -> None:
        self.number = number
        self.step = step
        self.kind = step.kind
        self.functions = [kernel.name for kernel in step.kernels if kernel.name]
        self.name = self.functions[0] if self.functions else f"{self.kind}.{step.nodes[0].op.name}"
        self._code = code
        self._before = before  # nodes that earlier kernels compute, too

    @property
    def nodes(self) -> list[Node]:
        return self.step.nodes

    @property
    def ops(self) -> list[str]:
        """The names of its ops, in order."""
        return [node.op.name for node in self.step.nodes]

    @property
    def locations(self) -> list[SourceLocation]:
        """The user's lines that it computes."""
        found = dict.fromkeys(node.location for node in self.step.nodes)
        return [location for location in found if location is not None]

    @property
    def lines(self) -> list[str]:
        """The same lines as text: model.py:12  y = x @ w"""
        return list(dict.fromkeys(f"{at.short}  {at.text}".rstrip() for at in self.locations))

    @cached_property
    def work(self) -> Work:
        return self.step.work()

    @property
    def flops(self) -> int:
        """The number of operations, estimated from the cards of its ops."""
        return int(self.work.flops)

    @property
    def bytes(self) -> int:
        """The size of the buffers that it reads and writes."""
        return int(self.work.bytes)

    @property
    def itemsize(self) -> int:
        """The most common element size of its floating-point values."""
        kinds = [value.type for node in self.step.nodes for value in (*node.outputs, *node.inputs)]
        sizes = [
            k.dtype.itemsize for k in kinds if isinstance(k, TensorType) and k.dtype.kind == "float"
        ]
        return max(sizes, key=sizes.count) if sizes else 4

    @property
    def parallel(self) -> bool:
        """Whether it runs on the thread pool."""
        return self.step.parallel

    @cached_property
    def reasons(self) -> list[tuple[Node, str, bool]]:
        """For each of its ops, why it is here, and whether it was fused into this kernel only."""
        return self.step.reasons(self.number, self._before)

    @property
    def why(self) -> list[tuple[Node, str]]:
        """Why each of its ops is here."""
        return [(node, text) for node, text, _ in self.reasons]

    @property
    def reads(self) -> dict[Value, int]:
        return self.step.reads()

    # --- code ---------------------------------------------------------------------------------

    @property
    def llvm(self) -> str:
        """The generated LLVM IR, each part below the source line that it implements."""
        return self._listed(";", self._code.llvm)

    @property
    def optimized_llvm(self) -> str:
        """The same after LLVM's passes."""
        return self._listed(";", lambda name: self._code.llvm(name, after_passes=True))

    @property
    def assembly(self) -> str:
        """The assembly, each part below the source line that it implements."""
        return self._listed("#", self._code.assembly)

    def _listed(self, sign: str, listing: Callable[[str], str]) -> str:
        head = [f"{sign} kernel {self.number}, {self.kind}: {' '.join(self.ops)}"]
        head += [f"{sign}   {line}" for line in self.lines]
        if not self.functions:
            head.append(f"{sign} it has no function of its own: {self.why[0][1]}")
        return "\n".join([*head, *[listing(name) for name in self.functions]]) + "\n"

    def __repr__(self) -> str:
        return f"<kernel {self.number} {self.name}: {' '.join(self.ops)}>"


def kernels_of(code: MachineCode) -> list[KernelView]:
    """The kernels of a program in execution order, including those of nested graphs."""
    found: list[KernelView] = []
    seen: frozenset[Node] = frozenset()
    for number, step in code.plan.numbered():
        found.append(KernelView(number, step, code, seen))
        seen |= set(step.nodes)
    return found
