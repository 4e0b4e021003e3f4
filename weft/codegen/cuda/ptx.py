"""LLVM IR to PTX, by LLVM's NVPTX target; the driver compiles PTX for its GPU."""

from __future__ import annotations

import re

from weft.base.locks import process_lock
from weft.codegen import llvm
from weft.codegen.cuda.machine import GpuMachine
from weft.codegen.llvm_passes import run_passes

__all__ = ["ptx"]

TRIPLE = "nvptx64-nvidia-cuda"
#: Functions that kernels call: in registers, constants cost nothing, and calls much.
_HELPER = re.compile(r"^(define internal .*\)) nounwind( noinline)?", re.MULTILINE)
_lock = process_lock()


def ptx(text: str, machine: GpuMachine) -> str:
    """The PTX of a module."""
    with _lock:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        target = llvm.Target.from_triple(TRIPLE)
        made = target.create_target_machine(cpu=machine.arch, features="+ptx70", opt=3)
        text = _HELPER.sub(r"\1 nounwind alwaysinline", text)
        module = llvm.parse_assembly(f'target triple = "{TRIPLE}"\n{text}')
        module.verify()
        run_passes(module, made)
        found: str = made.emit_assembly(module)
        return found
