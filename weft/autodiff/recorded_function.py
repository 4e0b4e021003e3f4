"""A call of a `Function` in a recorded graph: one node whose derivative is the author's backward.

The ops of its forward stand in the graph before it, cut off from gradients; the node gives their
results on, and the tape's rule for it calls `backward` with what `forward` saved. So a graph that
holds such a call can be differentiated when it is run, and inside of branches and loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.autodiff.node import as_array, data_of
from weft.base.errors import ShapeError
from weft.core.bind import bind
from weft.core.grad_mode import no_grad
from weft.core.tensor import Tensor, labelled, wrap
from weft.ir.op import OPS, Op, Trait
from weft.ops.batching import looped
from weft.ops.creation import zeros
from weft.ops.effects import Same, value_key

ARGUMENT, RESULT = "argument", "result"


class Saved:
    """The context of a backward that is run from a graph."""

    def __init__(self, call: FunctionCall, tensors: tuple[Any, ...]) -> None:
        self.__dict__.update(call.attributes)
        self.needs_input_grad = call.needs
        self.saved_tensors = tensors


class FunctionCall(Same):
    """What is known of a call besides its tensors.

    places      where among the arguments of `forward` its tensors stand
    saved       for each saved tensor whether it is an input of the node or a result, and which
    """

    def __init__(
        self,
        name: str,
        backward: Callable[..., Any],
        attributes: dict[str, Any],
        needs: tuple[bool, ...],
        places: tuple[int, ...],
        results: int,
        saved: tuple[tuple[str, int] | None, ...],
        materialize: bool,
        tensor_class: type[Tensor],
    ) -> None:
        noted = value_key(tuple(attributes.items()))
        super().__init__(
            name,
            value_key(backward),
            noted,
            needs,
            places,
            results,
            saved,
            materialize,
            tensor_class,
        )
        self.name = name
        self.backward = backward
        self.attributes = attributes
        self.needs = needs
        self.places = places
        self.results = results
        self.saved = saved
        self.materialize = materialize
        self.tensor_class = tensor_class
        self._last: tuple[Any, Sequence[Any]] | None = None

    def __repr__(self) -> str:
        return f"<Function {self.name}>"

    def gradients(self, g: Any, out: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        """One gradient per argument. The rule of each input asks, and it is computed once."""
        last = self._last
        if last is not None and last[0] is g:
            return last[1]
        cotangents = g if isinstance(g, tuple) else (g,)
        outs = out if isinstance(out, tuple) else (out,)
        tensors = tuple(
            None
            if entry is None
            else _tensor(outs[entry[1]] if entry[0] == RESULT else inputs[entry[1]])
            for entry in self.saved
        )
        grads = [
            self._given(part, _tensor(result))
            for part, result in zip(cotangents, outs, strict=True)
        ]
        labelled([*tensors, *grads], self.tensor_class)
        results = self.backward(Saved(self, tensors), *grads)
        parts = list(results) if isinstance(results, (tuple, list)) else [results]
        if len(parts) != len(self.needs):
            raise ShapeError(
                f"backward returned {len(parts)} gradients for {len(self.needs)} inputs",
                op=f"{self.name}Backward",
                hint="return one for each argument of forward; None for those without",
            )
        self._last = (g, parts)
        return parts

    def _given(self, part: Any, result: Tensor) -> Any:
        if part is not None:
            return _tensor(part)
        if not self.materialize:
            return None
        return zeros(result.shape, dtype=result.dtype, device=result.device)


def _tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else wrap(as_array(value))


def _rule(number: int, xp: Any, g: Any, out: Any, *inputs: Any, call: FunctionCall) -> Any:
    """The derivative with respect to one input; what is no argument gets none."""
    if number >= len(call.places):
        return None
    first = g if not isinstance(g, tuple) else next(part for part in g if part is not None)
    if isinstance(first, Tensor):
        return call.gradients(g, out, inputs)[call.places[number]]
    with no_grad():
        return data_of(call.gradients(g, out, inputs)[call.places[number]])


def _evaluate(_xp: Any, *values: Any, call: FunctionCall) -> Any:
    first = len(call.places)
    results = tuple(values[first : first + call.results])
    return results if call.results > 1 else results[0]


def _types(*values: Any, call: FunctionCall) -> Any:
    return _evaluate(None, *values, call=call)


def _card(results: int) -> Op:
    """One card for each number of results."""
    name = f"function_{results}"
    return OPS.get(name) or Op(
        name,
        _types,
        _evaluate,
        outputs=results,
        vjp=(_rule,),
        batch=looped,
        traits=Trait.ANYWHERE | Trait.PYTHON,
    )


_card(1)


def record_call(
    name: str,
    backward: Callable[..., Any],
    context: Any,
    args: Sequence[Any],
    outputs: Sequence[Any],
) -> tuple[Any, ...]:
    """The results of a call as results of one node of the graph that is being recorded."""
    places = tuple([i for i, arg in enumerate(args) if isinstance(arg, Tensor)])
    tensors = [args[i] for i in places]
    results = [out for out in outputs if isinstance(out, Tensor)]
    others: list[Tensor] = []
    saved: list[tuple[str, int] | None] = []
    for tensor in context._given:
        if tensor is None:
            saved.append(None)
        elif (at := _index(results, tensor)) is not None:
            saved.append((RESULT, at))
        elif (at := _index(tensors, tensor)) is not None:
            saved.append((ARGUMENT, at))
        else:
            saved.append((ARGUMENT, len(tensors) + len(results) + len(others)))
            others.append(tensor)
    call = FunctionCall(
        name,
        backward,
        {key: value for key, value in vars(context).items() if not key.startswith("_")},
        context.needs_input_grad,
        places,
        len(results),
        tuple(saved),
        context._materialize,
        context._class,
    )
    made = bind(_card(len(results)), *tensors, *results, *others, call=call)
    given = iter(made if isinstance(made, tuple) else (made,))
    linked: list[Any] = []
    for out in outputs:
        new = next(given) if isinstance(out, Tensor) else out
        constant = any(out is marked for marked in context._constant)
        linked.append(out if constant else new)
    return tuple(linked)


def _index(tensors: Sequence[Tensor], tensor: Tensor) -> int | None:
    return next((i for i, other in enumerate(tensors) if other is tensor), None)
