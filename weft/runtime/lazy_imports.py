"""Modules that generate and run machine code, imported when they are first needed.

Programs that only run eagerly do not wait for them at `import weft`, and programs whose code is in
the cache do not load the generators.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.runtime.executable import Program

if TYPE_CHECKING:
    from weft.runtime.machine_code import MachineCode

__all__ = ["checked_program", "code_maker", "dataflow", "generators", "machine_code", "make_ready"]
__all__ += ["sharded", "split", "spread_calls"]


@functools.cache
def code_maker() -> Callable[..., Program]:
    """`weft.runtime.native.native`."""
    made: Callable[..., Program] = importlib.import_module("weft.runtime.native").native
    return made


def dataflow() -> Any:
    """The module `weft.runtime.dataflow.program`."""
    return importlib.import_module("weft.runtime.dataflow.program")


def split() -> Any:
    """The module `weft.runtime.split.program`."""
    return importlib.import_module("weft.runtime.split.program")


def sharded() -> Any:
    """The module `weft.runtime.sharded`."""
    return importlib.import_module("weft.runtime.sharded")


def spread_calls() -> Any:
    """The module `weft.runtime.spread_calls`."""
    return importlib.import_module("weft.runtime.spread_calls")


def machine_code(program: Any) -> MachineCode:
    """`weft.runtime.machine_code.MachineCode` of a program."""
    made: MachineCode = importlib.import_module("weft.runtime.machine_code").MachineCode(program)
    return made


def checked_program() -> Any:
    """The class `weft.runtime.checked.CheckedProgram`."""
    return importlib.import_module("weft.runtime.checked").CheckedProgram


@functools.cache
def gpu_programs() -> Any:
    """The module `weft.runtime.cuda.program`."""
    return importlib.import_module("weft.runtime.cuda.program")


@functools.cache
def generators() -> Any:
    """The module `weft.runtime.generate`."""
    return importlib.import_module("weft.runtime.generate")


def make_ready(compiles: bool) -> None:
    """`weft.runtime.native.make_ready`."""
    importlib.import_module("weft.runtime.native").make_ready(compiles)
