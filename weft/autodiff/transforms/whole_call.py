"""A call for all elements of a `vmap` at once, of a function that is known for all of them.

For compiled functions inside of `vmap`: what they are for all elements is compiled, too, and one
call of that does the work. It is one step on the level of the `vmap`, as in vmap(grad(f)): elements
have nothing to do with each other, so the gradient for each of them is that of the whole call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.autodiff.call import link
from weft.autodiff.node import Barrier
from weft.autodiff.transforms.history import twin
from weft.autodiff.transforms.levels import left
from weft.autodiff.transforms.reverse import vjp
from weft.autodiff.transforms.tangents import is_float
from weft.autodiff.transforms.vmap import Mapping
from weft.core.grad_mode import mode, set_grad_enabled
from weft.core.tensor import Tensor, wrap
from weft.ops.creation import zeros

__all__: list[str] = []

#: Of all elements: from inputs to results, which all have the axis of the elements first.
Whole = Callable[[Sequence[Tensor]], list[Tensor]]


class _Captured(Barrier):
    """Where a history on the level would reach tensors that the function uses by itself."""

    __slots__ = ()

    message = (
        "a backward inside of vmap reaches a tensor that a compiled function uses and does not take"
    )
    hint = "hand it to the function as an argument, or go backward outside of vmap"


def call_whole(
    level: Mapping, whole: Whole, inputs: Sequence[Tensor], spread: Sequence[bool]
) -> list[Tensor]:
    """The results on the level; `spread` says which inputs have the axis of the elements."""
    if level.region is not None:
        with left(level):
            inputs = [level.region.entered(x) for x in inputs]
    enabled = mode.enabled
    given = [twin(x) for x in inputs]
    level.lower_states()
    with left(level), set_grad_enabled(enabled and level.linked):
        below = [
            level.whole(x) if on else level.below(x) for x, on in zip(given, spread, strict=True)
        ]
        results = whole(below)
    made = [level.element(y, True) for y in results]
    if enabled:
        _give_history(level, whole, given, spread, made)
    return made


def spreads(level: Mapping, x: Tensor) -> bool:
    """Whether an input needs the axis of the elements: it differs, or its gradient may."""
    return level.mapped(x) or (mode.enabled and _moves(level, x))


def _moves(level: Mapping, x: Tensor) -> bool:
    return is_float(x) and level.has(x) and x._node is not None


def _give_history(
    level: Mapping,
    whole: Whole,
    inputs: Sequence[Tensor],
    spread: Sequence[bool],
    results: Sequence[Tensor],
) -> None:
    moving = [i for i, x in enumerate(inputs) if _moves(level, x)]
    outs = [i for i, y in enumerate(results) if is_float(y)]
    if not outs:
        return
    behind = [level.below(results[i])._node for i in outs]
    captured = wrap(results[outs[0]]._data)
    captured._node = _Captured((), [node for node in behind if node is not None])
    if not moving and not captured._node.edges:
        return

    def pulled(given: Sequence[Tensor]) -> list[Tensor]:
        """From inputs and the cotangents of results to the cotangents of inputs."""
        primals, cotangents = list(given[: len(inputs)]), list(given[len(inputs) :])

        def of_moving(*some: Tensor) -> list[Tensor]:
            taken = list(primals)
            for i, x in zip(moving, some, strict=True):
                taken[i] = x
            found = whole(taken)
            return [found[i] for i in outs]

        return list(vjp(of_moving, *[primals[i] for i in moving])[1](cotangents))

    def backward(cotangents: Sequence[Tensor]) -> list[Tensor | None]:
        found: list[Tensor | None] = []
        if moving:
            given = [*inputs, *cotangents]
            found += call_whole(level, pulled, given, [*spread, *[True] * len(outs)])
        return [*found, zeros((), dtype=cotangents[0].dtype)]

    sources = [*[inputs[i] for i in moving], captured]
    link("Compiled", sources, [results[i] for i in outs], backward, backward)
