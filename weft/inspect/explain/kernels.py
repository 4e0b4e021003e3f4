"""The kernels of a program: what each computes and why, and its code with the user's lines."""

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
    """One step of a native program. Made by `compiled.kernels()`.

    number   which one it is: "3"; in control flow, "3.1.0" is the first of graph 1 of step 3
    name     the name of its function; of its first, where it has several
    kind     loop, product, attention, kernel, control, call: see docs/native.md
    """

    def __init__(self, number: str, step: Step, code: MachineCode, before: Set[Node]) -> None:
        self.number = number
        self.step = step
        self.kind = step.kind
        self.functions = [kernel.name for kernel in step.kernels if kernel.name]
        self.name = self.functions[0] if self.functions else f"{self.kind}.{step.nodes[0].op.name}"
        self._code = code
        self._before = before  # what kernels before it compute, too

    @property
    def nodes(self) -> list[Node]:
        return self.step.nodes

    @property
    def ops(self) -> list[str]:
        """The names of its ops, in order."""
        return [node.op.name for node in self.step.nodes]

    @property
    def locations(self) -> list[SourceLocation]:
        """The user's lines that it computes, each once."""
        found = dict.fromkeys(node.location for node in self.step.nodes)
        return [location for location in found if location is not None]

    @property
    def lines(self) -> list[str]:
        """Those lines as text: model.py:12  y = x @ w"""
        return list(dict.fromkeys(f"{at.short}  {at.text}".rstrip() for at in self.locations))

    @cached_property
    def work(self) -> Work:
        return self.step.work()

    @property
    def flops(self) -> int:
        """Estimated from the cards of its ops."""
        return int(self.work.flops)

    @property
    def bytes(self) -> int:
        """Of the buffers that it reads and writes."""
        return int(self.work.bytes)

    @property
    def itemsize(self) -> int:
        """Of the elements that most of its arithmetic is on."""
        kinds = [value.type for node in self.step.nodes for value in (*node.outputs, *node.inputs)]
        sizes = [
            k.dtype.itemsize for k in kinds if isinstance(k, TensorType) and k.dtype.kind == "float"
        ]
        return max(sizes, key=sizes.count) if sizes else 4

    @property
    def parallel(self) -> bool:
        """Whether the pool of threads is asked to share the work."""
        return self.step.parallel

    @cached_property
    def reasons(self) -> list[tuple[Node, str, bool]]:
        """Why each of its ops is here, and whether it joined others and is used nowhere else."""
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
        """The LLVM IR as it was written, each part below the line of yours that it is for."""
        return self._listed(";", self._code.llvm)

    @property
    def optimized_llvm(self) -> str:
        """The same after LLVM's passes."""
        return self._listed(";", lambda name: self._code.llvm(name, after_passes=True))

    @property
    def assembly(self) -> str:
        """The machine code, each part below the line of yours that it is for."""
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
    """The kernels of a program in the order in which they run, those of nested graphs too."""
    found: list[KernelView] = []
    seen: frozenset[Node] = frozenset()
    for number, step in code.plan.numbered():
        found.append(KernelView(number, step, code, seen))
        seen |= set(step.nodes)
    return found
