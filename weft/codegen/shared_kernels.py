"""One kernel for all equal steps of a program, such as those of equal layers."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from weft.base.config import verifies_plans
from weft.codegen.text import Module
from weft.schedule.group_key import group_key
from weft.schedule.plan import Kernel, Step
from weft.schedule.verify import PlanError

__all__ = ["SharedKernels"]

#: The name of kernels that are written only to be compared.
_TRIAL = "trial.of.kernel"

Write = Callable[[Step, str], list[Kernel] | None]


@dataclass(frozen=True, slots=True)
class _Written:
    """The kernels of equal steps; the name of the first one; the state of the module before it."""

    kernels: list[Kernel] | None
    name: str
    before: tuple[int, int]


class SharedKernels:
    """`write` writes the kernels of a step to the module."""

    def __init__(self, module: Module, write: Write) -> None:
        self._module = module
        self._write = write
        self._found: dict[Hashable, _Written] = {}

    def of(self, step: Step, name: str) -> list[Kernel] | None:
        """The kernels of a step: those of an equal one, else they are written."""
        key = group_key(step.group)
        if key not in self._found:
            before = self._module.state()
            self._found[key] = _Written(self._write(step, name), name, before)
        elif verifies_plans():
            self._verify(step, self._found[key])
        return self._found[key].kernels

    def _verify(self, step: Step, first: _Written) -> None:
        """Raise an error if a step would be written otherwise than the one it is equal to."""
        with self._module.as_it_was(first.before) as written:
            again = self._write(step, _TRIAL)
        same = again and [replace(k, name=k.name.replace(_TRIAL, first.name, 1)) for k in again]
        texts = {
            name.replace(_TRIAL, first.name): text.replace(_TRIAL, first.name)
            for name, text in written.items()
            if name.startswith(_TRIAL)
        }
        if same != first.kernels or texts != {n: self._module.text_of(n) for n in texts}:
            raise PlanError(f"the kernels of a step are not {first.name}: {step.nodes[0]}")
