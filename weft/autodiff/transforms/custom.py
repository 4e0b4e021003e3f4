"""Calls with a derivative that their author gave (`weft.Function`), under transforms.

Such a call is one step on each level: the backward that its author wrote is the derivative there,
not the ops that its forward happens to be made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.autodiff.call import link
from weft.autodiff.node import given_data
from weft.autodiff.transforms.levels import innermost_level
from weft.core import bind as binding
from weft.core.grad_mode import mode, no_grad
from weft.core.tensor import Tensor, wrap

__all__: list[str] = []


class CustomCall:
    """One such call on one level.

    inputs     the tensors among its arguments
    forward    inputs -> results
    backward   cotangents of the results -> those of the inputs, None for zero
    constant   whether a result, by its number, passes no gradient
    """

    def __init__(
        self,
        name: str,
        inputs: Sequence[Tensor],
        forward: Callable[[Sequence[Tensor]], list[Tensor]],
        backward: Callable[[Sequence[Tensor]], Sequence[Tensor | None]],
        constant: Callable[[int], bool],
    ) -> None:
        self.name = name
        self.inputs = inputs
        self.forward = forward
        self.backward = backward
        self.constant = constant

    def link(self, results: Sequence[Tensor]) -> None:
        """Give results their history on this level."""
        for out in results:
            out._node = None
        if not mode.enabled or all(x._node is None for x in self.inputs):
            return
        link(self.name, self.inputs, results, self._backward, self._backward)
        for i, out in enumerate(results):
            if self.constant(i) or out._data.dtype.kind in "biu":
                out._node = None

    def _backward(self, cotangents: Sequence[Tensor]) -> Sequence[Tensor | None]:
        """While someone records, gradients are tensors of theirs."""
        return [None if g is None else _recorded(g) for g in self.backward(cotangents)]


def _recorded(g: Tensor) -> Tensor:
    data = given_data(g)
    if data is g._data:
        return g
    made = wrap(data)
    made._node = g._node
    return made


def call_custom(call: CustomCall) -> list[Tensor]:
    """Run such a call on this level."""
    if innermost_level() is not None:
        found: list[Tensor] = binding._tell("custom", call)
        return found
    with no_grad():
        results = call.forward(call.inputs)
    call.link(results)
    return results
