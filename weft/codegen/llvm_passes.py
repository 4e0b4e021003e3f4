"""Which of LLVM's passes run.

Our code is vectorised, unrolled and fused when it is written. What is left to LLVM is to put small
functions in their place, variables into registers, and to tidy up. Figures for 24 row kernels of 12
ops with exp, and for 9 blocked matrix products (Zen 4, LLVM 22, processor time in ms; the kernels
are equally fast, to 1 %, in all rows):

                                    row kernels         products
                                  passes   emit      passes   emit
    speed level 3                    162    154         224    234
    speed level 1                    123    150         185    471
    the passes here                    9     98          10    105
    … and no loop strength reduction   9     69          10     58

Reading the text takes 3 ms, verifying it 0.6 ms; code generation at level 1, 2 or 3 takes the same.

There is no inliner by cost and no pass that moves code out of loops here. So a function that shall
be put in its place says `alwaysinline`; any other is called (and all vector registers are saved
around the call). Pointers are loaded, and what does not change is computed, before the loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft.codegen import llvm

__all__ = ["run_passes", "short_code_generation"]

PASSES = (
    "always_inliner",
    "global_dead_code_eliminate",
    "sroa",
    "simplify_cfg",
    "instruction_combine",
)
#: LLVM aborts on unknown options: use it only with versions that are known to have it.
NEWEST_KNOWN = 22


def run_passes(module: Any, machine: Any) -> None:
    """Change a module in place."""
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(machine, options)
    manager = llvm.create_new_module_pass_manager()
    for name in PASSES:
        getattr(manager, f"add_{name}_pass")()
    llvm.unlocked("LLVMPY_RunNewModulePassManager")(manager, module, builder)


#: By architecture: options of the process before and after code is made.
_OPTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "x86_64": (
        ("-disable-lsr", "-disable-post-ra"),
        ("-disable-lsr=false", "-disable-post-ra=false"),
    ),
    "wasm32": ((), ("-min-jump-table-entries=4",)),
}


@contextmanager
def short_code_generation(triple: str) -> Iterator[None]:
    """Code generation without loop strength reduction, a third of its time, and without a second
    scheduling of instructions after register allocation, a tenth.

    x86 addresses a base with an index for free, which is all that our loops need, and its CPUs
    reorder instructions themselves. The options belong to the process, so they are set back for
    whoever else uses LLVM. LLVM's WebAssembly target sets an option of the process for itself,
    which is set back, too: a switch of native code made later would be another one.
    """
    known = llvm.llvm_version_info[0] <= NEWEST_KNOWN
    before, after = _OPTIONS.get(triple.split("-")[0], ((), ())) if known else ((), ())
    for option in before:
        llvm.set_option("weft", option)
    try:
        yield
    finally:
        for option in after:
            llvm.set_option("weft", option)
