"""Calls with a derivative that their author gave (`weft.Function`), under transforms.

Such a call is one step on each level: the backward that its author wrote is the derivative there,
not the ops that its forward happens to be made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.autodiff.call import link
from weft.autodiff.node import given_data
from weft.autodiff.recorded_function import record_call
from weft.autodiff.transforms.history import twin
from weft.autodiff.transforms.levels import innermost_level
from weft.core import bind as binding
from weft.core.bind import recorder
from weft.core.grad_mode import mode, no_grad
from weft.core.tensor import Tensor, result_class_of, wrap

__all__: list[str] = []

Tensors = Sequence[Tensor]
MaybeTensors = Sequence[Tensor | None]


class CustomCall:
    """One such call on one level.

    inputs     the tensors among its arguments
    forward    () -> results, and what is saved for the backward
    backward   (saved, cotangents of the results) -> cotangents of the inputs, None for zero
    constant   whether a result, by its number, passes no gradient
    """

    def __init__(
        self,
        name: str,
        inputs: Tensors,
        forward: Callable[[], tuple[list[Tensor], list[Tensor | None]]],
        backward: Callable[[MaybeTensors, Tensors], MaybeTensors],
        constant: Callable[[int], bool],
    ) -> None:
        self.name = name
        self.inputs = inputs
        self.forward = forward
        self.backward = backward
        self.constant = constant

    def link(self, results: Tensors, saved: MaybeTensors) -> None:
        """Give results their history on this level."""
        for out in results:
            out._node = None
        if not mode.enabled or all(x._node is None for x in self.inputs):
            return
        kept: list[Tensor | None] = []

        def backward(cotangents: Tensors) -> MaybeTensors:
            found = self.backward(kept, cotangents)
            return [None if g is None else _recorded(g) for g in found]

        link(self.name, self.inputs, results, backward, backward)
        for i, out in enumerate(results):
            if self.passes_nothing(i, out):
                out._node = None
        kept += [None if x is None else twin(x) for x in saved]  # with the histories of results

    def passes_nothing(self, number: int, out: Tensor) -> bool:
        return self.constant(number) or out._data.dtype.kind in "biu"


def _recorded(g: Tensor) -> Tensor:
    """While someone records, a tensor of theirs."""
    data = given_data(g)
    if data is g._data:
        return g
    made = wrap(data, g)
    made._node = g._node
    return made


def call_custom(call: CustomCall) -> list[Tensor]:
    """Run such a call on this level: its results."""
    if innermost_level() is not None:
        found: list[Tensor] = binding._tell("custom", call)
        return found
    with no_grad():
        results, saved = call.forward()
    if recorder() is not None and mode.enabled and any(x._node is not None for x in call.inputs):
        return _recorded_call(call, results, saved)
    call.link(results, saved)
    return results


class _Kept:
    """What `record_call` reads of a Function's context."""

    _materialize = True

    def __init__(self, call: CustomCall, results: Tensors, saved: MaybeTensors) -> None:
        self.needs_input_grad = (True,) * len(call.inputs)
        self._given = saved
        self._class = result_class_of(call.inputs)
        self._constant = [out for i, out in enumerate(results) if call.passes_nothing(i, out)]


def _recorded_call(call: CustomCall, results: Tensors, saved: MaybeTensors) -> list[Tensor]:
    """The call as one node of the graph that is being recorded below all levels."""

    def backward(context: Any, *cotangents: Tensor) -> MaybeTensors:
        return call.backward(context.saved_tensors, cotangents)

    context = _Kept(call, results, saved)
    return list(record_call(call.name, backward, context, call.inputs, results))
