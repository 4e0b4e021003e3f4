"""Running the table of programs, eagerly and captured."""

from __future__ import annotations

from typing import Any

from programs.compare import Outcome, call
from programs.modes import capture
from programs.table import Call, Program

from weft import nn


def run(program: Program, function: Any, given: Call, second: bool = False) -> Outcome:
    module = getattr(function, "module", function)
    return call(
        getattr(function, "call", function),
        given.args,
        given.kwargs,
        wanted=program.gradients,
        second=second,
        seed=5 if program.random else None,
        module=module if isinstance(module, nn.Module) else None,
    )


class Captured:
    """A captured function beside the one it was made of, whose parameters it has."""

    def __init__(self, mode: str, function: Any) -> None:
        self.module = function
        self.call = capture(mode, function)
