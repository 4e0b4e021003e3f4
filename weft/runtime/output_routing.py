"""The routing of outputs: some become values or gradients of inputs, others are returned."""

from __future__ import annotations

from collections.abc import Callable

from weft.core.tensor import Tensor
from weft.ir.signature import OutputRouting

__all__ = ["GRADIENT", "LISTED", "VALUE", "Call", "deliver", "role"]

#: The roles of an output: returned to the caller, or the new value or the gradient of an input.
LISTED, VALUE, GRADIENT = 0, 1, 2
#: Inputs -> outputs.
Call = Callable[[list[Tensor]], list[Tensor]]


def role(routing: OutputRouting, output: int) -> tuple[int, int]:
    """The role of an output, and the input that it goes to; see `native_call`."""
    if output in routing.values:
        return VALUE, routing.values[output]
    if output in routing.gradients:
        return GRADIENT, routing.gradients[output]
    return LISTED, -1


def deliver(routing: OutputRouting, inputs: list[Tensor], outputs: list[Tensor]) -> list[Tensor]:
    """Deliver outputs to inputs, and return the other outputs."""
    for output, to in routing.values.items():
        inputs[to]._data = outputs[output]._data
    for output, to in routing.gradients.items():
        inputs[to]._grad = outputs[output]
    return [x for i, x in enumerate(outputs) if routing.is_listed(i)] if routing else outputs
