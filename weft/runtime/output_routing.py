"""What becomes of the outputs of a run: some go to inputs, the others back to the caller."""

from __future__ import annotations

from collections.abc import Callable

from weft.core.tensor import Tensor
from weft.ir.signature import OutputRouting

__all__ = ["GRADIENT", "LISTED", "VALUE", "Call", "deliver", "role"]

#: What becomes of an output: it is in the list that is given back, or it is the new value or the
#: gradient of an input.
LISTED, VALUE, GRADIENT = 0, 1, 2
#: Inputs -> outputs.
Call = Callable[[list[Tensor]], list[Tensor]]


def role(routing: OutputRouting, output: int) -> tuple[int, int]:
    """What becomes of an output, and the input it goes to; see `native_call`."""
    if output in routing.values:
        return VALUE, routing.values[output]
    if output in routing.gradients:
        return GRADIENT, routing.gradients[output]
    return LISTED, -1


def deliver(routing: OutputRouting, inputs: list[Tensor], outputs: list[Tensor]) -> list[Tensor]:
    """Put outputs where they go: the others."""
    for output, to in routing.values.items():
        inputs[to]._data = outputs[output]._data
    for output, to in routing.gradients.items():
        inputs[to]._grad = outputs[output]
    return [x for i, x in enumerate(outputs) if routing.is_listed(i)] if routing else outputs
