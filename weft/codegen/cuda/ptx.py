"""LLVM IR to PTX, by LLVM's NVPTX target; the driver compiles PTX for its GPU."""

from __future__ import annotations

import functools
import os
import re
from typing import Any

from weft.base.locks import process_lock
from weft.codegen import llvm
from weft.codegen.cuda.machine import GpuMachine
from weft.codegen.jit import at_once, emit, passed
from weft.codegen.split import split

__all__ = ["ptx", "ptx_parts"]

TRIPLE = "nvptx64-nvidia-cuda"
#: Functions that kernels call: in registers, constants cost nothing, and calls much.
_HELPER = re.compile(r"^(define internal .*\)) nounwind( noinline)?", re.MULTILINE)
#: Characters of a text that are compiled in a thread of its own, and the most threads.
PART, MOST_PARTS = 20_000, 12
_lock = process_lock()


def ptx(text: str, machine: GpuMachine) -> str:
    """The PTX of a module."""
    return _compiled([_inlined(text)], machine)[0]


def ptx_parts(text: str, machine: GpuMachine) -> list[str]:
    """The PTX of a module as several modules, which are compiled at the same time."""
    most = min(MOST_PARTS, os.cpu_count() or 1, 1 + len(text) // PART)
    return _compiled(split(_inlined(text), most), machine)


def _inlined(text: str) -> str:
    return _HELPER.sub(r"\1 nounwind alwaysinline", text)


def _compiled(texts: list[str], machine: GpuMachine) -> list[str]:
    with _lock:
        targets = [_target(machine.arch, number) for number in range(len(texts))]

        def make(text: str, target: Any) -> bytes:
            with passed(f'target triple = "{TRIPLE}"\n{text}', target) as module:
                return emit(target, module, assembly=True)

        pairs = zip(texts, targets, strict=True)
        made = at_once([functools.partial(make, text, target) for text, target in pairs])
    return [part.decode() for part in made]


@functools.cache
def _target(arch: str, _number: int) -> Any:
    """An LLVM target machine; each can serve one thread at a time."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    features = "+ptx80" if arch.startswith("sm_90") else "+ptx70"
    target = llvm.Target.from_triple(TRIPLE)
    return target.create_target_machine(cpu=arch, features=features, opt=3)
