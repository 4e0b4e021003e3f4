"""From LLVM IR to functions that can be called."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import llvmlite.binding as llvm

from weft.codegen.target import Target, host

__all__ = ["Library", "build"]

_numbers = itertools.count()


class Library:
    """Machine code in memory; it is there for as long as this object is."""

    def __init__(self, tracker: Any) -> None:
        self._tracker = tracker

    def address(self, name: str) -> int:
        return int(self._tracker[name])


@functools.cache
def _machine(target: Target) -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    found = llvm.Target.from_triple(target.triple)
    return found.create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, codemodel="jitdefault", jit=True
    )


@functools.cache
def _jit(target: Target) -> Any:
    return llvm.create_lljit_compiler(_machine(target), use_jit_link=False, suppress_errors=False)


def optimized(text: str, target: Target | None = None, level: int = 3) -> Any:
    """The LLVM module of a text, after LLVM's own passes."""
    machine = _machine(target or host())
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = False
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


def assembly(text: str, target: Target | None = None) -> str:
    target = target or host()
    return str(_machine(target).emit_assembly(optimized(text, target)))


def build(text: str, exports: list[str], target: Target | None = None) -> Library:
    """Machine code of a module's text; the functions named in `exports` can be called."""
    target = target or host()
    code = _machine(target).emit_object(optimized(text, target))
    builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
    for name in exports:
        builder.export_symbol(name)
    return Library(builder.link(_jit(target), f"weft{next(_numbers)}"))
