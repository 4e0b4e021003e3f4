"""The kernels of a program: what each computes and why, and its code with the user's lines."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from weft.base.source import SourceLocation
from weft.codegen.debug import DebugModule
from weft.codegen.launch import WORTH_THREADS
from weft.codegen.listing import assembly_of, llvm_of, source_lines
from weft.codegen.machine import host
from weft.codegen.scheduled import numbered
from weft.codegen.steps import GraphCode, Step
from weft.ir.graph import Node, Value
from weft.ir.types import TensorType
from weft.runtime.native import NativeProgram
from weft.runtime.specialized import SpecializedProgram
from weft.schedule.reasons import AGAIN, FLOATS, Why, said

__all__ = ["KernelView", "kernels_of", "native_of"]


class KernelView:
    """One step of a native program. Made by `compiled.kernels()`.

    number   which one it is: "3"; in control flow, "3.1.0" is the first of graph 1 of step 3
    name     the name of its function; of its first, where it has several
    kind     loop, product, attention, kernel, control, call: see docs/native.md
    """

    def __init__(
        self, number: str, step: Step, text: Callable[[], str], again: frozenset[Node]
    ) -> None:
        self.number = number
        self._again = again  # what a kernel before it has computed already
        self.step = step
        self.kind = step.kind
        self.functions = [kernel.name for kernel in step.kernels if kernel.name]
        self.name = self.functions[0] if self.functions else f"{self.kind}.{step.nodes[0].op.name}"
        self._text = text

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
        return source_lines(self.locations)

    @cached_property
    def work(self) -> Any:
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
        sizes = [k.dtype.itemsize for k in kinds if isinstance(k, TensorType) and is_real(k)]
        return max(sizes, key=sizes.count) if sizes else 4

    @property
    def parallel(self) -> bool:
        """Whether the pool of threads is asked to share the work."""
        return any(k.items > 1 and k.items * k.cost >= WORTH_THREADS for k in self.step.kernels)

    @property
    def why(self) -> list[tuple[Node, str]]:
        """Why each of its ops is here."""
        prefix = self.number[: len(self.number) - len(self.number.rpartition(".")[2])]
        group = self.step.group
        return [(node, said(node, group, self._reason(node), prefix)) for node in self.step.nodes]

    def _reason(self, node: Node) -> Why | None:
        found: Why | None = self.step.why.get(node)
        return AGAIN if node in self._again and found is not FLOATS else found

    @property
    def joined(self) -> list[bool]:
        """Of each of its ops, whether it came to others and was wanted nowhere else."""
        known = [self._reason(node) for node in self.step.nodes]
        return [i > 0 and (why is None or why[1] is None) for i, why in enumerate(known)]

    @property
    def reads(self) -> dict[Value, int]:
        return self.step.reads()

    # --- code ---------------------------------------------------------------------------------

    @property
    def llvm(self) -> str:
        """The LLVM IR as it was written, each part below the line of yours that it is for."""
        return self._listed(";", lambda name: llvm_of(self._text(), name, host()))

    @property
    def optimized_llvm(self) -> str:
        """The same after LLVM's passes."""
        return self._listed(
            ";", lambda name: llvm_of(self._text(), name, host(), after_passes=True)
        )

    @property
    def assembly(self) -> str:
        """The machine code, each part below the line of yours that it is for."""
        return self._listed("#", lambda name: assembly_of(self._text(), name, host()))

    def _listed(self, sign: str, listing: Callable[[str], str]) -> str:
        head = [f"{sign} kernel {self.number}, {self.kind}: {' '.join(self.ops)}"]
        head += [f"{sign}   {line}" for line in self.lines]
        if not self.functions:
            head.append(f"{sign} it has no function of its own: {self.why[0][1]}")
        return "\n".join([*head, *[listing(name) for name in self.functions]]) + "\n"

    def __repr__(self) -> str:
        return f"<kernel {self.number} {self.name}: {' '.join(self.ops)}>"


def is_real(kind: TensorType) -> bool:
    return kind.dtype.kind == "float"


def native_of(executable: Any) -> NativeProgram | None:
    """The machine code of an executable: of several sizes, that of those which were used last."""
    program = getattr(executable, "program", None)
    while isinstance(program, SpecializedProgram):
        made = program.programs
        program = made[-1] if made else None
    return program if isinstance(program, NativeProgram) else None


def kernels_of(program: NativeProgram, code: GraphCode | None = None) -> list[KernelView]:
    """The kernels of a program in the order in which they run, those of nested graphs too."""
    texts: list[str] = []

    def text() -> str:
        """The module once more, with debug information: made when it is first looked at."""
        if not texts:
            texts.append(program.generate(DebugModule(host()))[0].module.text())
        return texts[0]

    code = code or program.generate()[1]
    found: list[KernelView] = []
    seen: set[Node] = set()
    for number, _, step in numbered(code):
        nodes = frozenset(step.nodes)
        found.append(KernelView(number, step, text, nodes & seen))
        seen |= nodes
    return found
