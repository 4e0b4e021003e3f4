"""The machine code of a program, for tools: reports, profiles, comparisons."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from weft.codegen.debug import DebugModule
from weft.codegen.listing import assembly_of, llvm_of
from weft.codegen.machine import host
from weft.runtime.kernels import Kernels
from weft.runtime.timed import TimedProgram
from weft.schedule.plan import GraphPlan

if TYPE_CHECKING:
    from weft.runtime.native import NativeProgram

__all__ = ["MachineCode"]


class MachineCode:
    """
    seconds    the time to generate the code, to compile it, and to load it
    in_place   pairs of an output and the input that it is written over
    """

    def __init__(self, program: NativeProgram) -> None:
        self._program = program
        self.seconds = program.seconds
        self.in_place = program.in_place

    @cached_property
    def plan(self) -> GraphPlan:
        """The steps that run, and the places of values in memory."""
        return self._program.generate()[1].root

    @cached_property
    def _text(self) -> str:
        """The module, generated again with debug information."""
        return self._program.generate(DebugModule(host()))[0].module.text()

    def llvm(self, function: str, *, after_passes: bool = False) -> str:
        """The LLVM IR of one function, with the user's lines."""
        return llvm_of(self._text, function, host(), after_passes=after_passes)

    def assembly(self, function: str) -> str:
        """The assembly of one function, with the user's lines."""
        return assembly_of(self._text, function, host())

    def timed(self) -> TimedProgram:
        """The same program, compiled again with a clock around each kernel."""
        return TimedProgram(self._program.graph, dict(self.in_place))

    def kernels(self) -> Kernels:
        """The kernels of the program, compiled again so that they can be called one by one."""
        return Kernels(self._program)
