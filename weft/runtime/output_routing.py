"""What becomes of the outputs of a run: some go to inputs, the others back to the caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from weft.core.tensor import Tensor

__all__ = ["GRADIENT", "LISTED", "VALUE", "Call", "OutputRouting"]

#: What becomes of an output: it is in the list that is given back, or it is the new value or the
#: gradient of an input.
LISTED, VALUE, GRADIENT = 0, 1, 2
#: Inputs -> outputs.
Call = Callable[[list[Tensor]], list[Tensor]]


@dataclass(frozen=True, slots=True)
class OutputRouting:
    """Outputs that become the new values of inputs, or their gradients, by their numbers."""

    values: Mapping[int, int] = field(default_factory=dict)
    gradients: Mapping[int, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.values or self.gradients)

    def role(self, output: int) -> tuple[int, int]:
        """What becomes of an output, and the input it goes to; see `native_call`."""
        if output in self.values:
            return VALUE, self.values[output]
        if output in self.gradients:
            return GRADIENT, self.gradients[output]
        return LISTED, -1

    def deliver(self, inputs: list[Tensor], outputs: list[Tensor]) -> list[Tensor]:
        """Put outputs where they go: the others."""
        for output, to in self.values.items():
            inputs[to]._data = outputs[output]._data
        for output, to in self.gradients.items():
            inputs[to]._grad = outputs[output]
        if not self:
            return outputs
        return [x for i, x in enumerate(outputs) if self.role(i)[0] == LISTED]
